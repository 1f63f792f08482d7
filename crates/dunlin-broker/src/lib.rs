//! One shard of the broker, sans-IO: connections, sessions, routing and store
//! requests behind one closed pair of enums, [`Input`] and [`Output`].
//!
//! This crate composes the protocol engines with the router and the store. It
//! opens no socket, reads no clock and writes no file.
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

extern crate alloc;

pub mod access;
pub mod auth;

mod accept;
mod acks;
mod authenticate;
mod bus;
mod census;
mod claims;
mod clients;
mod commits;
mod config;
mod conn;
mod connect;
mod connections;
mod crossing;
mod data_streams;
mod deliver;
mod elsewhere;
mod encode;
mod ending;
mod fault;
mod flow_headers;
mod ids;
mod io;
mod lanes;
mod lifecycle;
mod outbox;
mod outgoing_streams;
mod owners;
mod packets;
mod pending;
mod publish;
mod pump;
mod random;
mod restore;
mod retained;
mod routing;
mod scram;
mod send;
mod session;
mod sessions;
mod settle;
mod shard;
mod shared;
mod source;
mod stats;
mod stored;
mod subscribe;
mod subscriptions;
mod sys;
#[cfg(test)]
mod tests;
mod throttle;
mod timers;

pub use census::Census;
pub use clients::ClientView;
pub use config::{Config, PRIORITY_MAX, Priority, QueueFull};
pub use io::{BusMessage, Event, Forward, Input, InterestChange, Missed, Output, Preparation};
pub use random::home_shard;
pub use shard::Shard;
pub use stats::Stats;
pub use sys::client_topic;
