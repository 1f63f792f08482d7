//! SUBSCRIBE and UNSUBSCRIBE: routing, the other shards' interest, the store,
//! then SUBACK, then retained messages.

use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::codec::{Subscribe, Unsubscribe};
use dunlin_mqtt::server::session::{Changes, Limits};
use dunlin_store::StoreOp;

use crate::access::Action;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{Event, InterestChange};
use crate::memory::Part;
use crate::mqtt::conn::{MqttConn, Phase};
use crate::mqtt::session::subscribed;
use crate::mqtt::waiting::{MqttPending, PendingSubscribe};
use crate::mqtt::{pump, send};
use crate::owners::Owners;
use crate::owners::session::Session;
use crate::reports::audit;
use crate::sessions::subscriptions;

pub(crate) fn handle_subscribe(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    subscribe: &Subscribe<'_>,
) {
    let filters = subscribe.filters.iter();
    let allowed: Vec<bool> = filters
        .map(|request| match Filter::parse(request.filter) {
            Ok(filter) => own.may(s, Action::Subscribe, filter.filter),
            Err(_) => false,
        })
        .collect();
    for (request, allowed) in subscribe.filters.iter().zip(&allowed) {
        if !allowed {
            audit::note_denied(own, s, "may not subscribe", request.filter);
        }
    }
    own.budget.look();
    let full = own.full_holder(s);
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.mqtt_mut(s)) else {
        return;
    };
    let now = session.mqtt.subscriptions.bytes();
    let limits = Limits {
        subscriptions_max: own.config.subscriptions_max,
        overlaps_max: own.config.overlaps_max,
        bytes_max: match full {
            Some(_) => now,
            None => own.budget.subscription_bytes_max(now),
        },
    };
    let allowed = |at| allowed.get(at).copied().unwrap_or_default();
    let mqtt = &mut session.mqtt;
    let (subscribing, made) =
        mqtt.handle_subscribe(&conn.link, stream, subscribe, &limits, allowed);
    let mut pending = PendingSubscribe {
        conn: conn.id,
        session: session.reference(s),
        subscribing,
        walks: Vec::new(),
        waiting: 0,
    };
    let mut changes = Vec::new();
    for made in made {
        let subscription = made.subscription;
        let value = subscribed(&subscription);
        changes.extend(subscriptions::place(own, s, &made.filter, value));
        if made.outlives {
            own.commits.write(StoreOp::PutSubscription {
                key: pending.session.key,
                filter: made.filter.clone(),
                options: subscription.options.to_byte(),
                identifier: subscription.identifier,
            });
        }
        if made.retained {
            pending.walks.push(made.filter);
        }
    }
    own.weigh(s);
    match full {
        Some(holder) => own.note_full_holder(holder, pending.subscribing.refused),
        None => own.note_refused(Part::Subscriptions, pending.subscribing.refused),
    }
    report_overlapping(own, s, pending.conn, pending.subscribing.overlapping);
    announce(own, c, changes, pending);
}

/// Says who was refused subscriptions because too many overlap: once a
/// session, so that the log cannot be filled.
fn report_overlapping(own: &mut Owners, s: SessionIdx, conn: ConnId, refused: u64) {
    own.stats.subscriptions_overlapping += refused;
    if refused > 0
        && let Some(session) = own.sessions.mqtt_mut(s)
        && !core::mem::replace(&mut session.overlapping, true)
    {
        let client_id = session.client_id.clone();
        own.outbox.event(Event::Overlapping {
            conn,
            client_id,
            refused,
        });
    }
}

pub(crate) fn handle_unsubscribe(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    unsubscribe: &Unsubscribe<'_>,
) {
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.mqtt_mut(s)) else {
        return;
    };
    let (subscribing, ended) = session.mqtt.handle_unsubscribe(stream, unsubscribe);
    let pending = PendingSubscribe {
        conn: conn.id,
        session: session.reference(s),
        subscribing,
        walks: Vec::new(),
        waiting: 0,
    };
    let changes = subscriptions::remove(own, s, ended);
    announce(own, c, changes, pending);
}

/// Announces changes to the other shards and the store, and waits for all of them. Shards
/// are asked even when nothing changes for them: their answer comes after
/// every retained message that they sent before.
fn announce(
    own: &mut Owners,
    c: ConnIdx,
    changes: Vec<InterestChange>,
    mut pending: PendingSubscribe,
) {
    let token = own.commits.token();
    let session = own.sessions.peek(pending.session.at);
    let persistent = session.is_some_and(Session::is_persistent);
    if let Some(conn) = own.conns.mqtt_mut(c) {
        conn.link.subscribing = conn.link.subscribing.saturating_add(1);
    }
    pending.waiting = usize::from(own.config.shards) - 1;
    subscriptions::announce(own, token, &changes);
    if persistent && own.commits.is_durable() {
        pending.waiting += 1;
        own.commits
            .wait(token, MqttPending::Subscribe(pending).into());
        own.commits
            .when_stored(token, MqttPending::SubscribeStored.into());
    } else if pending.waiting > 0 {
        own.commits
            .wait(token, MqttPending::Subscribe(pending).into());
    } else {
        pending.waiting = 1;
        advance_subscribe(own, token, pending);
    }
}

/// One of those that a SUBSCRIBE or UNSUBSCRIBE waits for has answered.
pub(crate) fn advance_subscribe(own: &mut Owners, token: u64, mut pending: PendingSubscribe) {
    pending.waiting = pending.waiting.saturating_sub(1);
    if pending.waiting > 0 {
        own.commits
            .wait(token, MqttPending::Subscribe(pending).into());
        return;
    }
    let Some(s) = own.sessions.resolve(pending.session) else {
        return;
    };
    let Some(c) = own.conns.find(pending.conn) else {
        return;
    };
    let phase = own.conns.mqtt(c).map(|conn: &MqttConn| &conn.phase);
    if !matches!(phase, Some(Phase::Connected(at)) if *at == s) {
        return;
    }
    if let Some(conn) = own.conns.mqtt_mut(c) {
        conn.link.subscribing = conn.link.subscribing.saturating_sub(1);
    }
    let subscribing = &pending.subscribing;
    send::send(own, c, subscribing.stream, &subscribing.answer());
    if let Some(session) = own.sessions.mqtt_mut(s) {
        for filter in pending.walks {
            // An UNSUBSCRIBE may have come before this answer.
            if session.mqtt.subscriptions.contains(&filter) {
                session.walks.start(filter);
            }
        }
    }
    pump::pump(own, s);
}

/// The store did not take a SUBSCRIBE or UNSUBSCRIBE.
pub(crate) fn refuse_subscribe(own: &mut Owners, pending: &mut PendingSubscribe) {
    pending.walks.clear();
    let Some(s) = own.sessions.resolve(pending.session) else {
        return;
    };
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    let ended = session.mqtt.handle_not_kept(&mut pending.subscribing);
    let mut changes = Vec::new();
    for filter in ended {
        changes.extend(subscriptions::leave(own, s, &filter));
    }
    if !changes.is_empty() {
        subscriptions::announce(own, 0, &changes);
    }
}

/// What has changed as streams and flows came and went.
pub(crate) fn apply(own: &mut Owners, s: SessionIdx, changes: Changes) {
    subscriptions::end(own, s, changes.ended);
    for (filter, subscription) in changes.moved {
        let changes = subscriptions::place(own, s, &filter, subscribed(&subscription));
        subscriptions::announce(own, 0, &changes);
    }
}
