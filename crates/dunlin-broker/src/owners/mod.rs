//! The owners of a shard, wired: connections, sessions, routing, commits, and the
//! budget of what they keep.
//! What happens to a packet is a function over them, in the file of its name;
//! each of these functions gets the owners and hands its result on, in one
//! direction: front, routing, queues, commits, front.

pub(crate) mod aside;
pub(crate) mod audit;
pub(crate) mod away;
pub(crate) mod budget;
mod calling;
pub(crate) mod commits;
pub(crate) mod common;
pub(crate) mod conn;
pub(crate) mod connections;
pub(crate) mod delayed;
pub(crate) mod elsewhere;
pub(crate) mod end;
pub(crate) mod figures;
pub(crate) mod groups;
pub(crate) mod holders;
pub(crate) mod kind;
pub(crate) mod leaving;
pub(crate) mod loans;
pub(crate) mod members;
pub(crate) mod missing;
pub(crate) mod node;
pub(crate) mod outbox;
pub(crate) mod pending;
pub(crate) mod places;
pub(crate) mod posts;
pub(crate) mod room;
pub(crate) mod routing;
pub(crate) mod senders;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod stores;
pub(crate) mod subscribers;
pub(crate) mod termini;
pub(crate) mod timers;
pub(crate) mod unstored;
pub(crate) mod walks;
pub(crate) mod weigh;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{Instant, ShardId, StreamId, Text};
use dunlin_queue::Delivery;
use dunlin_store::{Seq, SessionKey, StoreOp};

use crate::access::{self, Access, Action};
use crate::auth::{AuthPolicy, Partial};
use crate::bans::Bans;
use crate::config::Config;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::Event;
use crate::owners::audit::Audit;
use crate::owners::budget::Budget;
use crate::owners::commits::Commits;
use crate::owners::connections::Connections;
use crate::owners::figures::Figures;
use crate::owners::members::Members;
use crate::owners::outbox::Outbox;
use crate::owners::pending::{Dead, InStore, Moved, Passed, Pending, Retired};
use crate::owners::routing::Routing;
use crate::owners::session::Session;
use crate::owners::sessions::Sessions;
use crate::owners::termini::Termini;
use crate::owners::timers::{Timer, Timers};
use crate::owners::unstored::Unstored;
use crate::queues::calls::{Call, Death, Waits};
use crate::random::Generator;
use crate::stats::Stats;
use crate::topics::sparkplug::CERTIFICATES;

/// Work that a function leaves for the end of the call, because it may reach
/// any connection and so must not happen in the middle of another one's work.
#[derive(Debug)]
pub(crate) enum Later {
    /// Messages for a session came faster than its client took them, and it ends
    /// with its connection.
    Behind(SessionRef),
    /// A publish cannot be kept, and the protocol of the connection has no way to
    /// say so.
    Unkept(ConnIdx),
    /// Handle what came before CONNACK, or before a link was attached.
    Unpark(ConnIdx),
    /// Connections that wait for who their client is, on streams of this one, may
    /// know it now.
    Inherit(ConnIdx),
    /// End a data stream whose last acknowledgement has left.
    EndStream(ConnIdx, StreamId),
    /// Give a message that this session has released to another member of its
    /// group. If there is none it gets it again, or the message is over.
    Return(SessionRef, Box<Delivery>, bool),
    /// Give a message of a shared subscription to another member: this session
    /// has ended.
    GiveAgain(SessionRef, Box<Delivery>),
    /// A member of a shared subscription on an edge gets a message.
    Lend(Box<(ShardId, Passed)>),
    /// A home with another store gets what is posted to it.
    Post(ShardId),
    /// A publish has room for its post to this home, for which others may wait.
    Admitted(ShardId, u64),
    /// What a shard has posted is stored, or refused.
    Taken(ShardId, InStore),
    /// A link or node of this shard hears from another.
    Call(Call),
    /// A message of a node is dead.
    Bury(Box<Dead>),
    /// A dead message is where it is to be, or the store has refused that.
    Buried(Box<Dead>, bool),
    /// Messages of a node are in another, or the store or that node has refused them.
    Moved(Box<Moved>, bool),
    /// The transaction is stored that has taken these messages out of their nodes,
    /// or it is off.
    Retired(Vec<Retired>, bool),
    /// A batch is stored that has the record of these nodes, or it is off.
    Recorded(Vec<SessionRef>, bool),
}

