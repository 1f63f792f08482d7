//! A QUIC version 1 client with TLS 1.3 for microcontrollers.
//!
//! The engine is sans-IO and takes no memory but what the caller gives it in a
//! [`Memory`]. It speaks one suite, TLS_AES_128_GCM_SHA256 with secp256r1 and
//! ECDSA P-256, through the trait of `dunlin-mini-crypto`. The server is
//! [verified](Verifier) always: its key is [pinned](Pinned), or an authority
//! has signed its certificate. Size in flash is what the code is written for: one
//! instance of everything, no text, an error is a number.
//!
//! Layer 2: knows no socket, no clock and no MQTT.

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

#[cfg(any(test, feature = "trial"))]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod ack;
mod assemble;
mod cid;
mod client;
mod connection;
mod error;
mod extensions;
mod held;
mod hello;
#[cfg(feature = "client-certificate")]
mod identity;
mod keys;
mod memory;
mod params;
mod recovery;
mod retry;
mod stream;
#[cfg(test)]
mod tests;
mod time;
mod tls;
#[cfg(any(test, feature = "trial"))]
#[doc(hidden)]
pub mod trial;
mod verify;
mod wire;
mod x509;

pub use client::Client;
pub use connection::{Config, Resume, State, StreamId, TOKEN_MAX};
pub use dunlin_mini_crypto::{Crypto, CryptoError, Entropy, Point};
pub use error::Error;
#[cfg(feature = "client-certificate")]
pub use identity::Identity;
pub use memory::{Buffers, Memory, Parts};
pub use stream::Stream;
#[cfg(feature = "client-certificate")]
pub use verify::Identified;
#[cfg(feature = "unverified")]
pub use verify::Unverified;
#[cfg(feature = "authority")]
pub use verify::{Authority, Name};
pub use verify::{Pinned, Verifier};
