//! What a shard tells about itself: counts, clients, `$SYS`.

pub(crate) mod audit;
pub(crate) mod census;
pub(crate) mod clients;
pub(crate) mod events;
pub(crate) mod mosquitto;
pub(crate) mod sys;
