//! Seeing and steering a running broker: requests and replies as [`values`], the
//! [`plane`] that carries them out over the shards, whichever door they come through,
//! the [`audit`] log of orders, and the door that is always there, a Unix socket.

pub mod audit;
pub(crate) mod banlist;
pub(crate) mod bans;
#[cfg(unix)]
pub(crate) mod caller;
pub(crate) mod clients;
pub(crate) mod cursor;
mod drain;
mod draining;
pub mod plane;
mod requests;
mod running;
pub(crate) mod sessions;
pub(crate) mod topics;
#[cfg(unix)]
pub mod unix;
pub mod values;
