//! The daemon with real sockets on loopback: one conversation a transport,
//! with one shard and with two, then what only real sockets can show. What a
//! shard does is tested in `dunlin-sim`, in virtual time.

mod access;
mod amqp_client;
mod amqp_early;
mod amqp_opening;
mod bench;
mod binding;
mod bridge;
mod bridge_added;
mod bridge_kill;
mod cid;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_quic;
#[cfg(unix)]
mod control;
mod early;
mod hostile;
#[cfg(unix)]
mod http;
mod identities;
mod import;
mod ldap;
mod manual_kill;
mod metrics;
mod migration;
#[cfg(feature = "cluster")]
mod nats;
#[cfg(feature = "cluster")]
mod nats_rounds;
#[cfg(feature = "cluster")]
#[expect(dead_code, reason = "the store's own tests use more of it")]
#[path = "../../../dunlin-store-nats/tests/it/server.rs"]
mod nats_server;
mod pipelined;
mod policies;
mod probe;
mod proxies;
mod queues;
mod race;
mod relay;
mod reload;
mod rr;
#[cfg(target_os = "linux")]
mod service;
mod socket;
mod store;
mod streams;
mod support;
mod sys;
mod threads;
#[cfg(feature = "cluster")]
mod to_log;
mod tokens;
#[cfg(unix)]
mod topics;
mod transports;
mod tunnel;
#[cfg(unix)]
mod unix;
mod web;
mod wire;
