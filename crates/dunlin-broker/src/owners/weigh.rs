//! Counting: what a session or a connection takes of the budget is compared
//! with what it took when it was last looked at.

use dunlin_base::{ShardId, Text};
use dunlin_mqtt::codec::{Connect, ReasonCode};
use dunlin_mqtt::server::delivery;
use hashbrown::HashSet;

use crate::fault::Fault;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{BusMessage, Event};
use crate::memory::Part;
use crate::owners::Owners;
pub(crate) use crate::owners::common::{ConnWeight, Weight};
use crate::owners::session::Session;

/// What a session takes in tables besides its own struct.
const TABLES_BYTES: usize = 512;

/// Messages of a durable session that stay in memory when it is short.
const HELD_MIN: usize = 64;

/// Unsent bytes of one connection that end it only if there is no memory and
/// it has more.
const UNSENT_MIN: usize = 64 * 1024;

impl Weight {
    pub(crate) fn of(session: &Session) -> Self {
        let user = session.user.as_ref().map_or(0, |user| user.len());
        let names = 2 * session.client_id.len() + user;
        Self {
            sessions: size_of::<Session>() + TABLES_BYTES + names,
            subscriptions: session.subscription_bytes(),
            wills: session.will_bytes(),
            queued: session.held_bytes(),
        }
    }
}

/// Whether a session is in a group.
fn has_shared(session: &Session) -> bool {
    let mut filters = session.subscriptions().into_iter();
    filters.any(|(filter, _)| filter.starts_with("$share/"))
}

impl Owners {
    /// Counts a session as it is now.
    pub(crate) fn weigh(&mut self, s: SessionIdx) {
        if let Some(session) = self.sessions.get_mut(s) {
            let now = Weight::of(session);
            let before = core::mem::replace(&mut session.weight, now);
            self.reweigh(before, now);
        }
    }

    fn reweigh(&mut self, before: Weight, now: Weight) {
        let budget = &mut self.budget;
        budget.change(Part::Sessions, before.sessions, now.sessions);
        let (from, to) = (before.subscriptions, now.subscriptions);
        budget.change(Part::Subscriptions, from, to);
        budget.change(Part::Wills, before.wills, now.wills);
        budget.change_queue(before.queued, now.queued);
    }

    /// As [`Owners::weigh`], when only its queue may have changed.
    pub(crate) fn weigh_queue(&mut self, s: SessionIdx) {
        if let Some(session) = self.sessions.get_mut(s) {
            let now = session.held_bytes();
            let before = core::mem::replace(&mut session.weight.queued, now);
            if before != now {
                self.budget.change_queue(before, now);
            }
        }
    }

    /// A session has begun.
    pub(crate) fn count_in(&mut self, s: SessionIdx) {
        self.budget.count_session(true);
        self.weigh(s);
    }

    /// A session has ended.
    pub(crate) fn count_out(&mut self, session: &Session) {
        self.budget.count_session(false);
        self.budget.users.moved(session.user.as_ref(), None);
        self.reweigh(session.weight, Weight::default());
    }

    /// Counts a connection as it is now.
    pub(crate) fn weigh_conn(&mut self, c: ConnIdx) {
        if let Some(conn) = self.conns.peek_mut(c) {
            let now = ConnWeight {
                unsent: conn.backlog(),
                unfinished: conn.unfinished(),
            };
            let before = core::mem::replace(&mut conn.weight, now);
            self.reweigh_conn(before, now);
        }
    }

    /// A connection has gone.
    pub(crate) fn count_out_conn(&mut self, weight: ConnWeight) {
        self.reweigh_conn(weight, ConnWeight::default());
    }

    fn reweigh_conn(&mut self, before: ConnWeight, now: ConnWeight) {
        let budget = &mut self.budget;
        budget.change(Part::Unsent, before.unsent, now.unsent);
        budget.change(Part::Unfinished, before.unfinished, now.unfinished);
    }

