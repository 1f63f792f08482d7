//! Conversations with broker shards in virtual time, by section of the
//! specification; pairs of client engines and shards; hostile peers.
//!
//! With one feature the shards have one front, and the modules of its protocol run.

#[cfg(feature = "mqtt")]
mod access;
#[cfg(feature = "amqp")]
mod amqp_filters;
#[cfg(feature = "amqp")]
mod amqp_streams;
#[cfg(feature = "mqtt")]
mod asking;
#[cfg(feature = "mqtt")]
mod auth;
#[cfg(feature = "mqtt")]
mod blocked;
#[cfg(feature = "mqtt")]
mod budget;
#[cfg(feature = "amqp")]
mod cbs;
#[cfg(feature = "mqtt")]
mod claims;
#[cfg(feature = "mqtt")]
mod connect;
#[cfg(feature = "mqtt")]
mod control;
#[cfg(feature = "mqtt")]
mod corpus;
#[cfg(feature = "mqtt")]
mod crashes;
#[cfg(feature = "mqtt")]
mod delivery;
#[cfg(all(feature = "mqtt", feature = "amqp"))]
mod edges;
#[cfg(feature = "mqtt")]
mod edges_chaos;
#[cfg(feature = "mqtt")]
mod errors;
#[cfg(feature = "mqtt")]
mod flows;
#[cfg(feature = "mqtt")]
mod headers;
#[cfg(feature = "mqtt")]
mod hostile;
#[cfg(feature = "amqp")]
mod hostile_amqp;
#[cfg(feature = "mqtt")]
mod lanes;
#[cfg(feature = "mqtt")]
mod ledger;
#[cfg(feature = "mqtt")]
mod pairs;
#[cfg(feature = "mqtt")]
mod priority;
#[cfg(feature = "mqtt")]
mod promises;
#[cfg(feature = "mqtt")]
mod publish;
#[cfg(feature = "mqtt")]
mod qos;
#[cfg(all(feature = "mqtt", feature = "amqp"))]
mod queues;
#[cfg(all(feature = "mqtt", feature = "amqp"))]
mod resuming;
#[cfg(feature = "mqtt")]
mod rules;
#[cfg(all(feature = "mqtt", feature = "amqp"))]
mod scene;
#[cfg(feature = "mqtt")]
mod seeds;
#[cfg(feature = "mqtt")]
mod shared;
#[cfg(feature = "mqtt")]
mod stores;
#[cfg(feature = "mqtt")]
mod streams;
#[cfg(feature = "mqtt")]
mod subscribe;
#[cfg(feature = "mqtt")]
mod tokens;
#[cfg(feature = "mqtt")]
mod topics;
#[cfg(all(feature = "mqtt", feature = "amqp"))]
mod transactions;
#[cfg(feature = "mqtt")]
mod v311;
#[cfg(feature = "mqtt")]
mod will;
