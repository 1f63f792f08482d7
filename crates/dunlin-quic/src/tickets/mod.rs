//! Session tickets of QUIC listeners, each good for one connection.
//!
//! TLS accepts early data (0-RTT) only where it can tell that a ticket was not
//! used before (RFC 8446 section 8.1). The register holds all tickets of the
//! process; taking one out strikes it off, for every shard at once. What
//! changes is reported to the owner in order, so that it can be kept across
//! restarts; a connection's early data waits until its strike has been kept.
//!
//! Nothing here knows what a ticket contains, or where changes are kept.

mod front;
mod kept;
mod register;

pub(crate) use front::{Front, Seen};
pub use front::{Notes, Verdict};
pub use register::{StrikeId, TicketChange, TicketLimits, TicketRegister};

/// Bytes of a ticket's name, which is what the client sends.
pub const TICKET_KEY_BYTES: usize = 32;

/// Name of a ticket: random, chosen by the TLS library.
pub type TicketKey = [u8; TICKET_KEY_BYTES];

/// Which settings a ticket was issued under: it opens no listener that asks
/// more, or promises less, than the one that issued it.
pub(crate) type Scope = [u8; 32];

/// Why early data was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such ticket: issued elsewhere, altered, evicted, or used long ago.
    Unknown,
    /// Used before: a replay, or a client that uses its tickets twice.
    Used,
    /// Older than its lifetime.
    Expired,
    /// Issued under other settings.
    Scope,
    /// Strikes cannot be kept as fast as they come.
    Overflow,
}
