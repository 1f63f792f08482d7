//! The microcontroller's client for programs in C: QUIC, TLS 1.3 and MQTT 5.0
//! with all memory from the caller, and sockets, clock and random bytes by
//! callbacks.
//!
//! `include/dunlin_tiny.h` is made from this crate and held to it by a test;
//! `mini/firmware/c` makes a static library of it, for a host or a chip. Nothing
//! here allocates, and nothing can panic.
//!
//! Layer 5: knows no system. What is unsafe is in [`api`] and in the port.

#![no_std]
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

pub mod api;
pub mod codes;
mod device;
mod port;
pub mod types;
