//! Between shards: what they send each other, and its form as bytes.

pub(crate) mod apart;
pub(crate) mod bus;
pub mod codec;
pub(crate) mod introducing;
pub(crate) mod members;
