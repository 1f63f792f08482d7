//! SUBSCRIBE and UNSUBSCRIBE: routing, the other shards' interest, the store,
//! then SUBACK, then retained messages.

use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{ConnId, StreamId, Text};
use dunlin_mqtt::codec::{
    Packet, ReasonCode, ReasonCodes, ReasonProperties, SubAck, Subscribe, SubscribeFilter,
    UnsubAck, Unsubscribe,
};
use dunlin_mqtt::server::session::Subscription;
use dunlin_store::StoreOp;

use crate::access::Action;
use crate::fault::Fault;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{Event, InterestChange};
use crate::messages::pump;
use crate::mqtt::send;
use crate::owners::Owners;
use crate::owners::conn::{Conn, Phase};
use crate::owners::pending::{Pending, PendingSubscribe};
use crate::owners::routing::Subscribed;
use crate::owners::session::Session;
use crate::sessions::subscriptions;

pub(crate) fn handle_subscribe(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    subscribe: &Subscribe<'_>,
) -> Result<(), Fault> {
    let (Some(conn), Some(session)) = (own.conns.get(c), own.sessions.get(s)) else {
        return Ok(());
    };
    let flow = conn.link.streams.flow_of(stream);
    let durable = conn.link.terms.durable_streams;
    let outlives = session.is_persistent() && session.mqtt.outlives(stream, flow, durable);
    let mut pending = PendingSubscribe {
        conn: conn.id,
        session: session.reference(s),
        stream,
        packet_id: subscribe.packet_id,
        reasons: Vec::new(),
        added: Vec::new(),
        unsubscribe: false,
        walks: Vec::new(),
        waiting: 0,
    };
    let identifier = subscribe.subscription_identifier.map(|id| id.get());
    let overlapping = own.stats.subscriptions_overlapping;
    let mut changes = Vec::new();
    for request in subscribe.filters.iter() {
        let subscription = Subscription {
            options: request.options,
            identifier,
            stream,
            flow,
        };
        let (reason, change) = subscribe_one(own, s, &request, subscription, &mut pending);
        if !reason.is_error() && outlives {
            own.commits.write(StoreOp::PutSubscription {
                key: pending.session.key,
                filter: Text::from(request.filter),
                options: subscription.options.to_byte(),
                identifier,
            });
        }
        changes.extend(change);
        pending.reasons.push(reason);
    }
    report_overlapping(own, s, pending.conn, overlapping);
    announce(own, c, changes, pending);
    Ok(())
}

