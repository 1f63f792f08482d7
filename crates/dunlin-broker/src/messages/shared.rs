//! Shared subscriptions: who of a group can take a message, and what happens
//! to messages whose member has left.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use dunlin_base::{Message, QoS, ShardId, StreamId, Text};
use dunlin_queue::{Content, Delivery, Identifiers};
use dunlin_store::{Seq, SessionKey, StoreOp};

use crate::ids::{SessionIdx, SessionRef};
use crate::io::{BusMessage, Forward, Manner, Missed, NotTaken, PassedOn};
use crate::messages::source::Source;
use crate::messages::{deliver, posts, settle};
use crate::owners::commits::target;
use crate::owners::connections::Connections;
use crate::owners::pending::{Passed, PendingPublish};
use crate::owners::posts::Purpose;
use crate::owners::routing::{Hit, Member, Subscribed, Subscriber};
use crate::owners::session::Session;
use crate::owners::sessions::Sessions;
use crate::owners::timers::Timer;
use crate::owners::{Later, Owners};
use crate::receivers;

/// Time until messages that no member had room for are given to members once more.
const TRY_AFTER: Duration = Duration::from_secs(1);

/// No session: a message that none has had.
pub(crate) const NONE: SessionRef = SessionRef {
    key: SessionKey(0),
    at: usize::MAX,
};

/// Gives a message of a group to another member than `old`, which had it: one that
/// can take it now or, when `old` will not be back, any. In the store it stays where
/// it is. It comes out when there is no such member.
pub(crate) fn pass_on(
    own: &mut Owners,
    delivery: Delivery,
    old: SessionRef,
    ends: bool,
) -> Option<Delivery> {
    let passed = try_pass(own, delivery, old, ends);
    passed.map(|passed| keep(own, passed))
}

fn try_pass(own: &mut Owners, delivery: Delivery, old: SessionRef, ends: bool) -> Option<Passed> {
    let seq = delivery.seq.map(Seq);
    let passed = Passed {
        queue: seq.map(|seq| own.commits.take_queue(old.key, seq)),
        delivery,
        old,
        ends,
        returned: false,
    };
    try_choice(
        own,
        passed,
        &Choice {
            // On an edge others are a matter of the home that has lent it.
            local: own.members.is_edge(),
            any: ends,
            not: Some(Subscriber::Session(old.at as u32)),
        },
    )
}

fn try_choice(own: &mut Owners, passed: Passed, among: &Choice) -> Option<Passed> {
    match choose(own, &passed, among) {
        Some((Subscriber::Session(s), value)) => give_to(own, passed, s as usize, &value),
        Some((Subscriber::Shard(to), _)) => {
            match own.members.may_go(to) {
                true => own.later.push_back(Later::Lend(Box::new((to, passed)))),
                false => {
                    let returned = false;
                    send(own, to, Passed { returned, ..passed });
                }
            }
            None
        }
        None => Some(passed),
    }
}

/// Another member than those of an edge gets a message that it had.
pub(crate) fn pass_again(own: &mut Owners, passed: Passed, not: Option<ShardId>) {
    let not = not.map(Subscriber::Shard);
    let (local, any) = (false, true);
    if let Some(passed) = try_choice(own, passed, &Choice { local, any, not }) {
        leave_behind(own, passed);
    }
}

/// The delivery is that of the session which had it.
fn keep(own: &mut Owners, passed: Passed) -> Delivery {
    let (delivery, old) = (passed.delivery, passed.old.key);
    if own.commits.is_durable()
        && let (Some(seq), Some(queue)) = (delivery.seq, passed.queue.filter(|queue| *queue != old))
    {
        own.commits.keep(old, Seq(seq), queue);
    }
    delivery
}

fn send(own: &mut Owners, to: ShardId, passed: Passed) {
    let passed = PassedOn(Box::new(passed));
    own.outbox.bus(to, BusMessage::PassedOn(passed));
}

/// A member on another shard has given up a message, or no member there takes it
/// after all.
pub(crate) fn handle_passed_on(own: &mut Owners, from: ShardId, mut passed: Passed) {
    let old = passed.old;
    if passed.returned && own.sessions.resolve(old).is_some() {
        let delivery = keep(own, passed);
        return settle::give_back(own, old, delivery);
    }
    let here = Choice {
        local: true,
        any: true,
        not: None,
    };
    if let Some((Subscriber::Session(s), value)) = choose(own, &passed, &here) {
        match give_to(own, passed, s as usize, &value) {
            Some(refused) => passed = refused,
            None => return,
        }
    }
    let share = passed.delivery.share.as_deref().unwrap_or_default();
    match passed.returned {
        // It had a member when it was asked.
        true if !own.routing.has_member_on(share, from) => {
            passed.returned = false;
            pass_again(own, passed, Some(from));
        }
        true => leave_behind(own, passed),
        false => {
            passed.returned = true;
            send(own, from, passed);
        }
    }
}

