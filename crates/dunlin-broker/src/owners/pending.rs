//! Work that waits: for other shards to prepare, for the store to commit.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};
use dunlin_queue::Delivery;
use dunlin_store::{Seq, SessionKey, StoreOp};

#[cfg(feature = "amqp")]
use crate::amqp::coordinator::Retirement;
#[cfg(feature = "amqp")]
use crate::amqp::state::PendingAttach;
use crate::ids::SessionRef;
use crate::io::NotTaken;
#[cfg(feature = "mqtt")]
use crate::mqtt::waiting::MqttPending;
use crate::owners::posts;
use crate::owners::routing::Hit;
use crate::queues::calls::{Call, Death, Waits};
use crate::queues::orders::Asked;

/// A delivery whose message is on its way to the store. The session's queue
/// has room reserved for it.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) session: SessionRef,
    pub(crate) delivery: Delivery,
    pub(crate) cost: usize,
}

/// What became of a publish, for who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything that depends on it is stored.
    Accepted,
    /// As accepted, and there is no receiver.
    Unmatched,
    /// It was given to no receiver that keeps it.
    Refused(NotTaken),
}

/// Whether the store has what a publish needs stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InStore {
    Yes,
    /// It has refused that, and may have it all the same, or a part of it.
    Perhaps,
    /// It was not asked.
    No,
}

impl InStore {
    /// After the store has answered.
    pub(crate) const fn answered(stored: bool) -> Self {
        if stored { Self::Yes } else { Self::Perhaps }
    }

    /// Without asking the store: nothing has to be stored, or it is off.
    pub(crate) const fn unasked(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    pub(crate) fn is_yes(self) -> bool {
        self == Self::Yes
    }

    /// Whether it is to be taken out again.
    pub(crate) fn is_perhaps(self) -> bool {
        self == Self::Perhaps
    }
}

/// What a publish needs stored, and what follows then, on one shard.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) ops: Vec<StoreOp>,
    pub(crate) due: Vec<Due>,
    pub(crate) retained: Option<RetainedChange>,
    /// Messages for members of shared subscriptions on edges.
    pub(crate) loans: Vec<(ShardId, Passed)>,
    transacted: Option<Box<Transacted>>,
}

impl Work {
    /// Whether nothing waits for the store.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ops.is_empty()
            && self.due.is_empty()
            && self.retained.is_none()
            && self.loans.is_empty()
            && self.transacted.is_none()
    }

    /// Whether something follows when the batch is stored.
    pub(crate) const fn waits(&self) -> bool {
        !self.due.is_empty() || self.transacted.is_some()
    }

    /// Deliveries that wait for the store.
    pub(crate) fn deliveries(&self) -> usize {
        let once = self.transacted.as_ref().map_or(0, |all| all.once.len());
        self.due.len() + once
    }

    /// What follows of a transaction only, to be added to.
    pub(crate) fn transacted_mut(&mut self) -> &mut Transacted {
        self.transacted.get_or_insert_default()
    }

    /// Messages that are on their way into queues, or have left them with a transaction.
    pub(crate) fn due_and_retired(&self) -> impl Iterator<Item = &Delivery> {
        let retired = self.transacted.iter().flat_map(|all| &all.retired);
        let due = self.due.iter().map(|due| &due.delivery);
        due.chain(retired.map(|it| &it.delivery))
    }

    /// Takes the messages that a transaction makes dead.
    pub(crate) fn take_dead(&mut self) -> Vec<Arc<Message>> {
        let transacted = self.transacted.as_mut();
        transacted.map_or_else(Vec::new, |all| core::mem::take(&mut all.dead))
    }

    /// Takes what follows of a transaction only.
    pub(crate) fn take_transacted(&mut self) -> Option<Box<Transacted>> {
        self.transacted.take()
    }

    /// Adds more work.
    pub(crate) fn add(&mut self, more: Self) {
        self.ops.extend(more.ops);
        self.due.extend(more.due);
        self.retained = more.retained.or_else(|| self.retained.take());
        self.loans.extend(more.loans);
        if let Some(more) = more.transacted {
            let all = self.transacted_mut();
            all.retained.extend(more.retained);
            all.once.extend(more.once);
            all.retired.extend(more.retired);
            all.dead.extend(more.dead);
            all.recorded.extend(more.recorded);
        }
    }
}

