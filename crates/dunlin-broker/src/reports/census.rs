//! What a shard keeps, counted: a bounded piece of its tables at a time for `$SYS` and
//! metrics, and all at once for tests that nothing is left behind.

use core::time::Duration;

use dunlin_base::Instant;

use crate::control::values::Place;
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::owners::connections::Apart;
use crate::owners::session::Session;
use crate::owners::weigh::Weight;
use crate::reports::clients::{self, EXAMINED_MAX};

/// Sizes of a shard's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Network connections whose session is here, or not known yet.
    pub conns: usize,
    /// Connections of AMQP that are streams of one of these.
    pub carried: usize,
    /// Network connections whose session is on another shard.
    pub handed_over: usize,
    /// Sessions, connected or not.
    pub sessions: usize,
    /// Sessions of other shards whose home is this one.
    pub elsewhere: usize,
    /// Subscriptions in the tree, with those of other shards.
    pub subscriptions: usize,
    /// Subscriptions of the sessions that are here.
    pub subscribed: usize,
    /// Retained messages.
    pub retained: usize,
    /// Deadlines.
    pub timers: usize,
    /// Publishes, subscriptions and acknowledgements that wait for the store
    /// or for other shards.
    pub pending: usize,
    /// Parts of other shards' publishes that wait for their outcome.
    pub prepared: usize,
    /// Requests to the store without an answer.
    pub store_requests: usize,
    /// Messages that wait for a session.
    pub queued: usize,
    /// Bytes of those that are held in memory.
    pub queued_bytes: usize,
    /// Messages in flight to clients.
    pub in_flight: usize,
    /// Subscriptions whose retained messages are not all delivered.
    pub walks: usize,
    /// QoS 2 messages in flight from clients.
    pub receiving: usize,
    /// Bytes on their way to clients.
    pub backlog_bytes: usize,
    /// Bytes parked until CONNACK.
    pub parked_bytes: usize,
    /// Bytes of packets on data streams that have not come whole.
    pub unfinished_bytes: usize,
    /// Bytes by which the memory budget's counts of sessions, subscriptions, wills
    /// and queues are wrong, and connections and subscriptions by which the running counts
    /// are: 0. Not counted in [`Shard::figures`](crate::Shard::figures).
    pub miscounted_bytes: usize,
    /// Connected clients by what they speak.
    pub spoken: Spoken,
}

/// Connected clients by what they speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spoken {
    /// MQTT 3.1.1.
    pub mqtt_3_1_1: usize,
    /// MQTT 5.0.
    pub mqtt_5_0: usize,
    /// AMQP 1.0.
    pub amqp_1_0: usize,
}

impl Spoken {
    const fn plus(&self, other: &Self) -> Self {
        Self {
            mqtt_3_1_1: self.mqtt_3_1_1 + other.mqtt_3_1_1,
            mqtt_5_0: self.mqtt_5_0 + other.mqtt_5_0,
            amqp_1_0: self.amqp_1_0 + other.amqp_1_0,
        }
    }
}

impl Census {
    /// The sum of two shards' tables.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            conns: self.conns + other.conns,
            carried: self.carried + other.carried,
            handed_over: self.handed_over + other.handed_over,
            sessions: self.sessions + other.sessions,
            elsewhere: self.elsewhere + other.elsewhere,
            subscriptions: self.subscriptions + other.subscriptions,
            subscribed: self.subscribed + other.subscribed,
            retained: self.retained + other.retained,
            timers: self.timers + other.timers,
            pending: self.pending + other.pending,
            prepared: self.prepared + other.prepared,
            store_requests: self.store_requests + other.store_requests,
            queued: self.queued + other.queued,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            in_flight: self.in_flight + other.in_flight,
            walks: self.walks + other.walks,
            receiving: self.receiving + other.receiving,
            backlog_bytes: self.backlog_bytes + other.backlog_bytes,
            parked_bytes: self.parked_bytes + other.parked_bytes,
            unfinished_bytes: self.unfinished_bytes + other.unfinished_bytes,
            miscounted_bytes: self.miscounted_bytes + other.miscounted_bytes,
            spoken: self.spoken.plus(&other.spoken),
        }
    }
}

/// What is counted one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    census: Census,
    /// Sessions of client identifiers.
    pub(crate) named: usize,
    /// Connections of clients that were let in.
    pub(crate) connected: usize,
}

impl Tally {
    fn add_session(&mut self, session: &Session) {
        let census = &mut self.census;
        census.queued += session.queue().len();
        census.queued_bytes += session.queue().bytes();
        census.in_flight += session.in_flight();
        census.walks += session.walks.len();
        census.receiving += session.receiving();
        match session.version() {
            4 if session.conn.is_some() => census.spoken.mqtt_3_1_1 += 1,
            5 if session.conn.is_some() => census.spoken.mqtt_5_0 += 1,
            _ => {}
        }
        self.named += usize::from(session.is_named());
    }

    fn add_conn(&mut self, conn: &Conn) {
        let census = &mut self.census;
        census.spoken.amqp_1_0 += usize::from(conn.links().is_some());
        census.backlog_bytes += conn.backlog();
        census.parked_bytes += conn.parked_bytes();
        census.unfinished_bytes += conn.begun_bytes();
        self.connected += usize::from(clients::is_client(conn));
    }

