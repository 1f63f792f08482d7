//! Session tickets of dialled QUIC connections that outlive the process.
//!
//! The TLS library keeps what it needs to resume a session in a value that
//! cannot be written to a file or read from one. What the value is made of can
//! be seen and supplied through the library's own extension points, though:
//!
//! - The pre-shared key of each ticket passes through the key derivation
//!   function that the cipher suite names ([`hkdf`]); the ticket itself comes
//!   in a handshake message that passes through quinn-proto's session trait
//!   ([`session`]). Both together make a [`record::Record`], which is bytes.
//! - To use a record, a handshake is done in memory between a client with the
//!   settings of the connection to come and a server made up for it
//!   ([`restore`]), which presents the certificates of the true one, after they
//!   have been verified again. It ends with the stored ticket, for which the
//!   key derivation yields the stored key. The library then holds a value as
//!   if it had been there all the time.
//!
//! Nothing of this touches a handshake with a peer, which the library does as
//! always.
//!
//! What would let this folder go: in rustls, a public encoding of
//! `Tls13ClientSessionValue`, as `ServerSessionValue` has, with a way to bind a
//! decoded value to the verifier and the client certificate of a
//! `ClientConfig`. Today the value has neither constructor nor encoding, and
//! `compatible_config` compares the verifier by address.

mod hkdf;
mod record;
mod restore;
mod session;

use core::fmt;

pub(crate) use hkdf::observed;
pub use record::Record;
pub(crate) use record::{NO_CLIENT, RECORD_BYTES_MAX};
pub(crate) use session::{Counted, Dialled};

/// Where a client keeps session tickets of one server for one purpose.
///
/// A ticket is good for one connection, and resumes what the connection that
/// got it was: the same server, the same certificate of the client. Tickets
/// are secrets: who has one can pretend to be the client.
///
/// Called on the thread of a loop while it handles a datagram, or while it
/// dials.
pub trait SessionTickets: fmt::Debug + Send + Sync {
    /// The server gave a ticket: opaque bytes, at most
    /// [`TICKET_BYTES_MAX`].
    fn insert(&self, ticket: Vec<u8>);

    /// Takes out a ticket, which must never be returned again: not by this
    /// process nor another, nor after a crash.
    fn take(&self) -> Option<Vec<u8>>;
}

/// Bytes of one ticket at most.
pub const TICKET_BYTES_MAX: usize = RECORD_BYTES_MAX;