/// What a transaction does besides what any publish does, once it is stored; and what
/// few other publishes do.
#[derive(Debug, Default)]
pub(crate) struct Transacted {
    /// Messages that are retained then; other publishes have that done before.
    pub(crate) retained: Vec<Arc<Message>>,
    pub(crate) once: Vec<Once>,
    pub(crate) retired: Vec<Retired>,
    /// Messages that it makes dead, for the queues of their topics.
    pub(crate) dead: Vec<Arc<Message>>,
    /// Nodes whose record goes with it, once for each message; also of one that is no
    /// transaction.
    pub(crate) recorded: Vec<SessionRef>,
}

/// A delivery that the store does not keep.
#[derive(Debug)]
pub(crate) struct Once {
    pub(crate) session: SessionRef,
    pub(crate) hit: Hit,
    pub(crate) message: Arc<Message>,
    pub(crate) retain: bool,
}

/// A message that a transaction has taken out of its node, or from a link that has it
/// of a topic.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) node: SessionRef,
    pub(crate) delivery: Delivery,
    pub(crate) fate: Fate,
    /// What its receivers have added to it, if this one has.
    pub(crate) added: Option<Arc<[u8]>>,
    /// Links whose clients did not take it.
    pub(crate) refusers: Vec<SessionRef>,
    /// The link whose client does not take it with this outcome.
    pub(crate) here: Option<SessionRef>,
    /// Where the store has it.
    pub(crate) queue: SessionKey,
}

/// A message of a node that is dead.
#[derive(Debug)]
pub(crate) struct Dead {
    pub(crate) node: SessionRef,
    pub(crate) delivery: Delivery,
    pub(crate) death: Death,
    pub(crate) waits: Waits,
}

/// Messages of a node that an operator moves to another, all or none.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) node: SessionRef,
    /// In the order in which they left the queue.
    pub(crate) deliveries: Vec<Delivery>,
    /// The number of the request.
    pub(crate) operator: u64,
}

/// What becomes of a message of a node with an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done with.
    Done,
    /// It cannot be delivered, and goes.
    Dead,
    /// As dead, to the queue for that.
    Buried(Death),
    /// It waits again, after so many attempts if this one has failed.
    Waits(Option<u16>),
}

/// A publish that is not settled yet. Small, as it is moved around; few have a
/// rest.
#[derive(Debug, Default)]
pub(crate) struct PendingPublish {
    /// Publisher's session, and whether an acknowledgement is due there.
    pub(crate) origin: Option<SessionRef>,
    /// Shards that have not said what they need stored.
    pub(crate) preparing: u32,
    /// Nothing but an acknowledgement comes of it.
    pub(crate) unmatched: bool,
    pub(crate) refused: Option<NotTaken>,
    /// It is a will: nothing but the store refuses it.
    pub(crate) lossy: bool,
    rest: Option<Box<Rest>>,
}

/// They wait in a list, in which they are moved.
const _: () = assert!(size_of::<PendingPublish>() <= 48, "its rare parts in a box");

