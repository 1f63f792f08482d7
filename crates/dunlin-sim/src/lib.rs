//! A deterministic world for broker shards: a virtual clock, byte links, a bus
//! between shards, a store behind a delay, an authenticator, faults and seeds.
//!
//! The same [`Setup`] and the same calls give the same bytes at the same times
//! ([`World::trace`]). This crate knows the shard and the client engine; it
//! opens no socket and reads no real clock.

mod agenda;
mod amqp;
mod auth;
mod disk;
pub mod frames;
mod link;
mod moves;
mod notation;
mod peer;
mod random;
mod script;
mod setup;
mod trace;
mod world;

pub use amqp::{AmqpClient, Seen, run_amqp};
pub use disk::{Disk, Fault};
pub use link::{Link, ToClient};
pub use notation::{encode, show};
pub use peer::{Peer, PeerEvent, PeerOptions, run};
pub use random::Random;
pub use script::{Script, check, check_with};
pub use setup::{Pace, Setup};
pub use world::{World, ask, channel_of, open_as};
