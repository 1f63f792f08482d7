//! What a QUIC client can take besides its control stream: streams that the
//! broker opens for deliveries, and datagrams.

use bytes::Bytes;
use dunlin_base::transport::NetCommandKind;
use dunlin_base::{SendBuf, StreamId};
use dunlin_mqtt::server::link::{Action, LinkStream, Place, StreamEnd};

use crate::ids::ConnIdx;
use crate::mqtt::conn::MqttConn;
use crate::mqtt::flows::resets;
use crate::mqtt::send;
use crate::owners::Owners;

/// Bytes up to which a PUBLISH is tried as a datagram: what every path takes
/// (RFC 9000 section 14.1) without the headers of QUIC.
const DATAGRAM_BYTES_MAX: usize = 1150;

/// A topic loses its stream: what was passed over comes first.
fn take_back(own: &mut Owners, c: ConnIdx) {
    let conn = own
        .conns
        .mqtt(c)
        .filter(|conn| conn.link.streams.is_any_blocked());
    if let Some(s) = conn.and_then(MqttConn::session)
        && let Some(session) = own.sessions.mqtt_mut(s)
    {
        session.mqtt.outbound.queue.take_back();
    }
}

/// The buffer for a PUBLISH: of the stream of its SUBSCRIBE, and if that
/// is control, of the stream of its topic where the client takes such.
/// Also says which stream, if it is known yet.
pub(crate) fn delivery_out<'a>(
    own: &'a mut Owners,
    c: ConnIdx,
    stream: StreamId,
    topic: &str,
) -> (StreamId, Option<&'a mut SendBuf>) {
    let lanes = match own.conns.mqtt_mut(c) {
        Some(conn) if stream == StreamId::CONTROL => conn.link.lanes.as_mut(),
        _ => None,
    };
    let config = &own.config;
    let Some(place) = lanes.map(|lanes| lanes.place(topic, config.level(topic))) else {
        return (stream, own.conns.out(c, stream));
    };
    run_lanes(own, c);
    match place {
        Place::Control => (stream, own.conns.out(c, stream)),
        Place::Stream(of_topic) => (of_topic, own.conns.out(c, of_topic)),
        Place::Held(lane) => {
            let lanes = own
                .conns
                .mqtt_mut(c)
                .and_then(|conn| conn.link.lanes.as_mut());
            (stream, lanes.and_then(|lanes| lanes.held(lane)))
        }
    }
}

/// Does what the lanes of a connection ask for.
pub(crate) fn run_lanes(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let id = conn.id;
    let Some(lanes) = &mut conn.link.lanes else {
        return;
    };
    for action in core::mem::take(&mut lanes.actions) {
        match action {
            Action::Open => own.outbox.command(
                id,
                NetCommandKind::OpenStream {
                    bidirectional: true,
                },
            ),
            Action::Finish(stream) => {
                take_back(own, c);
                send::flush(own, c);
                let conn = own.conns.mqtt_mut(c);
                if let Some(data) = conn.and_then(|conn| conn.link.streams.data_mut(stream)) {
                    data.end = StreamEnd::ByServer;
                }
                own.outbox
                    .command(id, NetCommandKind::FinishStream { stream });
            }
            Action::Prioritise(stream, level) => own.outbox.command(
                id,
                NetCommandKind::SetPriority {
                    stream,
                    priority: i32::from(level),
                },
            ),
        }
    }
}

/// The transport opened a stream, or could not.
pub(crate) fn handle_stream_opened(own: &mut Owners, c: ConnIdx, stream: Option<StreamId>) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let id = conn.id;
    let opened = conn
        .link
        .lanes
        .as_mut()
        .and_then(|lanes| lanes.opened(stream));
    let (Some(mut opened), Some(stream)) = (opened, stream) else {
        // No lane waits for it, or there is none: control takes its place.
        if let Some(stream) = stream {
            resets::cancel(&mut own.outbox, id, stream);
        }
        return send_held(own, c);
    };
    let mut data = LinkStream::opened(opened.number);
    data.out.append(&mut opened.held);
    conn.link.streams.open(stream, data);
    own.conns.touch(c);
    if opened.level > 0 {
        let priority = i32::from(opened.level);
        own.outbox
            .command(id, NetCommandKind::SetPriority { stream, priority });
    }
    prune_server_streams(own, c);
}

/// What lanes held and belongs to control now.
pub(crate) fn send_held(own: &mut Owners, c: ConnIdx) {
    let lanes = own
        .conns
        .mqtt_mut(c)
        .and_then(|conn| conn.link.lanes.as_mut());
    let Some(mut held) = lanes.and_then(|lanes| lanes.take_displaced()) else {
        return;
    };
    if let Some(out) = own.conns.out(c, StreamId::CONTROL) {
        out.append(&mut held);
    }
}

pub(crate) fn handle_streams_available(own: &mut Owners, c: ConnIdx) {
    if let Some(lanes) = own
        .conns
        .mqtt_mut(c)
        .and_then(|conn| conn.link.lanes.as_mut())
    {
        lanes.available();
    }
}

/// Everything sent on a stream that we ended has arrived.
pub(crate) fn handle_delivered(own: &mut Owners, c: ConnIdx, stream: StreamId) {
    if let Some(lanes) = own
        .conns
        .mqtt_mut(c)
        .and_then(|conn| conn.link.lanes.as_mut())
    {
        lanes.delivered(stream);
        run_lanes(own, c);
    }
}

/// Gives up the oldest streams that we ended and the client has not: it
/// could have us remember any number of them.
fn prune_server_streams(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let (id, max) = (conn.id, 2 * own.config.sending.delivery_streams_max + 1);
    let lanes = conn.link.lanes.as_deref();
    let in_use = |stream| lanes.is_some_and(|lanes| lanes.knows(stream));
    if let Some(stream) = conn.link.streams.superfluous(max, in_use) {
        conn.link.streams.abandon(stream);
        resets::give_up(&mut own.outbox, id, stream);
    }
}

/// Sends a QoS 0 PUBLISH as a datagram, if the client takes them and it is
/// not too large; `false` if it must go on a stream.
pub(crate) fn send_datagram(own: &mut Owners, c: ConnIdx, packet: &SendBuf) -> bool {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return false;
    };
    let age = conn.link.terms.datagram_age;
    if age.is_zero() || packet.len() > DATAGRAM_BYTES_MAX {
        return false;
    }
    let data: alloc::vec::Vec<u8> = packet.slices().flatten().copied().collect();
    conn.link.streams.note_given(data.len());
    let id = conn.id;
    let command = NetCommandKind::SendDatagram {
        expires: own.now + age,
        fallback: StreamId::CONTROL,
        data: Bytes::from(data),
    };
    own.stats.datagrams_sent += 1;
    own.stats.bytes_sent += packet.len() as u64;
    // Where it goes if the transport cannot: behind what is there.
    send::flush(own, c);
    own.outbox.command(id, command);
    true
}
