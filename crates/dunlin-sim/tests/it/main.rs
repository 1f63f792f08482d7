//! Conversations with broker shards in virtual time, by section of the
//! specification; pairs of client engines and shards; hostile peers.

mod access;
mod amqp_filters;
mod amqp_streams;
mod auth;
mod blocked;
mod budget;
mod cbs;
mod claims;
mod connect;
mod control;
mod corpus;
mod crashes;
mod delivery;
mod errors;
mod flows;
mod headers;
mod hostile;
mod hostile_amqp;
mod lanes;
mod pairs;
mod priority;
mod promises;
mod publish;
mod qos;
mod queues;
mod resuming;
mod rules;
mod shared;
mod smoke;
mod streams;
mod subscribe;
mod topics;
mod transactions;
mod v311;
mod will;
