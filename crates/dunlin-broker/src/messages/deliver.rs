//! From a matched message to the queues of its receivers, or with QoS 0 to
//! their send buffers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, QoS};
use dunlin_queue::{Content, Delivery};
use dunlin_store::{Seq, SessionKey, StoreOp, Target};
use smallvec::SmallVec;

use crate::config::QueueFull;
use crate::ids::{SessionIdx, SessionRef};
use crate::io::Event;
use crate::memory::Part;
use crate::messages::source::Source;
use crate::messages::throttle::{self, QUEUE_HIGH};
use crate::owners::commits::target;
use crate::owners::pending::{Due, Once, Work};
use crate::owners::routing::Hit;
use crate::owners::session::Session;
use crate::owners::{Later, Owners};
use crate::queues::delivering;
use crate::queues::options::Overflow;
use crate::receivers;

/// Delivers to `hits`. What must be stored first goes to `work`. `false`, and
/// nothing delivered, when a queue is full and the policy is to refuse.
pub(crate) fn deliver_hits(
    own: &mut Owners,
    source: &mut Source<'_>,
    hits: &mut Vec<Hit>,
    work: &mut Work,
) -> bool {
    receivers::leave_out(own, source, hits);
    if hits.is_empty() {
        return true;
    }
    let published = source.qos();
    let memory = !source.is_answered() || own.has_memory(source.cost());
    if source.is_answered()
        && let Some(full) = without_room(own, hits, source, memory)
    {
        report_full(own, full, memory);
        return false;
    }
    let mut batch = Parts::new();
    for hit in hits.drain(..) {
        if let Some(message) = aged(own, hit.session, source) {
            let mut source = source.with(&message);
            deliver_hits(own, &mut source, &mut alloc::vec![hit], work);
            continue;
        }
        let qos = published.min(hit.qos());
        //= mqtt5#[MQTT-3.3.1-12]
        let retain = hit.retain_as_published() && source.retain();
        if qos == QoS::AtMostOnce {
            match source.is_transacted() {
                true => deliver_later(own, source, hit, retain, work),
                false => receivers::deliver_once(own, source, &hit, retain),
            }
        } else if source.is_transacted()
            || !receivers::send_at_once(own, source, &hit, (qos, retain))
        {
            let cost = source.message().cost();
            let room = has_room(own, hit.session, cost, 1, memory)
                || makes_room(own, hit.session, source, memory);
            if !room {
                report_full(own, hit.session, memory);
            }
            let due = &mut work.due;
            deliver_acknowledged(own, source, hit, (qos, retain), room, due, &mut batch);
            own.budget.set_copies(true);
        }
    }
    own.budget.set_copies(false);
    work.ops
        .extend(batch.into_iter().map(|part| StoreOp::Enqueue {
            seq: part.seq,
            message: source.message(),
            targets: part.targets,
        }));
    true
}

/// A message with the time that it has in a queue, if that is less than it has.
fn aged(own: &Owners, s: SessionIdx, source: &mut Source<'_>) -> Option<Arc<Message>> {
    let ttl = own.sessions.get(s)?.node()?.kept.options.ttl?;
    let (until, message) = (own.now + ttl, source.message());
    let lasts = message.expires.is_none_or(|at| at > until);
    lasts.then(|| {
        Arc::new(Message {
            expires: Some(until),
            ..Message::clone(&message)
        })
    })
}

/// Has a delivery done at most once when the transaction of the message is stored.
fn deliver_later(own: &Owners, source: &mut Source<'_>, hit: Hit, retain: bool, work: &mut Work) {
    let message = source.message();
    if let Some(session) = own.sessions.get(hit.session) {
        let session = session.reference(hit.session);
        let once = Once {
            session,
            hit,
            message,
            retain,
        };
        work.transacted_mut().once.push(once);
    }
}

