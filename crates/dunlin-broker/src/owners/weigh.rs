//! Counting: what a session or a connection takes of the budget is compared
//! with what it took when it was last looked at.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv6Addr};

use dunlin_base::{Message, Text};
use hashbrown::HashSet;

use crate::fault::NoRoom;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{BusMessage, Event};
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::budget::{Budget, TABLES_BYTES};
pub(crate) use crate::owners::common::{ConnWeight, Identity, Weight};
use crate::owners::conn::Conn;
use crate::owners::holders::{Charge, Holder};
use crate::owners::session::Session;
use crate::quotas::Subject;

/// Messages of a durable session that stay in memory when it is short.
const HELD_MIN: usize = 64;

/// Unsent bytes of one connection that end it only if there is no memory and
/// it has more.
const UNSENT_MIN: usize = 64 * 1024;

/// Bytes by which what a session is charged with may be behind.
const CHARGE_GRAIN: usize = 4096;

/// A connection is charged with whole pieces of so many bytes.
const CONN_CHARGE: usize = 16 * 1024;

/// What counts as one address.
fn address_of(conn: &Conn) -> IpAddr {
    match conn.peer.addr.ip() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

impl Weight {
    pub(crate) fn of(session: &Session) -> Self {
        let user = session.user.as_ref().map_or(0, |user| user.len());
        let names = 2 * session.client_id.len() + user;
        Self {
            sessions: size_of::<Session>() + TABLES_BYTES + names + session.kept_bytes(),
            subscriptions: session.subscription_bytes(),
            wills: session.will_bytes(),
            queued: session.held_bytes(),
        }
    }
}

impl Budget {
    /// Charges a session with what it weighs, which had so much in its queue
    /// before; if it is not to be exact, when that has changed by much.
    fn charge(&mut self, session: &mut Session, queued_before: usize, exactly: bool) {
        if !self.holders.counts_bytes() {
            return;
        }
        let weight = session.weight;
        let charge = &mut session.charge;
        if self.are_copies() {
            charge.copies += weight.queued.saturating_sub(queued_before);
        }
        charge.copies = charge.copies.min(weight.queued);
        let now = weight.sum() - charge.copies;
        if exactly || now.abs_diff(charge.bytes) > CHARGE_GRAIN {
            self.holders.charge(charge, now);
        }
    }
}

impl Owners {
    /// Counts a session as it is now.
    pub(crate) fn weigh(&mut self, s: SessionIdx) {
        if let Some(session) = self.sessions.get_mut(s) {
            let now = Weight::of(session);
            let before = core::mem::replace(&mut session.weight, now);
            self.budget.charge(session, before.queued, true);
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
                self.budget.charge(session, before, false);
                self.budget.change_queue(before, now);
            }
        }
    }

    /// A session has begun.
    pub(crate) fn count_in(&mut self, s: SessionIdx) {
        self.budget.count_session(true);
        self.charge_client(s);
    }

    /// A session belongs to the user that it has now and to the address of its
    /// client from now on.
    pub(crate) fn charge_client(&mut self, s: SessionIdx) {
        let conn = self.sessions.get(s).and_then(|session| session.conn);
        let address = conn.and_then(|c| self.conns.peek(c)).map(address_of);
        if let Some(session) = self.sessions.get_mut(s) {
            let user = session.user.clone();
            let charge = &mut session.charge;
            self.budget.holders.charge(charge, 0);
            (charge.user, charge.address) = (user, address);
        }
        self.weigh(s);
    }

    /// A session has ended.
    pub(crate) fn count_out(&mut self, session: &Session) {
        self.budget.count_session(false);
        let holders = &mut self.budget.holders;
        holders.moved(session.user.as_ref(), None);
        holders.charge(&mut session.charge.clone(), 0);
        self.reweigh(session.weight, Weight::default());
    }

    /// Counts a connection as it is now.
    pub(crate) fn weigh_conn(&mut self, c: ConnIdx) {
        if let Some(conn) = self.conns.peek_mut(c) {
            let now = ConnWeight {
                unsent: conn.backlog().into(),
                unfinished: conn.unfinished().into(),
            };
            let before = core::mem::replace(&mut conn.weight, now);
            let charged = conn.charge.as_ref().map_or(0, |charge| charge.bytes);
            let charge = now.sum() / CONN_CHARGE * CONN_CHARGE;
            self.reweigh_conn(before, now);
            if charge != charged && self.budget.holders.counts_bytes() {
                self.charge_conn(c, charge);
            }
        }
    }

    fn charge_conn(&mut self, c: ConnIdx, bytes: usize) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let user = conn.session().and_then(|s| self.sessions.get(s));
        let user = user.map_or_else(|| conn.user(), |session| session.user.clone());
        let address = Some(address_of(conn));
        let charge = conn.charge.get_or_insert_with(|| {
            Box::new(Charge {
                user,
                address,
                ..Charge::default()
            })
        });
        self.budget.holders.charge(charge, bytes);
        if bytes == 0 {
            conn.charge = None;
        }
    }

    /// Who has all the bytes that it may have, of those whom a session is charged to.
    pub(crate) fn full_holder(&self, s: SessionIdx) -> Option<Holder> {
        let charge = &self.sessions.get(s)?.charge;
        let holders = &self.budget.holders;
        holders.full(charge.user.as_ref(), charge.address)
    }

    /// As [`Owners::full_holder`], of a client that says that it is this user.
    pub(crate) fn full_client(&self, c: ConnIdx, user: Option<&Text>) -> Option<Holder> {
        let address = self.conns.peek(c).map(address_of);
        self.budget.holders.full(user, address)
    }

    /// Unsent bytes at which a connection gets no more, if it is `limit` while
    /// there is memory.
    pub(crate) fn unsent_limit(&self, c: ConnIdx, limit: usize) -> usize {
        let limit = self.budget.unsent_limit(limit);
        match self.full_holder_of(c) {
            Some(_) => limit.min(UNSENT_MIN),
            None => limit,
        }
    }

    fn full_holder_of(&self, c: ConnIdx) -> Option<Holder> {
        let charge = self.conns.peek(c)?.charge.as_ref()?;
        let holders = &self.budget.holders;
        holders.full(charge.user.as_ref(), charge.address)
    }

    /// A connection has gone.
    pub(crate) fn count_out_conn(&mut self, weight: ConnWeight, charge: Option<Box<Charge>>) {
        if let Some(mut charge) = charge {
            self.budget.holders.charge(&mut charge, 0);
        }
        self.reweigh_conn(weight, ConnWeight::default());
    }

    fn reweigh_conn(&mut self, before: ConnWeight, now: ConnWeight) {
        for (part, before, now) in [
            (Part::Unsent, before.unsent, now.unsent),
            (Part::Unfinished, before.unfinished, now.unfinished),
        ] {
            self.budget.change(part, before.into(), now.into());
        }
    }

    /// Counts a connection from which bytes came; why it ends if there is no
    /// memory for what it has already.
    pub(crate) fn weigh_input(&mut self, c: ConnIdx) -> Result<(), NoRoom> {
        self.weigh_conn(c);
        let Some(weight) = self.conns.peek(c).map(|conn| conn.weight) else {
            return Ok(());
        };
        // Connections are about as many on the other shards.
        let conns = self.conns.len() * usize::from(self.config.shards);
        let (part, bytes) = (Part::Unfinished, weight.unfinished.into());
        if !self.budget.has_room_for_conn(part, bytes, conns) {
            let text = "no memory for packets that have not come whole";
            return Err(self.refuse(part, text));
        }
        if weight.sum() > UNSENT_MIN
            && let Some(holder) = self.full_holder_of(c)
        {
            return Err(self.refuse_holder(holder));
        }
        let unsent = usize::from(weight.unsent).saturating_sub(UNSENT_MIN);
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
            if durable && session.is_persistent() {
                session.queue_mut().shed(HELD_MIN);
                self.weigh_queue(s);
            }
        }
        let (mut seen, mut bytes) = (HashSet::new(), 0);
        let mut look = |message: &Arc<Message>| {
            if seen.insert(core::ptr::from_ref(&**message)) {
                bytes += message.cost();
            }
        };
        let mut places = 0;
        for (_, session) in self.sessions.iter() {
            session.visit_held(&mut look);
            places += session.place_bytes() + session.queue().loading_bytes();
        }
        self.routing.loans.held().for_each(&mut look);
        let posts = &self.commits.posts;
        posts.held().for_each(&mut look);
        let messages: usize = posts.held().map(|message| message.cost()).sum();
        places += posts.memory().saturating_sub(messages);
        self.commits.visit_due(look);
        self.budget.note_look(bytes + places);
    }

    /// Why there is no room for the session of a client and its will of so many
    /// bytes, if there is not.
    pub(crate) fn lacks_room(
        &mut self,
        client_id: &str,
        will_bytes: usize,
        identity: &Identity,
        c: ConnIdx,
    ) -> Option<NoRoom> {
        let user = identity.user.as_ref();
        self.budget.look();
        let known =
            self.sessions.find(client_id).is_some() || self.sessions.elsewhere(client_id).is_some();
        let holders = &self.budget.holders;
        let listener = self.conns.peek(c).map(|conn| conn.peer.listener);
        let quota = self.config.quotas.of(&Subject {
            client_id,
            user: user.map(|user| &**user),
            listener,
            rules: identity.rules.as_deref(),
            acl: self.access.acl.as_deref(),
        });
        let quota = quota.map_or(0, |quota| quota.sessions_max);
        let full = user.is_some_and(|user| !holders.has_room(user, quota));
        if !known && (full || !self.budget.has_room_for_session()) {
            return Some(self.refuse(Part::Sessions, "no room for another session"));
        }
        if (!known || will_bytes > 0)
            && let Some(holder) = self.full_client(c, user)
        {
            return Some(self.refuse_holder(holder));
        }
        if will_bytes > 0 && !self.budget.has_room(Part::Wills, will_bytes, will_bytes) {
            return Some(self.refuse(Part::Wills, "no room for another will"));
        }
        None
    }

    /// A turn ends: the other shards learn what is kept here. Whether there is
    /// something to say to them.
    pub(crate) fn tell(&mut self) -> bool {
        self.budget.turn();
        let changes = self.budget.holders.take_changes();
        for to in self.members.others().filter(|_| !changes.is_empty()) {
            let message = BusMessage::Holders(changes.clone());
            self.outbox.bus(to, message);
        }
        !changes.is_empty()
    }

    /// Something is refused for want of room in a part of the budget: counted,
    /// and in the log once in a while.
    pub(crate) fn refuse(&mut self, part: Part, text: &'static str) -> NoRoom {
        self.note_refused(part, 1);
        NoRoom { text }
    }

    /// As [`Owners::refuse`], to one that has all the bytes that it may have.
    fn refuse_holder(&mut self, holder: Holder) -> NoRoom {
        self.note_full_holder(holder, 1);
        let text = "the user or the address has all the memory that it may have";
        NoRoom { text }
    }

    /// As [`Owners::note_refused`], to one that has all the bytes that it may have.
    pub(crate) fn note_full_holder(&mut self, holder: Holder, times: u64) {
        if times == 0 {
            return;
        }
        self.stats.note_full_holder(&holder, times);
        if self.budget.note_full_holder(self.now) {
            self.outbox.event(Event::HolderFull(holder));
        }
    }

    /// As [`Owners::refuse`], without an answer.
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

