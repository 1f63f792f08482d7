//! What the broker asks of a store, and what a store answers, as values.
//!
//! This crate is layer 2: it knows sessions, queues and messages, but no file,
//! no thread, no clock and no database. [`MemoryStore`] says what every
//! request means; a back end is right when it cannot be distinguished from it, which
//! the suite in `conformance` (feature of the same name) checks.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

pub mod codec;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod limits;
mod memory;
mod recovered;
mod request;
mod submit;

pub use memory::MemoryStore;
pub use recovered::{QueuedExtra, QueuedRef, Recovered, RecoveredSession};
pub use request::{
    Batch, InflightState, LoadedMessage, Request, Seq, SessionKey, SessionRecord, StoreDone,
    StoreError, StoreOp, StoredWill, Target,
};
pub use submit::{Charge, OnDone, Pending, Waiting};