    /// With what the tables themselves know.
    pub(crate) fn census(&self, own: &Owners) -> Census {
        let Apart {
            handed_over,
            carried,
        } = own.conns.apart();
        Census {
            conns: own.conns.len().saturating_sub(handed_over + carried),
            handed_over,
            carried,
            sessions: own.sessions.len(),
            elsewhere: own.sessions.elsewhere_len(),
            subscriptions: own.routing.subscriptions(),
            subscribed: own.routing.subscribed(),
            retained: own.routing.retained.len(),
            timers: own.timers.len(),
            pending: own.commits.pending() + own.commits.posts.len() + own.members.due(),
            prepared: own.commits.prepared_len()
                + own.routing.retained.changing()
                + own.routing.loans.len(),
            store_requests: own.commits.unanswered(),
            ..self.census
        }
    }
}

/// Time from the begin of a count that takes several steps to that of the next one.
pub(crate) const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Time between the steps of a count: a shard is busy with it for a tenth of its time.
pub(crate) const COUNT_PAUSE: Duration = Duration::from_millis(1);

/// Counts sessions and connections, so many in one step.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// The one under way: where it goes on.
    at: Option<At>,
    sum: Tally,
    last: Option<Tally>,
    begun: Option<Instant>,
    steps: usize,
}

/// A place in the tables of a shard.
#[derive(Clone, Copy, Debug)]
enum At {
    Session(Place),
    Conn(Place),
}

impl Counting {
    /// Begins a count, if none is under way and the last one was long ago, or took one
    /// step; whether it did.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let is_new = self
            .begun
            .is_none_or(|at| self.steps <= 1 || now.saturating_duration_since(at) >= COUNT_EVERY);
        let begins = self.at.is_none() && is_new;
        if begins {
            self.at = Some(At::Session(0));
            self.begun = Some(now);
            self.steps = 0;
            self.sum = Tally::default();
        }
        begins
    }

    /// Counts the next [`EXAMINED_MAX`] entries; whether there are more.
    pub(crate) fn step(&mut self, own: &Owners) -> bool {
        let Some(mut at) = self.at.take() else {
            return false;
        };
        self.steps += 1;
        let mut left = EXAMINED_MAX;
        if let At::Session(from) = at {
            let mut sessions = own.sessions.from(from);
            for (_, session) in sessions.by_ref().take(left) {
                left -= 1;
                if let Some(session) = session {
                    self.sum.add_session(session);
                }
            }
            at = match sessions.next() {
                Some((place, _)) => At::Session(place),
                None => At::Conn(0),
            };
        }
        if let At::Conn(from) = at {
            let mut conns = own.conns.from(from);
            for (_, conn) in conns.by_ref().take(left) {
                if let Some(conn) = conn {
                    self.sum.add_conn(conn);
                }
            }
            let Some((place, _)) = conns.next() else {
                self.last = Some(self.sum);
                return false;
            };
            at = At::Conn(place);
        }
        self.at = Some(at);
        true
    }

    /// What the last count came to; of the first one, what it has come to so far.
    pub(crate) fn tally(&self) -> Tally {
        self.last.unwrap_or(self.sum)
    }
}

/// Counts what the shard keeps; walks its tables.
pub(crate) fn census(own: &Owners) -> Census {
    let mut tally = Tally::default();
    let mut apart = Apart::default();
    let mut subscribed = 0;
    for (_, session) in own.sessions.iter() {
        tally.add_session(session);
        subscribed += session.subscriptions_len();
    }
    for (_, conn) in own.conns.iter() {
        tally.add_conn(conn);
        apart.add(conn);
    }
    let Apart {
        handed_over,
        carried,
    } = apart;
    let counted = own.conns.apart();
    if own.sessions.places.are_leaving() {
        // Those of sessions that have ended are not all out.
        subscribed = own.routing.subscribed();
    }
    let miscounted_entries = counted.handed_over.abs_diff(handed_over)
        + counted.carried.abs_diff(carried)
        + own.routing.subscribed().abs_diff(subscribed);
    Census {
        conns: own.conns.len().saturating_sub(handed_over + carried),
        handed_over,
        carried,
        subscribed,
        miscounted_bytes: miscounted(own) + miscounted_entries,
        ..tally.census(own)
    }
}

/// Compares what the budget counts with what is there.
fn miscounted(own: &Owners) -> usize {
    let mut sum = Weight::default();
    for (_, session) in own.sessions.iter() {
        let weight = Weight::of(session);
        sum.sessions += weight.sessions;
        sum.subscriptions += weight.subscriptions;
        sum.wills += weight.wills;
        sum.queued += weight.queued;
    }
    sum.subscriptions += own.sessions.places.leaving_bytes();
    sum.sessions += own.termini.bytes();
    sum.queued += own.routing.loans.bytes();
    sum.queued += own.commits.posts.count_memory();
    let budget = &own.budget;
    let sessions = own.sessions.iter().map(|(_, session)| &session.charge);
    let conns = own.conns.iter();
    let conns = conns.filter_map(|(_, conn)| conn.charge.as_deref());
    budget.here(Part::Sessions).abs_diff(sum.sessions)
        + budget.here(Part::Subscriptions).abs_diff(sum.subscriptions)
        + budget.here(Part::Wills).abs_diff(sum.wills)
        + budget.queued_sum().abs_diff(sum.queued)
        + budget.holders.miscounted(sessions.chain(conns))
}
