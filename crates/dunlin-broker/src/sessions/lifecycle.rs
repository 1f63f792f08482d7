//! Sessions between connections: leaving, wills, expiry, the end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::ShardId;
use dunlin_mqtt::server::delivery;
use dunlin_store::{SessionKey, StoreOp, StoredWill};

use crate::access::Action;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::BusMessage;
use crate::messages::source::Source;
use crate::messages::{publish, settle, shared};
use crate::owners::Owners;
use crate::owners::pending::Pending;
use crate::owners::timers::{Timer, Timers};
use crate::random::home_shard;
use crate::sessions::subscriptions;

/// The session of a connection loses it, if there is one. `with_will`: unless
/// the will waits, it is published.
pub(crate) fn detach(own: &mut Owners, c: ConnIdx, with_will: bool) {
    let (now, shutting_down) = (own.now, own.shutting_down);
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    let Some(s) = conn.take_session() else {
        return;
    };
    let durable = conn.link.terms.durable_streams;
    let Some(session) = own.sessions.get_mut(s) else {
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
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let key = session.key;
    if !with_will {
        session.will = None;
    }
    if let Some(will) = &session.will {
        session.mqtt.lifetime.set_will(will.delay_secs);
        if session.mqtt.lifetime.is_will_due(now) {
            publish_will(own, s);
        }
    }
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    if !session.is_persistent() {
        return end_session(own, s);
    }
    release_shared(own, s, false);
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    session
        .mqtt
        .outbound
        .shed(own.config.queue_held_max * usize::from(own.commits.is_durable()));
    for at in session.mqtt.lifetime.deadlines() {
        let timer = Timer::Session(session.reference(s));
        own.timers.remind(at, timer, &mut session.alarm);
    }
    let record = session.record();
    own.commits.write(StoreOp::PutSession { key, record });
}

/// Messages of shared subscriptions go to members that are still there.
pub(crate) fn release_shared(own: &mut Owners, s: SessionIdx, ends: bool) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let old = session.reference(s);
    let taken = session.mqtt.outbound.take_shared(ends);
    for delivery in taken {
        if !shared::redeliver(own, &delivery, old, ends)
            && let Some(session) = own.sessions.get_mut(s)
        {
            session.mqtt.outbound.push(delivery);
        }
    }
}

/// A session's will or expiry may be due.
pub(crate) fn check_session(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    Timers::came(&mut session.alarm);
    if session.conn.is_some() {
        return;
    }
    let lifetime = session.mqtt.lifetime;
    let expired = lifetime.expires_at().is_some_and(|at| at <= now);
    if lifetime.is_will_due(now) {
        publish_will(own, s);
        if !expired && let Some(session) = own.sessions.get(s) {
            let (key, record) = (session.key, session.record());
            own.commits.write(StoreOp::PutSession { key, record });
        }
    }
    if expired {
        return end_session(own, s);
    }
    if let Some(session) = own.sessions.get_mut(s) {
        for at in session.mqtt.lifetime.deadlines() {
            let timer = Timer::Session(session.reference(s));
            own.timers.remind(at, timer, &mut session.alarm);
        }
    }
}

/// Publishes the session's will, once.
fn publish_will(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    session.mqtt.lifetime.clear_will();
    let Some(will) = session.will.take() else {
        return;
    };
    if own.may(s, Action::Publish, &will.message.topic) {
        publish_message(own, *will);
    }
}

fn publish_message(own: &mut Owners, will: StoredWill) {
    let mut message = will.message;
    //= mqtt5#[MQTT-3.1.3-9]
    message.expires = will
        .message_expiry_secs
        .map(|secs| own.now + Duration::from_secs(u64::from(secs)));
    let message = Arc::new(message);
    let view = delivery::view(&message, own.now);
    let mut source = Source::from_message(&message, &view, own.now);
    let token = own.commits.token();
    // No acknowledgement is due, and no session is left for which a will could
    // be local.
    publish::dispatch(own, None, token, &mut source);
}

/// Ends a session: its will, its subscriptions, its record.
pub(crate) fn end_session(own: &mut Owners, s: SessionIdx) {
    //= mqtt5#[MQTT-3.1.2-8]
    let lifetime = own.sessions.get(s).map(|session| session.mqtt.lifetime);
    if lifetime.is_some_and(|lifetime| lifetime.will_due().is_some()) {
        publish_will(own, s);
    }
    release_shared(own, s, true);
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let subscriptions = session.mqtt.subscriptions.take();
    let line = core::mem::take(&mut session.preparing);
    let mut changes = Vec::new();
    for filter in subscriptions {
        changes.extend(own.routing.remove(s, &filter));
    }
    subscriptions::announce(own, 0, &changes);
    let Some(mut session) = own.sessions.remove(s) else {
        return;
    };
    let timer = Timer::Session(session.reference(s));
    own.timers.cancel(timer, &mut session.alarm);
    if session.stored {
        store_forget(own, session.key);
    }
    if session.claim != 0 {
        let (token, client_id) = (session.claim, session.client_id);
        let home = ShardId(home_shard(&client_id, own.config.shards));
        own.outbox.bus(home, BusMessage::Left { token, client_id });
    }
    settle::release_line(own, line);
}

/// Has the store forget a session: what it keeps would come back with a
/// restart.
pub(crate) fn store_forget(own: &mut Owners, session: SessionKey) {
    own.commits.write(StoreOp::DeleteSession { key: session });
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Forget { session });
}
