//! The client session engine: one MQTT session over any number of
//! connections, one at a time, as a state machine without sockets, clocks or
//! payload storage.
//!
//! # How to drive a [`Session`]
//!
//! The owner opens a transport and then:
//!
//! 1. [`Session::connect`] writes CONNECT.
//! 2. Bytes from the server go to [`Session::handle_bytes`], which returns at
//!    most one [`Event`] per packet.
//! 3. After every `handle_*` call and every command, [`Session::poll_output`]
//!    is called until it returns `false`: it writes what the protocol owes
//!    (acknowledgements, PUBREL, PINGREQ, a final DISCONNECT), one packet a
//!    call.
//! 4. [`Session::handle_timeout`] is called at [`Session::poll_timeout`].
//! 5. When the transport is gone: [`Session::handle_closed`], then 1. again.
//!
//! Payloads of QoS 1 and 2 stay with the owner, under their packet identifier,
//! until [`Event::Recorded`] or [`Event::Published`]. After
//! [`Event::Connected`] the owner drains [`Session::poll_resume`], which says
//! what must be sent again, and how.
//!
//! # When an output buffer is full
//!
//! Every command that fails with [`CommandError::SinkFull`], and every
//! [`Session::poll_output`] that fails, has changed nothing: the owner throws
//! away what was written of that packet and calls again with more room.

mod auth;
mod command;
mod error;
mod event;
mod inbound;
mod input;
mod keep_alive;
mod negotiated;
mod outbound;
mod output;
mod session;
#[cfg(test)]
mod tests;

pub use error::{CommandError, PeerError};
pub use event::{Event, Owed, Resume};
pub use inbound::Receipt;
pub use negotiated::Negotiated;
pub use session::{Phase, Session, Settings};
