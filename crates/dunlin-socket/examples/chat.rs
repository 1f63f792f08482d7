//! A program that knows only `std::net`, over TCP and over QUIC: the same file with
//! another `use`, and another constructor.
//!
//! ```text
//! cargo run -p dunlin-socket --example chat
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]
#![allow(
    clippy::duplicate_mod,
    reason = "that one file serves both is what it shows"
)]

use core::error::Error;
use std::thread;

use dunlin_socket::{ListenOptions, Options, TlsOptions};

#[path = "chat/over_quic.rs"]
mod over_quic;
#[path = "chat/over_tcp.rs"]
mod over_tcp;

type Failure = Box<dyn Error + Send + Sync>;

pub(crate) fn main() -> Result<(), Failure> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let server = thread::spawn(move || over_tcp::serve(&listener, 2));
    let connect = || std::net::TcpStream::connect(addr);
    let first = over_tcp::talk(connect()?, &["one"], 1)?;
    let second = over_tcp::talk(connect()?, &["two"], 1)?;
    println!("TCP:  {first:?} {second:?}");
    let over_tcp = (first, second);
    server.join().map_err(|_| "the server panicked")??;

    let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let (cert, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let listener = ListenOptions::pem(cert.clone(), key).bind("127.0.0.1:0")?;
    let server = ("localhost", listener.local_addr().port());
    let thread = thread::spawn(move || over_quic::serve(&listener, 2));
    let options = Options::new().tls(TlsOptions::new().ca_pem(cert));
    let first = over_quic::talk(options.connect(server)?, &["one"], 1)?;
    let second = over_quic::talk(options.connect(server)?, &["two"], 1)?;
    println!("QUIC: {first:?} {second:?}");
    thread.join().map_err(|_| "the server panicked")??;
    assert_eq!(over_tcp, (first, second));
    Ok(())
}
