//! The name of a link, and what stays of a link when it is detached whose client sends
//! and settles last: outcomes, by tag.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use dunlin_amqp::{Body, SessionId, Tag};
use dunlin_base::{ShardId, Text};

use crate::owners::termini::OUTCOME_BYTES;
use crate::queues::calls::Attach;

/// Messages of a link whose client settles last that it has not settled. It gets no
/// credit for more.
const UNSETTLED_MAX: usize = 1000;

/// Outcomes that are counted at a time.
const OUTCOMES_GROUP: usize = 64;

/// The name of a link.
#[derive(Debug)]
pub(crate) struct Terminus {
    pub(crate) name: Text,
    /// Where it is known who has it.
    pub(crate) home: ShardId,
    pub(crate) keep: Option<Keep>,
}

/// What stays of a link of a client that sends and settles last.
#[derive(Debug)]
pub(crate) struct Keep {
    pub(crate) span: Span,
    /// That the link is on.
    pub(crate) session: SessionId,
    /// Whether the messages were accepted that the client has not settled.
    pub(crate) outcomes: BTreeMap<Tag, bool>,
    /// Messages without outcome, by token, and whether the client has settled them.
    pub(crate) pending: BTreeMap<u64, (Tag, bool)>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) ended: Option<Ended>,
}

/// How long something stays when a link is detached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) secs: u32,
    pub(crate) scope: Scope,
    pub(crate) durable: bool,
}

/// What the client asked for, until the name is granted.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) attach: Body,
    /// The node that it is to be attached to, if it is none of topics.
    pub(crate) node: Option<(ShardId, Box<Attach>)>,
}

/// A link that is gone, but for outcomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) closed: bool,
    /// The time of what is kept runs.
    pub(crate) expires: bool,
}

impl Keep {
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.is_some() || !self.pending.is_empty()
    }

    /// Messages that the client may have sent and not settled.
    pub(crate) fn room(&self) -> usize {
        let used = self.outcomes.len() + self.pending.len();
        UNSETTLED_MAX.saturating_sub(used)
    }
}

impl Terminus {
    pub(crate) fn keep_mut(&mut self) -> Option<&mut Keep> {
        self.keep.as_mut()
    }

    /// Bytes that it takes, with outcomes by the group.
    pub(crate) fn bytes(&self) -> usize {
        let outcomes = self.keep.as_ref().map_or(0, |keep| keep.outcomes.len());
        self.name.len() + outcomes.next_multiple_of(OUTCOMES_GROUP) * OUTCOME_BYTES
    }
}

/// What has to end before the time of a node runs that has no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Link,
    Session,
    Connection,
}