/// The QoS with which its publisher sent a message, as far as it is known.
fn published(delivery: &Delivery) -> QoS {
    delivery.held().map_or(delivery.qos, |message| message.qos)
}

/// Who may get a message that another member gives up.
struct Choice {
    /// Only members of this shard.
    local: bool,
    /// Also one that cannot take it now.
    any: bool,
    /// Not this one.
    not: Option<Subscriber>,
}

/// Chooses who gets a message that another member gives up.
fn choose(own: &Owners, passed: &Passed, among: &Choice) -> Option<(Subscriber, Subscribed)> {
    let Choice { local, any, not } = *among;
    let (sessions, conns) = (&own.sessions, &own.conns);
    let (delivery, groups) = (&passed.delivery, &own.routing.groups);
    let share = delivery.share.as_deref()?;
    let published = published(delivery);
    let exact = published == QoS::ExactlyOnce && groups.queue(share).is_some();
    let fits = |key: Subscriber, value: &Subscribed| match key {
        Subscriber::Session(s) => {
            let qos = published.min(Hit::new(s as usize, value, None).qos());
            let durable = member(sessions, conns, s as usize).durable;
            let twice = qos == QoS::ExactlyOnce;
            // Otherwise the store has it no longer.
            let stays = qos == QoS::AtLeastOnce || twice && durable;
            let fits = stays || delivery.held().is_some();
            fits && !(exact && twice && !durable)
        }
        Subscriber::Shard(to) => {
            let lends = own.members.may_go(to);
            let is_there = delivery.held().is_some() || delivery.seq.is_some();
            let may = !lends || is_there && own.routing.loans.has_room(to);
            // What one store has stays there while a member there takes it.
            let may = may && !own.members.is_apart(to);
            !local && may && (!exact || groups.of(share, to).is_some())
        }
    };
    own.routing.choose(
        share,
        |key, value| Some(key) != not && fits(key, value) && is_available(own, key),
        |key, value| any && Some(key) != not && fits(key, value),
    )
}

/// Gives a message that another member had to this one. It comes out when there is no
/// room.
fn give_to(
    own: &mut Owners,
    mut passed: Passed,
    s: SessionIdx,
    value: &Subscribed,
) -> Option<Passed> {
    let hit = Hit::new(s, value, passed.delivery.share.as_deref());
    let qos = published(&passed.delivery).min(hit.qos());
    let held = passed.delivery.held().cloned();
    let retained = held.as_ref().map_or(passed.delivery.retain, |it| it.retain);
    let retain = hit.retain_as_published() && retained;
    if qos == QoS::AtMostOnce {
        let Some(message) = held else {
            return Some(passed);
        };
        let mut source = Source::of(&message, own.now);
        receivers::deliver_once(own, &mut source, &hit, retain);
        leave_store(own, &mut passed);
        return None;
    }
    let cost = passed.delivery.held_cost();
    let memory = own.has_memory(cost);
    if !deliver::has_room(own, s, cost, 1, memory) {
        return Some(passed);
    }
    let Some(session) = own.sessions.get(s) else {
        return Some(passed);
    };
    let (durable, session) = (session.is_persistent(), session.reference(s));
    settle_in_group(own, &mut passed, &hit);
    if qos == QoS::ExactlyOnce && !durable {
        leave_store(own, &mut passed);
    }
    passed.old = session;
    let delivery = keep(own, passed);
    let delivery = Delivery {
        qos,
        retain,
        identifiers: hit.identifiers,
        stream: hit.stream,
        maybe_sent: false,
        failed: 0,
        added: None,
        ..delivery
    };
    settle::give_back(own, session, delivery);
    None
}

/// The store has a message no longer.
pub(crate) fn leave_store(own: &mut Owners, passed: &mut Passed) {
    if own.members.is_edge() {
        if let Some(number) = passed.delivery.seq.take() {
            own.routing.loans.give_back(&mut own.outbox, number, true);
        }
        return;
    }
    if let (Some(seq), Some(session)) = (passed.delivery.seq.take(), passed.queue) {
        let seq = Seq(seq);
        own.commits.write(StoreOp::Dequeue { seq, session });
    }
}

