//! Seeing and steering a running broker: requests and replies as [`values`], the
//! [`plane`] that carries them out over the shards, whichever door they come through,
//! the [`audit`] log of orders, and two doors: a Unix socket and HTTP.

pub mod audit;
pub(crate) mod banlist;
pub(crate) mod bans;
mod bearers;
mod bridges;
#[cfg(unix)]
pub(crate) mod caller;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod cursor;
mod drain;
mod draining;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(not(feature = "http"))]
#[path = "without_http.rs"]
pub(crate) mod http;
mod inventory;
pub mod plane;
mod queues;
pub mod reloading;
mod requests;
mod rights;
mod running;
pub(crate) mod sessions;
pub(crate) mod tokens;
pub(crate) mod topics;
#[cfg(unix)]
pub mod unix;
mod users;
pub mod values;
