//! From a session's queue to its connection: what queue, window and transport
//! allow is sent as PUBLISH.

use core::num::NonZeroU16;

use dunlin_base::QoS;
use dunlin_base::sendbuf::SHARE_BYTES_MIN;
use dunlin_mqtt::codec::{PacketId, PacketType, Publish, ReasonCode};
use dunlin_mqtt::server::{Link, Outgoing, Received, Transfer, delivery};
use dunlin_store::{InflightState, Seq, SessionKey, StoreOp};

use crate::access::Action;
use crate::config::Config;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::Output;
use crate::messages::source::Source;
use crate::messages::walk::{self, Once};
use crate::mqtt::conn::Phase;
use crate::mqtt::waiting::MqttPending;
use crate::mqtt::{encode, send};
use crate::owners::Owners;
use crate::owners::budget::Budget;
use crate::owners::routing::Hit;
use crate::owners::weigh;
use crate::translate;

/// Messages loaded from the store at a time, and what they may cost together.
const LOAD_MAX: usize = 256;
const LOAD_BYTES_MAX: usize = 1 << 20;

/// Queued messages of a session that are passed over because of their streams.
const ASIDE_MAX: usize = 1024;

/// Retained messages with QoS 0 go to the transport.
const ONCE: Once = Once {
    deliver: encode::deliver_qos0,
    queues: false,
};

/// Passes over the next message of a session if its stream takes nothing;
/// `None`: it may go. `Some(false)`: too many are waiting.
fn pass_over(own: &mut Owners, s: SessionIdx, c: ConnIdx) -> Option<bool> {
    let conn = own
        .conns
        .mqtt(c)
        .filter(|conn| conn.link.streams.is_any_blocked())?;
    let session = own.sessions.mqtt_mut(s)?;
    let (delivery, message) = session.mqtt.outbound.next_new()?;
    conn.link
        .is_blocked_for(delivery.stream, &message.topic)
        .then(|| session.mqtt.outbound.queue.set_aside(ASIDE_MAX))
}

/// Sends what the session's queue, window and transport allow.
pub(crate) fn pump(own: &mut Owners, s: SessionIdx) {
    send_waiting(own, s);
    own.weigh_queue(s);
}

fn send_waiting(own: &mut Owners, s: SessionIdx) {
    loop {
        let Some(session) = own.sessions.mqtt_mut(s) else {
            return;
        };
        let Some(c) = session.conn else {
            return;
        };
        let Some(conn) = own.conns.mqtt_mut(c) else {
            return;
        };
        if !matches!(conn.phase, Phase::Connected(_)) {
            return;
        }
        let level = session.mqtt.outbound.next_level();
        let Some(window) = window(&own.config, &own.budget, &conn.link, level) else {
            conn.blocked = true;
            return;
        };
        match pass_over(own, s, c) {
            Some(true) => continue,
            Some(false) => return,
            None => {}
        }
        let Some(session) = own.sessions.mqtt_mut(s) else {
            return;
        };
        let Some(outgoing) = session.mqtt.outbound.poll(own.now, window) else {
            session.recheck &= !session.mqtt.outbound.is_idle();
            if !walk::walk_retained(own, s, &ONCE) {
                return;
            }
            continue;
        };
        if !handle_outgoing(own, s, c, outgoing) {
            return;
        }
    }
}

/// Messages of a level that may be in flight on a connection; `None`: its
/// transport takes no more of them.
fn window(config: &Config, budget: &Budget, link: &Link, level: u8) -> Option<u16> {
    let limit = config.backlog_limit(level, link.lanes.is_some());
    if link.backlog() >= budget.unsent_limit(limit) {
        return None;
    }
    let window = link.terms.receive_maximum.min(config.sending.inflight_max);
    Some(config.window(level, window))
}

