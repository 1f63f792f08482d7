//! Between shards: what they send each other, and where a session lives.

pub(crate) mod bus;
pub(crate) mod claims;
pub(crate) mod crossing;
