//! What the broker shows of itself: metrics as Prometheus text, connections as
//! JSON, both over a small HTTP server of its own thread, and connections on
//! `$SYS`, and the last hour for the broker's page. It asks the shards by mail and never
//! looks into them. What `dunlin sink` shows of itself is beside it.

mod broker;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod connection;
pub(crate) mod history;
mod http;
mod log;
mod logs;
#[cfg(all(test, feature = "sink"))]
mod named;
mod ready;
pub(crate) mod report;
mod server;
mod shards;
#[cfg(feature = "sink")]
pub(crate) mod sink;
#[cfg(feature = "cluster")]
pub(crate) mod standby;
pub(crate) mod text;
mod watch;

pub(crate) use broker::{BrokerPages, Sources};
#[cfg(feature = "http")]
pub(crate) use http::decode;
#[cfg(feature = "cluster")]
pub(crate) use log::LogView;
pub(crate) use log::LogViews;
pub(crate) use ready::Readiness;
pub(crate) use report::{Paths, SAMPLES_MAX, ShardReport};
pub(crate) use server::Server;
pub use shards::Pulse;
pub(crate) use shards::Shards;
pub(crate) use watch::Watch;