/// Sends a message to a session that ends with its connection, if nothing waits in
/// front of it: then only its packet identifier is kept. `false`: it has to be
/// queued.
pub(crate) fn send_at_once(
    own: &mut Owners,
    source: &mut Source<'_>,
    hit: &Hit,
    (qos, retain): (QoS, bool),
) -> bool {
    let (s, stream) = (hit.session, hit.stream);
    let level = source.level(&own.config);
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return false;
    };
    // What came through a group may have to go to another member of it.
    if session.is_persistent() || session.recheck || hit.share.is_some() {
        return false;
    }
    let Some(c) = session.conn else {
        return false;
    };
    let Some(conn) = own.conns.mqtt(c) else {
        return false;
    };
    if !matches!(conn.phase, Phase::Connected(_))
        || conn.link.is_blocked_for(stream, source.topic())
    {
        return false;
    }
    let window = window(&own.config, &own.budget, &conn.link, level);
    let Some(packet_id) = window.and_then(|window| session.mqtt.outbound.take_id_at_once(window))
    else {
        return false;
    };
    // A large payload is shared, not copied.
    let large = source.payload().len() >= SHARE_BYTES_MIN;
    let shared = large.then(|| source.message());
    let publish = Publish {
        qos,
        retain,
        packet_id: Some(packet_id),
        ..source.publish_form().view().clone()
    };
    own.stats.note_sent(qos);
    let identifiers = &hit.identifiers;
    let sent = encode::send_publish(own, c, stream, publish, identifiers, shared.as_ref());
    // `None`: it is too large for this client, as if it had been delivered.
    if let (Some(stream), Some(session)) = (sent, own.sessions.mqtt_mut(s)) {
        session.mqtt.outbound.note_sent(packet_id, qos, stream);
    }
    true
}

/// `false`: nothing more now.
fn handle_outgoing(own: &mut Owners, s: SessionIdx, c: usize, outgoing: Outgoing) -> bool {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return false;
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
        Outgoing::Load => return load(own, s),
        //= mqtt5#[MQTT-3.3.2-5]
        Outgoing::Expired(delivery) => {
            own.stats.messages_expired += 1;
            own.dequeue(key, delivery.seq);
        }
    }
    true
}

/// Has the store give the messages that are next; `false`: not now.
fn load(own: &mut Owners, s: SessionIdx) -> bool {
    let session = own.sessions.mqtt(s);
    let awaits = session.is_some_and(|session| session.mqtt.outbound.awaits_outcomes());
    let max = weigh::loads_max(own, s, awaits, (LOAD_MAX, LOAD_BYTES_MAX));
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return false;
    };
    let outbound = &mut session.mqtt.outbound;
    let Some((messages_max, bytes_max)) = max else {
        outbound.queue.end_loading();
        return false;
    };
    let (seqs, bytes) = outbound.stored_at_front(messages_max, bytes_max);
    outbound.queue.expect_loaded(bytes);
    let seqs = seqs.into_iter().map(Seq).collect();
    let session = session.reference(s);
    let request = own.commits.load(session, seqs);
    own.outbox.push(Output::Store(request));
    weigh::weigh_own(own, s);
    true
}

/// Has the store know the identifier of a QoS 2 message; it leaves then. From then on
/// it is with the session, also when it came through a group.
pub(crate) fn store_outgoing(
    own: &mut Owners,
    session: SessionRef,
    packet_id: NonZeroU16,
    seq: Seq,
) {
    let entry = own.sessions.resolve_mqtt(session);
    if let Some(delivery) = entry.and_then(|it| it.mqtt.outbound.delivery(packet_id)) {
        own.commits.move_in(session.key, delivery);
    }
    own.commits.write(StoreOp::PutInflight {
        session: session.key,
        packet_id: packet_id.get(),
        seq,
        state: InflightState::Published,
    });
    let token = own.commits.token();
    let pending = MqttPending::Outgoing { session, packet_id };
    own.commits.when_stored(token, pending.into());
}

fn send_delivery(own: &mut Owners, s: SessionIdx, c: usize, transfer: &Transfer<PacketId>) {
    let (packet_id, message) = (transfer.key, &transfer.message);
    let session = own.sessions.mqtt(s);
    if session.is_some_and(|session| session.recheck)
        && !own.may(s, Action::Receive, &message.topic)
    {
        own.stats.deliveries_denied += 1;
        return end_delivery(own, s, packet_id);
    }
    let translated = translate::for_mqtt(message);
    let message = translated.as_ref().unwrap_or(message);
    let publish = Publish {
        // A client takes a repeated identifier with DUP for the message that it has.
        dup: transfer.repeated,
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
    if let Some(session) = own.sessions.mqtt_mut(s) {
        session.mqtt.outbound.note_stream(packet_id, stream);
    }
}

/// Ends a delivery that cannot be made.
fn end_delivery(own: &mut Owners, s: SessionIdx, packet_id: PacketId) {
    if let Some(session) = own.sessions.mqtt_mut(s) {
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
        own.dequeue(key, *seq);
        if *id_stored {
            own.commits.write(StoreOp::DeleteInflight {
                session: key,
                packet_id: packet_id.get(),
            });
        }
    }
}
