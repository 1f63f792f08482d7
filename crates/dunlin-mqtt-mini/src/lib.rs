//! The part of MQTT 5.0 that a device needs to report and to take commands,
//! for microcontrollers: no allocator, QoS 0 and 1.
//!
//! [`Packets`] and [`decode`] are the bytes; [`Session`] is the client: it
//! connects, has one message in flight, subscribes when the broker has
//! forgotten the session, and acknowledges what arrives.
//!
//! Layer 1: knows no transport and no clock.

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

mod packet;
mod session;

pub use packet::{Incoming, Malformed, Packets, decode};
pub use session::{Event, Refused, Session, Settings};
