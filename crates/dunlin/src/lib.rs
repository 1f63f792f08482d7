//! Everything behind the `dunlin` command, as a library so that tests and the
//! broker's threads can name it.
//!
//! This is layer 6: it composes the crates below and is the only one that
//! reads configuration files, handles signals and prints. No protocol is
//! implemented here.

#![deny(unsafe_code)]
// What only the HTTP door asks for.
#![cfg_attr(not(feature = "http"), allow(dead_code))]

pub mod auth;
pub mod bench;
pub mod bridge;
pub mod causes;
pub mod certs;
pub mod cmd;
pub mod config;
pub mod control;
pub mod daemon;
#[cfg(unix)]
pub mod descriptors;
pub mod import;
pub mod log;
pub mod metrics;
pub mod probe;
mod service;
pub mod signals;
pub mod store;
pub mod tunnel;

pub use dunlin_dial::files;
