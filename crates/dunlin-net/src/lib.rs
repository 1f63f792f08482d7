//! One event loop for TCP, TLS, WebSocket and QUIC sockets, as used by the
//! broker's shards, the client library and the load generator.
//!
//! It turns sockets into [`dunlin_base::transport::NetEvent`] values and bytes
//! into packets on the wire. It knows no packet format, no session and no
//! store: what the bytes mean is decided above.
//!
//! # How to drive a [`Net`]
//!
//! ```text
//! loop {
//!     net.poll(timeout, &mut |event| engine.handle(net_now, event))?;
//!     while let Some(output) = engine.poll_output() {
//!         let left = net.send(conn, stream, &mut output.bytes);   // room again, now
//!         engine.handle_sent(conn, left);
//!     }
//!     net.flush();              // QUIC datagrams of all touched connections
//! }
//! ```
//!
//! Nothing is emitted outside [`Net::poll`]. A connection that fails in a
//! command reports its `Closed` in the next `poll`, which then does not wait.
//!
//! # Credit
//!
//! [`Net::send`] always takes all bytes. What left at once is its return
//! value; the rest is announced by `NetEvent::Sent` as it leaves. The two add
//! up to exactly what was given, unless the connection ends first. The caller
//! bounds what it has outstanding; [`NetLimits::backlog_bytes_max`] is the
//! hard cap after which the connection is aborted.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic))]

mod admission;
mod backlog;
mod clock;
mod config;
mod counters;
mod error;
mod net;
mod quic;
mod slots;
mod stream;
mod tcp;
#[cfg(test)]
mod tests;
mod timers;
mod tls;
mod waker;
mod ws;

pub use clock::Clock;
pub use config::{DialConfig, ForeignDatagram, ListenerConfig, NetConfig, NetKeys, NetLimits};
pub use counters::{ConnStats, Counters};
pub use error::NetError;
pub use net::Net;
pub use tls::{ClientTls, ClientTlsBuilder, ServerTls, ServerTlsOptions, TlsError};
pub use waker::Waker;
