//! Conversations with broker shards in virtual time, by section of the
//! specification; pairs of client engines and shards; hostile peers.

mod connect;
mod smoke;
mod will;
