//! The front of AMQP 1.0: bytes to events of the engine, links to sessions of the
//! shard, messages to neutral ones and back.
//!
//! An AMQP connection stays on the shard that accepted it, and its sessions and
//! links end with it; what stays of a link is kept where its name, or its node, lives. Over QUIC each stream is a connection. A link from the client
//! publishes, a link to it is a subscription that is not durable, or takes from a
//! node that may live on another shard.

pub(crate) mod access;
pub(crate) mod annotating;
mod attaching;
pub(crate) mod carried;
pub(crate) mod carrier;
mod cbs;
pub(crate) mod concluding;
pub(crate) mod coordinator;
mod enlisting;
pub(crate) mod events;
pub(crate) mod filters;
pub(crate) mod incoming;
pub(crate) mod links;
mod management;
pub(crate) mod nodes;
pub(crate) mod outcome;
mod outcomes;
pub(crate) mod outgoing;
mod pace;
mod quota;
mod redirecting;
pub(crate) mod requests;
pub(crate) mod resuming;
pub(crate) mod sasl;
mod service;
pub(crate) mod state;
pub(crate) mod streams;
mod tables;
mod taking;
pub(crate) mod terminus;
mod tokens;
pub(crate) mod transactions;
pub(crate) mod turns;
mod wanting;
