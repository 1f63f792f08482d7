//! What follows when the store has answered: work goes on, or is asked for
//! again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Message;
use dunlin_mqtt::codec::ReasonCode;
use dunlin_store::Seq;

use crate::ids::SessionRef;
use crate::io::Event;
use crate::messages::{settle, shared};
use crate::mqtt::{accept, acks, ending, pump, subscribe};
use crate::owners::Owners;
use crate::owners::commits::Done;
use crate::owners::pending::Pending;
use crate::queues::{credit, nodes};
use crate::receivers;
use crate::sessions::records;

/// Something that waited for the store goes on.
pub(crate) fn handle_done(own: &mut Owners, done: Done) {
    match done {
        Done::Settled {
            token,
            pending,
            stored: true,
        } => handle_stored(own, token, pending),
        Done::Settled { token, pending, .. } => handle_refused(own, token, pending),
        Done::Loaded { session, messages } => {
            let messages: Vec<_> = messages.into_iter().map(|(seq, m)| (seq.0, m)).collect();
            handle_loaded(own, session, &messages);
        }
        Done::LoadFailed { session } => {
            handle_loaded(own, session, &[]);
            own.retry_later(Pending::Load { session });
        }
        Done::Refused(error) => own.outbox.event(Event::StoreFailed(error)),
    }
}

/// Messages that a session wanted came from the store, or are lost.
fn handle_loaded(own: &mut Owners, session: SessionRef, messages: &[(u64, Option<Arc<Message>>)]) {
    if let Some(entry) = own.sessions.resolve_mut(session) {
        entry.handle_loaded(messages);
        if !messages.is_empty() {
            receivers::pump(own, session.at);
        }
    }
}

/// Work whose batch was stored.
fn handle_stored(own: &mut Owners, token: u64, pending: Pending) {
    match pending {
        Pending::Publish(publish) => settle::finish_publish(own, token, publish, true),
        Pending::SubscribeStored => {
            if let Some(Pending::Subscribe(pending)) = own.commits.take(token) {
                subscribe::advance_subscribe(own, token, pending);
            }
        }
        Pending::Connect { conn } => {
            if let Some(c) = own.conns.find(conn) {
                accept::connected(own, c);
            }
        }
        Pending::Outgoing { session, packet_id } => {
            if let Some(entry) = own.sessions.resolve_mqtt(session) {
                entry.mqtt.outbound.handle_stored(packet_id);
                pump::pump(own, session.at);
            }
        }
        Pending::Release {
            session, packet_id, ..
        } => {
            if let Some(entry) = own.sessions.resolve_mqtt(session) {
                entry.mqtt.outbound.handle_release_stored(packet_id);
                pump::pump(own, session.at);
            }
        }
        Pending::Complete {
            session,
            stream,
            packet_id,
        } => acks::send_pubcomp(own, session, stream, packet_id),
        Pending::Forget { client_id, .. } => records::forgotten(own, &client_id),
        Pending::Node(node) => nodes::handle_stored(own, node, true),
        Pending::Settlement(settlement) => credit::handle_removed(own, settlement, true),
        Pending::Claim { .. }
        | Pending::Attach(_)
        | Pending::Binding(_)
        | Pending::Subscribe(_)
        | Pending::GiveAgain(_)
        | Pending::Load { .. } => {}
    }
}

/// Work whose batch the store refused.
fn handle_refused(own: &mut Owners, token: u64, pending: Pending) {
    match pending {
        Pending::Publish(publish) => settle::finish_publish(own, token, publish, false),
        Pending::SubscribeStored => {
            if let Some(Pending::Subscribe(mut pending)) = own.commits.take(token) {
                subscribe::refuse_subscribe(own, &mut pending);
                subscribe::advance_subscribe(own, token, pending);
            }
        }
        Pending::Connect { conn } => {
            if let Some(c) = own.conns.find(conn) {
                ending::disconnect(own, c, ReasonCode::ServerUnavailable);
            }
        }
        // Without their record, a restart would double or lose a message, or
        // bring back a session.
        Pending::Outgoing { .. }
        | Pending::Release { .. }
        | Pending::Complete { .. }
        | Pending::Forget { .. } => own.retry_later(pending),
        Pending::Node(node) => nodes::handle_stored(own, node, false),
        Pending::Settlement(settlement) => credit::handle_removed(own, settlement, false),
        Pending::Claim { .. }
        | Pending::Attach(_)
        | Pending::Binding(_)
        | Pending::Subscribe(_)
        | Pending::GiveAgain(_)
        | Pending::Load { .. } => {}
    }
}

/// Asks again.
pub(crate) fn retry(own: &mut Owners) {
    for pending in own.commits.take_refused() {
        match pending {
            Pending::Outgoing { session, packet_id } => {
                let entry = own.sessions.resolve_mqtt(session);
                let delivery = entry.and_then(|entry| entry.mqtt.outbound.delivery(packet_id));
                if let Some(seq) = delivery.and_then(|delivery| delivery.seq) {
                    pump::store_outgoing(own, session, packet_id, Seq(seq));
                }
            }
            Pending::Release {
                session,
                packet_id,
                seq,
            } => acks::store_release(own, session, packet_id, seq),
            Pending::Complete {
                session,
                stream,
                packet_id,
            } => acks::store_complete(own, session, stream, packet_id),
            Pending::GiveAgain(back) => shared::give_again(own, &back.delivery, back.old),
            Pending::Forget { session, client_id } => records::forget(own, session, client_id),
            Pending::Load { session } => {
                if own.sessions.resolve(session).is_some() {
                    receivers::pump(own, session.at);
                }
            }
            Pending::Settlement(settlement) => credit::retry(own, settlement),
            Pending::Claim { .. }
            | Pending::Node(_)
            | Pending::Binding(_)
            | Pending::Attach(_)
            | Pending::Connect { .. }
            | Pending::Publish(_)
            | Pending::Subscribe(_)
            | Pending::SubscribeStored => {}
        }
    }
}