/// A message that is in the store with its session, which ends, moves to the queue of
/// its group: it came before there was one.
fn settle_in_group(own: &mut Owners, passed: &mut Passed, hit: &Hit) {
    let group = hit.share.as_deref();
    let group = group.and_then(|share| own.routing.groups.queue(share));
    let delivery = &passed.delivery;
    if let (true, Some(queue), Some(message), Some(seq)) =
        (passed.ends, group, delivery.held(), delivery.seq)
        && passed.queue == Some(passed.old.key)
    {
        own.commits.write(StoreOp::Enqueue {
            seq: Seq(seq),
            message: Arc::clone(message),
            targets: alloc::vec![target(queue, delivery, None)],
        });
        passed.queue = Some(queue);
    }
}

/// As [`pass_on`], when `old` has released the message. What no other takes is
/// over, or that of `old` again; if that has ended meanwhile, it is as what it had not
/// released.
pub(crate) fn take_back(own: &mut Owners, delivery: Delivery, old: SessionRef, over: bool) {
    if own.sessions.resolve(old).is_none() {
        return give_again(own, delivery, old);
    }
    // The home of an edge knows the other members.
    if over && own.members.is_edge() {
        return give_on(own, delivery, old, false);
    }
    match pass_on(own, delivery, old, false) {
        Some(delivery) if over => own.dequeue(old.key, delivery.seq),
        Some(delivery) => settle::give_back(own, old, delivery),
        None => {}
    }
}

/// As [`pass_on`], when `old` has ended.
pub(crate) fn give_again(own: &mut Owners, delivery: Delivery, old: SessionRef) {
    give_on(own, delivery, old, true);
}

/// As [`pass_on`]. What no other takes is left behind: on an edge, the home that has lent
/// it gives it to a member elsewhere.
fn give_on(own: &mut Owners, delivery: Delivery, old: SessionRef, ends: bool) {
    if let Some(passed) = try_pass(own, delivery, old, ends) {
        leave_behind(own, passed);
    }
}

/// No member of this store takes a message now. If this store has none, one of another
/// store gets it.
pub(crate) fn leave_behind(own: &mut Owners, passed: Passed) {
    let is_wanted = is_wanted(own, &passed);
    match other_home(own, &passed).filter(|_| !is_wanted) {
        Some(to) => own.later.push_back(Later::Lend(Box::new((to, passed)))),
        None => stay_behind(own, passed),
    }
}

/// A home with another store that has a member for a message which a member here had.
fn other_home(own: &Owners, passed: &Passed) -> Option<ShardId> {
    let (members, delivery) = (&own.members, &passed.delivery);
    let is_there = delivery.held().is_some() || delivery.seq.is_some();
    if !members.has_apart() || !is_there {
        return None;
    }
    let is_apart = |key| matches!(key, Subscriber::Shard(to) if members.is_apart(to));
    let chosen = own.routing.choose(
        delivery.share.as_deref()?,
        |key, _| is_apart(key) && is_available(own, key),
        |key, _| is_apart(key),
    );
    match chosen {
        Some((Subscriber::Shard(to), _)) => Some(to),
        _ => None,
    }
}

/// No member takes a message now. It waits here for one, as long as there are members of
/// this store; on an edge, at the home that has lent it.
pub(crate) fn stay_behind(own: &mut Owners, passed: Passed) {
    if own.members.is_edge() {
        if let Some(number) = passed.delivery.seq {
            own.routing.loans.give_back(&mut own.outbox, number, false);
        }
        return;
    }
    match is_wanted(own, &passed) {
        true => wait(own, passed),
        false => give_up(own, passed),
    }
}

/// Whether a group has members that may get a message besides the session that had it and
/// ends.
fn is_wanted(own: &Owners, passed: &Passed) -> bool {
    let old = own.sessions.resolve(passed.old).filter(|_| passed.ends);
    let share = passed.delivery.share.as_deref().unwrap_or_default();
    own.routing.has_such(share, |key, _| match key {
        Subscriber::Session(s) => old != Some(s as usize),
        Subscriber::Shard(to) => !own.members.is_apart(to),
    })
}

/// Whether a member may take a message now that is in the store only, if it is loaded: one
/// that gets it at most once, or exactly once in a session that is not stored.
pub(crate) fn is_loaded_for(own: &Owners, passed: &Passed) -> bool {
    let published = published(&passed.delivery);
    let share = passed.delivery.share.as_deref().unwrap_or_default();
    own.routing.has_such(share, |key, value| {
        let s = match key {
            Subscriber::Session(s) => s,
            // What its members get is known there.
            Subscriber::Shard(to) => {
                let is_here = !own.members.may_go(to) && !own.members.is_apart(to);
                return is_here && is_available(own, key);
            }
        };
        let qos = published.min(Hit::new(s as usize, value, None).qos());
        let needs = match qos {
            QoS::AtMostOnce => true,
            QoS::AtLeastOnce => false,
            QoS::ExactlyOnce => !member(&own.sessions, &own.conns, s as usize).durable,
        };
        needs && is_available(own, key)
    })
}

