//! From a session's queue to its connection: what queue, window and transport
//! allow is sent.

use alloc::sync::Arc;
use core::num::NonZeroU16;

use dunlin_base::{Message, QoS};
use dunlin_mqtt::codec::PacketId;
use dunlin_mqtt::codec::{PacketType, Publish, ReasonCode};
use dunlin_mqtt::server::session::Subscription;
use dunlin_mqtt::server::{Content, Delivery, Identifiers, Outgoing, Received, Transfer, delivery};
use dunlin_store::{InflightState, Seq, SessionKey, StoreOp, Target};

use crate::access::Action;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::Output;
use crate::messages::source::Source;
use crate::mqtt::{encode, send};
use crate::owners::Owners;
use crate::owners::pending::{Due, Pending, PendingPublish};
use crate::owners::routing::Hit;

/// Messages loaded from the store at a time, and what they may cost together.
const LOAD_MAX: usize = 256;
const LOAD_BYTES_MAX: usize = 1 << 20;

/// Queued messages of a session below which the next page of retained messages
/// is taken.
const QUEUE_LOW: usize = 128;

/// Bytes of them, likewise.
const QUEUE_LOW_BYTES: usize = 1 << 20;

/// Queued messages of a session that are passed over because of their streams.
const ASIDE_MAX: usize = 1024;

/// Passes over the next message of a session if its stream takes nothing;
/// `None`: it may go. `Some(false)`: too many are waiting.
fn pass_over(own: &mut Owners, s: SessionIdx, c: ConnIdx) -> Option<bool> {
    let conn = own
        .conns
        .get(c)
        .filter(|conn| conn.link.streams.is_any_blocked())?;
    let session = own.sessions.get_mut(s)?;
    let (delivery, message) = session.mqtt.outbound.next_new()?;
    conn.link
        .is_blocked_for(delivery.stream, &message.topic)
        .then(|| session.mqtt.outbound.set_aside(ASIDE_MAX))
}

/// Sends what the session's queue, window and transport allow.
pub(crate) fn pump(own: &mut Owners, s: SessionIdx) {
    send_waiting(own, s);
    own.weigh_queue(s);
}

fn send_waiting(own: &mut Owners, s: SessionIdx) {
    loop {
        let Some(session) = own.sessions.get_mut(s) else {
            return;
        };
        let Some(c) = session.conn else {
            return;
        };
        let Some(conn) = own.conns.get_mut(c) else {
            return;
        };
        if !matches!(conn.phase, crate::owners::conn::Phase::Connected(_)) {
            return;
        }
        let level = session.mqtt.outbound.next_level();
        let apart = conn.link.lanes.is_some();
        let limit = own.config.backlog_limit(level, apart);
        if conn.link.backlog() >= own.budget.unsent_limit(limit) {
            conn.blocked = true;
            return;
        }
        let window = conn.link.terms.receive_maximum.min(own.config.inflight_max);
        let window = own.config.window(level, window);
        match pass_over(own, s, c) {
            Some(true) => continue,
            Some(false) => return,
            None => {}
        }
        let Some(session) = own.sessions.get_mut(s) else {
            return;
        };
        let Some(outgoing) = session.mqtt.outbound.poll(own.now, window) else {
            session.recheck &= !session.mqtt.outbound.is_idle();
            if !walk_retained(own, s) {
                return;
            }
            continue;
        };
        handle_outgoing(own, s, c, outgoing);
    }
}

fn handle_outgoing(own: &mut Owners, s: SessionIdx, c: usize, outgoing: Outgoing) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let key = session.key;
    match outgoing {
        Outgoing::Send(transfer) => send_delivery(own, s, c, &transfer),
        Outgoing::Settle {
            key: packet_id,
            stream,
        } => {
            let reason = ReasonCode::Success;
            send::send_ack(own, c, stream, PacketType::PubRel, packet_id, reason);
        }
        Outgoing::Store {
            key: packet_id,
            seq,
        } => {
            store_outgoing(own, SessionRef { key, at: s }, packet_id, Seq(seq));
        }
        Outgoing::Load => {
            let seqs = session
                .mqtt
                .outbound
                .stored_at_front(LOAD_MAX, LOAD_BYTES_MAX);
            let seqs = seqs.into_iter().map(Seq).collect();
            let session = SessionRef { key, at: s };
            let request = own.commits.load(session, seqs);
            own.outbox.push(Output::Store(request));
        }
        //= mqtt5#[MQTT-3.3.2-5]
        Outgoing::Expired(delivery) => {
            own.stats.messages_expired += 1;
            dequeue(own, key, delivery.seq);
        }
    }
}

/// Has the store know the identifier of a QoS 2 message; it leaves then.
pub(crate) fn store_outgoing(
    own: &mut Owners,
    session: SessionRef,
    packet_id: NonZeroU16,
    seq: Seq,
) {
    own.commits.write(StoreOp::PutInflight {
        session: session.key,
        packet_id: packet_id.get(),
        seq,
        state: InflightState::Published,
    });
    let token = own.commits.token();
    let pending = Pending::Outgoing { session, packet_id };
    own.commits.when_stored(token, pending);
}

