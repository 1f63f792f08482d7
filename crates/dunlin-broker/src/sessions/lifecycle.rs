//! Sessions between connections: leaving, wills, expiry, the end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{QoS, ShardId};
use dunlin_store::StoredWill;

use crate::access::Action;
use crate::ids::{ConnIdx, SessionIdx};
use crate::messages::source::Source;
use crate::messages::{publish, settle, shared};
use crate::owners::Owners;
use crate::owners::elsewhere::Free;
use crate::owners::pending::Record;
use crate::owners::session::Session;
use crate::owners::timers::{Timer, Timers};
use crate::random::home_shard;
use crate::sessions::{records, subscriptions};

/// The session of a connection loses it, if there is one. `with_will`: unless
/// the will waits, it is published.
pub(crate) fn detach(own: &mut Owners, c: ConnIdx, with_will: bool) {
    let (now, shutting_down) = (own.now, own.shutting_down);
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let Some(s) = conn.take_session() else {
        return;
    };
    let durable = conn.link.terms.durable_streams;
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    session.conn = None;
    // After a restart the store says that it was connected: that is when
    // its will is due and its expiry begins.
    if shutting_down {
        return;
    }
    session.mqtt.lifetime.handle_disconnected(now);
    if session.is_persistent() {
        let ended = session.mqtt.handle_streams_lost(durable, now);
        subscriptions::end(own, s, ended);
    }
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    if !with_will {
        session.will = None;
    }
    if let Some(will) = &session.will {
        session.mqtt.lifetime.set_will(will.delay_secs);
    }
    if !session.is_persistent() {
        return end_session(own, s);
    }
    if session.mqtt.lifetime.is_will_due(now) {
        let record = Record::Put(session.reference(s));
        publish_will(own, s, Some(record));
    }
    release_shared(own, s, false);
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    session
        .mqtt
        .outbound
        .queue
        .shed(own.config.queue_held_max * usize::from(own.commits.is_durable()));
    for at in session.mqtt.lifetime.deadlines() {
        let timer = Timer::Session(session.reference(s));
        own.timers.remind(at, timer, &mut session.alarm);
    }
    own.weigh(s);
    records::put(own, s);
}

/// Messages of shared subscriptions go to members that are still there.
pub(crate) fn release_shared(own: &mut Owners, s: SessionIdx, ends: bool) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let old = session.reference(s);
    for delivery in session.take_shared(ends) {
        if !shared::redeliver(own, &delivery, old, ends)
            && let Some(session) = own.sessions.get_mut(s)
        {
            session.queue_mut().push(delivery);
        }
    }
    own.weigh_queue(s);
}

/// A session's will or expiry may be due.
pub(crate) fn check_session(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    Timers::came(&mut session.alarm);
    if session.conn.is_some() {
        return;
    }
    let lifetime = session.mqtt.lifetime;
    if lifetime.expires_at().is_some_and(|at| at <= now) {
        return end_session(own, s);
    }
    if lifetime.is_will_due(now) {
        let record = Record::Put(session.reference(s));
        publish_will(own, s, Some(record));
    }
    if let Some(session) = own.sessions.mqtt_mut(s) {
        for at in session.mqtt.lifetime.deadlines() {
            let timer = Timer::Session(session.reference(s));
            own.timers.remind(at, timer, &mut session.alarm);
        }
    }
}

/// Publishes the session's will, once. Its record is written, or goes, in one
/// batch with it.
fn publish_will(own: &mut Owners, s: SessionIdx, record: Option<Record>) {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    session.mqtt.lifetime.clear_will();
    let will = session.will.take();
    own.weigh(s);
    let topic = will.as_deref().map(|will| will.message.topic.clone());
    let allowed = topic.is_some_and(|topic| own.may(s, Action::Publish, &topic));
    match will.filter(|_| allowed) {
        Some(will) => publish_message(own, *will, record),
        None => {
            if let Some(record) = record {
                records::after_will(own, record, false);
            }
        }
    }
}

/// Publishes a will; `record` is stored with it.
pub(crate) fn publish_message(own: &mut Owners, will: StoredWill, record: Option<Record>) {
    let mut message = will.message;
    //= mqtt5#[MQTT-3.1.3-9]
    message.expires = will
        .message_expiry_secs
        .map(|secs| own.now + Duration::from_secs(u64::from(secs)));
    let message = Arc::new(message);
    let mut source = Source::of(&message, own.now).lossy();
    let token = own.commits.token();
    // No acknowledgement is due, and no session is left for which a will could
    // be local.
    if message.qos == QoS::AtMostOnce {
        publish::dispatch(own, None, token, &mut source, None);
        if let Some(record) = record {
            records::after_will(own, record, false);
        }
        return;
    }
    if let Some(Record::Put(session)) = record
        && let Some(session) = own.sessions.resolve_mqtt(session)
    {
        session.will_under_way = Some(token);
    }
    publish::dispatch(own, None, token, &mut source, record);
}

/// Ends a session: its will, its subscriptions, its record.
pub(crate) fn end_session(own: &mut Owners, s: SessionIdx) {
    match own.sessions.get(s) {
        Some(Session::Mqtt(_)) => end_record(own, s),
        Some(Session::Node(_)) => end_node(own, s),
        Some(Session::Amqp(_)) => {}
        None => return,
    }
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let old = session.reference(s);
    for delivery in session.take_shared(true) {
        shared::give_again(own, &delivery, old);
    }
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let subscriptions = session.take_subscriptions();
    let line = core::mem::take(&mut session.preparing);
    let mut changes = Vec::new();
    for filter in subscriptions {
        changes.extend(subscriptions::leave(own, s, &filter));
    }
    subscriptions::announce(own, 0, &changes);
    let Some(mut session) = own.sessions.remove(s) else {
        return;
    };
    own.count_out(&session);
    let timer = Timer::Session(session.reference(s));
    own.timers.cancel(timer, &mut session.alarm);
    if let Session::Mqtt(session) = session
        && session.claim != 0
    {
        let home = ShardId(home_shard(&session.client_id, own.config.shards));
        records::when_forgotten(own, &session.client_id, Free::Left(home, session.claim));
    }
    settle::release_line(own, line);
}

/// The record of a node goes.
fn end_node(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if node.kept.options.durable && own.commits.is_durable() {
        let (key, address) = (node.key, node.address.clone());
        own.sessions.begin_forget(&address);
        records::forget(own, key, address);
    }
}

/// The will of a session that ends is published, and its record goes.
fn end_record(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.mqtt(s) else {
        return;
    };
    let (key, client_id) = (session.key, session.client_id.clone());
    let under_way = session.will_under_way;
    let will_is_due = session.mqtt.lifetime.will_due().is_some();
    let stored = session.stored && own.commits.is_durable();
    if stored {
        own.sessions.begin_forget(&client_id);
    }
    let gone = Record::Delete(key, client_id.clone());
    //= mqtt5#[MQTT-3.1.2-8]
    if will_is_due {
        publish_will(own, s, Some(gone).filter(|_| stored));
    } else if stored && !settle::delete_with(own, under_way, &gone) {
        records::forget(own, key, client_id);
    }
}
