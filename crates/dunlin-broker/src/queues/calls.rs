//! What links and the nodes that they are attached to say to each other, as values.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Message, ShardId, Text};
use dunlin_queue::Outcome;

use crate::access::OwnRules;
use crate::ids::SessionRef;
use crate::owners::common::Standing;
use crate::queues::options::Kept;
use crate::queues::orders::{Answer, Ask};
use crate::wants::Wants;

/// A link at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node.
    pub(crate) node: SessionRef,
    /// The number of the link there.
    pub(crate) end: usize,
    /// The link.
    pub(crate) link: SessionRef,
}

/// What a link wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// To send to it.
    Send,
    /// To take from it; `settled`: what it takes needs no outcome.
    Take { settled: bool },
    /// To see what waits, which stays.
    Browse,
}

/// What stays of a link that is detached: what its client has not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// The link, as it is known again.
    pub(crate) name: Text,
    /// For so long; `u32::MAX`: until the link is closed.
    pub(crate) secs: u32,
    /// It is in the store, as far as the messages are.
    pub(crate) durable: bool,
    /// The number with which its name was granted; of two links the later one has it.
    pub(crate) serial: u64,
}

/// A link wants a node.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) link: SessionRef,
    pub(crate) address: Text,
    pub(crate) wants: Use,
    /// A node is made if there is none.
    pub(crate) create: Option<Create>,
    pub(crate) user: Option<Text>,
    /// What it takes and does not settle stays its own when it is detached.
    pub(crate) keep: Option<Keep>,
    /// What it takes or sees, if that is not everything.
    pub(crate) search: Option<Wants>,
}

/// What a link finds at its node.
#[derive(Debug)]
pub(crate) struct Found {
    /// The topic filter of a subscription.
    pub(crate) filter: Option<Text>,
    /// The last key that was used for it.
    pub(crate) last_key: u32,
    /// The last message that it may send.
    pub(crate) limit: u32,
    /// Keys of messages that its client has not settled; `None`: they are not kept.
    pub(crate) unsettled: Option<Vec<u32>>,
}

/// What a client that sends has not settled: tags, and whether their messages were
/// accepted.
pub(crate) type Outcomes = Vec<(Bytes, bool)>;

/// What ends a while after the end of a session or connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expiring {
    /// A node without links, and what is kept of the link that had this place.
    Node(Place),
    /// What is kept of a link that sent.
    Terminus { name: Text, link: SessionRef },
}

/// A node to be made.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) kept: Kept,
    /// The topic filter that it is bound to.
    pub(crate) filter: Option<Text>,
    /// Its filter is checked against the rules for its user.
    pub(crate) standing: Standing,
    /// And against these rules of its client.
    pub(crate) rules: Option<Arc<OwnRules>>,
}

/// Why a link does not get its node, or loses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such node.
    NotFound,
    /// There is no room for another node, or the store refused it.
    NoRoom,
    /// It belongs to another user.
    NotYours,
    /// Others use it for something else.
    InUse,
    /// Another link got it.
    Stolen,
    /// It was deleted.
    Deleted,
}

/// What is kept of a link that sent.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) outcomes: Outcomes,
    /// For so long; `u32::MAX`: until the link is closed.
    pub(crate) secs: u32,
    /// They are in the store.
    pub(crate) durable: bool,
    /// Its time runs; else [`Call::Expire`] says so.
    pub(crate) expires: bool,
}

/// A link that waits until a message is with the dead, with its shard and the key.
pub(crate) type Waits = Option<(ShardId, SessionRef, u32)>;

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// A consumer says that it is invalid, or no consumer there is can take it.
    Rejected,
    /// Too many deliveries have failed.
    DeliveryLimit,
    /// It was past its time.
    Expired,
    /// It is not dead: the time has come at which it is published.
    Due,
}

impl Death {
    /// What the annotation says.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::DeliveryLimit => "delivery_limit",
            Self::Expired => "expired",
            Self::Due => "due",
        }
    }
}

/// One call.
#[derive(Debug)]
pub(crate) enum Call {
    /// To a node: attach a link. Answered by `Attached` or `Refused`.
    Attach(Box<Attach>),
    /// To the queues of a shard: a message for this address comes next, of this user. If
    /// there is no such queue it is made; `token`: with the transaction of the sender that
    /// has this one.
    Make {
        address: Text,
        user: Option<Text>,
        token: Option<u64>,
    },
    /// To a node: it may hand over messages up to this key.
    Credit {
        place: Place,
        limit: u32,
        /// What there is, then `Drained`.
        drain: bool,
    },
    /// To a node: a link has sent so many messages, and wants credit for more. Answered
    /// by `Allow` when there is room.
    Want { place: Place, sent: u32 },
    /// To a node: what became of a message. Answered by `Settled`, if wanted, when
    /// the store has it.
    Outcome {
        place: Place,
        key: u32,
        outcome: Outcome,
        /// Message annotations that `modified` adds: an encoded map.
        annotations: Option<Bytes>,
        answer: bool,
    },
    /// To a node: what became of messages counts with a transaction of the sender,
    /// whose batch waits for the part of the node under this token.
    Retire {
        place: Place,
        token: u64,
        outcomes: Vec<(u32, Outcome, Option<Bytes>)>,
    },
    /// To a node: the link is gone; messages after the key `sent` never left.
    Leave {
        place: Place,
        sent: u32,
        closed: bool,
        /// Messages whose outcome is still to come, from transactions.
        keeps: Vec<u32>,
        /// The time of a node without links runs; else [`Call::Expire`] says so.
        expires: bool,
    },
    /// To a node or to what is kept of a link: its time runs, if it has no link.
    Expire(Expiring),
    /// To a node: messages of a link are wanted once more.
    Again { place: Place, keys: Vec<u32> },
    /// To where a name of links is known: a link has it from now on. `keeps`: what
    /// was kept of an earlier one is wanted, answered by `Granted`.
    Claim {
        link: SessionRef,
        name: Text,
        keeps: bool,
    },
    /// Likewise: a link is gone.
    Release {
        link: SessionRef,
        name: Text,
        /// What is kept of it.
        left: Option<Box<Left>>,
    },
    /// To a link: the name is its own.
    Granted {
        link: SessionRef,
        serial: u64,
        outcomes: Outcomes,
    },
    /// To a link that has gone: the outcomes are known that it waited for.
    Gone { link: SessionRef },
    /// To a link: another one has its name now.
    Stolen { link: SessionRef },
    /// To a link: it is attached.
    Attached { place: Place, found: Box<Found> },
    /// To a link: it is not attached, or not any more.
    Refused { link: SessionRef, why: Refusal },
    /// To a link: the last message that it may send.
    Allow { link: SessionRef, limit: u32 },
    /// To a link: a message.
    Deliver {
        link: SessionRef,
        key: u32,
        message: Arc<Message>,
        failed: u16,
        again: bool,
        /// It has had the message under this key before.
        resumed: bool,
    },
    /// To a link: there is nothing more for the credit that it had.
    Drained { link: SessionRef },
    /// To a link: the outcome under this key is final.
    Settled { link: SessionRef, key: u32 },
    /// To the queues of a shard: a client wants something of them. Answered by
    /// `Answered`.
    Ask(Box<Ask>),
    /// To a link: what came of its request with this number.
    Answered {
        link: SessionRef,
        number: u64,
        answer: Box<Answer>,
    },
}
