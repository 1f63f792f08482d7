//! Messages to clients: what a subscription's queue, link credit and transport
//! allow is sent; outcomes come back.

use alloc::boxed::Box;

use bytes::Bytes;
use dunlin_amqp::codec::{DeliveryState, Outcome as AmqpOutcome, Value};
use dunlin_amqp::message::Attempt;
use dunlin_amqp::{Delivery as Sent, LinkId, SendError, Sending, State, Tag};
use dunlin_base::{Form, Message, QoS};
use dunlin_queue::{Content, Delivery, Next, Outcome, Settled, Transfer};
use dunlin_store::Seq;

use crate::access::Action;
use crate::amqp::annotating::{ANNOTATIONS_BYTES_MAX, merged};
use crate::amqp::outcome::top_up;
use crate::amqp::outcomes;
use crate::amqp::state::{AmqpLink, End};
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::Output;
use crate::messages::source::Source;
use crate::messages::walk::{self, Once};
use crate::owners::routing::Hit;
use crate::owners::session::Session;
use crate::owners::{Later, Owners, weigh};
use crate::translate;

/// Messages loaded from the store at a time, and what they may cost together.
const LOAD_MAX: usize = 256;
const LOAD_BYTES_MAX: usize = 1 << 20;

/// Retained messages that are delivered at most once wait for credit.
const ONCE: Once = Once {
    deliver: queue_once,
    queues: true,
};

/// How a message is delivered that its publisher does not wait for. AMQP has a
/// word for whether it is kept (`durable`) and another for whether its delivery is
/// answered (settled); in MQTT, QoS 0 is both.
fn qos_of(message: &Message) -> QoS {
    let extra = message.extra.as_ref();
    match extra.and_then(|extra| extra.encoded.as_ref()) {
        Some(encoded) if encoded.form == Form::Amqp => QoS::AtLeastOnce,
        _ => QoS::AtMostOnce,
    }
}

/// A delivery that nothing durable depends on: it waits for credit like any other,
/// as far as there is room.
pub(crate) fn deliver_once(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) {
    let (s, message) = (hit.session, source.message());
    let level = source.level(&own.config);
    let (messages, bytes) = (
        own.config.sessions.queue_messages_max,
        own.config.sessions.queue_bytes_max,
    );
    let (cost, memory) = (message.cost(), own.has_memory(message.cost()));
    let fair = (memory || own.holds_little(s, cost)) && own.full_holder(s).is_none();
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    if !fair || !session.has_room(1, cost, messages, bytes) {
        own.stats.messages_dropped_slow += 1;
        return;
    }
    session.queue_mut().push(Delivery {
        qos: qos_of(&message),
        content: Content::Held(message),
        seq: None,
        retain,
        identifiers: hit.identifiers.clone(),
        share: hit.share.clone(),
        stream: hit.stream,
        level,
        maybe_sent: false,
        failed: 0,
        added: None,
    });
    pump(own, s);
}

/// The client has given credit, or wants what there is.
pub(crate) fn handle_credit(own: &mut Owners, c: ConnIdx, link: LinkId, wants: bool) {
    let conn = own.conns.amqp(c);
    let Some(s) = conn.and_then(|conn| conn.links.get(&link).copied()) else {
        return;
    };
    if let Some(session) = own.sessions.amqp_mut(s)
        && let End::Outgoing { drain, .. } = &mut session.end
    {
        *drain = wants;
    }
    pump(own, s);
}

/// Sends what may be sent.
pub(crate) fn pump(own: &mut Owners, s: SessionIdx) {
    send_waiting(own, s);
    own.weigh_queue(s);
}

fn send_waiting(own: &mut Owners, s: SessionIdx) {
    loop {
        let limit = own
            .budget
            .unsent_limit(own.config.sending.send_backlog_bytes);
        let Some(session) = own.sessions.amqp_mut(s) else {
            return;
        };
        let Some(c) = session.conn else {
            return;
        };
        let Some(conn) = own.conns.amqp_mut(c) else {
            return;
        };
        if conn.backlog() >= limit {
            conn.blocked = true;
            conn.waiting.for_transport(session.link);
            return;
        }
        let credit = conn.engine.credit(session.link) as usize;
        let last = &mut session.last_key;
        let next = session
            .consumer
            .poll(&mut session.queue, own.now, credit, |used| {
                let mut key = last.wrapping_add(1);
                while used.contains(key) {
                    key = key.wrapping_add(1);
                }
                *last = key;
                Some(key)
            });
        match next {
            Some(Next::Send(transfer)) => {
                if !send(own, c, s, &transfer) {
                    return;
                }
            }
            Some(Next::Expired(delivery)) => {
                let key = session.key;
                own.stats.messages_expired += 1;
                own.dequeue(key, delivery.seq);
            }
            // It came through a group, which has it in the store.
            Some(Next::Load) => {
                if !load(own, s) {
                    return;
                }
            }
            // The store keeps no keys of deliveries here.
            Some(Next::Settle { .. } | Next::Store { .. }) => {}
            None => {
                if credit > 0 && walk::walk_retained(own, s, &ONCE) {
                    continue;
                }
                return drain(own, c, s);
            }
        }
    }
}

