//! A QUIC connection that programs use like a TCP socket.
//!
//! | `std::net` | here |
//! |---|---|
//! | `TcpStream::connect(addr)` | [`Stream::connect`], [`Options::connect`] |
//! | `TcpListener::bind(addr)` | [`ListenOptions::bind`], which has certificate and key |
//! | `Read`, `Write`, time limits, `shutdown`, `try_clone` | the same, of [`Stream`] |
//!
//! A [`Stream`] also has the traits of futures (`futures_io`) and Tokio. Servers
//! are verified by default. One stream is the default; [`Connection`] has more,
//! each a byte stream of its own, so that one that waits for lost packets or for
//! its reader holds up no other. Either side may be the first to speak.
//!
//! What TCP does not have is an option: session tickets and early data
//! ([`Options::tickets`], [`Options::early_data`]), TLS over TCP where QUIC does not
//! get through ([`Options::race`]), moves to other addresses
//! ([`Connection::migrate`]; a connection also moves by itself), signs of life
//! ([`Options::keep_alive`]), statistics ([`Connection::stats`]).
//!
//! No socket has a thread: one [`Driver`], a thread of the process, serves all
//! connections that are dialled, and each [`Listener`] has one for those that it
//! accepts. It is the driver of Dunlin's broker and clients. Every buffer has a
//! bound: see [`Limits`].
//!
//! # Examples
//! ```
//! # let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
//! # let (cert, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
//! use dunlin_socket::{ListenOptions, Options, TlsOptions};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let listener = ListenOptions::pem(cert.clone(), key).bind("127.0.0.1:0")?;
//! let port = listener.local_addr().port();
//! let server = async {
//!     let (mut stream, _peer) = listener.accept_async().await?;
//!     // The server speaks first.
//!     stream.write_all(b"220 ready\n").await?;
//!     stream.finish_async().await
//! };
//! let client = async {
//!     let options = Options::new().tls(TlsOptions::new().ca_pem(cert));
//!     let mut stream = options.connect_async(("localhost", port)).await?;
//!     let mut greeting = String::new();
//!     stream.read_to_string(&mut greeting).await?;
//!     assert_eq!(greeting, "220 ready\n");
//!     std::io::Result::Ok(())
//! };
//! tokio::try_join!(server, client)?;
//! # std::io::Result::Ok(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod connection;
mod driver;
mod error;
mod limits;
mod listener;
mod options;
mod pipe;
mod server;
mod shared;
mod stats;
mod stream;
mod wait;

pub use connection::Connection;
pub use driver::{Driver, wait_idle};
pub use dunlin_dial::{NetworkOptions, Race, TicketFile, TlsOptions};
pub use error::Error;
pub use limits::Limits;
pub use listener::{ListenOptions, Listener};
pub use options::{KEEP_ALIVE_DEFAULT, Options, PROTOCOL_DEFAULT};
pub use server::{Server, ToServer};
pub use stats::{EarlyData, Stats};
pub use stream::Stream;

/// The book's page, so that its example is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/quic-sockets.md")]
struct Page;
