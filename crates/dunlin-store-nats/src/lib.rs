//! The store of one partition as a log in NATS JetStream, with a copy on disk from
//! which it reads.
//!
//! One stream a partition is its write-ahead log. What several submitters write in one
//! window is one message of that stream, a *record*: with epoch, number and the hash of
//! the record before, so that a reader sees a hole and a flipped bit. A batch is
//! answered when the server has acknowledged its record and all before it.
//!
//! An owner takes a stream over by changing the one subject that it listens to, which
//! carries the epoch: records of the former owner then find no stream. A claim is
//! written behind what there is, read up to, and from there the owner serves. When it is
//! uncertain what became of a record, the owner writes another claim and reads up to
//! that before anything more is acknowledged.
//!
//! A lease in a key-value bucket says who should own the log, so that a standby, which
//! follows the log into a copy of its own, takes it over when nothing renews the lease. Who
//! owns it is said by the log alone.
//!
//! This crate knows requests and answers of `dunlin-store`; no protocol of clients, no
//! broker. Nothing but it and `dunlin-bus`, which connects by its means, names async-nats.
#![doc = include_str!("../cluster-log.md")]
#![forbid(unsafe_code)]

mod api;
mod chain;
mod config;
mod connect;
mod copy;
mod counts;
mod ended;
mod error;
mod holder;
mod import;
mod importing;
mod lease;
pub mod limits;
mod live;
mod log;
mod look;
mod mine;
mod position;
mod reach;
mod reading;
mod record;
mod recover;
mod role;
mod server;
mod settle;
mod standby;
mod standing;
mod store;
mod submit;
mod url;
mod version;

pub use chain::LogError;
pub use config::NatsConfig;
pub use connect::{ConnectError, Servers, connect, without_users};
pub use counts::Counts;
pub use error::{GaveUp, ImportError, OpenError};
pub use import::{Import, is_in_use};
pub use position::POSITION;
pub use record::{OVERHEAD_BYTES, RecordError, VERSION};
pub use role::{LogMetrics, LogRole};
pub use standby::{NatsStandby, Outcome};
pub use store::NatsStore;
pub use submit::Submitter;
pub use version::ServerVersion;
