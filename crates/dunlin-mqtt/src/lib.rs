//! MQTT 5.0 and 3.1.1 session engines, sans-IO: bytes and time come in as
//! arguments, packets and deadlines come out as values.
//!
//! [`client`] and [`server`] are the two ends; what they share stands beside
//! them: [`packet_ids`], [`quota`], [`aliases`], [`flow`], [`streams`] and
//! [`close_code`].
//!
//! This crate knows the codec and the neutral message. It knows no socket, no
//! router and no store.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

/// The packets, for crates that drive an engine and decode nothing themselves.
pub use dunlin_mqtt_codec as codec;
/// What AUTH carries.
pub use dunlin_sasl::scram;

pub mod aliases;
pub mod client;
pub mod close_code;
pub mod flow;
pub mod packet_ids;
pub mod quota;
pub mod server;
pub mod streams;
