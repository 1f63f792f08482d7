//! A shard after a restart: its sessions and the retained messages from what
//! the store kept.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::topic::Filter;
use dunlin_base::{QoS, ShardId, StreamId, Text};
use dunlin_mqtt::codec::{SubscribeOptions, Version};
use dunlin_mqtt::server::session::{Subscription, Will};
use dunlin_queue::{Content, Delivery, Identifiers};
use dunlin_store::{InflightState, QueuedRef, Recovered, RecoveredSession};

use crate::access;
use crate::io::InterestChange;
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::node::PROTOCOL;
use crate::owners::routing::Subscribed;
use crate::owners::session::{MqttSession, Session, Standing};
use crate::random::home_shard;
use crate::sessions::lifecycle;

/// Takes over what belongs to this shard, and notes what the sessions of
/// the others want, so that no shard has to wait for another before it may
/// acknowledge a publish. Call it on every shard with everything that was
/// recovered, before any input.
pub(crate) fn restore(own: &mut Owners, recovered: &Recovered) {
    own.commits.skip_seqs(recovered.last_seq);
    own.sessions.skip_keys(recovered.next_session);
    let own_shard = own.config.shard.0;
    // Earlier versions let clients publish to the server's topics.
    let retained = recovered.retained.iter();
    for message in retained.filter(|message| !access::is_reserved(&message.topic)) {
        own.routing.retained.set(&Arc::new(message.clone()));
        if home_shard(&message.topic, own.config.shards) == own_shard {
            own.budget.change(Part::Retained, 0, message.cost());
        }
    }
    let mut replaced = Vec::new();
    let mut members: BTreeMap<(ShardId, Text), u32> = BTreeMap::new();
    for session in &recovered.sessions {
        let home = home_shard(&session.record.client_id, own.config.shards);
        if home == own.config.shard.0 && session.record.version == PROTOCOL {
            continue;
        }
        if home == own.config.shard.0 {
            replaced.extend(restore_session(own, session));
            continue;
        }
        for (text, ..) in &session.subscriptions {
            if text.starts_with("$share/") {
                *members.entry((ShardId(home), text.clone())).or_default() += 1;
                note_keeper(own, ShardId(home), text, session);
            } else {
                own.routing
                    .handle_interest(ShardId(home), &InterestChange::Add(text.clone()));
            }
        }
    }
    for ((home, text), count) in members {
        own.routing
            .handle_interest(home, &InterestChange::Share(text, count));
    }
    for will in replaced {
        lifecycle::publish_message(own, *will, None);
    }
}

/// The first durable member of a group on each shard keeps its messages: all
/// shards find the same one.
fn note_keeper(own: &mut Owners, shard: ShardId, share: &Text, session: &RecoveredSession) {
    let durable = session.record.expiry_interval_secs > 0;
    let keepers = &mut own.routing.keepers;
    if durable && keepers.of(share, shard).is_none() {
        keepers.set(share, shard, Some(session.key));
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
        lifecycle::end_session(own, old);
    }
    let version = match record.version {
        4 => Version::V311,
        _ => Version::V5,
    };
    let mut session = MqttSession::new(from.key, record.client_id.clone(), version);
    session.user = record.user_name.clone();
    // Records of version 1 do not say who vouches for the name.
    let certificates = own.config.listeners.iter().any(|l| l.certificates);
    if session.user.is_some() && (!record.owner.is_empty() || !certificates) {
        session.standing = Standing::Listed;
    }
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
    lifecycle::remind(own, s);
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
        let _ = own.routing.insert(s, text, Subscribed::of(&subscription));
        if text.starts_with("$share/") {
            note_keeper(own, own.config.shard, text, from);
        }
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
        .map(|queued| (queued.seq().0, delivery(queued)))
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

pub(crate) fn delivery(queued: &QueuedRef) -> Delivery {
    Delivery {
        content: Content::Stored {
            cost: u32::try_from(queued.cost()).unwrap_or(u32::MAX),
            expires: queued.expires(),
        },
        seq: Some(queued.seq().0),
        qos: queued.qos(),
        retain: queued.retain(),
        identifiers: queued
            .identifiers()
            .iter()
            .copied()
            .collect::<Identifiers>(),
        share: queued
            .shared()
            .map(|share: &Text| Arc::from(share.as_str())),
        stream: StreamId::CONTROL,
        // Its topic is not known here, and nothing of the same topic may
        // overtake it.
        level: u8::MAX,
        maybe_sent: queued.qos() == QoS::AtLeastOnce,
        failed: 0,
    }
}
