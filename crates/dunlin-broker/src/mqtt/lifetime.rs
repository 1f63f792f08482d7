//! Sessions between connections: leaving, wills, expiry, the end.

use alloc::sync::Arc;

use dunlin_base::QoS;
use dunlin_mqtt::server::session::{Due, Will};

use crate::access::Action;
use crate::ids::{ConnIdx, SessionIdx};
use crate::messages::source::Source;
use crate::messages::{publish, settle};
use crate::mqtt::records as own_records;
use crate::owners::Owners;
use crate::owners::elsewhere::Free;
use crate::owners::pending::Record;
use crate::owners::session::Session;
use crate::owners::timers::{Timer, Timers};
use crate::sessions::{lifecycle, records, subscriptions};

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
    session.mqtt.lifetime.handle_lost(now, with_will);
    if session.is_persistent() {
        let ended = session.mqtt.handle_streams_lost(durable, now);
        subscriptions::end(own, s, ended);
    }
    if !meet_deadline(own, s) {
        return;
    }
    lifecycle::release_shared(own, s, false);
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    session
        .mqtt
        .outbound
        .queue
        .shed(own.config.sessions.queue_held_max * usize::from(own.commits.is_durable()));
    remind(own, s);
    own.weigh(s);
    own_records::put(own, s);
}

/// Does what is due for a session without a connection; `false`: it has ended.
fn meet_deadline(own: &mut Owners, s: SessionIdx) -> bool {
    let now = own.now;
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return false;
    };
    match session.mqtt.lifetime.handle_deadline(now) {
        Due::Nothing => {}
        Due::Will(will) => {
            let record = Record::Put(session.reference(s));
            publish_will(own, s, *will, Some(record));
        }
        Due::End => {
            end_session(own, s);
            return false;
        }
    }
    true
}

/// Has the session looked at again when its will or its end is due.
pub(crate) fn remind(own: &mut Owners, s: SessionIdx) {
    if let Some(session) = own.sessions.mqtt_mut(s)
        && let Some(at) = session.mqtt.lifetime.deadline()
    {
        let timer = Timer::Session(session.reference(s));
        own.timers.remind(at, timer, &mut session.alarm);
    }
}

/// A session's will or expiry may be due.
pub(crate) fn check_session(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    Timers::came(&mut session.alarm);
    if meet_deadline(own, s) {
        remind(own, s);
    }
}

/// Publishes the session's will, which was taken out of it. Its record is
/// written, or goes, in one batch with it.
fn publish_will(own: &mut Owners, s: SessionIdx, will: Will, record: Option<Record>) {
    own.weigh(s);
    if own.may(s, Action::Publish, &will.message.topic) {
        publish_message(own, will, record);
    } else if let Some(record) = record {
        own_records::after_will(own, record, false);
    }
}

/// Publishes a will; `record` is stored with it.
pub(crate) fn publish_message(own: &mut Owners, will: Will, record: Option<Record>) {
    let message = Arc::new(will.publish(own.now));
    let mut source = Source::of(&message, own.now).lossy();
    let token = own.commits.token();
    // No acknowledgement is due, and no session is left for which a will could
    // be local.
    if message.qos == QoS::AtMostOnce {
        publish::dispatch(own, None, token, &mut source, None);
        if let Some(record) = record {
            own_records::after_will(own, record, false);
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
    end_record(own, s);
    if let Some(Session::Mqtt(session)) = lifecycle::end_session(own, s)
        && session.claim != 0
    {
        let home = own.members.home(&session.client_id);
        records::when_forgotten(own, &session.client_id, Free::Left(home, session.claim));
    }
}

/// Publishes of a session that ends which are held back go ahead of its will.
fn release_held_back(own: &mut Owners, s: SessionIdx) {
    if own.members.has_apart()
        && let Some(session) = own.sessions.mqtt_mut(s)
    {
        let line = session.preparing.take();
        settle::release_line(own, line);
    }
}

/// The will of a session that ends is published, and its record goes.
fn end_record(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    let (key, client_id) = (session.key, session.client_id.clone());
    let under_way = session.will_under_way;
    let will = session.mqtt.lifetime.take_will();
    let stored = session.stored && own.commits.is_durable();
    if stored {
        own.sessions.begin_forget(&client_id);
    }
    let gone = Record::Delete(key, client_id.clone());
    if let Some(will) = will {
        release_held_back(own, s);
        publish_will(own, s, *will, Some(gone).filter(|_| stored));
    } else if stored && !settle::delete_with(own, under_way, &gone) {
        records::forget(own, key, client_id);
    }
}
