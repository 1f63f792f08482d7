//! What a shard tells about itself: counts, clients, `$SYS`.

pub(crate) mod audit;
pub(crate) mod census;
pub(crate) mod clients;
pub(crate) mod sys;