fn send_delivery(own: &mut Owners, s: SessionIdx, c: usize, transfer: &Transfer<PacketId>) {
    let (packet_id, message) = (transfer.key, &transfer.message);
    let session = own.sessions.get(s);
    if session.is_some_and(|session| session.recheck)
        && !own.may(s, Action::Receive, &message.topic)
    {
        own.stats.deliveries_denied += 1;
        return end_delivery(own, s, packet_id);
    }
    let publish = Publish {
        dup: transfer.again,
        qos: transfer.qos,
        retain: transfer.retain,
        packet_id: Some(packet_id),
        ..delivery::view(message, own.now)
    };
    own.stats.note_sent(transfer.qos);
    let identifiers = &transfer.identifiers;
    let sent = encode::send_publish(own, c, transfer.stream, publish, identifiers, Some(message));
    if sent == Some(transfer.stream) {
        return;
    }
    let Some(stream) = sent else {
        // Too large for this client: as if it had been delivered.
        return end_delivery(own, s, packet_id);
    };
    if let Some(session) = own.sessions.get_mut(s) {
        session.mqtt.outbound.note_stream(packet_id, stream);
    }
}

/// Ends a delivery that cannot be made.
fn end_delivery(own: &mut Owners, s: SessionIdx, packet_id: PacketId) {
    if let Some(session) = own.sessions.get_mut(s) {
        let key = session.key;
        let received = session.mqtt.outbound.handle_refused(packet_id);
        forget(own, key, packet_id, &received);
    }
}

/// Tells the store that a delivery is over.
pub(crate) fn forget(
    own: &mut Owners,
    key: SessionKey,
    packet_id: NonZeroU16,
    received: &Received,
) {
    if let Received::Done { seq, id_stored } = received {
        dequeue(own, key, *seq);
        if *id_stored {
            own.commits.write(StoreOp::DeleteInflight {
                session: key,
                packet_id: packet_id.get(),
            });
        }
    }
}

fn dequeue(own: &mut Owners, session: SessionKey, seq: Option<u64>) {
    if let Some(seq) = seq.map(Seq) {
        let session = own.commits.keeper(session, seq);
        own.commits.write(StoreOp::Dequeue { seq, session });
    }
}

/// Messages that a session wanted came from the store, or are lost.
pub(crate) fn handle_loaded(
    own: &mut Owners,
    session: SessionRef,
    messages: &[(u64, Option<Arc<Message>>)],
) {
    if let Some(entry) = own.sessions.resolve_mut(session) {
        entry.mqtt.outbound.handle_loaded(messages);
        if !messages.is_empty() {
            pump(own, session.at);
        }
    }
}

/// Takes one page of retained messages for the session's new
/// subscriptions. `false` when there is nothing to take now.
fn walk_retained(own: &mut Owners, s: SessionIdx) -> bool {
    let Some(session) = own.sessions.get_mut(s) else {
        return false;
    };
    let outbound = &session.mqtt.outbound;
    if !outbound.has_room(1, 0, QUEUE_LOW, QUEUE_LOW_BYTES) {
        return false;
    }
    let Some((filter, after)) = session.walks.take() else {
        return false;
    };
    let Some(subscription) = session.mqtt.subscriptions.get(&filter).copied() else {
        return true;
    };
    let (page, next) = own.routing.page(&filter, after.as_deref());
    for message in page {
        deliver_retained(own, s, &subscription, message);
    }
    if let Some(next) = next
        && let Some(session) = own.sessions.get_mut(s)
    {
        session.walks.put_back(filter, next);
    }
    true
}

fn deliver_retained(
    own: &mut Owners,
    s: SessionIdx,
    subscription: &Subscription,
    message: Arc<Message>,
) {
    if message.is_expired(own.now) || !own.may(s, Action::Receive, &message.topic) {
        return;
    }
    let (stream, identifiers) = (subscription.stream, subscription.identifier);
    let identifiers: Identifiers = identifiers.into_iter().collect();
    let qos = delivery::effective_qos(message.qos, subscription.options.qos);
    //= mqtt5#[MQTT-3.3.1-8]
    let retain = true;
    if qos == QoS::AtMostOnce {
        let view = delivery::view(&message, own.now);
        let mut source = Source::from_message(&message, &view, own.now);
        let hit = Hit {
            session: s,
            options: 0,
            identifiers,
            stream,
            share: None,
            keeper: None,
        };
        return encode::deliver_qos0(own, &mut source, &hit, retain);
    }
    let (seq, level) = (own.commits.seq(), own.config.level(&message.topic));
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let cost = message.cost();
    let durable = own.config.durable && session.is_persistent();
    let mut delivery = Delivery {
        content: Content::Held(Arc::clone(&message)),
        seq: None,
        qos,
        retain,
        identifiers,
        share: None,
        stream,
        level,
        maybe_sent: false,
    };
    if !durable {
        session.mqtt.outbound.push(delivery);
        return;
    }
    delivery.seq = Some(seq.0);
    session.mqtt.outbound.reserve(cost);
    let session = session.reference(s);
    store_retained(own, session, message, delivery);
}

/// Has the store keep a retained message for a session; it is queued then.
fn store_retained(
    own: &mut Owners,
    session: SessionRef,
    message: Arc<Message>,
    delivery: Delivery,
) {
    let cost = message.cost();
    own.commits.write_together(StoreOp::Enqueue {
        seq: Seq(delivery.seq.unwrap_or_default()),
        message,
        targets: alloc::vec![Target {
            session: session.key,
            qos: delivery.qos,
            retain: delivery.retain,
            identifiers: delivery.identifiers.to_vec(),
            shared: None,
        }],
    });
    let publish = PendingPublish {
        due: alloc::vec![Due {
            session,
            delivery,
            cost,
        }],
        ..PendingPublish::default()
    };
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Publish(publish));
}
