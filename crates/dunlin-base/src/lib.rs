//! The vocabulary of Dunlin: time, identifiers, QoS, topics, the neutral
//! message and the events of a transport as values.
//!
//! This crate is layer 0: it knows no packet format, no socket, no clock and
//! no store. Everything here is `no_std` with `alloc`.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

pub mod limits;
pub mod message;
mod opaque;
mod random;
mod range;
pub mod sendbuf;
pub mod sink;
pub mod text;
pub mod time;
pub mod topic;
mod totals;
pub mod transport;

pub use message::{Encoded, Form, Message, MessageExtra, MessageProperties, QoS};
pub use random::Random;
pub use range::{AddrRange, ParseRangeError};
pub use sendbuf::SendBuf;
pub use sink::{ByteSink, SinkFull};
pub use text::Text;
pub use time::Instant;
pub use transport::{ConnId, Repeat, ShardId, StreamId};