/// As [`Owners::weigh_queue`], when what came into the queue is in no other, though
/// further copies of a message go to queues now.
pub(crate) fn weigh_own(own: &mut Owners, s: SessionIdx) {
    let copies = own.budget.are_copies();
    own.budget.set_copies(false);
    own.weigh_queue(s);
    own.budget.set_copies(copies);
}

/// Whether a session may take a message of so many bytes that can wait where it is.
/// Where there is no memory, one that holds nothing may, as long as all together are
/// within the limit, so that each goes on message by message.
pub(crate) fn may_take(own: &mut Owners, s: SessionIdx, bytes: usize) -> bool {
    // All that was taken in one turn of another shard may be new.
    own.budget.look();
    if own.full_holder(s).is_some() {
        return false;
    }
    if own.has_memory(bytes) || own.holds_little(s, bytes) {
        return true;
    }
    let session = own.sessions.get(s);
    let held = session.map_or(0, Session::held_bytes);
    held == 0 && bytes <= own.budget.room(Part::Queued)
}

/// Messages that a session may have loaded from the store at a time, and their bytes,
/// if they are at most so many while there is memory. Without, it is one; and none if
/// the session has more than a fair share and `awaits` outcomes, of which the next
/// lets it go on.
pub(crate) fn loads_max(
    own: &mut Owners,
    s: SessionIdx,
    awaits: bool,
    (messages, bytes): (usize, usize),
) -> Option<(usize, usize)> {
    own.weigh_queue(s);
    own.budget.look();
    if own.has_memory(0) {
        return Some((messages, bytes.min(own.budget.common_room(Part::Queued))));
    }
    (!awaits || own.holds_little(s, 0)).then_some((1, 0))
}
