//! What a shard keeps at this moment, counted: for `$SYS`, for metrics, and
//! for tests that nothing is left behind.

use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::weigh::Weight;

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
    /// and queues are wrong: 0.
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

/// Counts what the shard keeps; walks its tables.
pub(crate) fn census(own: &Owners) -> Census {
    let mut census = Census {
        sessions: own.sessions.len(),
        elsewhere: own.sessions.elsewhere_len(),
        subscriptions: own.routing.subscriptions(),
        retained: own.routing.retained.len(),
        timers: own.timers.len(),
        pending: own.commits.pending() + own.commits.posts.len() + own.members.due(),
        prepared: own.commits.prepared_len()
            + own.routing.retained.changing()
            + own.routing.loans.len(),
        store_requests: own.commits.unanswered(),
        miscounted_bytes: miscounted(own),
        ..Census::default()
    };
    for (_, session) in own.sessions.iter() {
        census.subscribed += session.subscriptions_len();
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
    }
    for (_, conn) in own.conns.iter() {
        match conn.handed_over() {
            Some(_) => census.handed_over += 1,
            None if conn.is_carried() => census.carried += 1,
            None => census.conns += 1,
        }
        census.spoken.amqp_1_0 += usize::from(conn.links().is_some());
        census.backlog_bytes += conn.backlog();
        census.parked_bytes += conn.parked_bytes();
        census.unfinished_bytes += conn.begun_bytes();
    }
    census
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
