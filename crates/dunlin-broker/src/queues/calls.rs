//! What links and the nodes that they are attached to say to each other, as values.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Message, Text};
use dunlin_queue::Outcome;

use crate::ids::SessionRef;
use crate::owners::common::Standing;
use crate::queues::options::Kept;
use crate::queues::orders::{Answer, Ask};

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

/// A link wants a node.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) link: SessionRef,
    pub(crate) address: Text,
    pub(crate) wants: Use,
    /// A node is made if there is none.
    pub(crate) create: Option<Create>,
    pub(crate) user: Option<Text>,
}

/// A node to be made.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) kept: Kept,
    /// The topic filter that it is bound to.
    pub(crate) filter: Option<Text>,
    /// Its filter is checked against the rules for its user.
    pub(crate) standing: Standing,
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

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// A consumer says that it is invalid, or no consumer there is can take it.
    Rejected,
    /// Too many deliveries have failed.
    DeliveryLimit,
    /// It was past its time.
    Expired,
}

impl Death {
    /// What the annotation says.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::DeliveryLimit => "delivery_limit",
            Self::Expired => "expired",
        }
    }
}

/// One call.
#[derive(Debug)]
pub(crate) enum Call {
    /// To a node: attach a link. Answered by `Attached` or `Refused`.
    Attach(Box<Attach>),
    /// To a node: it may hand over messages up to this key.
    Credit {
        place: Place,
        limit: u32,
        /// What there is, then `Drained`.
        drain: bool,
    },
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
        outcomes: Vec<(u32, Outcome)>,
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
    /// To a node: its time runs, if it has no link.
    Expire { node: SessionRef },
    /// To a link: it is attached, perhaps to a subscription to this filter.
    Attached { place: Place, filter: Option<Text> },
    /// To a link: it is not attached, or not any more.
    Refused { link: SessionRef, why: Refusal },
    /// To a link: a message.
    Deliver {
        link: SessionRef,
        key: u32,
        message: Arc<Message>,
        failed: u16,
        again: bool,
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
