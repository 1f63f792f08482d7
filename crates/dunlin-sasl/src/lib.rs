//! SASL mechanisms (RFC 4422) as pure functions over the exchanged messages,
//! for both sides: no socket, no entropy, no clock.
//!
//! - [`scram`]: SCRAM-SHA-256 with and without channel binding (RFC 5802,
//!   RFC 5929, RFC 7677, RFC 9266). MQTT 5.0 carries its messages in AUTH, AMQP 1.0 in
//!   SASL frames.
//! - [`plain`] (RFC 4616) and [`oauth`] (RFC 7628): the one message of the client.
//! - [`server::Exchange`]: one exchange as a server sees it, of any
//!   mechanism: messages in, [`server::Question`]s about users and challenges out.
//!
//! Layer 1. It knows no message protocol and no store of users.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod error;
mod mechanism;
pub mod oauth;
pub mod plain;
pub mod scram;
pub mod server;

pub use error::SaslError;
pub use mechanism::Mechanism;
