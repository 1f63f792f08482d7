//! What a coordinator of AMQP transactions keeps: messages that are posted and
//! outcomes that count when a transaction is committed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_amqp::codec::Symbol;
use dunlin_amqp::{Delivery, State};
use dunlin_base::{Instant, Message, ShardId};
use dunlin_queue::Outcome;
use dunlin_store::SessionKey;

use crate::ids::SessionRef;
use crate::queues::calls::Place;

/// The number that a transaction is known by; its id on the wire is these eight
/// bytes, the highest first.
pub(crate) type TransactionId = u64;

/// A link to the coordinator, with its transactions.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    pub(crate) transactions: BTreeMap<TransactionId, Transaction>,
    /// Commits that are not decided, by the token of their batch: the message that asked
    /// for each.
    pub(crate) discharging: BTreeMap<u64, Delivery>,
    /// Demands that the client may send.
    pub(crate) credit: u32,
    /// Bytes of all messages that are posted.
    pub(crate) bytes: usize,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// When it is rolled back.
    pub(crate) expires: Instant,
    pub(crate) posts: Vec<Post>,
    /// By link and key of the delivery.
    pub(crate) retired: BTreeMap<(SessionKey, u32), Retirement>,
    /// Bytes of `posts`.
    pub(crate) bytes: usize,
    /// Why it was rolled back before it was discharged.
    pub(crate) failed: Option<Symbol<'static>>,
}

/// A message of a transaction.
#[derive(Debug)]
pub(crate) struct Post {
    /// The link that it came on.
    pub(crate) from: SessionRef,
    pub(crate) message: Arc<Message>,
    pub(crate) to_queue: bool,
    /// Its link has no address: its queue is made with it, if there is none.
    pub(crate) is_relayed: bool,
}

/// A delivery whose outcome is part of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Retirement {
    /// The link that it was sent on.
    pub(crate) link: SessionRef,
    pub(crate) key: u32,
    /// Where it was taken from, if from a node.
    pub(crate) node: Option<(ShardId, Place)>,
    pub(crate) outcome: Outcome,
    pub(crate) delivery: Delivery,
    /// As the client said it.
    pub(crate) state: State,
    /// The client has settled it, or its link is gone.
    pub(crate) settled: bool,
}

impl Retirement {
    /// Whether it is done with the message of a topic, which no other gets then.
    pub(crate) const fn ends_topic(&self) -> bool {
        self.node.is_none() && matches!(self.outcome, Outcome::Accepted | Outcome::Rejected)
    }
}

impl Transaction {
    pub(crate) const fn new(expires: Instant) -> Self {
        Self {
            expires,
            posts: Vec::new(),
            retired: BTreeMap::new(),
            bytes: 0,
            failed: None,
        }
    }

    /// Messages and outcomes in it.
    pub(crate) fn operations(&self) -> usize {
        self.posts.len() + self.retired.len()
    }
}

impl Coordinator {
    /// Messages that it holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let posts = self.transactions.values().flat_map(|it| it.posts.iter());
        posts.map(|post| &post.message)
    }

    /// When the next transaction is rolled back.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let open = self.transactions.values().filter(|it| it.failed.is_none());
        open.map(|transaction| transaction.expires).min()
    }
}
