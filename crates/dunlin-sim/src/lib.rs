//! A deterministic world for broker shards: a virtual clock, byte links, a bus
//! between shards, a store behind a delay, an authenticator, faults and seeds.
//!
//! The same [`Setup`] and the same calls give the same bytes at the same times
//! ([`World::trace`]). This crate knows the shard and the client engine; it
//! opens no socket and reads no real clock.
//!
//! Clients of each protocol are behind the feature of its name, which turns on the
//! front of the shards, too: `mqtt` and `amqp`, both by default.

mod agenda;
#[cfg(feature = "amqp")]
mod amqp;
mod auth;
mod disk;
#[cfg(feature = "amqp")]
pub mod frames;
mod link;
mod moves;
#[cfg(feature = "mqtt")]
mod notation;
#[cfg(feature = "mqtt")]
mod peer;
mod random;
#[cfg(feature = "mqtt")]
mod script;
mod setup;
mod trace;
mod world;

#[cfg(feature = "amqp")]
pub use amqp::{AmqpClient, Seen, run_amqp};
pub use disk::{Disk, Fault};
pub use link::{Link, ToClient};
#[cfg(feature = "mqtt")]
pub use notation::{encode, show};
#[cfg(feature = "mqtt")]
pub use peer::{Peer, PeerEvent, PeerOptions, run};
pub use random::Random;
#[cfg(feature = "mqtt")]
pub use script::{Script, check, check_with};
pub use setup::{Pace, Setup};
pub use world::{
    World, ask, channel_of, crash_edge, crash_homes, crash_store, is_lost, is_ready,
    is_store_ready, is_store_up, is_up, join_edge, open_as, open_at, open_on, set_acl, set_limits,
    set_ruling, set_user, start_store, takes_connections,
};
