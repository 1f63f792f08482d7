//! Between shards: what they send each other.

pub(crate) mod bus;
