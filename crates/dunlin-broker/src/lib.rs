//! One shard of the broker, sans-IO: connections, sessions, routing and store
//! requests behind one closed pair of enums, [`Input`] and [`Output`].
//!
//! This crate composes the protocol engines with the router and the store. It
//! opens no socket, reads no clock and writes no file.
//!
//! # Where things live
//! A session lives on the shard that its client identifier hashes to and never
//! moves. A connection that another shard accepted is handed over: that shard
//! keeps the socket and passes events and commands on. A retained message is
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
mod acks;
pub mod auth;
mod blocked;
mod bus;
mod census;
mod config;
mod conn;
mod connect;
mod deliver;
mod fault;
mod flows;
mod io;
mod lanes;
mod lifecycle;
mod link;
mod multistream;
mod pending;
mod persist;
mod publish;
mod random;
mod restore;
mod retained;
mod roll;
mod scram;
mod session;
mod shard;
mod shared;
mod source;
mod stats;
mod subscribe;
mod sys;
mod throttle;
mod timers;

pub use census::Census;
pub use config::{Config, PRIORITY_MAX, Priority, QueueFull};
pub use io::{BusMessage, Event, Forward, Input, InterestChange, Missed, Output};
pub use random::home_shard;
pub use roll::ClientView;
pub use shard::Shard;
pub use stats::Stats;
pub use sys::client_topic;
