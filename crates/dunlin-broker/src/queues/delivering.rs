//! From a node's queue to its consumers: whose turn it is gets the next message,
//! as far as its credit reaches.

use alloc::sync::Arc;

use dunlin_base::{Message, QoS};
use dunlin_queue::{Content, Delivery, Next, Outcome, Settled, Transfer};
use dunlin_store::Seq;

use crate::access::Action;
use crate::ids::SessionIdx;
use crate::io::Output;
use crate::messages::source::Source;
use crate::messages::walk::{self, Once};
use crate::owners::end::SCAN_PAUSE;
use crate::owners::kind::SessionKind as _;
use crate::owners::node::{Node, leaving};
use crate::owners::pending::Acquired;
use crate::owners::room::Room;
use crate::owners::routing::Hit;
use crate::owners::timers::Timer;
use crate::owners::{Owners, away, weigh};
use crate::queues::calls::{Call, Death};
use crate::queues::keeping;
use crate::queues::options::Overflow;
use crate::translate;

/// Messages loaded from the store at a time, and what they may cost together; one
/// where memory is short.
const LOAD_MAX: usize = 256;
const LOAD_BYTES_MAX: usize = 1 << 20;

/// Retained messages that are not kept in the store wait in memory.
const ONCE: Once = Once {
    deliver: queue_once,
    queues: true,
};

/// Hands over what may be handed over.
pub(crate) fn pump(own: &mut Owners, s: SessionIdx) {
    hand_over_waiting(own, s);
    give_credit(own, s);
    own.weigh_queue(s);
}

/// Messages whose time has come that are queued at a time.
const DUE_MAX: usize = 1024;

/// Queues what was kept back and whose time has come, or has it published.
fn release_due(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if node.delayed.publishes {
        return publish_due(own, s);
    }
    for _ in 0..DUE_MAX {
        let Some(delivery) = node.delayed.take_due(now) else {
            return;
        };
        node.queue.push(delivery);
    }
}

/// Has messages published whose time has come, so many that their ways out of the store
/// do not crowd.
fn publish_due(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    loop {
        let node = own.sessions.node_mut(s);
        let node = node.filter(|node| leaving(node) < DUE_MAX);
        let Some(delivery) = node.and_then(|node| node.delayed.take_due(now)) else {
            return;
        };
        own.bury(s, delivery, Death::Due, None);
    }
}

fn hand_over_waiting(own: &mut Owners, s: SessionIdx) {
    release_due(own, s);
    loop {
        let now = own.now;
        // One by one where memory is short, so that the rest stays in the store.
        let unsettled_max = match own.has_memory(0) {
            true => usize::from(own.config.sending.inflight_max),
            false => 1,
        };
        let Some(node) = own.sessions.node_mut(s) else {
            return;
        };
        if !node.is_ready() {
            return;
        }
        match node.next(now, unsettled_max, &mut own.budget.scan) {
            Some((end, Next::Send(transfer))) => hand_over(own, s, end, &transfer),
            Some((_, Next::Expired(delivery))) => expire(own, s, delivery),
            Some((end, Next::Load)) => load(own, s, end),
            Some((end, Next::Store { key, .. })) => record(own, s, end, key),
            // Consumers settle in one step.
            Some((_, Next::Settle { .. })) => {}
            None => {
                let wanted = node.is_wanted();
                if wanted && walk::walk_retained(own, s, &ONCE) {
                    continue;
                }
                answer_drains(own, s);
                let node = own.sessions.node_mut(s);
                if node.is_some_and(|node| node.is_paused() || node.delayed.len() > 0) {
                    remind(own, s);
                }
                return;
            }
        }
    }
}