/// Says who was refused subscriptions because too many overlap: once a
/// session, so that the log cannot be filled.
fn report_overlapping(own: &mut Owners, s: SessionIdx, conn: ConnId, before: u64) {
    let refused = own.stats.subscriptions_overlapping - before;
    if refused > 0
        && let Some(session) = own.sessions.get_mut(s)
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

fn subscribe_one(
    own: &mut Owners,
    s: SessionIdx,
    request: &SubscribeFilter<'_>,
    subscription: Subscription,
    pending: &mut PendingSubscribe,
) -> (ReasonCode, Option<InterestChange>) {
    let text = request.filter;
    let Ok(filter) = Filter::parse(text) else {
        return (ReasonCode::TopicFilterInvalid, None);
    };
    if !own.may(s, Action::Subscribe, filter.filter) {
        return (ReasonCode::NotAuthorized, None);
    }
    let limit = own.config.subscriptions_max;
    let Some(session) = own.sessions.get_mut(s) else {
        return (ReasonCode::UnspecifiedError, None);
    };
    let subscriptions = &mut session.mqtt.subscriptions;
    let is_new = !subscriptions.contains(text);
    if is_new && subscriptions.len() >= limit {
        return (ReasonCode::QuotaExceeded, None);
    }
    if is_new && subscriptions.overlaps(text, own.config.overlaps_max) {
        own.stats.subscriptions_overlapping += 1;
        return (ReasonCode::QuotaExceeded, None);
    }
    //= mqtt5#[MQTT-3.8.4-3]
    subscriptions.insert(Text::from(text), subscription);
    own.routing.insert(s, text, Subscribed::of(&subscription));
    let mut change = None;
    if is_new {
        change = own.routing.count(text);
        pending.added.push(Text::from(text));
    }
    if subscription.wants_retained(is_new) && filter.share.is_none() {
        pending.walks.push(Text::from(text));
    }
    (subscription.granted(), change)
}

pub(crate) fn handle_unsubscribe(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    unsubscribe: &Unsubscribe<'_>,
) -> Result<(), Fault> {
    let Some(conn) = own.conns.get(c).map(|conn| conn.id) else {
        return Ok(());
    };
    let mut changes = Vec::new();
    let mut reasons = Vec::new();
    let Some(session) = own.sessions.get(s).map(|session| session.reference(s)) else {
        return Ok(());
    };
    let key = session.key;
    for text in unsubscribe.filters.iter() {
        let Some(session) = own.sessions.get_mut(s) else {
            break;
        };
        //= mqtt5#[MQTT-3.10.4-1]
        if !session.mqtt.subscriptions.remove(text) {
            reasons.push(ReasonCode::NoSubscriptionExisted);
            continue;
        }
        session.walks.end(text);
        if session.is_persistent() {
            let filter = Text::from(text);
            own.commits
                .write(StoreOp::DeleteSubscription { key, filter });
        }
        changes.extend(own.routing.remove(s, text));
        reasons.push(ReasonCode::Success);
    }
    let pending = PendingSubscribe {
        conn,
        session,
        stream,
        packet_id: unsubscribe.packet_id,
        reasons,
        added: Vec::new(),
        unsubscribe: true,
        walks: Vec::new(),
        waiting: 0,
    };
    announce(own, c, changes, pending);
    Ok(())
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
    if let Some(conn) = own.conns.get_mut(c) {
        conn.subscribing = conn.subscribing.saturating_add(1);
    }
    pending.waiting = usize::from(own.config.shards) - 1;
    subscriptions::announce(own, token, &changes);
    if persistent && own.commits.is_durable() {
        pending.waiting += 1;
        own.commits.wait(token, Pending::Subscribe(pending));
        own.commits.when_stored(token, Pending::SubscribeStored);
    } else if pending.waiting > 0 {
        own.commits.wait(token, Pending::Subscribe(pending));
    } else {
        pending.waiting = 1;
        advance_subscribe(own, token, pending);
    }
}

/// One of those that a SUBSCRIBE or UNSUBSCRIBE waits for has answered.
pub(crate) fn advance_subscribe(own: &mut Owners, token: u64, mut pending: PendingSubscribe) {
    pending.waiting = pending.waiting.saturating_sub(1);
    if pending.waiting > 0 {
        own.commits.wait(token, Pending::Subscribe(pending));
        return;
    }
    let Some(s) = own.sessions.resolve(pending.session) else {
        return;
    };
    let Some(c) = own.conns.find(pending.conn) else {
        return;
    };
    let phase = own.conns.get(c).map(|conn: &Conn| &conn.phase);
    if !matches!(phase, Some(Phase::Connected(at)) if *at == s) {
        return;
    }
    send_suback(own, c, &pending);
    if let Some(session) = own.sessions.get_mut(s) {
        let subscriptions = &session.mqtt.subscriptions;
        // An UNSUBSCRIBE may have come before this answer.
        let walks = pending.walks.into_iter();
        for filter in walks.filter(|filter| subscriptions.contains(filter)) {
            session.walks.start(filter);
        }
    }
    pump::pump(own, s);
}

/// The store did not take a SUBSCRIBE or UNSUBSCRIBE: the client gets the refusal,
/// and new subscriptions are taken back. What UNSUBSCRIBE removed stays
/// removed, though a restart may bring it back.
pub(crate) fn refuse_subscribe(own: &mut Owners, pending: &mut PendingSubscribe) {
    let reason = match pending.unsubscribe {
        true => ReasonCode::UnspecifiedError,
        false => ReasonCode::QuotaExceeded,
    };
    for granted in pending.reasons.iter_mut().filter(|r| !r.is_error()) {
        *granted = reason;
    }
    pending.walks.clear();
    let Some(s) = own.sessions.resolve(pending.session) else {
        return;
    };
    let mut changes = Vec::new();
    for text in pending.added.drain(..) {
        let session = own.sessions.get_mut(s);
        if session.is_some_and(|s| s.mqtt.subscriptions.remove(&text)) {
            changes.extend(own.routing.remove(s, &text));
        }
    }
    if !changes.is_empty() {
        subscriptions::announce(own, 0, &changes);
    }
}

fn send_suback(own: &mut Owners, c: ConnIdx, pending: &PendingSubscribe) {
    if let Some(conn) = own.conns.get_mut(c) {
        conn.subscribing = conn.subscribing.saturating_sub(1);
    }
    let (packet_id, reasons) = (pending.packet_id, ReasonCodes::new(&pending.reasons));
    let properties = ReasonProperties::default();
    let packet = if pending.unsubscribe {
        Packet::UnsubAck(UnsubAck {
            packet_id,
            properties,
            reasons,
        })
    } else {
        Packet::SubAck(SubAck {
            packet_id,
            properties,
            reasons,
        })
    };
    send::send(own, c, pending.stream, &packet);
}
