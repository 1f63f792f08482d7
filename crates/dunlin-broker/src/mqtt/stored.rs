//! What waited for the store or for other shards goes on, or is asked for again.

use dunlin_mqtt::codec::ReasonCode;
use dunlin_store::Seq;

use crate::mqtt::waiting::{MqttPending, PendingSubscribe};
use crate::mqtt::{accept, acks, ending, pump, subscribe};
use crate::owners::Owners;
use crate::owners::pending::{FrontPending, Pending};

/// Its batch was stored, or refused.
pub(crate) fn handle_done(own: &mut Owners, token: u64, pending: MqttPending, stored: bool) {
    match stored {
        true => handle_stored(own, token, pending),
        false => handle_refused(own, token, pending),
    }
}

fn handle_stored(own: &mut Owners, token: u64, pending: MqttPending) {
    match pending {
        MqttPending::SubscribeStored => {
            if let Some(pending) = take_subscribe(own, token) {
                subscribe::advance_subscribe(own, token, pending);
            }
        }
        MqttPending::Connect { conn } => {
            if let Some(c) = own.conns.find(conn) {
                accept::connected(own, c);
            }
        }
        MqttPending::Outgoing { session, packet_id } => {
            if let Some(entry) = own.sessions.resolve_mqtt(session) {
                let outbound = &mut entry.mqtt.outbound;
                let seq = outbound.delivery(packet_id).and_then(|it| it.seq);
                outbound.handle_stored(packet_id);
                if let Some(seq) = seq {
                    own.commits.take_queue(session.key, Seq(seq));
                }
                pump::pump(own, session.at);
            }
        }
        MqttPending::Release {
            session, packet_id, ..
        } => {
            if let Some(entry) = own.sessions.resolve_mqtt(session) {
                entry.mqtt.outbound.handle_release_stored(packet_id);
                pump::pump(own, session.at);
            }
        }
        MqttPending::Complete {
            session,
            stream,
            packet_id,
        } => acks::send_pubcomp(own, session, stream, packet_id),
        MqttPending::Claim { .. } | MqttPending::Subscribe(_) => {}
    }
}

fn handle_refused(own: &mut Owners, token: u64, pending: MqttPending) {
    match pending {
        MqttPending::SubscribeStored => {
            if let Some(mut pending) = take_subscribe(own, token) {
                subscribe::refuse_subscribe(own, &mut pending);
                subscribe::advance_subscribe(own, token, pending);
            }
        }
        MqttPending::Connect { conn } => {
            if let Some(c) = own.conns.find(conn) {
                ending::disconnect(own, c, ReasonCode::ServerUnavailable);
            }
        }
        // Without their record, a restart would double or lose a message.
        MqttPending::Outgoing { .. }
        | MqttPending::Release { .. }
        | MqttPending::Complete { .. } => own.retry_later(pending.into()),
        MqttPending::Claim { .. } | MqttPending::Subscribe(_) => {}
    }
}

fn take_subscribe(own: &mut Owners, token: u64) -> Option<PendingSubscribe> {
    match own.commits.take(token)? {
        Pending::Front(FrontPending::Mqtt(MqttPending::Subscribe(pending))) => Some(pending),
        _ => None,
    }
}

/// Asks again.
pub(crate) fn retry(own: &mut Owners, pending: MqttPending) {
    match pending {
        MqttPending::Outgoing { session, packet_id } => {
            let entry = own.sessions.resolve_mqtt(session);
            let delivery = entry.and_then(|entry| entry.mqtt.outbound.delivery(packet_id));
            if let Some(seq) = delivery.and_then(|delivery| delivery.seq) {
                pump::store_outgoing(own, session, packet_id, Seq(seq));
            }
        }
        MqttPending::Release {
            session,
            packet_id,
            seq,
        } => acks::store_release(own, session, packet_id, seq),
        MqttPending::Complete {
            session,
            stream,
            packet_id,
        } => acks::store_complete(own, session, stream, packet_id),
        MqttPending::Claim { .. }
        | MqttPending::Connect { .. }
        | MqttPending::Subscribe(_)
        | MqttPending::SubscribeStored => {}
    }
}

/// Another shard knows what changed for it.
pub(crate) fn handle_noted(own: &mut Owners, token: u64, pending: MqttPending) {
    match pending {
        MqttPending::Subscribe(pending) => subscribe::advance_subscribe(own, token, pending),
        // The home that was to grant it is gone, and its connection ends with that.
        MqttPending::Claim { .. } => {}
        other => own.commits.wait(token, other.into()),
    }
}