/// Has [`check_session`](crate::front::check_session) look at a node when there is
/// something to do.
pub(crate) fn remind(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let soon = now + SCAN_PAUSE;
    let look = node.is_paused().then_some(soon);
    let due = node.delayed.next().map(|at| at.max(soon));
    let times = node.expires.into_iter().chain(look).chain(due);
    let times = times.chain(node.senders.look());
    let timer = Timer::Session(node.reference(s));
    match times.chain(away::next(node)).min() {
        Some(at) => own.timers.remind(at, timer, &mut node.alarm),
        None => own.timers.cancel(timer, &mut node.alarm),
    }
}

fn hand_over(own: &mut Owners, s: SessionIdx, at: usize, transfer: &Transfer<u32>) {
    let key = transfer.key;
    let added = transfer.added.as_deref();
    let bytes_max = own.config.clients.packet_bytes_max;
    let message = translate::with_added(&transfer.message, added, own.now, bytes_max);
    let session = own.sessions.get(s);
    if session.is_some_and(|session| session.recheck)
        && !own.may(s, Action::Receive, &message.topic)
    {
        own.stats.deliveries_denied += 1;
        return finish(own, s, at, key);
    }
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let resumed = away::take_again(node, at, key);
    let Some(end) = node.at(at) else {
        return own.outbox.note_missing();
    };
    let (shard, settled) = (end.shard, end.takes_settled());
    let deliver = Call::Deliver {
        link: end.link,
        key,
        message,
        failed: transfer.failed,
        again: transfer.again,
        resumed,
    };
    own.call(shard, deliver);
    if settled {
        finish(own, s, at, key);
    }
}

/// Room for messages of links that wait for it.
pub(crate) fn room_of(node: &Node) -> Room {
    match node.kept.options.overflow {
        Overflow::Reject => node.room(),
        Overflow::DropNewest | Overflow::DropOldest => Room::UNLIMITED,
    }
}

/// Gives links credit that wait for it, as far as there is room.
pub(crate) fn give_credit(own: &mut Owners, s: SessionIdx) {
    let (now, credit_max) = (own.now, u32::from(own.config.clients.receive_maximum));
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if !node.senders.is_waiting() || !node.is_ready() {
        return;
    }
    let look = node.senders.look();
    for (at, limit) in node.senders.take_idle(now) {
        allow(own, s, at, limit);
    }
    loop {
        let Some(node) = own.sessions.node_mut(s) else {
            return;
        };
        let room = room_of(node);
        match node.senders.next(room, credit_max, now) {
            Some((at, limit)) => allow(own, s, at, limit),
            None if node.senders.is_waiting() && expire_front(own, s) => {}
            None => break,
        }
    }
    let node = own.sessions.node_mut(s);
    if node.is_some_and(|node| node.senders.look().is_some() && node.senders.look() != look) {
        remind(own, s);
    }
}

fn allow(own: &mut Owners, s: SessionIdx, at: usize, limit: u32) {
    let node = own.sessions.node_mut(s);
    if let Some(end) = node.and_then(|node| node.at(at)) {
        let (shard, link) = (end.shard, end.link);
        own.call(shard, Call::Allow { link, limit });
    }
}

/// A message is over for its consumer.
fn finish(own: &mut Owners, s: SessionIdx, at: usize, key: u32) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let of = node.key;
    if let Settled::Done { seq, .. } = keeping::settle(own, s, at, key, Outcome::Accepted) {
        own.dequeue(of, seq);
    }
}

/// A message is past its time: it is dead, or over.
fn expire(own: &mut Owners, s: SessionIdx, delivery: Delivery) {
    own.stats.messages_expired += 1;
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let reference = node.reference(s);
    let is_held = matches!(delivery.content, Content::Held(_));
    if is_held && node.kept.options.dead_letter.is_some() {
        return own.bury(s, delivery, Death::Expired, None);
    }
    own.dequeue(reference.key, delivery.seq);
}

/// The store has to know the key of a message before it leaves.
fn record(own: &mut Owners, s: SessionIdx, at: usize, key: u32) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let node_ref = node.reference(s);
    if let Some(keep) = node.at(at).and_then(|end| end.keep.as_ref()) {
        let acquired = Acquired {
            node: node_ref,
            name: keep.name.clone(),
            key,
        };
        keeping::record(own, acquired);
    }
}

