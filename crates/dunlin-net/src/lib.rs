//! One event loop for TCP, TLS, WebSocket and QUIC sockets, as used by the
//! broker's shards, the client library and the load generator.
//!
//! It turns sockets into [`dunlin_base::transport::NetEvent`] values and bytes
//! into packets on the wire. It knows no packet format, no session and no
//! store: what the bytes mean is decided above. Connections of QUIC are those
//! of `dunlin-quic`, which this crate gives sockets and timers; what a program
//! needs of it is exported here, so that programs name one crate.
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
//! # Life of a connection
//!
//! - A dialled connection reports `Opened`, or `Closed` and nothing else.
//! - An accepted connection is unknown to the caller until `Opened`; when its
//!   handshake fails that is counted and logged, not reported.
//! - `StreamFinished` on the control stream means that the peer sends no more:
//!   FIN on TCP, close_notify on TLS, a Close frame on WebSocket, the end of
//!   the stream on QUIC. The caller may still send, and then closes. If it
//!   does not, [`NetLimits::half_close_linger`] ends a connection over TCP.
//! - [`Net::close`] lets everything leave first, QUIC data until the peer has
//!   acknowledged it. `Closed` follows: `Peer` if the peer had ended its side
//!   before, else `Local`.
//! - `IdleTimeout` also ends an accepted connection that says nothing within
//!   [`NetLimits::first_bytes_timeout`].
//!
//! # Credit
//!
//! [`Net::send`] always takes all bytes. What left at once is its return
//! value; the rest is announced by `NetEvent::Sent` as it leaves. The two add
//! up to exactly what was given, unless the connection ends first. The caller
//! bounds what it has outstanding; [`NetLimits::backlog_bytes_max`] is the
//! hard cap after which the connection is aborted.
//!
//! # Several loops on one port
//!
//! Each shard makes its own `Net` with the same [`NetKeys`] and number of
//! shards, and listens with [`ListenerConfig::reuse_port`]; port 0 for the
//! first, the port it got for the others. QUIC connection ids tell the shard:
//! what [`Net::poll_foreign`] yields after a `poll` must reach
//! [`Net::handle_foreign`] of the shard it names, whose loop must be woken.
//! One thread may run several loops: see [`NetSet`].
//!
//! Processes with the same keys, [`NetConfig::known`] and numbers from
//! [`NetConfig::first`] on do so as well: [`Net::handle_relayed`] takes what came to
//! another one, and [`Net::poll_answer`] yields what that one is to send, by
//! [`Net::send_answer`], so that the client hears from where it sent to. A datagram for a
//! process that is gone goes to [`Net::handle_foreign`] here, which answers that the
//! connection is not known any more (stateless reset).
//!
//! # Costs
//!
//! `examples/echo.rs` measures them. On a two-core virtual machine: 0.13 us of
//! server CPU per pipelined 64-byte message and direction pair on TCP, 0.15 on
//! TLS, 0.23 on QUIC; an idle connection holds 0.3 KB on TCP, 4.6 KB on TLS
//! and 22 KB on QUIC.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic))]

mod admission;
mod config;
mod error;
pub mod http;
mod limits;
#[cfg(target_os = "linux")]
mod mmsg;
mod net;
mod outbox;
mod port;
pub mod proxy;
mod relay;
mod set;
mod shared;
mod slots;
mod strangers;
mod stream;
mod tcp;
#[cfg(test)]
mod tests;
mod timers;
mod tls;
mod unix;
mod waker;
mod ws;

pub use config::{
    Adopted, Connector, DialConfig, ForeignDatagram, ListenerConfig, NET_SECRET_BYTES, NetConfig,
    NetKeys, OriginCheck, Origins,
};
pub use dunlin_base::{AddrRange, ParseRangeError};
pub use dunlin_quic::{
    AddressTokens, CertName, CidCodec, Cipher, ClientTls, ClientTlsBuilder, Clock, Congestion,
    ConnStats, Counters, DatagramError, Group, KeyLog, LbConfig, LbError, LbId, Qlog, QlogFilter,
    QlogLimits, QlogTotals, QuicStats, QuicTuning, ServerTls, ServerTlsOptions, SessionTickets,
    StrikeId, TICKET_BYTES_MAX, TICKET_KEY_BYTES, TicketChange, TicketKey, TicketLimits,
    TicketRegister, TlsError, TlsPolicy, TuningError, UnknownName, crypto_provider, system_roots,
};
pub use error::{MoveError, NetError};
pub use limits::{NetLimits, RetryMode};
pub use net::{ConnMut, DetachedConn, GATHER_MAX, Held, Move, Net};
pub use relay::{ANSWER_BYTES_MAX, ANSWERS_MAX, Answer};
pub use set::NetSet;
pub use shared::NetShared;
pub use unix::{UnixAccess, UnixSocket};
pub use waker::Waker;
