//! SUBSCRIBE and UNSUBSCRIBE: routing, the other shards' interest, the store,
//! then SUBACK, then retained messages.

use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{ConnId, StreamId, Text};
use dunlin_mqtt::codec::{
    PacketId, Subscribe, SubscribeFilter, SubscribeFilters, SubscribeOptions, Unsubscribe,
    UnsubscribeFilters, UserProperties,
};
use dunlin_mqtt::server::session::{Changes, Limits, Subscribing};
use dunlin_store::StoreOp;

use crate::config::SysEvent;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{Event, InterestChange};
use crate::memory::Part;
use crate::mqtt::conn::{MqttConn, Phase};
use crate::mqtt::session::subscribed;
use crate::mqtt::waiting::{MqttPending, PendingSubscribe};
use crate::mqtt::{pump, send, topics};
use crate::owners::Owners;
use crate::owners::session::Session;
use crate::reports::audit;
use crate::sessions::subscriptions;
use crate::topics::Client;

pub(crate) fn handle_subscribe(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    subscribe: &Subscribe<'_>,
) {
    let made = match topics::subscribe(own, (c, s), subscribe) {
        None => make(own, (c, s), stream, subscribe, &[]),
        Some(meant) => {
            let requests = subscribe.filters.iter().zip(&meant);
            let filters: Vec<_> = requests.map(topics::requested).collect();
            let altered = Subscribe {
                filters: SubscribeFilters::new(&filters),
                ..subscribe.clone()
            };
            let refused: Vec<bool> = meant.iter().map(Result::is_err).collect();
            make(own, (c, s), stream, &altered, &refused)
        }
    };
    let Some(made) = made else {
        return;
    };
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.get(s)) else {
        return;
    };
    let pending = PendingSubscribe {
        conn: conn.id,
        session: session.reference(s),
        subscribing: made.subscribing,
        walks: made.walks,
        waiting: 0,
    };
    announce(own, c, made.changes, pending);
}

/// Gives a new session the subscriptions that rules have for it.
pub(crate) fn begin(own: &mut Owners, c: ConnIdx, s: SessionIdx) {
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.get(s)) else {
        return;
    };
    let client = Client {
        id: &session.client_id,
        user: session.user.as_deref(),
    };
    let wanted = match own.config.bridges.is_own(&conn.peer) {
        true => Vec::new(),
        false => own.config.topics.automatic(conn.peer.listener, client),
    };
    let filters = wanted.iter().filter_map(|(filter, options)| {
        let options = SubscribeOptions::from_byte(*options).ok()?;
        Some(SubscribeFilter { filter, options })
    });
    let filters: Vec<_> = filters.collect();
    if filters.is_empty() {
        return;
    }
    let subscribe = Subscribe {
        packet_id: PacketId::MIN,
        subscription_identifier: None,
        user_properties: UserProperties::default(),
        filters: SubscribeFilters::new(&filters),
    };
    let Some(made) = make(own, (c, s), StreamId::CONTROL, &subscribe, &[]) else {
        return;
    };
    subscriptions::announce(own, 0, &made.changes);
    if let Some(session) = own.sessions.mqtt_mut(s) {
        for filter in made.walks {
            session.walks.start(filter);
        }
    }
}

/// What a SUBSCRIBE has made.
struct MadeAll {
    subscribing: Subscribing,
    /// For other shards.
    changes: Vec<InterestChange>,
    /// Filters whose retained messages are due.
    walks: Vec<Text>,
}

