//! The shard: the way in ([`Shard::handle`], [`Shard::handle_timeout`]) and
//! the way out ([`Shard::poll_output`], [`Shard::poll_timeout`]). It wires the
//! four owners and hands what happens to the functions over them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, SendBuf, ShardId};
use dunlin_store::{Recovered, Request};

use crate::access::Access;
use crate::bans::Bans;
use crate::between::{bus, members};
use crate::bridges::BridgeSession;
use crate::config::{Config, RunningLimits};
use crate::control;
use crate::front;
use crate::ids::ConnIdx;
use crate::io::{BusMessage, Event, Input, Output};
use crate::memory::Part;
use crate::messages::{loans, posts, settle, shared, stored, taking, throttle, walk};
use crate::owners::stores::RestoreError;
use crate::owners::timers::Timer;
use crate::owners::{Later, Owners};
use crate::queues::{dead, dispatch, making, moving, restoring, retiring, termini};
use crate::receivers;
use crate::reports::census::{self, COUNT_PAUSE, Census, Counting};
use crate::reports::{audit, events, mosquitto, sys};
use crate::sessions::{leaving, restore, rules};
use crate::stats::Stats;

/// Time until a home that has not heard yet what those of other stores want looks again
/// at what is due.
const HEARD_AFTER: Duration = Duration::from_millis(100);