/// The owners, and what all of them need.
#[derive(Debug)]
pub(crate) struct Owners {
    pub(crate) config: Config,
    pub(crate) access: Access,
    pub(crate) bans: Arc<Bans>,
    pub(crate) now: Instant,
    pub(crate) random: Generator,
    pub(crate) conns: Connections,
    pub(crate) sessions: Sessions,
    pub(crate) routing: Routing,
    pub(crate) commits: Commits,
    pub(crate) unstored: Unstored,
    pub(crate) budget: Budget,
    pub(crate) termini: Termini,
    pub(crate) timers: Timers,
    pub(crate) members: Members,
    pub(crate) outbox: Outbox,
    pub(crate) later: VecDeque<Later>,
    pub(crate) stats: Stats,
    pub(crate) audit: Audit,
    pub(crate) figures: Box<Figures>,
    pub(crate) shutting_down: bool,
}

/// Time until what the store refused is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Another shard answers what this one has not asked. At an edge that is an answer to the
/// one that had its number before; everywhere else it is a bug, and counted.
pub(crate) fn note_unasked(own: &Owners) {
    if !own.members.is_edge() {
        own.outbox.note_missing();
    }
}

/// So many posts, or values that say how far they are taken, cannot be read.
pub(crate) fn note_unreadable_posts(own: &mut Owners, count: u64) {
    if count > 0 {
        own.stats.posts_unreadable += count;
        own.outbox.event(Event::PostsUnreadable(count));
    }
}

impl Owners {
    /// Asks again, after a while, for what the protocol cannot go on without.
    pub(crate) fn retry_later(&mut self, pending: Pending) {
        if self.commits.keep_refused(pending) {
            self.timers.set(self.now + RETRY_AFTER, Timer::Retry);
        }
    }

    pub(crate) fn new(config: Config, now: Instant) -> Self {
        let shard = config.shard;
        let members = Members::new(shard, config.homes(), config.nodes.homes_per_store);
        let mut random = Generator::new(config.secret.clone(), shard, config.nodes.incarnation);
        let hash_key = random.next() as u64;
        Self {
            access: Access::default(),
            bans: Arc::default(),
            now,
            random,
            conns: Connections::default(),
            sessions: Sessions::new(shard, config.nodes.incarnation),
            routing: Routing::new(hash_key),
            commits: Commits::new(shard, config.durable, config.nodes.incarnation),
            unstored: Unstored::default(),
            budget: Budget::new(
                config.memory.clone(),
                (config.shards, members.len()),
                config.counts_sessions(),
            ),
            termini: Termini::default(),
            timers: Timers::default(),
            outbox: Outbox::new(shard, members.others()),
            members,
            later: VecDeque::new(),
            stats: Stats::default(),
            audit: Audit::new(now),
            figures: Box::default(),
            shutting_down: false,
            config,
        }
    }

    /// Whether the client of a connection is banned, as far as it is known: counted if
    /// so. The broker's own bridges never are.
    pub(crate) fn is_banned(&mut self, c: ConnIdx, client_id: &str, user: Option<&Text>) -> bool {
        let peer = self.conns.peek(c).map(|conn| &conn.peer);
        let peer = peer.filter(|peer| !self.config.bridges.is_own(peer));
        let address = peer.map(|peer| peer.addr.ip());
        let banned =
            address.is_some_and(|address| self.bans.has(client_id, user, address, self.now));
        self.stats.clients_banned += u64::from(banned);
        banned
    }

    /// What a listener asks of a client.
    pub(crate) fn policy(&self, listener: u16) -> AuthPolicy {
        let policy = self.config.listeners.get(usize::from(listener)).copied();
        policy.unwrap_or_default()
    }