/// Makes the subscriptions of a session, but for those that are refused.
fn make(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    stream: StreamId,
    subscribe: &Subscribe<'_>,
    refused: &[bool],
) -> Option<MadeAll> {
    let listener = own.conns.mqtt(c)?.peer.listener;
    let allowed = allowed(own, (s, listener), subscribe, refused);
    own.budget.look();
    let full = own.full_holder(s);
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.mqtt_mut(s)) else {
        return None;
    };
    let id = conn.id;
    let now = session.mqtt.subscriptions.bytes();
    let limits = Limits {
        subscriptions_max: own.config.sessions.subscriptions_max,
        overlaps_max: own.config.sessions.overlaps_max,
        bytes_max: match full {
            Some(_) => now,
            None => own.budget.subscription_bytes_max(now),
        },
    };
    let allowed = |at| allowed.get(at).copied().unwrap_or_default();
    let mqtt = &mut session.mqtt;
    let (subscribing, made) =
        mqtt.handle_subscribe(&conn.link, stream, subscribe, &limits, allowed);
    let key = session.key;
    let (mut changes, mut walks) = (Vec::new(), Vec::new());
    for made in made {
        report(own, s, &made.filter, true);
        let subscription = made.subscription;
        let value = subscribed(&subscription);
        changes.extend(subscriptions::place(own, s, &made.filter, value));
        if made.outlives {
            own.commits.write(StoreOp::PutSubscription {
                key,
                filter: made.filter.clone(),
                options: subscription.options.to_byte(),
                identifier: subscription.identifier,
            });
        }
        if made.retained {
            walks.push(made.filter);
        }
    }
    own.weigh(s);
    match full {
        Some(holder) => own.note_full_holder(holder, subscribing.refused),
        None => own.note_refused(Part::Subscriptions, subscribing.refused),
    }
    report_overlapping(own, s, id, subscribing.overlapping);
    Some(MadeAll {
        subscribing,
        changes,
        walks,
    })
}

/// Which filters the client of a listener may subscribe to.
fn allowed(
    own: &mut Owners,
    (s, listener): (SessionIdx, u16),
    subscribe: &Subscribe<'_>,
    refused: &[bool],
) -> Vec<bool> {
    let filters = subscribe.filters.iter().enumerate();
    let allowed: Vec<bool> = filters
        .map(|(at, request)| match Filter::parse(request.filter) {
            Ok(_) if refused.get(at) == Some(&true) => false,
            Ok(_) => own.may_subscribe(s, listener, request.filter),
            Err(_) => false,
        })
        .collect();
    for (request, allowed) in subscribe.filters.iter().zip(&allowed) {
        if !allowed {
            audit::note_denied(own, s, "may not subscribe", request.filter);
        }
    }
    allowed
}

/// Says what a client has subscribed to, where that is published.
fn report(own: &mut Owners, s: SessionIdx, filter: &Text, subscribed: bool) {
    let kind = match subscribed {
        true => SysEvent::Subscribed,
        false => SysEvent::Unsubscribed,
    };
    if !own.config.sys.events.contains(&kind) {
        return;
    }
    let session = own.sessions.mqtt(s);
    let conn = session.and_then(|session| own.conns.mqtt(session.conn?));
    if let (Some(session), Some(conn)) = (session, conn) {
        let event = Event::Subscribed {
            conn: conn.id,
            client_id: session.client_id.clone(),
            filter: filter.clone(),
            subscribed,
        };
        own.outbox.event(event);
    }
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
    let meant = topics::unsubscribe(own, (c, s), unsubscribe);
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.mqtt_mut(s)) else {
        return;
    };
    let (subscribing, ended) = match &meant {
        None => session.mqtt.handle_unsubscribe(stream, unsubscribe),
        Some(meant) => {
            let filters = unsubscribe.filters.iter().zip(meant);
            let filters: Vec<&str> = filters.map(topics::filter).collect();
            let altered = Unsubscribe {
                filters: UnsubscribeFilters::new(&filters),
                ..unsubscribe.clone()
            };
            session.mqtt.handle_unsubscribe(stream, &altered)
        }
    };
    let pending = PendingSubscribe {
        conn: conn.id,
        session: session.reference(s),
        subscribing,
        walks: Vec::new(),
        waiting: 0,
    };
    for filter in &ended {
        report(own, s, filter, false);
    }
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
    pending.waiting = own.members.others().len();
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
