//! The store on disk: [redb](https://docs.rs/redb) in the ordered layout, with
//! one writer thread that commits what several shards submitted together.
//!
//! It knows requests and answers of `dunlin-store`; no protocol, no network,
//! no broker. Nothing outside this crate names redb.
//!
//! What follows is the chapter "The store" of the book, which draws the file
//! byte by byte.
#![doc = include_str!("../store.md")]
#![forbid(unsafe_code)]

mod changes;
mod codec;
mod disk;
mod engine;
mod error;
mod file;
mod import;
mod index;
mod metrics;
mod ops;
mod pages;
mod place;
mod report;
mod rows;
mod salvage;
mod snapshot;
mod sorted;
mod store;
mod tables;
mod upgrade;
mod writer;

pub use engine::{CACHE_BYTES_DEFAULT, Engine, EngineConfig, QUICK_REPAIR_BYTES_MIN, RETRY_AFTER};
pub use error::OpenError;
pub use import::{Import, import};
pub use metrics::{COMMIT_MICROS, StoreMetrics, StoreTotals};
pub use place::Place;
pub use report::{Report, Sink, TableReport};
pub use salvage::{Stopped, read, repair};
pub use snapshot::Snapshot;
pub use store::{
    COMMIT_WINDOW_DEFAULT, COMMIT_WINDOW_MAX, Durability, QUEUE_LIMIT_DEFAULT,
    RESERVE_BYTES_DEFAULT, RedbStore, Snapshots, StoreConfig, SubmitError, Submitter, open_engine,
};
pub use writer::WAITING_BYTES_MAX;
