//! QUIC for a loop that owns the sockets: connections, endpoints, connection
//! ids, session tickets, early data and qlog, around quinn-proto, which is
//! named in this crate only. It binds no socket and waits for nothing: time,
//! datagrams and buffers are arguments ([`datagram`]), and what happens is
//! reported as events of [`dunlin_base::transport`].
//!
//! It is the lower of the two transport crates, so what both use is here:
//! [`Clock`], [`Counters`] with the statistics of connections, [`Backlog`], and
//! the TLS settings [`ServerTls`] and [`ClientTls`], one value of which serves
//! QUIC and TCP. Programs import all of it from `dunlin-net`.
//!
//! # How to drive it
//!
//! ```text
//! datagram ─► QuicEndpoint::handle ─┬─► Conn: QuicConn::on_input, QuicConn::run
//!                                   ├─► New: QuicEndpoint::accept, QuicConn::new
//!                                   └─► Answer: send it
//! commands ─► QuicConn::send, streams(), datagrams(), path()
//! then     ─► QuicConn::exchange, QuicConn::transmit ─► DatagramSender
//! deadline ─► QuicConn::on_timer
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic))]

mod ack_request;
mod allowance;
mod backlog;
mod cid;
mod clock;
mod conn;
#[cfg(test)]
mod corpus;
mod counters;
pub mod datagram;
mod endpoint;
mod error;
mod frames;
mod inspect;
mod lb;
mod limits;
mod qlog;
mod resume;
mod session;
#[cfg(test)]
mod tests;
mod tickets;
mod tls;
mod tokens;
mod tuning;
mod window;

pub use backlog::{Backlog, SLICES_MAX};
pub use cid::CidCodec;
pub use clock::Clock;
pub use conn::{
    AcksMut, BindingMut, Cx, DatagramError, DatagramsMut, Due, EarlyMut, Life, Moves, PathMut,
    PathRef, Probe, QuicConn, Reading, StreamsMut, Transmitted, peer_certificate, peer_parameters,
};
pub use counters::{ConnStats, Counters, QuicStats};
pub use endpoint::{
    Begun, Dial, EndpointKeys, Handle, Handled, Incoming, Input, NotAccepted, Prepared,
    QuicEndpoint, QuicSettings,
};
pub use error::{ConnectError, QuicError};
pub use lb::{LbConfig, LbError, LbId};
pub use limits::QuicLimits;
pub use qlog::{LogMut, Qlog, QlogFilter, QlogLimits, QlogTotals};
pub use resume::{Record, SessionTickets, TICKET_BYTES_MAX};
pub use tickets::{
    Notes, Refusal, StrikeId, TICKET_KEY_BYTES, TicketChange, TicketKey, TicketLimits,
    TicketRegister, Verdict,
};
pub use tls::{
    CertName, Cipher, ClientTls, ClientTlsBuilder, Group, KeyLog, ServerTls, ServerTlsOptions,
    TlsError, TlsPolicy, UnknownName, crypto_provider, describe, end_point, identity, release_keys,
    system_roots,
};
pub use tokens::{AddressTokens, UsedTokens};
pub use tuning::{Congestion, QuicTuning, TuningError};
