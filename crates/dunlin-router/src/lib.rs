//! Who gets a message: the subscription tree with shared groups, the index of
//! retained messages, and the bookkeeping of what other shards need to know.
//!
//! Layer 2. It knows topics and filters, and nothing of sessions, packets,
//! shards or stores: subscribers are keys and their options are values that
//! the broker chooses. Topics and filters are expected to be valid by
//! [`dunlin_base::topic`]; invalid ones match by the same rules and never
//! panic.
//!
//! ```
//! use dunlin_router::{Match, SubscriptionTree};
//!
//! let mut tree = SubscriptionTree::new(0x5eed);
//! tree.insert("fleet/+/state", 7, "options of 7");
//! tree.insert_shared("workers", "fleet/#", 8, "options of 8", 1);
//! let mut receivers = Vec::new();
//! tree.matches("fleet/truck/state", |found| match found {
//!     Match::Subscriber { key, .. } => receivers.push(key),
//!     Match::Shared(group) => receivers.extend(group.select(|_, _| true).map(|(key, _)| key)),
//! });
//! assert_eq!(receivers, [8, 7]);
//! ```
//!
//! # Order
//! Every visit happens in an order that follows from the sequence of calls
//! alone, never from hash values, so a simulation repeats with every seed.
//!
//! # Hostile input
//! Only the edges of the subscription tree are hashed, with a key that the
//! constructor takes: give it entropy in production. Everything else is
//! ordered, so that no choice of topics makes it slow. What remains is
//! inherent in wildcards: a client that holds many filters of the shape
//! `{a,+}/{a,+}/…` makes every publish to `a/a/…` walk the ones it matches in
//! part, so subscriptions per client want a limit in the broker.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod arena;
mod edges;
mod entries;
mod filter_id;
mod hash;
mod interest;
mod label;
mod order;
mod retained;
mod shared;
mod subs;
mod tree;
mod walk;

pub use filter_id::FilterId;
pub use interest::Interest;
pub use retained::{Page, RetainedTree};
pub use shared::{SharedMatch, SharedMember};
pub use tree::SubscriptionTree;
pub use walk::{Match, Matched};

#[cfg(test)]
mod tests;
