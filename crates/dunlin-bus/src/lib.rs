//! Links between the nodes of a cluster over NATS, and who is a member.
//!
//! A node [joins](Bus::join): it takes a free number, by compare-and-set, in a bucket of
//! JetStream whose entries end when they are not renewed, and receives on one subject. It
//! learns of the other members, and makes a link to each: greetings in which both prove that
//! they have the secret of the cluster, then numbered and encrypted messages with batches of
//! bytes. What the bytes say is not known here; they are what shards of one node have for
//! those of another.
//!
//! **In order, exactly once, or lost.** The subjects of NATS may lose messages: when a reader
//! is slow, a server restarts, a connection breaks. A link numbers its messages, so that a
//! hole is found by the next one, and heartbeats see to it that there is a next one. There is
//! no repetition: a link with a hole is [lost](Event::Lost), which is reported once, nothing
//! of it is delivered from there on, and a new link is made. What to do about what was under
//! way is for those who know what it meant.
//!
//! **Nothing grows without limit.** A batch counts until the consumers of the other node have
//! dropped it. From [`LINK_BYTES_MAX`](limits::LINK_BYTES_MAX) on a link [is
//! full](Peer::is_full), nothing more is sent, and those who hand batches over are to stop
//! reading from their clients; above [`LINK_BYTES_HARD`](limits::LINK_BYTES_HARD) the link is
//! lost.
//!
//! **Who may do what.** Everyone in the account of NATS can publish to the subjects and write
//! to the bucket. Without the secret, that has no effect on links, nor does a recording of
//! what was sent before. Deleting entries has: keep the account to the cluster.
//!
//! **Clocks decide nothing.** An entry ends by the server's time; all else is measured on the
//! own monotonic clock. An entry outlives the election of a leader of its bucket. A node that
//! died is found out sooner: the others, whose links to it fell silent and who see it renew
//! nothing, end its entry, by compare-and-set, which a renewal in between defeats.
//!
//! **How threads use it.** `on_event` puts each event into the mailboxes of the threads that it
//! is for; a batch for several of them is cloned. A thread has the [`Peer`] of each node from
//! `Linked` to `Lost`, encodes what a turn of its loop has for a node into one buffer, and
//! [sends](Peer::send) it at the end of the turn; before it reads from clients it asks
//! [`Peer::is_full`]. It drops a batch when it has done what that says.
//!
//! ```no_run
//! use dunlin_bus::{About, Bus, Config, Event};
//!
//! let config = Config::new("nats://127.0.0.1", b"a secret of 16 bytes or more", About::default());
//! let bus = Bus::join(config, |event| {
//!     // In a broker: into the mailboxes of its shards.
//!     if let Event::Linked(peer) = event {
//!         let _ = peer.send(bytes::Bytes::from_static(b"to another node"));
//!     }
//! })?;
//! println!("node {}", bus.member().node);
//! # Ok::<(), dunlin_bus::JoinError>(())
//! ```
//!
//! This crate knows no protocol of clients, no broker and no encoding of what it carries. How
//! a server is connected to is that of [`dunlin_store_nats`]; no crate but these two names
//! async-nats.
#![forbid(unsafe_code)]

mod authority;
mod bus;
mod cause;
mod config;
mod driver;
mod entry;
mod error;
mod flow;
mod ids;
mod kv;
pub mod limits;
mod link;
mod member;
mod metrics;
mod peer;
mod rarely;
mod roster;
mod seal;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

pub use bus::Bus;
pub use cause::Lost;
pub use config::{Config, Timing};
pub use error::{Expelled, JoinError};
pub use flow::SendError;
pub use ids::{Incarnation, NodeId};
pub use member::{About, Encoding, Member};
pub use metrics::{BusMetrics, BusTotals, ROUND_TRIP_MICROS};
pub use peer::{Batch, Event, LinkId, Peer};
pub use wire::Dropped;
