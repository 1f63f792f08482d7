//! What the broker shows of itself: metrics as Prometheus text, connections as
//! JSON, both over a small HTTP server of its own thread, and connections on
//! `$SYS`. It asks the shards by mail and never looks into them.

mod connection;
mod http;
mod logs;
mod page;
pub(crate) mod report;
mod server;
mod shards;
mod text;
mod watch;

pub(crate) use report::{Paths, SAMPLES_MAX, ShardReport};
pub(crate) use server::{Server, Sources};
pub(crate) use watch::Watch;
