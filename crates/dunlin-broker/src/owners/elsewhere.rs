//! A session that lives on another shard than its client identifier hashes to,
//! as its home knows it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

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

/// Something to say to another shard, or an operator, when the store has forgotten the sessions
/// of a client here: two records of one client would come back with a restart.
#[derive(Debug)]
pub(crate) enum Free {
    /// To the shard that claims the client identifier.
    Granted(ShardId, u64),
    /// To its home: the session that this shard had has ended.
    Left(ShardId, u64),
    /// To the operator who had it ended, under this number.
    Operator(u64),
}

/// Sessions of a client that have ended and that the store has not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    pub(crate) records: usize,
    pub(crate) then: Vec<Free>,
}

/// A session on another shard, as its home knows it.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) shard: ShardId,
    pub(crate) token: u64,
    pub(crate) user: Option<Text>,
    /// It knows that it has the identifier.
    pub(crate) granted: bool,
    /// Who waits for its end; that shard has been asked to end it when there
    /// is one. Bounded by the connections of all shards.
    pub(crate) waiting: VecDeque<Claimant>,
}
