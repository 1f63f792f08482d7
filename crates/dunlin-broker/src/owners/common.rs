//! What connections and sessions of every protocol have in common.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, Text};
use dunlin_store::SessionKey;

use crate::access::{Access, Action, Actor, Decided, Decision, Grounds, OwnRules};
use crate::auth::By;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::holders::Charge;
use crate::owners::timers::Alarm;
use crate::owners::walks::Walks;
use crate::quotas::{Pace, Subject};

/// Who a client says that it is, until it has its session.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) client_id: Text,
    pub(crate) user: Option<Text>,
}

/// The outcome of authentication, on its way into a session.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) user: Option<Text>,
    pub(crate) standing: Standing,
    /// When the token expires that proves it.
    pub(crate) expires: Option<Instant>,
    /// What proves it, if that is neither the password file nor a certificate.
    pub(crate) by: Option<By>,
    /// What it may do besides what the access list says.
    pub(crate) rules: Option<Arc<OwnRules>>,
    /// Last message of an enhanced authentication, for CONNACK.
    pub(crate) data: Option<Bytes>,
}

/// What every network connection has: its place among the others of this shard.
#[derive(Debug)]
pub(crate) struct ConnCore {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
    /// In the shard's list of connections to flush.
    pub(crate) dirty: bool,
    /// Queued messages wait for the transport.
    pub(crate) blocked: bool,
    /// Reading is paused.
    pub(crate) paused: bool,
    /// It is held until retained messages are stored.
    pub(crate) unstored: bool,
    /// Questions about topics that a server has not answered.
    pub(crate) asked: u16,
    /// How fast it may send, if there is a limit.
    pub(crate) pace: Option<Box<Pace>>,
    /// This receiver is behind.
    pub(crate) behind: Option<Box<Behind>>,
    pub(crate) alarm: Alarm,
    /// What the budget counts for it.
    pub(crate) weight: ConnWeight,
    /// Who that is charged to, if it is much.
    pub(crate) charge: Option<Box<Charge>>,
}

/// A receiver that is behind.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) since: Instant,
    /// Publishers that it holds up.
    pub(crate) holds: Vec<ConnId>,
}

impl Behind {
    pub(crate) const fn new(since: Instant) -> Self {
        Self {
            since,
            holds: Vec::new(),
        }
    }
}

impl ConnCore {
    pub(crate) fn new(id: ConnId, peer: Peer) -> Self {
        Self {
            id,
            peer,
            dirty: false,
            blocked: false,
            paused: false,
            unstored: false,
            asked: 0,
            pace: None,
            behind: None,
            alarm: Alarm::default(),
            weight: ConnWeight::default(),
            charge: None,
        }
    }
}

/// Who vouches for the user name of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A certificate; or there is no name.
    #[default]
    Open,
    /// The password file.
    Listed,
    /// The password file, which has the user no longer: nothing is allowed.
    Gone,
    /// It is the server's own: everything is allowed.
    Server,
    /// A token is still to come: nothing is allowed.
    Unproved,
}

/// Topics that a session was last allowed to publish to, so that the access
/// list is not asked for each message.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    topics: [Text; ALLOWED_MAX],
    next: usize,
}

/// Topics in [`Allowed`].
const ALLOWED_MAX: usize = 4;

impl Allowed {
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.topics.iter().any(|known| *known == *topic)
    }

    pub(crate) fn add(&mut self, topic: &str) {
        if let Some(place) = self.topics.get_mut(self.next) {
            *place = Text::from(topic);
        }
        self.next = (self.next + 1) % ALLOWED_MAX;
    }
}

/// Publishes of a client that are not yet given to the store, in order; none while
/// nothing waits for other shards. Bounded by what its front lets it send without an
/// answer.
#[derive(Debug, Default)]
#[allow(
    clippy::box_collection,
    reason = "most sessions have none, and a pointer is a quarter of it"
)]
pub(crate) struct Line(Option<Box<VecDeque<u64>>>);

impl Line {
    pub(crate) fn front(&self) -> Option<u64> {
        self.0.as_ref()?.front().copied()
    }