/// Has the store give the messages that are next; `false`: not now.
fn load(own: &mut Owners, s: SessionIdx) -> bool {
    let session = own.sessions.get(s).and_then(Session::amqp);
    let awaits = session.is_some_and(|session| session.consumer.awaits_outcomes());
    let max = weigh::loads_max(own, s, awaits, (LOAD_MAX, LOAD_BYTES_MAX));
    let Some(session) = own.sessions.amqp_mut(s) else {
        return false;
    };
    let (queue, consumer) = (&mut session.queue, &session.consumer);
    let Some((messages_max, bytes_max)) = max else {
        queue.end_loading();
        return false;
    };
    let (seqs, bytes) = consumer.stored_at_front(queue, messages_max, bytes_max);
    queue.expect_loaded(bytes);
    let seqs = seqs.into_iter().map(Seq).collect();
    let session = session.reference(s);
    let request = own.commits.load(session, seqs);
    own.outbox.push(Output::Store(request));
    weigh::weigh_own(own, s);
    true
}

/// As [`deliver_once`], in the middle of sending.
fn queue_once(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) {
    let message = source.message();
    let level = source.level(&own.config);
    if let Some(session) = own.sessions.get_mut(hit.session) {
        session.queue_mut().push(Delivery {
            qos: qos_of(&message),
            content: Content::Held(message),
            seq: None,
            retain,
            identifiers: hit.identifiers.clone(),
            share: None,
            stream: hit.stream,
            level,
            maybe_sent: false,
            failed: 0,
            added: None,
        });
    }
}

/// Nothing more can be sent: the client hears so if it asked for that.
fn drain(own: &mut Owners, c: ConnIdx, s: SessionIdx) {
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    let (link, empty) = (session.link, session.queue.is_empty());
    let (End::Outgoing { drain, .. }, Some(conn)) = (&mut session.end, own.conns.amqp_mut(c))
    else {
        return;
    };
    conn.note_window(link);
    let is_done = empty || conn.engine.link_credit(link) == 0;
    if is_done && core::mem::take(drain) {
        let _ = conn.engine.drained(link);
        own.conns.touch(c);
    }
}

/// Sends one delivery; `false` if no other can be sent now.
fn send(own: &mut Owners, c: ConnIdx, s: SessionIdx, transfer: &Transfer<u32>) -> bool {
    let key = transfer.key;
    let (added, bytes_max) = (
        transfer.added.as_deref(),
        own.config.clients.packet_bytes_max,
    );
    let message = &translate::with_added(&transfer.message, added, own.now, bytes_max);
    let session = own.sessions.get(s);
    if session.is_some_and(|session| session.recheck)
        && !own.may(s, Action::Receive, &message.topic)
    {
        own.stats.deliveries_denied += 1;
        settle(own, s, key, Outcome::Rejected);
        return true;
    }
    let attempt = Attempt {
        delivery_count: u32::from(transfer.again),
        ..Attempt::default()
    };
    let now = own.now;
    let (Some(session), Some(conn)) = (own.sessions.amqp_mut(s), own.conns.amqp_mut(c)) else {
        return false;
    };
    let always = matches!(&session.end, End::Outgoing { settled: true, .. });
    let settled = always || transfer.qos == QoS::AtMostOnce;
    let sending = Sending::new(Tag::from(u64::from(key)), settled);
    let link = session.link;
    let sent = conn.send(link, &sending, message, now, attempt);
    own.conns.touch(c);
    match sent {
        Ok(()) => {
            own.stats.note_sent(transfer.qos);
            if settled {
                settle(own, s, key, Outcome::Accepted);
            }
            true
        }
        // Too large for this client, or not to be written: as if it had been delivered.
        Err(SendError::MessageSize) => {
            settle(own, s, key, Outcome::Rejected);
            true
        }
        // It waits where it was.
        Err(_) => {
            if let Some(conn) = own.conns.amqp_mut(c) {
                conn.note_window(link);
            }
            settle(own, s, key, Outcome::Released);
            false
        }
    }
}