/// QoS 1 and 2: into the session's queue, by way of the store if the
/// session is durable.
fn deliver_acknowledged(
    own: &mut Owners,
    source: &mut Source<'_>,
    hit: Hit,
    (qos, retain): (QoS, bool),
    room: bool,
    due: &mut Vec<Due>,
    batch: &mut Parts,
) {
    let s = hit.session;
    let message = source.message();
    let level = source.level(&own.config);
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let (level, priority) = session.rank(level, &message);
    let not_before = session.keeps_back(&message, own.now);
    let persistent = session.is_persistent();
    let conn = session.conn;
    let behind = session.queue().len() >= QUEUE_HIGH;
    let cost = message.cost();
    let mut delivery = Delivery {
        content: Content::Held(message),
        seq: source.take_borrowed(room),
        qos,
        retain,
        identifiers: hit.identifiers,
        share: hit.share,
        stream: hit.stream,
        level,
        maybe_sent: false,
        failed: 0,
        added: None,
    };
    if !room {
        // Only where the policy is to drop, for a will, or where a session that ends
        // with its connection does not keep up: its end is a matter
        // between the two of them, not of the publisher.
        own.stats.messages_dropped_full += 1;
        if !persistent && own.config.sessions.queue_full == QueueFull::Reject {
            let session = session.reference(s);
            own.later.extend(conn.map(|_| Later::Behind(session)));
        }
    } else {
        let key = session.key;
        let queue = match persistent {
            true => Some(hit.queue.unwrap_or(key)),
            // After a crash no other could say whether it has it.
            false => hit.queue.filter(|_| qos == QoS::AtLeastOnce),
        };
        if own.config.durable
            && let Some(queue) = queue
        {
            let target = Target {
                not_before,
                ..target(queue, &delivery, priority)
            };
            let seq = place(own, batch, key, target);
            delivery.seq = Some(seq.0);
            if queue != key {
                own.commits.keep(key, seq, queue);
            }
        }
        let is_held = source.is_transacted();
        enqueue(own, SessionRef { key, at: s }, delivery, cost, is_held, due);
    }
    if behind {
        throttle::check_pace(own, s, source.publisher());
    }
}

/// A delivery that waits for the store, or not; `is_held`: for its transaction. One
/// that a member of a group gets exactly once waits for the identifier of its
/// publisher: after a crash that sends it again, and another member would get it.
fn enqueue(
    own: &mut Owners,
    session: SessionRef,
    delivery: Delivery,
    cost: usize,
    is_held: bool,
    due: &mut Vec<Due>,
) {
    let exact = delivery.qos == QoS::ExactlyOnce && delivery.share.is_some();
    let waits = delivery.seq.is_some() || exact;
    let Some(entry) = own.sessions.get_mut(session.at) else {
        return;
    };
    if let Some(node) = entry.node_mut() {
        node.delayed.begin(&delivery);
    }
    if is_held || waits && own.config.durable {
        entry.queue_mut().reserve(cost);
        own.weigh_queue(session.at);
        due.push(Due {
            session,
            delivery,
            cost,
        });
    } else {
        entry.push(delivery, own.now);
        receivers::pump(own, session.at);
    }
}

/// Adds a target to the message as the store gets it: once more if it has that
/// session already, through a shared subscription.
fn place(own: &mut Owners, batch: &mut Parts, receiver: SessionKey, target: Target) -> Seq {
    let shared = target.shared.is_some() || batch.iter().any(|part| part.shared);
    let known = batch.iter_mut().find(|part| {
        !shared
            || !(part.receivers.contains(&receiver)
                || part
                    .targets
                    .iter()
                    .any(|known| [target.session, receiver].contains(&known.session)))
    });
    let seq = match &known {
        Some(part) => part.seq,
        None => own.commits.seq(),
    };
    let add = |part: &mut Enqueued| {
        part.shared |= target.shared.is_some();
        part.receivers
            .extend((receiver != target.session).then_some(receiver));
        part.targets.push(target);
    };
    match known {
        Some(part) => add(part),
        None => {
            let mut part = Enqueued {
                seq,
                targets: Vec::new(),
                receivers: Vec::new(),
                shared: false,
            };
            add(&mut part);
            batch.push(part);
        }
    }
    seq
}

/// Whether a session has room for so many copies of a message of `cost` bytes.
/// `memory`: there is some for all that get it.
pub(crate) fn has_room(
    own: &Owners,
    s: SessionIdx,
    cost: usize,
    copies: usize,
    memory: bool,
) -> bool {
    let session = own.sessions.get(s);
    session.is_some_and(|session| fits(own, session, cost, copies))
        && (memory || own.holds_little(s, cost))
        && own.full_holder(s).is_none()
}

