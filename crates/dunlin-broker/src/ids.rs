//! Names of entries in the tables of a shard.

use dunlin_store::SessionKey;

/// Place of a connection in [`Connections`](crate::owners::connections::Connections).
pub(crate) type ConnIdx = usize;

/// Place of a session in [`Sessions`](crate::owners::sessions::Sessions).
pub(crate) type SessionIdx = usize;

/// A session by its place and its key: it is found without a search, and a
/// later session at the same place is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionRef {
    pub(crate) key: SessionKey,
    pub(crate) at: SessionIdx,
}
