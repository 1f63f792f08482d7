//! One shard of the broker, sans-IO: connections, sessions, routing and store
//! requests behind one closed pair of enums, [`Input`] and [`Output`].
//!
//! This crate composes the protocol engines with the router and the store. It
//! opens no socket, reads no clock and writes no file.
//!
//! # Rooms
//! `owners` has the state: connections, sessions, routing, commits. The others
//! are functions over it: `front` is where a connection enters the front of its
//! protocol and `receivers` where a message leaves for it, `mqtt` and `amqp`
//! are the two, each behind the feature of its name, `messages` one message's way,
//! `queues` named queues and their links, `sessions` what outlives a connection, `between` other shards, `reports` what
//! a shard tells about itself, `control` what operators ask of it; `topics` and `quotas`
//! are rules of operators as values and pure functions. No file imports one that imports it.
//!
//! # Where things live
//! A session that begins empty and ends with its connection lives on the shard
//! of its connection; its home, the shard that its client identifier hashes to,
//! only knows where. Every other session lives at home, and its connection moves
//! there whole at CONNECT; one over QUIC keeps its shard, which passes events and
//! commands on. A retained message is
//! owned by the shard that its topic hashes to and copied to all. A filter that
//! some session of another shard wants is in the same subscription tree as the
//! sessions of this one.
//!
//! # What an acknowledgement means
//! PUBACK and PUBREC leave after every shard with durable receivers has said
//! what must be stored and the store has committed all of it in one batch.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]
// What only the other front uses, and patterns that leave nothing for it.
#![cfg_attr(
    not(all(feature = "mqtt", feature = "amqp")),
    allow(unused, unreachable_patterns)
)]

#[cfg(not(any(feature = "mqtt", feature = "amqp")))]
compile_error!("a broker without a protocol: turn on the feature `mqtt`, `amqp` or both");

extern crate alloc;

pub mod access;
pub mod auth;
pub mod bans;
pub mod control;

#[cfg(feature = "amqp")]
mod amqp;
mod between;
mod bridges;
mod config;
mod fault;
mod front;
mod ids;
mod io;
mod memory;
mod messages;
#[cfg(feature = "mqtt")]
mod mqtt;
mod owners;
mod queues;
mod quotas;
mod random;
mod receivers;
mod reports;
mod sessions;
mod shard;
mod stats;
#[cfg(test)]
mod tests;
mod topics;
mod translate;
mod wants;

pub use between::codec as bus;
pub use bridges::{BRIDGE_PREFIX, Bounds, BridgeSession, Bridges, is_bridge_name};
pub use config::{
    ClientLimits, Config, HomeLost, LinkRedirect, NamedQueue, Nodes, OtherUser, PRIORITY_MAX,
    PostLimits, Priority, QueueFull, Queues, Redirect, RunningLimits, Sending, Server,
    SessionLimits, SysEvent, SysTopics, Transactions,
};
pub use io::{
    AccessEvent, AccessKind, BusMessage, Event, Forward, Input, InterestChange, Manner, Membership,
    Missed, NotTaken, Output, PassedOn, Preparation, QueueCall, ShardFigures,
};
pub use memory::{Memory, Part, Totals};
pub use owners::holders::{Holder, Holding};
pub use owners::members::Homes;
pub use owners::posts::Post;
pub use owners::stores::{RestoreError, StoreHomes};
pub use queues::options::{LEVELS_MAX, Overflow, QueueOptions};
pub use quotas::{QUOTAS_MAX, Quota, Quotas};
pub use random::{SECRET_BYTES, Secret, home_shard};
pub use reports::census::{Census, Spoken};
pub use reports::sys::client_topic;
pub use shard::Shard;
pub use stats::Stats;
pub use topics::{
    Automatic, Delays, MOUNT_BYTES_MAX, Rewrite, RewriteOf, TOPIC_RULES_MAX, TopicRuleError,
    Topics, validate_mount,
};
