//! The store on disk: [redb](https://docs.rs/redb) in the ordered layout, with
//! one writer thread that commits what several shards submitted together.
//!
//! It knows requests and answers of `dunlin-store`; no protocol, no network,
//! no broker. Nothing outside this crate names redb.
//!
//! # Layout of the file
//!
//! Numbers in keys that are more than one number are big-endian, so that their
//! bytes sort as they do; all other numbers are little-endian.
//!
//! | table | key | value |
//! |---|---|---|
//! | `format` | `"version"` | u64: 1 |
//! | `log` | u64 seq | targets and message, below |
//! | `marks` | u64 seq, u64 session | empty: acknowledged; else one target, which adds to or replaces those in `log` |
//! | `sessions` | u64 session | record, below |
//! | `subscriptions` | u64 session, filter | u8 options, u8 1 if there is an identifier, u32 identifier |
//! | `inflight` | u64 session, u16 packet id | u64 seq, u8 state (0 published, 1 released) |
//! | `inbound` | u64 session, u16 packet id | nothing |
//! | `retained` | topic | message, below |
//! | `meta` | name | value |
//!
//! A *text* is a u32 length and that many bytes of UTF-8; a *blob* is the same
//! without being UTF-8.
//!
//! Message:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version: 1 |
//! | 1 | bits 0-1 QoS, bit 2 RETAIN, bit 3 expires, bit 4 has properties |
//! | 8 | expiry in µs since the epoch; 0 without bit 3 |
//! | text | topic |
//! | 1 | with properties: bits 0-1 payload format (0 absent, 1 bytes, 2 UTF-8), bit 2 content type, bit 3 response topic, bit 4 correlation data |
//! | text | with properties, bit 2: content type |
//! | text | with properties, bit 3: response topic |
//! | blob | with properties, bit 4: correlation data |
//! | 4 | with properties: number of user properties |
//! | texts | with properties: name and value of each |
//! | rest | payload |
//!
//! Target:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | session |
//! | 1 | bits 0-1 QoS, bit 2 RETAIN, bit 3 identifiers, bit 4 shared |
//! | 4, 4 each | with bit 3: number of subscription identifiers, and they |
//! | text | with bit 4: the `$share/…` filter |
//!
//! Value in `log`: u8 version (1), u32 cost, u32 number of targets, the
//! targets, the message.
//!
//! Session record:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version: 1 |
//! | 1 | protocol level |
//! | 1 | bit 0 disconnected, bit 1 will, bit 2 user name, bit 3 expiry of the will's message |
//! | 4 | session expiry interval in seconds |
//! | 8 | disconnected at, in µs since the epoch; 0 without bit 0 |
//! | text | client identifier |
//! | text | with bit 2: user name |
//! | 4 | with bit 1: will delay in seconds |
//! | 4 | with bit 1: message expiry interval in seconds; 0 without bit 3 |
//! | rest | with bit 1: message |
//!
//! # Why this layout
//!
//! Sequence numbers rise, so queued messages are appended at one end of `log`
//! and mostly leave at the other: three times the rate and a ninth of the
//! bytes written of a table keyed by session. Acknowledging one of several
//! targets writes a mark and never the payload again.

#![forbid(unsafe_code)]

mod changes;
mod codec;
mod disk;
mod engine;
mod error;
mod index;
mod place;
mod store;
mod tables;
mod writer;

pub use engine::{Engine, EngineConfig, QUICK_REPAIR_BYTES_MIN, RETRY_AFTER};
pub use error::OpenError;
pub use place::Place;
pub use store::{
    CACHE_BYTES_DEFAULT, COMMIT_WINDOW_DEFAULT, COMMIT_WINDOW_MAX, Durability, QUEUE_LIMIT_DEFAULT,
    RESERVE_BYTES_DEFAULT, RedbStore, StoreConfig, SubmitError, Submitter,
};
