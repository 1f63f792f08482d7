//! Drives the microcontroller's QUIC client over the sockets of Linux, and is
//! the command `dunlin-tiny`.
//!
//! Needs no standard library and no allocator: system calls go through rustix.
//! `main.rs` is the program with the standard library, `mini/firmware/linux` the
//! static one without it.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod arguments;
pub mod command;
mod files;
mod host;
mod key;
mod session;
pub mod udp;