    pub(crate) fn push(&mut self, token: u64) {
        self.0.get_or_insert_default().push_back(token);
    }

    pub(crate) fn pop(&mut self) {
        if let Some(line) = &mut self.0 {
            line.pop_front();
        }
    }

    pub(crate) fn take(&mut self) -> VecDeque<u64> {
        self.0.take().map_or_else(VecDeque::new, |line| *line)
    }
}

/// Publishes of one session that the store has, of a client that cannot be refused: it is
/// cut off, and sends again what it has heard nothing of. What is behind a refused publish
/// must not be there before that.
#[derive(Debug, Default)]
pub(crate) struct Storing {
    /// How many of them.
    count: u32,
    /// In which round of the store they are.
    round: u32,
    /// The store has refused one: those up to this token are off as well.
    off_up_to: u64,
}

impl Storing {
    /// Another one is in this round.
    pub(crate) const fn begin(&mut self, round: u32) {
        self.count = self.count.saturating_add(1);
        self.round = round;
    }

    /// One is stored, or refused; whether it was the last.
    pub(crate) const fn end(&mut self) -> bool {
        let is_last = self.count == 1;
        self.count = self.count.saturating_sub(1);
        is_last
    }

    /// Whether some are in another round than this one: one in this round could be stored
    /// though those are refused.
    pub(crate) const fn is_behind(&self, round: u32) -> bool {
        self.count > 0 && self.round != round
    }

    /// One is refused: those up to this token are off.
    pub(crate) const fn stop(&mut self, up_to: u64) {
        self.off_up_to = up_to;
    }

    /// Whether one is off that was behind a refused one.
    pub(crate) const fn is_off(&self, token: u64) -> bool {
        token <= self.off_up_to
    }
}

/// What every session has: its place among the others of this shard.
#[derive(Debug)]
pub(crate) struct SessionCore {
    pub(crate) key: SessionKey,
    pub(crate) client_id: Text,
    /// Whom it belongs to.
    pub(crate) user: Option<Text>,
    pub(crate) standing: Standing,
    /// What vouches for it brought these.
    pub(crate) rules: Option<Arc<OwnRules>>,
    pub(crate) allowed: Option<Box<Allowed>>,
    /// What a server has said of topics.
    pub(crate) decided: Option<Box<Decided>>,
    /// What waits or is in flight may come from a time of other rules.
    pub(crate) recheck: bool,
    pub(crate) conn: Option<ConnIdx>,
    pub(crate) walks: Walks,
    pub(crate) preparing: Line,
    pub(crate) storing: Storing,
    pub(crate) alarm: Alarm,
    /// What the budget counts for it.
    pub(crate) weight: Weight,
    /// Who that is charged to.
    pub(crate) charge: Charge,
    /// Its queue is full, and the log has it.
    pub(crate) full: bool,
}

impl SessionCore {
    pub(crate) fn new(key: SessionKey, client_id: Text) -> Self {
        Self {
            key,
            client_id,
            user: None,
            standing: Standing::Open,
            rules: None,
            allowed: None,
            decided: None,
            recheck: false,
            conn: None,
            walks: Walks::default(),
            preparing: Line::default(),
            storing: Storing::default(),
            alarm: Alarm::default(),
            weight: Weight::default(),
            charge: Charge::default(),
            full: false,
        }
    }

    /// Whom a quota is for: a session, or its connection to a listener.
    pub(crate) fn subject<'a>(&'a self, access: &'a Access, listener: Option<u16>) -> Subject<'a> {
        Subject {
            client_id: &self.client_id,
            user: self.user.as_deref(),
            listener,
            rules: self.rules.as_deref(),
            acl: access.acl.as_deref(),
        }
    }

    /// Whether the rules, or a server, let it do this.
    #[inline]
    pub(crate) fn may(&self, access: &Access, action: Action, topic: &str) -> bool {
        if self.rules.is_none() && access.is_free() {
            return !matches!(self.standing, Standing::Gone | Standing::Unproved);
        }
        self.is_let(access, action, topic)
    }

