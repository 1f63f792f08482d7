//! A session that lives on another shard than its client identifier hashes to,
//! as its home knows it.

use alloc::collections::VecDeque;

use dunlin_base::{ConnId, ShardId, Text};

/// Who wants a client identifier.
#[derive(Debug)]
pub(crate) struct Claimant {
    pub(crate) user: Option<Text>,
    pub(crate) at: Place,
}

/// Where a claimant is.
#[derive(Debug)]
pub(crate) enum Place {
    /// A connection of this shard.
    Here(ConnId),
    /// Another shard, for one of its connections.
    There(ShardId, u64),
}

/// A session on another shard, as its home knows it.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) shard: ShardId,
    pub(crate) token: u64,
    pub(crate) user: Option<Text>,
    /// Who waits for its end; that shard has been asked to end it when there
    /// is one. Bounded by the connections of all shards.
    pub(crate) waiting: VecDeque<Claimant>,
}
