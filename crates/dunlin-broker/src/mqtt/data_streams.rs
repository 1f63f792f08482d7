//! Data streams of a connection: streams besides control, from their first
//! byte to their end; streams of which a client takes nothing while it takes
//! others.
//!
//! QoS 0 for such a stream is dropped. Of QoS 1 and 2, a bounded number of
//! messages are passed over; with more, all of the session's wait. Messages that
//! are in flight on such a stream count against Receive Maximum like all others.

use dunlin_base::StreamId;
use dunlin_base::transport::NetCommandKind;
use dunlin_mqtt::codec::ReasonCode;
use dunlin_mqtt::server::link::StreamEnd;

use crate::ids::ConnIdx;
use crate::messages::throttle;
use crate::mqtt::conn::{MqttConn, Phase};
use crate::mqtt::{outgoing_streams, pump, send, subscribe};
use crate::owners::Owners;

/// The client takes no more of a stream, or takes it again.
pub(crate) fn handle_blocked(own: &mut Owners, c: ConnIdx, stream: StreamId, bytes: usize) {
    let limit = own.config.sending.qos0_backlog_bytes;
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    conn.link.streams.handle_blocked(stream, bytes, limit);
    go_on(own, c);
}

/// The streams of a connection have changed, and with them perhaps the
/// stream of what was passed over.
fn streams_changed(own: &mut Owners, c: ConnIdx) {
    own.weigh_conn(c);
    take_turns(own, c);
    let conn = own.conns.mqtt(c);
    if conn.is_some_and(|conn| conn.link.streams.is_any_blocked()) {
        go_on(own, c);
    }
}

fn go_on(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    conn.link.streams.recheck_blocked();
    let Phase::Connected(s) = conn.phase else {
        return;
    };
    if conn.link.backlog() <= own.config.sending.send_backlog_bytes / 2 {
        conn.blocked = false;
    }
    if let Some(session) = own.sessions.mqtt_mut(s) {
        session.mqtt.outbound.queue.take_back();
    }
    pump::pump(own, s);
    throttle::release_publishers(own, c);
}

/// Has one data stream read alone while packets on too many are unfinished,
/// and all of them again afterwards.
pub(crate) fn take_turns(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    if let Some(stream) = conn.link.streams.next_turn() {
        let command = NetCommandKind::ReadOnly { stream };
        own.outbox.command(conn.id, command);
    }
}

pub(crate) fn reset_stream(own: &mut Owners, c: ConnIdx, stream: StreamId, reason: ReasonCode) {
    end_stream(own, c, stream, Some(u64::from(reason as u8)));
}

/// The client sends no more on a data stream. Acknowledgements that are due
/// on it still leave before our side ends.
pub(crate) fn handle_finished(own: &mut Owners, c: ConnIdx, stream: StreamId) {
    let session = own.conns.mqtt(c).and_then(MqttConn::session);
    let session = session.and_then(|s| own.sessions.mqtt(s));
    if session.is_some_and(|session| session.mqtt.inbound.awaits(stream))
        && let Some(data) = own
            .conns
            .mqtt_mut(c)
            .and_then(|conn| conn.link.streams.data_mut(stream))
    {
        data.end = StreamEnd::ByClient;
    } else {
        end_stream(own, c, stream, None);
    }
}

/// An acknowledgement left on a data stream: perhaps it was the last that
/// its end waited for.
pub(crate) fn end_if_answered(own: &mut Owners, c: ConnIdx, stream: StreamId) {
    let session = own.conns.peek_mqtt(c).and_then(MqttConn::session);
    let session = session.and_then(|s| own.sessions.mqtt(s));
    let waits = session.is_some_and(|session| session.mqtt.inbound.awaits(stream));
    let data = own
        .conns
        .mqtt_mut(c)
        .and_then(|conn| conn.link.streams.data_mut(stream));
    if !waits && data.is_some_and(|data| data.end == StreamEnd::ByClient) {
        end_stream(own, c, stream, None);
    }
}

/// A data stream ended: its subscriptions move to control when the session
/// is persistent, and go otherwise.
pub(crate) fn end_stream(own: &mut Owners, c: ConnIdx, stream: StreamId, code: Option<u64>) {
    if end_server_stream(own, c, stream, code) {
        return;
    }
    if let Some(conn) = own.conns.mqtt_mut(c)
        && conn.link.parked.end(stream, code)
    {
        return;
    }
    send::flush(own, c);
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let (id, session) = (conn.id, conn.session());
    let durable = conn.link.terms.durable_streams;
    let data = conn.link.streams.data_mut(stream);
    let flow = data.as_ref().map_or(0, |data| data.flow.id());
    let code = code.or_else(|| data?.cut_code());
    let answer = match code {
        None if stream.is_unidirectional() => None,
        None => Some(NetCommandKind::FinishStream { stream }),
        Some(code) => Some(NetCommandKind::ResetStream { stream, code }),
    };
    if let Some(command) = answer {
        own.outbox.command(id, command);
    }
    if let Some(s) = session
        && let Some(session) = own.sessions.mqtt_mut(s)
    {
        let (in_order, now) = (code.is_none(), own.now);
        let changes = session
            .mqtt
            .handle_stream_ended(stream, flow, in_order, durable, now);
        subscribe::apply(own, s, changes);
    }
    if let Some(conn) = own.conns.mqtt_mut(c) {
        match code {
            None => conn.link.streams.forget(stream),
            Some(_) => conn.link.streams.abandon(stream),
        }
    }
    streams_changed(own, c);
}

/// The client ended a stream that the broker opened: gracefully, or it
/// does not want it. `true` if that is what it was.
fn end_server_stream(own: &mut Owners, c: ConnIdx, stream: StreamId, code: Option<u64>) -> bool {
    if !stream.is_server_initiated() {
        return false;
    }
    send::flush(own, c);
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return true;
    };
    let id = conn.id;
    match code {
        None => conn.link.streams.forget(stream),
        Some(_) => conn.link.streams.abandon(stream),
    }
    if let Some(lanes) = &mut conn.link.lanes {
        match code {
            None => lanes.finished(stream),
            Some(_) => lanes.refused(stream),
        }
    }
    if let Some(code) = code {
        own.outbox
            .command(id, NetCommandKind::ResetStream { stream, code });
    }
    outgoing_streams::run_lanes(own, c);
    outgoing_streams::send_held(own, c);
    streams_changed(own, c);
    true
}
