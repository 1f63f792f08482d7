//! Sessions after a restart, from what the store kept.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::StreamId;
use dunlin_base::topic::Filter;
use dunlin_mqtt::codec::{SubscribeOptions, Version};
use dunlin_mqtt::server::session::{Subscription, Will};
use dunlin_queue::Delivery;
use dunlin_store::{InflightState, RecoveredSession};

use crate::auth::Others;
use crate::mqtt::lifetime;
use crate::mqtt::session::{MqttSession, stored, subscribed};
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::owners::session::Session;
use crate::sessions::records;

/// Takes over the sessions of this shard. Wills that are due are published then.
pub(crate) fn restore(own: &mut Owners, sessions: &[&RecoveredSession]) {
    let mut replaced = Vec::new();
    for session in sessions {
        replaced.extend(restore_session(own, session));
    }
    for will in replaced {
        lifetime::publish_message(own, *will, None);
    }
}

/// A will that is due comes out: of a session that this one has replaced.
fn restore_session(own: &mut Owners, from: &RecoveredSession) -> Option<Box<Will>> {
    let record = &from.record;
    let mut will = None;
    // The removal of a replaced session was lost, and its will with it: the
    // later one counts.
    if let Some(old) = own.sessions.find(&record.client_id) {
        if let Some(session) = own.sessions.mqtt_mut(old) {
            will = session.mqtt.lifetime.take_will();
        }
        lifetime::end_session(own, old);
    }
    let version = match record.version {
        4 => Version::V311,
        _ => Version::V5,
    };
    let mut session = MqttSession::new(from.key, record.client_id.clone(), version);
    session.user = record.user_name.clone();
    // Records of version 1 do not say who vouches for the name.
    let mut listeners = own.config.listeners.iter();
    let others = listeners.any(|l| l.certificates || l.others != Others::Never);
    if session.user.is_some() && (!record.owner.is_empty() || !others) {
        session.standing = Standing::Listed;
    }
    (session.mount, session.rules) = stored(&record.options);
    // A session that was connected when the process died lost its
    // connection then; now is the best estimate of that.
    let since = record.disconnected_at.unwrap_or(own.now);
    let lifetime = &mut session.mqtt.lifetime;
    let kept = record.will.as_ref().map(|will| {
        Box::new(Will {
            message: will.message.clone(),
            delay_secs: will.delay_secs,
            message_expiry_secs: will.message_expiry_secs,
        })
    });
    lifetime.handle_connected(record.expiry_interval_secs, kept);
    lifetime.handle_lost(since, true);
    session.stored = true;
    restore_queue(&mut session, from);
    let s = own.sessions.insert(Session::Mqtt(session));
    lifetime::remind(own, s);
    for (text, options, identifier) in &from.subscriptions {
        let (Ok(options), Ok(_)) = (SubscribeOptions::from_byte(*options), Filter::parse(text))
        else {
            continue;
        };
        let subscription = Subscription {
            options,
            identifier: *identifier,
            stream: StreamId::CONTROL,
            flow: 0,
        };
        if let Some(session) = own.sessions.mqtt_mut(s) {
            let subscriptions = &mut session.mqtt.subscriptions;
            subscriptions.insert(text.clone(), subscription);
        }
        // The other shards found this in the store as well.
        let _ = own.routing.insert(s, text, subscribed(&subscription));
    }
    own.budget.holders.moved(None, record.user_name.as_ref());
    own.count_in(s);
    will
}

/// Queue, in-flight and inbound identifiers of a session.
fn restore_queue(session: &mut MqttSession, from: &RecoveredSession) {
    let mut queued: BTreeMap<u64, Delivery> = from
        .queue
        .iter()
        .map(|queued| (queued.seq().0, records::delivery(queued)))
        .collect();
    let mut in_flight = from.inflight.clone();
    in_flight.sort_unstable_by_key(|(_, seq, _)| *seq);
    for (packet_id, seq, state) in in_flight {
        // Where PUBREC arrived, the message is gone and PUBREL is due.
        let delivery = match state {
            InflightState::Published => queued.remove(&seq.0),
            InflightState::Released => None,
        };
        if let Some(packet_id) = NonZeroU16::new(packet_id) {
            session.mqtt.outbound.restore_inflight(packet_id, delivery);
        }
    }
    for delivery in queued.into_values() {
        session.mqtt.outbound.queue.push(delivery);
    }
    for packet_id in from.inbound.iter().copied().filter_map(NonZeroU16::new) {
        session.mqtt.inbound.restore(packet_id);
    }
}
