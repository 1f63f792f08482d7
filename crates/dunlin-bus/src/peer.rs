//! What the program has of a link: a way to hand batches over, and batches that came.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::cause::Lost;
use crate::error::Expelled;
use crate::flow::{Flow, Receipt, SendError, cost};
use crate::ids::{Incarnation, NodeId};
use crate::member::Member;

/// Names a link: a node that is linked again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    /// The other node.
    pub node: NodeId,
    /// Its membership.
    pub incarnation: Incarnation,
    /// A number that both ends of the link derived, and no other link.
    pub number: u64,
}

/// A way to hand batches over to another node, for any thread. A clone is the same way. When
/// the link is lost, it leads nowhere; a new link has another one.
#[derive(Clone, Debug)]
pub struct Peer {
    id: LinkId,
    flow: Arc<Flow>,
    linked: Instant,
}

impl Peer {
    pub(crate) fn new(id: LinkId, flow: Arc<Flow>) -> Self {
        let linked = Instant::now();
        Self { id, flow, linked }
    }

    /// What came on this link.
    pub(crate) fn batch(&self, bytes: Bytes) -> Batch {
        let receipt = Receipt::new(Arc::clone(&self.flow), cost(bytes.len()));
        Batch {
            from: self.id,
            bytes,
            _receipt: Arc::new(receipt),
        }
    }

    /// Which link it is.
    #[must_use]
    pub const fn id(&self) -> LinkId {
        self.id
    }

    /// Hands one batch over: everything that one turn of a thread has for the node. Takes a
    /// lock for one push, wakes the thread of the bus if it may sleep, and never waits. What
    /// one thread hands over arrives in that order.
    ///
    /// # Errors
    /// [`SendError`]. A batch that would make more than
    /// [`LINK_BYTES_HARD`](crate::limits::LINK_BYTES_HARD) wait has the link lost.
    pub fn send(&self, batch: Bytes) -> Result<(), SendError> {
        self.flow.send(batch)
    }

    /// Bytes of what waits or is on its way and was not taken by the other node's consumers,
    /// with [`BATCH_COST`](crate::limits::BATCH_COST) a batch.
    #[must_use]
    pub fn load(&self) -> usize {
        self.flow.load()
    }

    /// Bytes of batches that came and that consumers here have not dropped, with
    /// [`BATCH_COST`](crate::limits::BATCH_COST) a batch.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.flow.held()
    }

    /// How long a heartbeat and its answer took last; `None`: it is not known yet.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.flow.round_trip()
    }

    /// How long there has been this link; of one that is lost, since it was made.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.linked.elapsed()
    }

    /// Whether reading more from clients would only make the queue longer.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.flow.is_full()
    }
}

/// A batch of another node. It counts as taken, which lets the other node send more, when
/// this value and all clones of it are dropped: keep one until what it says was done.
///
/// Bytes of several batches may be in one piece of memory. What is kept for long is to be
/// copied out of it.
#[derive(Clone, Debug)]
pub struct Batch {
    from: LinkId,
    bytes: Bytes,
    /// Says that the batch was taken when the last clone is dropped.
    _receipt: Arc<Receipt>,
}

impl Batch {
    /// The link that it came on.
    #[must_use]
    pub const fn from(&self) -> LinkId {
        self.from
    }

    /// As it was handed over.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// What happens in the cluster, in order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A node is a member. There is no link to it yet.
    Joined(Arc<Member>),
    /// It is no member any more. Its link was lost before.
    Left {
        /// Its number.
        node: NodeId,
        /// Which membership.
        incarnation: Incarnation,
    },
    /// There is a link. Nothing that was handed over before comes over it.
    Linked(Peer),
    /// A batch came.
    Batch(Batch),
    /// The link is lost. Nothing more comes from it.
    Lost {
        /// Which one.
        link: LinkId,
        /// Why.
        cause: Lost,
    },
    /// This node is no member any more: all links were lost before, and nothing more comes.
    /// It may join again.
    Expelled(Expelled),
}
