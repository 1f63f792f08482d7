//! MQTT 5.0 for a device: to report and to take commands over the first
//! stream of a small QUIC connection.
//!
//! There is no allocator and no buffer: packets are written into the stream's
//! send buffer piece by piece, and read where they arrived. A [`Session`] is
//! some forty bytes; it outlives connections.
//!
//! ```ignore
//! session.begin(&mut quic, &Options { client_id: b"meter", ..Options::NEW })?;
//! session.publish(&mut quic, &Message { topic: b"a/b", payload: b"21.5", .. })?;
//! // After each datagram that arrived:
//! while let Some(event) = session.poll(&mut quic)? {
//!     if let Event::Message(message) = event { obey(message.payload) }
//! }
//! ```
//!
//! Layer 3: knows no socket, no clock and no packet of QUIC.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

#[cfg(test)]
extern crate std;

mod decode;
mod error;
mod session;
mod streams;
#[cfg(test)]
mod tests;
mod text;
mod types;

pub use decode::{Incoming, Limits, decode};
pub use error::{Error, Malformed};
pub use session::{ALIASES, IN_FLIGHT_MAX, Session};
pub use streams::Streams;
pub use text::{OTHERS, Row, Texts, error_text, reason_text, weight};
pub use types::{Event, Message, Options, Qos, Will};