/// A message is given to members once more after a while, so that it does not go to and
/// fro. What is in the store waits there only; what would leave it with the session that
/// had it is kept.
pub(crate) fn wait(own: &mut Owners, mut passed: Passed) {
    if passed.queue != Some(passed.old.key) {
        let delivery = &mut passed.delivery;
        delivery.qos = published(delivery);
        delivery.retain = delivery.held().map_or(delivery.retain, |it| it.retain);
        delivery.shed();
    }
    let is_stored = passed.delivery.is_stored();
    let refused = match is_stored || own.has_memory(passed.delivery.held_cost()) {
        true => {
            let before = own.routing.loans.bytes();
            let refused = own.routing.loans.keep(passed);
            weigh_loans(own, before);
            refused
        }
        false => Some(passed),
    };
    match refused {
        Some(passed) => {
            own.stats.messages_dropped_full += u64::from(passed.delivery.seq.is_none());
            give_up(own, passed);
        }
        None => remind(own),
    }
}

/// Has messages that wait here given to members once more.
pub(crate) fn remind(own: &mut Owners) {
    let loans = &mut own.routing.loans;
    if loans.kept() > 0 && !core::mem::replace(&mut loans.is_due, true) {
        own.timers.set(own.now + TRY_AFTER, Timer::Loans);
    }
}

/// What is lent or waits here counts as what waits in queues.
pub(crate) fn weigh_loans(own: &mut Owners, before: usize) {
    let now = own.routing.loans.bytes();
    own.budget.change_queue(before, now);
}

/// A message waits no longer. It stays in the queue of the group, and comes back with a
/// restart, as long as there are not too many such.
fn give_up(own: &mut Owners, mut passed: Passed) {
    if passed.delivery.seq.is_none() {
        return;
    }
    let max = own.config.sessions.queue_messages_max;
    let share = passed.delivery.share.as_deref();
    let stays = share.is_some_and(|share| own.routing.groups.leave_behind(share, max));
    if !stays {
        own.stats.messages_dropped_full += 1;
        leave_store(own, &mut passed);
    }
}

/// A session leaves a group and keeps what it was given: in the store, that is with
/// the session from now on, as far as it is in memory.
pub(crate) fn settle_in_session(own: &mut Owners, s: SessionIdx, share: &str) {
    let session = own.sessions.get(s).filter(|it| it.is_persistent());
    let Some(session) = session.filter(|_| share.starts_with("$share/")) else {
        return;
    };
    let key = session.key;
    let commits = &mut own.commits;
    session.visit_deliveries(|delivery| {
        if delivery.share.as_deref() == Some(share) {
            commits.move_in(key, delivery);
            if let Some(seq) = delivery.seq {
                commits.take_queue(key, Seq(seq));
            }
        }
    });
}

/// Who of a group gets a message that is published: one that can take it now, else any.
/// The rule for what is delivered exactly once is that of [`Routing::find`].
///
/// [`Routing::find`]: crate::owners::routing::Routing::find
fn choose_first(own: &Owners, share: &str, message: &Message) -> Option<(Subscriber, Subscribed)> {
    let groups = &own.routing.groups;
    let exact = message.qos == QoS::ExactlyOnce && groups.queue(share).is_some();
    let fits = |key, value: &Subscribed| match key {
        Subscriber::Session(s) => {
            let is_durable = || member(&own.sessions, &own.conns, s as usize).durable;
            !exact || value.options & 3 < 2 || is_durable()
        }
        Subscriber::Shard(to) => {
            own.routing.loans.has_room(to) && (!exact || groups.of(share, to).is_some())
        }
    };
    let prefers = |key, value: &Subscribed| fits(key, value) && is_available(own, key);
    let chosen = own.routing.choose(share, prefers, fits);
    chosen.or_else(|| {
        let prefers = |key, _: &Subscribed| is_available(own, key);
        own.routing.choose(share, prefers, |_, _| true)
    })
}