/// What few publishes have.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// What is to be stored, here and for the others, and what follows here.
    pub(crate) work: Work,
    /// Shards that wait for the outcome.
    pub(crate) participants: Vec<ShardId>,
    /// A session's record, which is stored with it.
    pub(crate) record: Option<Record>,
    /// It moves a message of a node to the queue for the dead.
    pub(crate) dead: Option<Box<Dead>>,
    /// It moves messages of a node to another.
    pub(crate) moved: Option<Box<Moved>>,
    /// Deliveries whose outcome is decided with it.
    #[cfg(feature = "amqp")]
    pub(crate) retirements: Vec<Retirement>,
    /// Bytes of it that count as unstored.
    pub(crate) unstored: usize,
    /// It is a transaction.
    pub(crate) transacted: bool,
    /// An edge waits for what becomes of it, under this token.
    pub(crate) relayed: Option<(ShardId, u64)>,
    /// An operator waits for what becomes of it, under this number.
    pub(crate) operator: Option<u64>,
    /// What homes with other stores are to do with it.
    pub(crate) posts: Vec<posts::New>,
    /// It is what this shard has posted.
    pub(crate) taken: Option<ShardId>,
    /// It posts what a member of a group had, to a home with another store.
    pub(crate) passed: Option<Box<(ShardId, Passed)>>,
}

impl Rest {
    /// Messages that are on their way into queues, or out of them, with it.
    pub(crate) fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        let dead = self.dead.iter().map(|dead| &dead.delivery);
        let moved = self.moved.iter().flat_map(|moved| &moved.deliveries);
        self.work.due_and_retired().chain(dead).chain(moved)
    }
}

impl PendingPublish {
    pub(crate) const fn new(origin: Option<SessionRef>, lossy: bool) -> Self {
        Self {
            origin,
            preparing: 0,
            unmatched: false,
            refused: None,
            lossy,
            rest: None,
        }
    }

    /// It is off; the first reason is the one that its publisher hears.
    pub(crate) fn refuse(&mut self, why: NotTaken) {
        self.refused.get_or_insert(why);
    }

    /// The rest, to be added to.
    pub(crate) fn rest_mut(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    /// What is to be stored, if there is anything.
    pub(crate) fn ops_mut(&mut self) -> Option<&mut Vec<StoreOp>> {
        let rest = self.rest.as_deref_mut()?;
        Some(&mut rest.work.ops).filter(|ops| !ops.is_empty())
    }

    /// The rest, if there is one.
    pub(crate) fn rest(&self) -> Option<&Rest> {
        self.rest.as_deref()
    }

    /// Takes the rest.
    pub(crate) fn take_rest(&mut self) -> Option<Box<Rest>> {
        self.rest.take()
    }

    /// Has more work done with it.
    pub(crate) fn add_work(&mut self, work: Work) {
        if !work.is_empty() {
            self.rest_mut().work.add(work);
        }
    }

    /// Whether it is a transaction: all of it holds or none, and what holds is seen
    /// when it is stored.
    pub(crate) fn is_transacted(&self) -> bool {
        self.rest().is_some_and(|rest| rest.transacted)
    }
}

/// A message of a shared subscription on its way from one member to another.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) delivery: Delivery,
    /// Where it is in the store: the queue of the group, or the session that had it.
    pub(crate) queue: Option<SessionKey>,
    /// Who had it.
    pub(crate) old: SessionRef,
    /// That session has ended.
    pub(crate) ends: bool,
    /// No member of the shard that was asked, or of an edge, takes it.
    pub(crate) returned: bool,
}

/// What becomes of a session's record when its will is stored: until then the
/// record has the will, or a crash would lose it.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// It is written as the session is then.
    Put(SessionRef),
    /// It goes.
    Delete(SessionKey, Text),
}

/// A change of a retained message that is on its way to the store.
#[derive(Debug)]
pub(crate) struct RetainedChange {
    pub(crate) topic: Text,
    /// Its place among the changes of its topic.
    pub(crate) order: u64,
}

/// A node whose binding is not in force everywhere yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingBinding {
    pub(crate) node: SessionRef,
    /// Shards that have not answered.
    pub(crate) waiting: usize,
}

/// A message that is removed from a node, whose link waits for that.
#[derive(Debug)]
pub(crate) struct Settlement {
    /// The session under which the store has it.
    pub(crate) session: SessionKey,
    pub(crate) seq: Seq,
    /// Of the link.
    pub(crate) shard: ShardId,
    pub(crate) link: SessionRef,
    pub(crate) key: u32,
}

