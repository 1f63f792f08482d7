//! From a matched message to the queues of its receivers, or with QoS 0 to
//! their send buffers.

use alloc::vec::Vec;

use dunlin_base::{QoS, Text};
use dunlin_mqtt::codec::{ReasonCode, SubscribeOptions};
use dunlin_mqtt::server::{Content, Delivery, delivery};
use dunlin_store::{Seq, SessionKey, StoreOp, Target};

use crate::config::QueueFull;
use crate::fault::Fault;
use crate::ids::{SessionIdx, SessionRef};
use crate::messages::pump;
use crate::messages::source::Source;
use crate::mqtt::throttle::QUEUE_HIGH;
use crate::mqtt::{encode, throttle};
use crate::owners::pending::Due;
use crate::owners::routing::Hit;
use crate::owners::session::Session;
use crate::owners::{Later, Owners};

/// Delivers to `hits`. Deliveries that must be stored first go to
/// `due`, what is to be stored to `ops`. `false`, and nothing delivered,
/// when a queue is full and the policy is to refuse.
pub(crate) fn deliver_hits(
    own: &mut Owners,
    source: &mut Source<'_>,
    hits: &mut Vec<Hit>,
    ops: &mut Vec<StoreOp>,
    due: &mut Vec<Due>,
) -> bool {
    if hits.is_empty() {
        return true;
    }
    let published = source.qos();
    if published != QoS::AtMostOnce && !all_have_room(own, hits, source) {
        return false;
    }
    let mut batch = Enqueued::default();
    for hit in hits.drain(..) {
        let Ok(options) = SubscribeOptions::from_byte(hit.options) else {
            continue;
        };
        let qos = delivery::effective_qos(published, options.qos);
        //= mqtt5#[MQTT-3.3.1-12]
        let retain = options.retain_as_published && source.retain();
        if qos == QoS::AtMostOnce {
            encode::deliver_qos0(own, source, &hit, retain);
        } else {
            deliver_acknowledged(own, source, hit, qos, retain, due, &mut batch);
        }
    }
    if let Some(seq) = batch.seq {
        ops.push(StoreOp::Enqueue {
            seq,
            message: source.message(),
            targets: batch.targets,
        });
    }
    true
}

/// QoS 1 and 2: into the session's queue, by way of the store if the
/// session is durable.
fn deliver_acknowledged(
    own: &mut Owners,
    source: &mut Source<'_>,
    hit: Hit,
    qos: QoS,
    retain: bool,
    due: &mut Vec<Due>,
    batch: &mut Enqueued,
) {
    let s = hit.session;
    let room = has_room(own, s, source);
    let message = source.message();
    let level = source.level(&own.config);
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let persistent = session.is_persistent();
    let behind = session.mqtt.outbound.queued() >= QUEUE_HIGH;
    let cost = message.cost();
    let mut delivery = Delivery {
        content: Content::Held(message),
        seq: None,
        qos,
        retain,
        identifiers: hit.identifiers,
        share: hit.share,
        stream: hit.stream,
        level,
        maybe_sent: false,
    };
    if !room {
        // Only where the policy is to drop, or where a session that ends
        // with its connection does not keep up: its end is a matter
        // between the two of them, not of the publisher.
        own.stats.messages_dropped_full += 1;
        if !persistent && own.config.queue_full == QueueFull::Reject {
            let fault = Fault::new(ReasonCode::QuotaExceeded, "the client does not keep up");
            own.later
                .extend(session.conn.map(|c| Later::Fail(c, fault)));
        }
    } else if persistent && own.config.durable {
        let seq = *batch.seq.get_or_insert_with(|| own.commits.seq());
        batch.targets.push(target(session.key, &delivery));
        delivery.seq = Some(seq.0);
        session.mqtt.outbound.reserve(cost);
        due.push(Due {
            session: SessionRef {
                key: session.key,
                at: s,
            },
            delivery,
            cost,
        });
    } else {
        session.mqtt.outbound.push(delivery);
        pump::pump(own, s);
    }
    if behind {
        throttle::check_pace(own, s, source.publisher());
    }
}

pub(crate) fn has_room(own: &Owners, s: SessionIdx, source: &mut Source<'_>) -> bool {
    let (messages, bytes) = (own.config.queue_messages_max, own.config.queue_bytes_max);
    let cost = source.message().cost();
    own.sessions
        .get(s)
        .is_some_and(|session| session.mqtt.outbound.has_room(cost, messages, bytes))
}

fn all_have_room(own: &Owners, hits: &[Hit], source: &mut Source<'_>) -> bool {
    if own.config.queue_full == QueueFull::DropNewest {
        return true;
    }
    hits.iter().all(|hit| {
        let session = own.sessions.get(hit.session);
        (hit.options & 3) == QoS::AtMostOnce as u8
            || !session.is_some_and(Session::is_persistent)
            || has_room(own, hit.session, source)
    })
}

fn target(session: SessionKey, delivery: &Delivery) -> Target {
    Target {
        session,
        qos: delivery.qos,
        retain: delivery.retain,
        identifiers: delivery.identifiers.to_vec(),
        shared: delivery.share.as_deref().map(Text::from),
    }
}

/// What the durable receivers of one message have in common.
#[derive(Default)]
struct Enqueued {
    seq: Option<Seq>,
    targets: Vec<Target>,
}