fn load(own: &mut Owners, s: SessionIdx, at: usize) {
    let max = weigh::loads_max(own, s, false, (LOAD_MAX, LOAD_BYTES_MAX));
    let (messages_max, bytes_max) = max.unwrap_or((1, 0));
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let (seqs, bytes) = away::stored_at_front(node, at, messages_max, bytes_max);
    node.queue.expect_loaded(bytes);
    let seqs = seqs.into_iter().map(Seq).collect();
    let node = node.reference(s);
    let request = own.commits.load(node, seqs);
    own.outbox.push(Output::Store(request));
    weigh::weigh_own(own, s);
}

/// Consumers that want what there is hear that there is no more.
fn answer_drains(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    for _ in 0..node.drains.len() {
        let Some(node) = own.sessions.node_mut(s) else {
            return;
        };
        let Some(at) = node.drains.pop_front() else {
            return;
        };
        let Some((end, queue)) = node.at_queue(at).filter(|(end, _)| end.drain) else {
            continue;
        };
        if end.has_seen_all(queue) || end.is_used_up() {
            end.use_up();
            let (shard, link) = (end.shard, end.link);
            own.call(shard, Call::Drained { link });
        } else {
            node.drains.push_back(at);
        }
    }
}

/// A message that is not kept in the store: it waits in memory, as far as there is
/// room.
pub(crate) fn deliver_once(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) {
    let s = hit.session;
    let message = source.message();
    let cost = message.cost();
    let memory = own.has_memory(cost) || own.holds_little(s, cost);
    if !memory || own.full_holder(s).is_some() || !make_room(own, s, cost) {
        own.stats.messages_dropped_slow += 1;
        return;
    }
    queue(own, message, hit, retain);
    pump(own, s);
}

/// A retained message that is not kept in the store, in the middle of sending.
fn queue_once(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) {
    let message = source.message();
    queue(own, message, hit, retain);
}

fn queue(own: &mut Owners, message: Arc<Message>, hit: &Hit, retain: bool) {
    let Some(node) = own.sessions.node_mut(hit.session) else {
        return;
    };
    let priority = message.extra.as_ref().and_then(|extra| extra.priority);
    let level = node.kept.options.level(priority);
    let delivery = Delivery {
        content: Content::Held(message),
        seq: None,
        qos: QoS::AtLeastOnce,
        retain,
        identifiers: hit.identifiers.clone(),
        share: None,
        stream: hit.stream,
        level,
        maybe_sent: false,
        failed: 0,
        added: None,
    };
    node.delayed.begin(&delivery);
    node.push(delivery, own.now);
}

/// Whether a node has room for a message, now that what is past its time, and where
/// that is the policy the oldest, has made room.
pub(crate) fn make_room(own: &mut Owners, s: SessionIdx, cost: usize) -> bool {
    loop {
        let Some(node) = own.sessions.node_mut(s) else {
            return false;
        };
        if node.is_ready() && node.room().fits(1, cost) {
            return true;
        }
        let drops = node.kept.options.overflow == Overflow::DropOldest && node.is_ready();
        if expire_front(own, s) {
            continue;
        }
        let node = own.sessions.node_mut(s).filter(|_| drops);
        let removed = node.and_then(|node| Some((node.key, node.queue.remove_front()?)));
        let Some((key, removed)) = removed else {
            return false;
        };
        own.stats.messages_dropped_full += 1;
        own.dequeue(key, removed.seq);
    }
}

/// Takes the message out that leaves next, if it is past its time; `false` if not.
pub(crate) fn expire_front(own: &mut Owners, s: SessionIdx) -> bool {
    let now = own.now;
    let node = own.sessions.node_mut(s);
    let node = node.filter(|node| node.queue.is_front_expired(now));
    let Some(expired) = node.and_then(|node| node.queue.remove_front()) else {
        return false;
    };
    expire(own, s, expired);
    true
}
