//! One shard of the broker, sans-IO: connections, sessions, routing and store
//! requests behind one closed pair of enums, `Input` and `Output`.
//!
//! This crate composes the protocol engines with the router and the store. It
//! opens no socket, reads no clock and writes no file.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

pub mod auth;
