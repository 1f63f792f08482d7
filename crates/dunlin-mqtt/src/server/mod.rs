//! The server's half of MQTT.
//!
//! [`Session`] is a session: its sending half [`Outbound`] (queue, packet
//! identifiers, QoS 1 and 2 towards the client), its receiving half [`Inbound`]
//! (order of acknowledgements, QoS 2 de-duplication, receive quota), its
//! subscriptions, flows, expiry and will. [`Link`] is a client's network
//! connection: what both sides agreed on, its streams, aliases and keep alive;
//! [`Framer`] cuts bytes into packets, [`Incoming`] says which
//! packets may come when, [`connect`] what a CONNECT is answered. [`delivery`] maps between PUBLISH packets
//! and the neutral message. What client and server share stands beside this
//! module, such as [`aliases`](crate::aliases).
//!
//! Nothing here routes, stores or sends: the shard does.

mod auth;
pub mod connect;
pub mod delivery;
mod fault;
mod framer;
mod inbound;
mod incoming;
pub mod link;
mod outbound;
pub mod session;

pub use crate::aliases::{AliasTable, TopicAliases};
pub use auth::{
    AuthExchange, METHOD_BEARER, NOT_AUTHORIZED, Reauth, Reauthentication, auth_packet, bearer,
};
pub use fault::Fault;
pub use framer::Framer;
pub use inbound::{Ack, AckToken, Inbound, Receipt, Release};
pub use incoming::{Incoming, Stage, answer_stream};
pub use link::Link;
pub use outbound::{Outbound, Outgoing, Received};
pub use session::Session;

/// What waits for a client and what it has not settled.
pub use dunlin_queue::{Content, Delivery, Identifiers, Transfer};