/// Work of the front of a protocol.
#[derive(Debug)]
pub(crate) enum FrontPending {
    #[cfg(feature = "mqtt")]
    Mqtt(MqttPending),
    #[cfg(feature = "amqp")]
    Amqp(PendingAttach),
}

#[cfg(feature = "mqtt")]
impl From<MqttPending> for Pending {
    fn from(pending: MqttPending) -> Self {
        Self::Front(FrontPending::Mqtt(pending))
    }
}

#[cfg(feature = "amqp")]
impl From<PendingAttach> for Pending {
    fn from(pending: PendingAttach) -> Self {
        Self::Front(FrontPending::Amqp(pending))
    }
}

/// A message that a link is to have when the store knows its key there.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) node: SessionRef,
    /// Of the link.
    pub(crate) name: Text,
    pub(crate) key: u32,
}

/// A queue that is being emptied.
#[derive(Debug)]
pub(crate) struct Purge {
    pub(crate) asked: Asked,
    pub(crate) node: SessionRef,
    /// Messages that are still to be removed, and those that were.
    pub(crate) left: usize,
    pub(crate) removed: u64,
}

/// The part of a publish of an edge that is stored here.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its shard and token.
    pub(crate) from: (ShardId, u64),
    /// What follows.
    pub(crate) work: Work,
}

/// What a shard is still to be given that has joined.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) to: ShardId,
    pub(crate) next: Chapter,
}

/// Parts of an introduction, and what each goes on after.
#[derive(Debug)]
pub(crate) enum Chapter {
    /// Plain filters.
    Filters(Option<Text>),
    /// `$share` filters, by group and filter.
    Groups(Option<(Text, Text)>),
    /// Retained messages of topics whose home is here.
    Retained(Option<Text>),
}

/// The part of a transaction of another shard that is prepared here.
#[derive(Debug)]
pub(crate) struct Promise {
    /// Its shard and token.
    pub(crate) from: (ShardId, u64),
    pub(crate) work: Work,
    pub(crate) refused: Option<NotTaken>,
}

/// Work that waits under a token.
#[derive(Debug)]
pub(crate) enum Pending {
    Publish(PendingPublish),
    Front(FrontPending),
    /// A session has ended, and its record with it.
    Forget {
        session: SessionKey,
        client_id: Text,
    },
    /// The queue of a group of a shared subscription.
    Group {
        share: Text,
        queue: SessionKey,
    },
    /// A new node waits for its record.
    Node(SessionRef),
    Binding(PendingBinding),
    Settlement(Box<Settlement>),
    Acquired(Box<Acquired>),
    /// A link of this shard hears that it is attached when what it has settled is
    /// removed: after a restart it would be said to be its own.
    Attached(ShardId, Box<Call>),
    /// A changed node waits for its record.
    Change(SessionRef),
    /// A client waits until a queue is forgotten.
    Delete(Asked),
    Purge(Box<Purge>),
    /// A dead message whose link waits until it is with the dead.
    Bury(Box<Dead>),
    /// Dead messages of this node wait for the home of their queue.
    Unburied(SessionRef),
    /// An operator waits for what was written, under this number.
    Operator(u64),
    /// What a transaction of another shard takes here, that is still to be answered.
    Promise(Box<Promise>),
    /// What is durable of a publish of an edge, that is still to be answered.
    Part(Box<Part>),
    /// A shard that has joined is still being given what it has to know.
    Introduction(Box<Introduction>),
    /// What the store has refused of what this shard has posted is taken out of it.
    Take(ShardId),
    /// Receivers had no room for what this shard has posted.
    Untaken(ShardId),
    /// What a member of a group had, for a home with another store.
    Pass(Box<(ShardId, Passed)>),
    /// Posts in this queue of the store are removed: they are taken.
    Posted(SessionKey, Vec<Seq>),
    /// A session's messages could not be read.
    Load {
        session: SessionRef,
    },
}