/// A shard that was chosen for shared subscriptions had no member left: its
/// interest has changed before it said so, and another member is chosen now.
pub(crate) fn choose_again(
    own: &mut Owners,
    missed: &Missed,
    token: u64,
    publish: &mut PendingPublish,
) {
    for share in &missed.shares {
        if let Some(member) = choose_first(own, share, &missed.message) {
            let share = share.clone();
            let given = give(own, &missed.message, share, member, token, publish);
            if !given && !publish.lossy {
                publish.refuse(NotTaken::NoRoom);
            }
        }
    }
}

/// Gives a message to one member of a shared subscription. `false`, and
/// nothing done, when it has no room.
fn give(
    own: &mut Owners,
    message: &Arc<Message>,
    share: Text,
    (key, value): (Subscriber, Subscribed),
    token: u64,
    publish: &mut PendingPublish,
) -> bool {
    match key {
        Subscriber::Session(s) => {
            let mut source = Source::of(message, own.now);
            if publish.is_transacted() {
                source = source.transacted();
            }
            let memory = own.has_memory(message.cost());
            if !deliver::has_room(own, s as usize, message.cost(), 1, memory) {
                return false;
            }
            let queue = own.routing.groups.queue(&share);
            let hit = Hit::new(s as usize, &value, Some(&share));
            let mut hits = alloc::vec![Hit { queue, ..hit }];
            let work = &mut publish.rest_mut().work;
            deliver::deliver_hits(own, &mut source, &mut hits, work)
        }
        Subscriber::Shard(to) if own.members.is_apart(to) => {
            let purpose = Purpose {
                shares: alloc::vec![share],
                ..Purpose::default()
            };
            posts::add(own, (to, token), message, purpose, publish);
            true
        }
        Subscriber::Shard(to) if own.members.may_go(to) => {
            lend(own, to, message, share, publish);
            true
        }
        Subscriber::Shard(to) => {
            publish.preparing += 1;
            let forward = Forward {
                message: Arc::clone(message),
                plain: false,
                shares: alloc::vec![share],
                retain: false,
                queue: false,
                manner: Manner::new(publish.lossy, publish.is_transacted()),
            };
            let token = Some(token);
            own.outbox.bus(to, BusMessage::Forward { forward, token });
            true
        }
    }
}

/// Gives a message that is published to a shared subscription to a member on an edge.
/// Where the group has a queue it is stored there first; the edge gets it then.
pub(crate) fn lend(
    own: &mut Owners,
    to: ShardId,
    message: &Arc<Message>,
    share: Text,
    publish: &mut PendingPublish,
) {
    if !own.routing.loans.has_room(to) || !own.has_memory(message.cost()) {
        if !publish.lossy {
            publish.refuse(NotTaken::NoRoom);
        }
        return;
    }
    let queue = own.routing.groups.queue(&share);
    let queue = queue.filter(|_| own.commits.is_durable() && message.qos == QoS::AtLeastOnce);
    let mut delivery = Delivery {
        content: Content::Held(Arc::clone(message)),
        seq: None,
        qos: message.qos,
        retain: message.retain,
        identifiers: Identifiers::new(),
        share: Some(Arc::from(share.as_str())),
        stream: StreamId::CONTROL,
        level: own.config.level(&message.topic),
        maybe_sent: false,
        failed: 0,
        added: None,
    };
    let work = &mut publish.rest_mut().work;
    if let Some(queue) = queue {
        let seq = own.commits.seq();
        delivery.seq = Some(seq.0);
        work.ops.push(StoreOp::Enqueue {
            seq,
            message: Arc::clone(message),
            targets: alloc::vec![target(queue, &delivery, None)],
        });
    }
    let passed = Passed {
        delivery,
        queue,
        old: NONE,
        ends: true,
        returned: false,
    };
    work.loans.push((to, passed));
}

/// Messages that an online member of a shared subscription may have waiting
/// before others are preferred.
const SHARED_QUEUE_MAX: usize = 64;

/// What a session is like as a member of a shared subscription.
pub(crate) fn member(sessions: &Sessions, conns: &Connections, s: SessionIdx) -> Member {
    let session = sessions.get(s);
    let available = session.is_some_and(|session| {
        session.queue().len() < SHARED_QUEUE_MAX
            && session
                .conn
                .and_then(|c| conns.get(c))
                .is_some_and(|conn| !conn.blocked)
    });
    Member {
        available,
        durable: session.is_some_and(Session::is_persistent),
    }
}

fn is_available(own: &Owners, key: Subscriber) -> bool {
    match key {
        Subscriber::Session(s) => member(&own.sessions, &own.conns, s as usize).available,
        Subscriber::Shard(to) => own.routing.loans.is_preferred(to),
    }
}