    /// Stops or resumes reading from a connection. One that is held for the store, has
    /// sent faster than it may or waits for a server's answer is not read before that lets it go on.
    pub(crate) fn pause(&mut self, c: ConnIdx, paused: bool) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let is_paced = conn.pace.as_ref().is_some_and(|pace| pace.held);
        let paused = paused || conn.unstored || is_paced || conn.asked > 0;
        if conn.paused != paused {
            conn.paused = paused;
            let (conn, kind) = conn.reading(paused);
            self.outbox.command(conn, kind);
        }
    }

    /// A message of a node is dead, and goes where such messages go; `waits`: a link that
    /// hears when it is there.
    pub(crate) fn bury(&mut self, s: SessionIdx, delivery: Delivery, death: Death, waits: Waits) {
        let Some(node) = self.sessions.node_mut(s) else {
            return;
        };
        node.taken.begin_leaving(&delivery);
        self.later.push_back(Later::Bury(Box::new(Dead {
            node: node.reference(s),
            delivery,
            death,
            waits,
        })));
        self.weigh_queue(s);
    }

    /// Has the store remove a message from the queue of a session.
    pub(crate) fn dequeue(&mut self, session: SessionKey, seq: Option<u64>) {
        let Some(seq) = seq.map(Seq) else {
            return;
        };
        if self.members.is_edge() {
            let loans = &mut self.routing.loans;
            return loans.give_back(&mut self.outbox, seq.0, true);
        }
        let session = self.commits.take_queue(session, seq);
        self.commits.write(StoreOp::Dequeue { seq, session });
    }

    /// Whether only the server publishes to a topic.
    pub(crate) fn is_reserved(&self, topic: &str) -> bool {
        let topics = &self.config.topics;
        access::is_reserved(topic) || (topics.sparkplug && topic.starts_with(CERTIFICATES))
    }

    /// Access control for a session. The server's own topics are never a
    /// client's to publish.
    pub(crate) fn may(&self, s: SessionIdx, action: Action, topic: &str) -> bool {
        if action == Action::Publish && self.is_reserved(topic) {
            return false;
        }
        let session = self.sessions.get(s);
        session.is_none_or(|session| session.may(&self.access, action, topic))
    }

    /// Whether a client of this listener may subscribe to a filter: to all that it can
    /// match or, where messages are left out, to a part.
    pub(crate) fn may_subscribe(&self, s: SessionIdx, listener: u16, filter: &str) -> bool {
        let in_part = |session: &Session| session.may_in_part(&self.access, filter);
        self.may(s, Action::Subscribe, filter)
            || self.is_filtered(listener, filter) && self.sessions.get(s).is_some_and(in_part)
    }

    /// Whether messages of a subscription are left out rather than that it is refused.
    pub(crate) fn is_filtered(&self, listener: u16, filter: &str) -> bool {
        self.policy(listener).partial == Partial::Filtered && !filter.starts_with("$share/")
    }

    /// Whether a session keeps a subscription that it has.
    pub(crate) fn may_keep(&self, s: SessionIdx, filter: &str) -> bool {
        let session = self.sessions.get(s);
        session.is_none_or(|session| session.keeps(&self.access, filter))
    }

    /// As [`Owners::may`] for [`Action::Publish`], with a memory.
    pub(crate) fn may_publish(&mut self, s: SessionIdx, topic: &str) -> bool {
        let session = self.sessions.get(s);
        let has_rules = session.as_ref().is_some_and(|s| s.rules.is_some());
        if self.access.acl.is_none() && !has_rules {
            return self.may(s, Action::Publish, topic);
        }
        let known = session.and_then(|s| s.allowed.as_deref());
        if known.is_some_and(|known| known.has(topic)) {
            return true;
        }
        let may = self.may(s, Action::Publish, topic);
        // What a server says holds for a time.
        let lasts = may && self.access.asks.is_none();
        if lasts && let Some(session) = self.sessions.get_mut(s) {
            session.allowed.get_or_insert_default().add(topic);
        }
        may
    }
}