fn end(session: &mut AmqpLink, key: u32, outcome: Outcome) -> Settled {
    let consumer = &mut session.consumer;
    let twice = consumer.qos(key) == Some(QoS::ExactlyOnce);
    match outcome {
        Outcome::Accepted if twice => {
            consumer.handle_received(key);
            consumer.complete(&mut session.queue, key)
        }
        _ => consumer.settle(&mut session.queue, key, outcome),
    }
}

/// Takes a delivery from its link, for a transaction that it leaves the store with.
pub(super) fn take(session: &mut AmqpLink, key: u32) -> Option<Delivery> {
    let delivery = session.consumer.delivery(key)?.clone();
    end(session, key, Outcome::Accepted);
    Some(delivery)
}

/// A delivery leaves its link with an outcome.
pub(super) fn settle(own: &mut Owners, s: SessionIdx, key: u32, outcome: Outcome) {
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    let (of, old) = (session.key, session.reference(s));
    match end(session, key, outcome) {
        Settled::Done { seq, .. } => own.dequeue(of, seq),
        Settled::Returned { delivery, .. } => {
            let over = matches!(outcome, Outcome::Modified { .. });
            let delivery = Box::new(delivery);
            own.later.push_back(Later::Return(old, delivery, over));
        }
        Settled::Requeued { .. } | Settled::Unknown => {}
    }
}

/// The client says what became of a delivery.
pub(crate) fn handle_disposition(
    own: &mut Owners,
    c: ConnIdx,
    delivery: Sent,
    tag: Tag,
    state: Option<&State>,
    settled: bool,
) {
    let conn = own.conns.amqp(c);
    let Some(s) = conn.and_then(|conn| conn.links.get(&delivery.link).copied()) else {
        return;
    };
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    match session.end {
        End::Incoming { .. } => {
            // A client that sends has settled: it may send others.
            if settled {
                outcomes::forget(own, s, tag);
            }
            return top_up(own, c, s);
        }
        End::Requests(_) => return,
        End::Outgoing { .. } | End::Taking(_) | End::Coordinator(_) => {}
    }
    let key = tag.number().and_then(|number| u32::try_from(number).ok());
    let said = state;
    let state = said.map(State::get);
    let outcome = match state.as_ref().map(DeliveryState::outcome) {
        Some(Some(outcome)) => {
            if let (Some(key), Some(annotations)) = (key, annotations_of(&outcome)) {
                annotate(own, s, key, &annotations);
            }
            outcome_of(&outcome)
        }
        // Settled without a word: it is done with.
        None if settled => Outcome::Accepted,
        // How far it came.
        Some(None) | None => return,
    };
    if !settled && let Some(conn) = own.conns.amqp_mut(c) {
        let state = said.map(State::without_details);
        let _ = conn.engine.settle(delivery, state.as_ref());
        own.conns.touch(c);
    }
    if let Some(key) = key {
        settle(own, s, key, outcome);
    }
    pump(own, s);
}

/// The client adds annotations to a message that it gives back.
fn annotate(own: &mut Owners, s: SessionIdx, key: u32, annotations: &[u8]) {
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    let delivery = session.consumer.delivery(key);
    if let Some(added) = delivery.and_then(|it| merged(it.added.as_deref(), annotations)) {
        session.consumer.add(key, added);
    }
}

/// The annotations that an outcome adds to its message, unless they are too long.
pub(super) fn annotations_of(outcome: &AmqpOutcome<'_>) -> Option<Bytes> {
    let AmqpOutcome::Modified(modified) = outcome else {
        return None;
    };
    let map = modified.message_annotations.filter(|map| !map.is_empty())?;
    let value = Value::Map(map);
    let fits = value.encoded_len() <= ANNOTATIONS_BYTES_MAX;
    let bytes = fits.then(|| value.to_vec().ok()).flatten();
    bytes.map(Bytes::from)
}

pub(super) fn outcome_of(outcome: &AmqpOutcome<'_>) -> Outcome {
    match outcome {
        AmqpOutcome::Accepted | AmqpOutcome::Declared(_) => Outcome::Accepted,
        AmqpOutcome::Rejected(_) => Outcome::Rejected,
        AmqpOutcome::Released => Outcome::Released,
        AmqpOutcome::Modified(modified) => Outcome::Modified {
            failed: modified.delivery_failed,
            undeliverable_here: modified.undeliverable_here,
        },
    }
}
