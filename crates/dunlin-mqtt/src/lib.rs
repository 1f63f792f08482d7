//! MQTT 5.0 and 3.1.1 session engines, sans-IO: bytes and time come in as
//! arguments, packets and deadlines come out as values.
//!
//! This crate knows the codec and the neutral message. It knows no socket, no
//! router and no store.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod client;
pub mod scram;
#[cfg(feature = "alloc")]
pub mod server;
