//! The server's half of MQTT: parts that a broker shard composes.
//!
//! [`Framer`] cuts bytes into packets, [`Outbound`] is the sending half of a
//! session (queue, packet identifiers, QoS 1 and 2 towards the client),
//! [`Inbound`] the receiving half (order of acknowledgements, QoS 2
//! de-duplication, receive quota); topic aliases are shared with the client
//! ([`aliases`](crate::aliases)). [`Link`] is a client's network connection with
//! its streams. [`delivery`] maps between PUBLISH packets and
//! the neutral message.
//!
//! Nothing here routes, stores or sends: the shard does.

pub mod delivery;
mod fault;
mod framer;
mod inbound;
pub mod link;
mod outbound;

pub use crate::aliases::{AliasTable, TopicAliases};
pub use fault::Fault;
pub use framer::Framer;
pub use inbound::{Ack, AckToken, Inbound, Receipt, Release};
pub use link::Link;
pub use outbound::{Outbound, Outgoing, Received};

/// What waits for a client and what it has not settled.
pub use dunlin_queue::{Content, Delivery, Identifiers, Transfer};