    fn is_let(&self, access: &Access, action: Action, topic: &str) -> bool {
        match self.decide(access, action, topic) {
            Decision::Allowed => true,
            Decision::Denied => false,
            Decision::Open => self.said(action, topic).unwrap_or_default(),
        }
    }

    /// What the server has said, if it has. What a client has subscribed to it receives.
    fn said(&self, action: Action, topic: &str) -> Option<bool> {
        match action {
            Action::Receive => Some(true),
            action => self.decided.as_ref()?.says(action, topic),
        }
    }

    /// Whether it keeps a subscription that it has.
    pub(crate) fn keeps(&self, access: &Access, filter: &str) -> bool {
        match self.decide(access, Action::Subscribe, filter) {
            Decision::Allowed => true,
            Decision::Denied => false,
            Decision::Open => self.said(Action::Subscribe, filter).unwrap_or(true),
        }
    }

    /// Whether it may have a subscription whose messages are checked one by one.
    pub(crate) fn may_in_part(&self, access: &Access, filter: &str) -> bool {
        match self.decide_part(access, filter) {
            Decision::Allowed => true,
            Decision::Denied => false,
            Decision::Open => self.said(Action::Subscribe, filter).unwrap_or_default(),
        }
    }

    /// What the rules say of such a subscription.
    pub(crate) fn decide_part(&self, access: &Access, filter: &str) -> Decision {
        match self.standing {
            Standing::Gone | Standing::Unproved => Decision::Denied,
            Standing::Server => Decision::Allowed,
            Standing::Open | Standing::Listed => access.decide_part(self.actor(), filter),
        }
    }

    /// What the rules say.
    pub(crate) fn decide(&self, access: &Access, action: Action, topic: &str) -> Decision {
        match self.standing {
            Standing::Gone | Standing::Unproved => Decision::Denied,
            Standing::Server => Decision::Allowed,
            Standing::Open | Standing::Listed => access.decide(self.actor(), action, topic),
        }
    }

    /// As [`SessionCore::may`], with what decides.
    pub(crate) fn explain(&self, access: &Access, action: Action, topic: &str) -> (bool, Grounds) {
        match self.standing {
            Standing::Gone | Standing::Unproved => (false, Grounds::Standing),
            Standing::Server => (true, Grounds::Standing),
            Standing::Open | Standing::Listed => {
                match access.explain(self.actor(), action, topic) {
                    (Decision::Open, _) if action == Action::Receive => (true, Grounds::Nothing),
                    (Decision::Open, _) => match self.said(action, topic) {
                        Some(allowed) => (allowed, Grounds::Asked),
                        None => (false, Grounds::Unasked),
                    },
                    (decision, grounds) => (decision == Decision::Allowed, grounds),
                }
            }
        }
    }

    fn actor(&self) -> Actor<'_> {
        Actor {
            user: self.user.as_deref(),
            client_id: &self.client_id,
            rules: self.rules.as_deref(),
        }
    }

    /// This session, whose place is `at`, for later.
    pub(crate) const fn reference(&self, at: SessionIdx) -> SessionRef {
        SessionRef { key: self.key, at }
    }
}

/// Bytes of one connection, in half of a `usize`. More than 4 GiB count as 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes32(u32);

impl From<usize> for Bytes32 {
    fn from(bytes: usize) -> Self {
        Self(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

impl From<Bytes32> for usize {
    fn from(bytes: Bytes32) -> Self {
        bytes.0 as Self
    }
}

/// What a session takes of the budget, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) sessions: usize,
    pub(crate) subscriptions: usize,
    pub(crate) wills: usize,
    pub(crate) queued: usize,
}

impl Weight {
    pub(crate) const fn sum(&self) -> usize {
        let lasting = self.sessions + self.subscriptions + self.wills;
        lasting + self.queued
    }
}

/// What a connection takes of the budget, by part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnWeight {
    pub(crate) unsent: Bytes32,
    pub(crate) unfinished: Bytes32,
}

impl ConnWeight {
    pub(crate) fn sum(&self) -> usize {
        usize::from(self.unsent) + usize::from(self.unfinished)
    }
}