    /// Counts a connection from which bytes came; why it ends if there is no
    /// memory for what it has already.
    pub(crate) fn weigh_input(&mut self, c: ConnIdx) -> Result<(), Fault> {
        self.weigh_conn(c);
        let Some(weight) = self.conns.peek(c).map(|conn| conn.weight) else {
            return Ok(());
        };
        // Connections are about as many on the other shards.
        let conns = self.conns.len() * usize::from(self.config.shards);
        let (part, bytes) = (Part::Unfinished, weight.unfinished);
        if !self.budget.has_room_for_conn(part, bytes, conns) {
            let text = "no memory for packets that have not come whole";
            return Err(self.refuse(part, text));
        }
        let unsent = weight.unsent.saturating_sub(UNSENT_MIN);
        if self.budget.room(Part::Unsent) == 0 && !self.budget.has_room(Part::Unsent, 0, unsent) {
            let text = "no memory for what the client does not take";
            return Err(self.refuse(Part::Unsent, text));
        }
        Ok(())
    }

    /// Whether there is memory for a message in queues, for as many as it goes to;
    /// where there is little, it is looked for first.
    pub(crate) fn has_memory(&mut self, bytes: usize) -> bool {
        if !self.budget.has_plenty(Part::Queued) {
            self.relieve_queues();
        }
        self.budget.has_room(Part::Queued, bytes, usize::MAX)
    }

    /// Whether a session holds so little that it may have these bytes too when
    /// there is no memory.
    pub(crate) fn holds_little(&self, s: SessionIdx, bytes: usize) -> bool {
        let session = self.sessions.get(s);
        let held = session.map_or(0, Session::held_bytes);
        self.budget
            .is_fair(Part::Queued, held.saturating_add(bytes))
    }

    /// Makes room in the budget of queues, if that is worth a look: durable
    /// sessions keep their messages in the store only, and what waits for several
    /// sessions counts once.
    fn relieve_queues(&mut self) {
        self.budget.look();
        if !self.budget.is_look_due() {
            return;
        }
        let durable = self.commits.is_durable();
        let all: alloc::vec::Vec<SessionIdx> = self.sessions.iter().map(|(s, _)| s).collect();
        for s in all {
            let Some(session) = self.sessions.get_mut(s) else {
                continue;
            };
            // Messages of a group may have to go to another member.
            let grouped = has_shared(session);
            if durable && session.is_persistent() && !grouped {
                session.queue_mut().shed(HELD_MIN);
                self.weigh_queue(s);
            }
        }
        let held = self.sessions.iter();
        let held = held.flat_map(|(_, session)| session.held());
        let mut seen = HashSet::new();
        let once = held.filter(|message| seen.insert(core::ptr::from_ref(&***message)));
        let bytes = once.map(|message| message.cost()).sum();
        self.budget.note_look(bytes);
    }

    /// Why there is no room for the session and the will of a client.
    pub(crate) fn lacks_room(
        &mut self,
        connect: &Connect<'_>,
        client_id: &str,
        user: Option<&Text>,
    ) -> Option<Fault> {
        self.budget.look();
        let known =
            self.sessions.find(client_id).is_some() || self.sessions.elsewhere(client_id).is_some();
        let users = &self.budget.users;
        let full = user.is_some_and(|user| !users.has_room(user));
        if !known && (full || !self.budget.has_room_for_session()) {
            return Some(self.refuse(Part::Sessions, "no room for another session"));
        }
        let will = connect.will.as_ref();
        let will = will.map_or(0, |will| delivery::will_message(will).cost());
        if will > 0 && !self.budget.has_room(Part::Wills, will, will) {
            return Some(self.refuse(Part::Wills, "no room for another will"));
        }
        None
    }

    /// A turn ends: the other shards learn what is kept here. Whether there is
    /// something to say to them.
    pub(crate) fn tell(&mut self) -> bool {
        self.budget.turn();
        let changes = self.budget.users.take_changes();
        let others = (0..self.config.shards).map(ShardId);
        for to in others.filter(|to| *to != self.config.shard && !changes.is_empty()) {
            let message = BusMessage::UserSessions(changes.clone());
            self.outbox.bus(to, message);
        }
        !changes.is_empty()
    }

    /// Something is refused for want of room in a part of the budget: counted,
    /// and in the log once in a while.
    pub(crate) fn refuse(&mut self, part: Part, text: &'static str) -> Fault {
        self.note_refused(part, 1);
        Fault::new(ReasonCode::QuotaExceeded, text)
    }

    /// As [`Owners::refuse`], without a fault.
    pub(crate) fn note_refused(&mut self, part: Part, times: u64) {
        if times == 0 {
            return;
        }
        self.stats.note_refused(part, times);
        if self.budget.note_full(part, self.now) {
            self.outbox.event(Event::MemoryFull(part));
        }
    }
}