/// Whether the queue of a session has room, as far as its own limits go.
fn fits(own: &Owners, session: &Session, cost: usize, copies: usize) -> bool {
    let bounds = own.config.bounds_of(&session.subject(&own.access, None));
    session.has_room(copies, cost, bounds.messages_max, bounds.bytes_max)
}

/// Whether a queue whose policy that is has made room.
fn makes_room(own: &mut Owners, s: SessionIdx, source: &mut Source<'_>, memory: bool) -> bool {
    let cost = source.message().cost();
    let Some(session) = own.sessions.get(s) else {
        return false;
    };
    let is_node = session.node().is_some();
    let bounds = own.config.bounds_of(&session.subject(&own.access, None));
    if !(memory || own.holds_little(s, cost)) {
        return false;
    }
    match is_node {
        true => delivering::make_room(own, s, cost),
        false => {
            bounds.overflow == Overflow::DropOldest
                && cost <= bounds.bytes_max
                && own.full_holder(s).is_none()
                && drop_oldest(own, s, cost)
        }
    }
}

/// Drops the oldest messages of a session until one more fits; `false`: it does not
/// although none is left.
fn drop_oldest(own: &mut Owners, s: SessionIdx, cost: usize) -> bool {
    loop {
        let session = own.sessions.get(s);
        if session.is_some_and(|session| fits(own, session, cost, 1)) {
            return true;
        }
        let Some(session) = own.sessions.get_mut(s) else {
            return false;
        };
        let key = session.key;
        let Some(removed) = session.queue_mut().remove_front() else {
            return false;
        };
        own.stats.messages_dropped_full += 1;
        own.dequeue(key, removed.seq);
    }
}

/// The first session whose queue does not have room for all of its copies, as
/// far as the publisher is refused for it. More copies than a queue ever has
/// room for are the matter of their receiver.
fn without_room(
    own: &Owners,
    hits: &[Hit],
    source: &mut Source<'_>,
    memory: bool,
) -> Option<SessionIdx> {
    if source.is_lossy() {
        return None;
    }
    let published = source.qos();
    let kept = |hit: &&Hit| {
        let session = own.sessions.get(hit.session);
        session.is_some_and(|session| session.refuses(&own.config, published.min(hit.qos())))
    };
    // Only groups give a session more than one copy.
    if hits.iter().all(|hit| hit.share.is_none()) {
        let mut kept = hits.iter().filter(kept).map(|hit| hit.session);
        return kept.find(|s| !has_room(own, *s, source.message().cost(), 1, memory));
    }
    let mut kept: Vec<SessionIdx> = hits.iter().filter(kept).map(|hit| hit.session).collect();
    kept.sort_unstable();
    let mut copies = kept.chunk_by(|a, b| a == b);
    let full = copies.find(|copies| {
        let wanted = copies.len().min(own.config.sessions.queue_messages_max);
        let s = copies.first();
        let cost = source.message().cost();
        s.is_some_and(|s| !has_room(own, *s, cost, wanted, memory))
    });
    full.and_then(|copies| copies.first().copied())
}

/// Says whose queue is full: once until its client comes back, so that the log
/// cannot be filled.
fn report_full(own: &mut Owners, s: SessionIdx, memory: bool) {
    if !memory {
        return own.note_refused(Part::Queued, 1);
    }
    if let Some(holder) = own.full_holder(s) {
        return own.note_full_holder(holder, 1);
    }
    if let Some(session) = own.sessions.get_mut(s)
        && !core::mem::replace(&mut session.full, true)
    {
        let client_id = session.client_id.clone();
        own.outbox.event(Event::QueueFull { client_id });
    }
}

/// A message as the store gets it; almost always once.
type Parts = SmallVec<[Enqueued; 1]>;

/// What durable receivers of one message have in common.
struct Enqueued {
    seq: Seq,
    targets: Vec<Target>,
    /// Who gets what one of the targets keeps for it.
    receivers: Vec<SessionKey>,
    /// Some came through a shared subscription.
    shared: bool,
}
