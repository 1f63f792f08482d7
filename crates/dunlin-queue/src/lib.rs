//! Queues, consumers and outcomes: how messages wait for a receiver, are taken
//! by it within its credit, and are settled.
//!
//! A [`Queue`] holds messages in order, within limits. A [`Consumer`] takes
//! them under keys that the protocol chooses and keeps each [`Delivery`] until
//! it is settled. [`State`] and [`Event`] are the table of what may happen to a
//! delivery, [`Outcome`] what its receiver says of it.
//!
//! The words are those of AMQP 1.0 (section 2.6 and 3.4); in MQTT a key is the
//! packet identifier, credit comes from Receive Maximum, a transfer is PUBLISH.
//! This crate knows no packet, no connection and no store: what has to be
//! stored or loaded comes out as a value.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod consumer;
mod delivery;
mod levels;
mod packed;
mod passed;
mod queue;
mod state;
mod window;

pub use consumer::{Consumer, Next, Receipt, Settled, Transfer};
pub use delivery::{Content, Delivery, Identifiers};
pub use passed::{Place, Scanned};
pub use queue::{Ahead, Queue};
pub use state::{Event, Outcome, State, Step};
pub use window::{Key, Window};