/// One shard of the broker.
///
/// Call order: any number of [`Shard::handle`] (a batch), then
/// [`Shard::poll_output`] until it returns `None`; [`Shard::handle_timeout`]
/// once [`Shard::poll_timeout`] is reached. Time never goes backwards.
#[derive(Debug)]
pub struct Shard {
    own: Owners,
    started: Instant,
    /// A round of `$SYS` messages was published.
    sys_round: bool,
    counting: Counting,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut own = Owners::new(config, now);
        if !own.config.sys.interval.is_zero() {
            own.timers.set(now + own.config.sys.interval, Timer::Sys);
        }
        Self {
            own,
            started: now,
            sys_round: false,
            counting: Counting::default(),
        }
    }

    /// Takes over what belongs to this shard, and notes what the sessions of
    /// the others want, so that no shard has to wait for another before it may
    /// acknowledge a publish. Call it on every shard with everything that was
    /// recovered, before any input.
    ///
    /// # Errors
    /// The store is that of other homes than those of this shard. It is not to be used.
    pub fn restore(&mut self, recovered: &Recovered) -> Result<(), RestoreError> {
        restore::restore(&mut self.own, recovered)?;
        restoring::restore(&mut self.own, recovered);
        self.finish();
        Ok(())
    }

    /// Brings rules about users and topics into force, also for clients that
    /// are connected and sessions that wait. Call it at start after
    /// [`Shard::restore`]; until then everything is allowed.
    pub fn set_access(&mut self, now: Instant, access: Access) {
        self.own.now = now;
        rules::set_access(&mut self.own, access);
        self.finish();
    }

    /// Says who is banned from the start; later on
    /// [`Request::Ban`](crate::control::values::Request::Ban) does.
    pub fn set_bans(&mut self, bans: Arc<Bans>) {
        self.own.bans = bans;
    }

    /// Says which sessions are those of bridges, from now on.
    pub fn set_bridges(&mut self, sessions: Vec<BridgeSession>) {
        self.own.config.bridges.sessions = sessions;
    }

    /// Brings other limits into force.
    pub fn set_limits(&mut self, limits: &RunningLimits) {
        self.own.config.take_over(limits);
        let shards = self.own.config.shards;
        self.own.budget.set_memory(&limits.memory, shards);
    }

    /// Counters since the start.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.own.stats
    }

    /// Counts what the shard keeps; walks its tables, however large they are.
    #[must_use]
    pub fn census(&self) -> Census {
        census::census(&self.own)
    }

    /// What the shard keeps. Sizes of tables, and the numbers of connections of each kind and
    /// of subscriptions, are those of now. What is counted one by one,
    /// of messages, bytes and who speaks what, is counted in steps that end at
    /// [`Shard::poll_timeout`]: it is that of now as long as one step is enough, and else of
    /// the last count, which began at an earlier call.
    pub fn figures(&mut self, now: Instant) -> Census {
        self.own.now = now;
        if self.counting.begin(now) {
            self.count();
        }
        self.counting.tally().census(&self.own)
    }

    /// The next step of a count, and a reminder of the one after it.
    fn count(&mut self) {
        if self.counting.step(&self.own) {
            let next = self.own.now + COUNT_PAUSE;
            self.own.timers.set(next, Timer::Count);
        }
    }

    /// Publishes the counters below `$SYS`.
    fn publish_counters(&mut self) {
        let census = self.figures(self.own.now);
        let own = &mut self.own;
        sys::publish_counters(own, &census, self.started);
        if own.config.sys.mosquitto {
            mosquitto::round(own, &self.counting.tally(), self.started);
        }
        self.sys_round = true;
        own.timers
            .set(own.now + own.config.sys.interval, Timer::Sys);
    }

    /// What this shard keeps of each part of the memory budget, and what all
    /// shards together may keep, in bytes.
    pub fn memory(&self) -> impl Iterator<Item = (Part, usize, usize)> {
        let budget = &self.own.budget;
        let parts = Part::ALL.into_iter();
        parts.map(|part| (part, budget.here(part), budget.limit(part)))
    }

    /// Whether a round of `$SYS` messages was published since the last call,
    /// to which [`Shard::publish_sys_value`] may add.
    pub const fn take_sys_round(&mut self) -> bool {
        core::mem::replace(&mut self.sys_round, false)
    }

    /// Publishes one counter, as a topic below that of this shard.
    pub fn publish_sys_value(&mut self, name: &str, value: u64) {
        sys::publish_value(&mut self.own, name, value);
        self.finish();
    }

    /// Publishes the state of a client's connection to those who watch it.
    pub fn publish_client(&mut self, now: Instant, client_id: &str, payload: String) {
        self.own.now = now;
        sys::publish_client(&mut self.own, client_id, payload);
        self.finish();
    }

    /// Publishes whether a bridge of this name is connected, retained.
    pub fn publish_bridge(&mut self, now: Instant, name: &str, connected: bool) {
        self.own.now = now;
        sys::publish_bridge(&mut self.own, name, connected);
        self.finish();
    }

    /// Takes something that happened.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        let own = &mut self.own;
        own.now = now;
        own.sessions.places.begin_call();
        match input {
            Input::Net(event) => self.handle_net(event),
            Input::Bus { from, message } => bus::handle_bus(own, from, message),
            Input::Store(answer) => own.commits.handle(answer),
            Input::Members(change) => members::handle(own, change),
            Input::Control { number, request } => control::handle(own, number, request),
            Input::Auth { conn, answer } => {
                if let Some(c) = own.conns.find(conn) {
                    front::handle_auth_answer(own, c, answer);
                }
            }
        }
        self.finish();
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.own.now = now;
        self.own.sessions.places.begin_call();
        while let Some(timer) = self.own.timers.pop(now) {
            let own = &mut self.own;
            match timer {
                Timer::Conn(conn) => {
                    if let Some(c) = own.conns.find(conn) {
                        front::check_silence(own, c);
                    }
                }
                Timer::Session(session) if own.members.is_waiting() => {
                    // It does not know yet who wants the will.
                    own.timers.set(now + HEARD_AFTER, Timer::Session(session));
                }
                Timer::Session(session) => {
                    if let Some(s) = own.sessions.resolve(session) {
                        front::check_session(own, s);
                    }
                }
                Timer::Retry => stored::retry(own),
                Timer::Loans => loans::try_kept(own),
                Timer::Walks => {
                    for session in walk::take_waiting(own) {
                        if let Some(s) = own.sessions.resolve(session) {
                            receivers::pump(own, s);
                        }
                    }
                }
                Timer::Release(conn) => {
                    if let Some(c) = own.conns.find(conn) {
                        throttle::release(own, c);
                    }
                }
                Timer::Pace(conn) => {
                    if let Some(c) = own.conns.find(conn) {
                        throttle::end_pace(own, c);
                    }
                }
                Timer::Unstored => {
                    own.unstored.reminded = false;
                    throttle::release_unstored(own);
                }
                Timer::Termini => termini::check_expiry(own),
                Timer::Leaving => leaving::go_on(own),
                Timer::Sys => self.publish_counters(),
                Timer::Count => self.count(),
            }
            self.finish();
        }
    }

    /// When [`Shard::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.own.timers.next()
    }

    /// The next thing to do. Bytes of all touched connections come last, one
    /// [`NetCommandKind::Send`](dunlin_base::transport::NetCommandKind::Send) a
    /// stream, then one batch
    /// for the store.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.own.outbox.pop() {
                if let Output::Event(event) = &output
                    && !self.own.config.sys.events.is_empty()
                {
                    events::publish(&mut self.own, event);
                    self.finish();
                }
                return Some(output);
            }
            if let Some(c) = self.own.conns.next_touched() {
                front::flush(&mut self.own, c);
                continue;
            }
            if let Some(batch) = self.own.commits.poll_batch() {
                return Some(Output::Store(Request::Write(batch)));
            }
            if !self.own.tell() {
                return None;
            }
        }
    }

    /// Gives back a send buffer whose bytes have been taken.
    pub fn recycle(&mut self, buf: SendBuf) {
        self.own.conns.recycle(buf);
    }

    /// Sends every client DISCONNECT with 0x8B Server shutting down, and
    /// closes. Sessions and queues stay as they are.
    pub fn shut_down(&mut self, now: Instant) {
        let own = &mut self.own;
        own.now = now;
        own.shutting_down = true;
        // A connection that was handed over is ended by the shard that has its session,
        // which knows its protocol. That of an edge does not end.
        let conns = own.conns.iter();
        let conns = conns.map(|(c, conn)| (c, conn.handed_over().is_some()));
        let conns: Vec<(ConnIdx, bool)> = conns.collect();
        let ending = members::shutting_down();
        for (c, elsewhere) in conns {
            match elsewhere {
                false => front::shut_down(own, c),
                true if own.members.is_edge() => front::force(own, c, &ending),
                true => {}
            }
        }
        self.finish();
    }

    /// Connections whose sockets or sessions are here.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.own.conns.len()
    }

    /// Gives back what tables hold beyond their use, after many connections
    /// have ended.
    pub fn shrink(&mut self) {
        self.own.conns.shrink();
        self.own.sessions.shrink();
        self.own.routing.shrink();
        self.own.outbox.shrink();
    }

    /// Whether all connections are gone and the store has everything.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.own.conns.len() == 0 && self.own.commits.is_idle()
    }

    /// Does what the functions over the owners left for the end of the call,
    /// and what the store's answers let go on.
    fn finish(&mut self) {
        let own = &mut self.own;
        loop {
            if let Some(done) = own.commits.poll() {
                stored::handle_done(own, done);
                continue;
            }
            match own.later.pop_front() {
                Some(Later::Return(old, delivery, over)) => {
                    shared::take_back(own, *delivery, old, over);
                }
                Some(Later::Behind(session)) => front::fall_behind(own, session),
                Some(Later::Unkept(c)) => front::cut_off(own, c),
                Some(Later::Unpark(c)) => front::unpark(own, c),
                Some(Later::Inherit(c)) => front::inherit(own, c),
                Some(Later::EndStream(c, stream)) => front::end_stream(own, c, stream),
                Some(Later::GiveAgain(old, delivery)) => {
                    shared::give_again(own, *delivery, old);
                }
                Some(Later::Lend(loan)) => {
                    let (to, passed) = *loan;
                    loans::lend(own, to, passed);
                }
                Some(Later::Post(to)) => posts::give(own, to),
                Some(Later::Admitted(to, token)) => {
                    settle::advance(own, token);
                    posts::admit(own, to);
                }
                Some(Later::Taken(from, in_store)) => taking::end(own, from, in_store),
                Some(Later::Call(call)) => {
                    let here = own.config.shard;
                    dispatch::handle(own, here, call);
                }
                Some(Later::Bury(dead)) => dead::bury(own, dead),
                Some(Later::Buried(dead, stored)) => dead::buried(own, dead, stored),
                Some(Later::Moved(moved, stored)) => moving::moved(own, *moved, stored),
                Some(Later::Retired(retired, stored)) => {
                    retiring::settle(own, retired, stored);
                }
                Some(Later::Recorded(nodes, stored)) => making::recorded(own, nodes, stored),
                None => break,
            }
        }
        audit::turn(own);
        let missing = own.conns.take_missing()
            + own.sessions.take_missing()
            + own.routing.missing.take()
            + own.commits.missing.take()
            + own.budget.holders.missing.take()
            + own.outbox.missing.take();
        if missing > 0 {
            own.stats.internal_errors += missing;
            own.outbox.event(Event::InternalError(missing));
        }
    }

    /// Searches in the tables of all owners since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        let own = &self.own;
        own.conns.take_searches()
            + own.sessions.take_searches()
            + own.routing.take_searches()
            + own.commits.take_searches()
    }

    fn handle_net(&mut self, event: NetEvent<&[u8]>) {
        let own = &mut self.own;
        let NetEvent { conn, kind } = event;
        if let NetEventKind::Opened { peer } = kind {
            return front::handle_opened(own, conn, peer);
        }
        let Some((c, handed_over)) = locate(own, conn) else {
            if let NetEventKind::Bytes { data, .. } = kind {
                own.outbox.add_unread(conn, data);
            }
            return;
        };
        let Some(to) = handed_over else {
            return front::handle_event(own, c, kind);
        };
        match kind {
            NetEventKind::EarlyData { .. }
            | NetEventKind::Moved { .. }
            | NetEventKind::MoveFailed { .. } => return,
            NetEventKind::Closed { .. } => front::handle_gone(own, c),
            _ => {}
        }
        let event = NetEvent::new(conn, kind).into_owned();
        own.outbox.bus(to, BusMessage::Net(event));
    }
}

fn locate(own: &Owners, conn: ConnId) -> Option<(ConnIdx, Option<ShardId>)> {
    let c = own.conns.find(conn)?;
    Some((c, own.conns.get(c)?.handed_over()))
}
