//! From bytes to packets: what a transport event means for a connection, and
//! which file a packet goes to.

use bytes::Bytes;
use dunlin_base::ShardId;
use dunlin_base::transport::Peer;
use dunlin_base::transport::Transport;
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::close_code;
use dunlin_mqtt::codec::{DecodeError, Packet, ReasonCode, decode, decode_publish};
use dunlin_mqtt::server::link::PARKED_BYTES_MAX;
use dunlin_mqtt::server::{Framer, Incoming, answer_stream, connect as connect_engine};

use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{BusMessage, Event, Output};
use crate::messages::throttle;
use crate::mqtt::conn::{MqttConn, Phase};
use crate::mqtt::connect::Flow;
use crate::mqtt::fault::Fault;
use crate::mqtt::flows::{headers, resets};
use crate::mqtt::{
    acks, asking, authenticate, connect, data_streams, ending, outgoing_streams, pace, publish,
    pump, send, subscribe,
};
use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::owners::timers::Timer;

pub(crate) fn handle_opened(own: &mut Owners, conn: ConnId, peer: Peer) {
    own.stats.connections += 1;
    let over = own.conns.len() >= own.config.clients.connections_max;
    let mut entry = MqttConn::new(conn, peer, own.now, own.config.clients.connect_timeout);
    let due = entry.link.keep_alive.deadline(false);
    if let Some(due) = due.filter(|_| !(over || own.shutting_down)) {
        own.timers.remind(due, Timer::Conn(conn), &mut entry.alarm);
    }
    let c = own.conns.insert(Conn::Mqtt(entry));
    if over || own.shutting_down {
        ending::close(own, c, close_code::OVERLOADED);
    }
}

/// Takes bytes of one stream and handles every whole packet in them.
fn handle_bytes(own: &mut Owners, c: ConnIdx, stream: StreamId, mut data: &[u8]) {
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    match &conn.phase {
        Phase::Closing | Phase::HandedOver(_) => return,
        phase if phase.is_pending() || conn.asked > 0 => return park(own, c, stream, data),
        Phase::ExpectConnect | Phase::Exchanging(..) if stream != StreamId::CONTROL => {
            return park(own, c, stream, data);
        }
        _ => {}
    }
    if conn.link.streams.is_abandoned(stream) {
        return;
    }
    let streams_max = own.config.clients.data_streams_max;
    let conn = own.conns.mqtt_mut(c);
    if !conn.is_some_and(|conn| conn.link.streams.enter(stream, streams_max)) {
        return data_streams::reset_stream(own, c, stream, ReasonCode::QuotaExceeded);
    }
    if !headers::read_head(own, c, stream, &mut data) {
        return;
    }
    loop {
        let Some(conn) = own.conns.mqtt_mut(c) else {
            return;
        };
        match &conn.phase {
            Phase::Closing | Phase::HandedOver(_) => return,
            phase if phase.is_pending() => return park(own, c, stream, data),
            _ => {}
        }
        // A packet may have ended its stream.
        let Some(entry) = conn.link.streams.get_mut(stream) else {
            return;
        };
        let mut framer = core::mem::take(&mut entry.framer);
        let known = conn.session().is_some();
        let quota = conn.pace.as_ref().map(|pace| pace.packet_bytes_max);
        let bytes_max = own.config.largest_packet(known);
        let bytes_max = quota.map_or(bytes_max, |max| bytes_max.min(max));
        let outcome = match framer.next(&mut data, bytes_max) {
            Ok(None) => {
                put_framer(own, c, stream, framer);
                return wait_for_more(own, c);
            }
            Ok(Some(packet)) => handle_packet(own, c, stream, packet).map(|flow| (flow, packet)),
            Err(error) => {
                let too_large = matches!(error, DecodeError::PacketTooLarge);
                own.stats.connects_too_large += u64::from(too_large && !known);
                Err(Fault::from(error))
            }
        };
        match outcome {
            Ok((Flow::Continue, _)) => put_framer(own, c, stream, framer),
            Ok((Flow::HandOver(to), packet)) => {
                let bytes = [packet, data].concat();
                return hand_over(own, c, to, bytes.into());
            }
            Ok((Flow::Hold, packet)) => {
                let bytes = [packet, data].concat();
                put_framer(own, c, stream, framer);
                return park(own, c, stream, &bytes);
            }
            Err(fault) => return fail(own, c, stream, fault),
        }
    }
}

/// All that has come is handled but the beginning of a packet.
fn wait_for_more(own: &mut Owners, c: ConnIdx) {
    match own.weigh_input(c) {
        Ok(()) => data_streams::take_turns(own, c),
        Err(no_room) => ending::fail(own, c, no_room.into()),
    }
}

/// Gives a connection to the shard where its session lives: whole, or event by event
/// where that is another process, and over QUIC, whose ids lead here.
fn hand_over(own: &mut Owners, c: ConnIdx, to: ShardId, data: Bytes) {
    let Some(entry) = own.conns.mqtt_mut(c) else {
        return;
    };
    if entry.peer.transport != Transport::Quic && !own.members.is_far(to) {
        let conn = entry.id;
        ending::remove_conn(own, c);
        // Counted again where it opens.
        own.stats.connections -= 1;
        let unread = data;
        return own.outbox.push(Output::Move { conn, to, unread });
    }
    entry.phase = Phase::HandedOver(to);
    let conn = entry.id;
    own.timers.cancel(Timer::Conn(conn), &mut entry.alarm);
    let message = BusMessage::Handover {
        conn,
        peer: entry.peer.clone(),
        data,
    };
    let parked = entry.link.parked.take();
    own.conns.note_handed_over(true);
    own.weigh_conn(c);
    own.outbox.bus(to, message);
    let streams = parked.streams.into_iter().map(|(stream, bytes)| {
        let data = bytes.into();
        NetEventKind::Bytes { stream, data }
    });
    let ends = parked.ends.into_iter().map(|(stream, code)| match code {
        None => NetEventKind::StreamFinished { stream },
        Some(code) => NetEventKind::StreamReset { stream, code },
    });
    let datagrams = parked.datagrams.into_iter();
    let datagrams = datagrams.map(|data| NetEventKind::Datagram { data });
    for kind in streams.chain(ends).chain(datagrams) {
        let message = BusMessage::Net(NetEvent::new(conn, kind));
        own.outbox.bus(to, message);
    }
}

fn handle_packet(
    own: &mut Owners,
    c: ConnIdx,
    stream: StreamId,
    packet: &[u8],
) -> Result<Flow, Fault> {
    let now = own.now;
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return Ok(Flow::Continue);
    };
    conn.link.keep_alive.heard(now);
    // Most of what comes, wherever other packets may.
    if let Phase::Connected(s) = conn.phase {
        // It stays where it was decoded: a copy of it costs a tenth of the message.
        match &mut decode_publish(packet, conn.link.terms.version) {
            Some(Ok(publish)) => {
                if !asking::may_publish(own, (c, s), stream, publish) {
                    return Ok(Flow::Hold);
                }
                let answered = answer_stream(stream);
                publish::handle_publish(own, (c, s), (stream, answered), (publish, packet))?;
                return Ok(Flow::Continue);
            }
            Some(Err(error)) => return Err(Fault::from(*error)),
            None => {}
        }
    }
    let decoded = match decode(packet, conn.link.terms.version) {
        Err(error) if matches!(conn.phase, Phase::ExpectConnect) => {
            refuse_connect(own, c, packet, &error);
            return Ok(Flow::Continue);
        }
        decoded => decoded?,
    };
    let incoming = Incoming::of(conn.phase.stage(), stream, decoded)?;
    if let Phase::Connected(s) = conn.phase {
        return match may_go(own, (c, s), &incoming) {
            true => handle_session_packet(own, (c, s), stream, incoming).map(|()| Flow::Continue),
            false => Ok(Flow::Hold),
        };
    }
    match incoming {
        Incoming::Connect(connect) => return connect::handle_connect(own, c, packet, &connect),
        Incoming::Auth(auth) => authenticate::handle_auth_exchange(own, c, &auth)?,
        Incoming::Disconnect(_) => ending::close(own, c, close_code::NO_ERROR),
        _ => {}
    }
    Ok(Flow::Continue)
}

/// Whether a packet needs no answer of a server.
fn may_go(own: &mut Owners, client: (ConnIdx, SessionIdx), packet: &Incoming<'_>) -> bool {
    match packet {
        Incoming::Subscribe(packet) => asking::may_subscribe(own, client, packet),
        _ => true,
    }
}

/// The first packet could not be decoded.
fn refuse_connect(own: &mut Owners, c: ConnIdx, packet: &[u8], error: &DecodeError) {
    own.stats.protocol_errors += 1;
    let refusal = connect_engine::refusal(packet, error);
    let (Some((version, reason)), Some(conn)) = (refusal, own.conns.mqtt_mut(c)) else {
        return ending::close(own, c, close_code::NO_ERROR);
    };
    conn.link.terms.version = version;
    ending::refuse(own, c, Fault::new(reason, "CONNECT could not be decoded"));
}

fn handle_session_packet(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    arrived: StreamId,
    packet: Incoming<'_>,
) -> Result<(), Fault> {
    let stream = answer_stream(arrived);
    match packet {
        Incoming::Ack(kind, ack) => acks::handle_ack(own, (c, s), kind, stream, &ack)?,
        Incoming::Misplaced => {
            data_streams::end_stream(own, c, stream, Some(resets::MISPLACED));
        }
        Incoming::Subscribe(packet) => subscribe::handle_subscribe(own, c, s, stream, &packet),
        Incoming::Unsubscribe(packet) => {
            subscribe::handle_unsubscribe(own, c, s, stream, &packet);
        }
        //= mqtt5#[MQTT-3.12.4-1]
        Incoming::Ping => {
            send::send(own, c, stream, &Packet::PingResp);
        }
        Incoming::Disconnect(packet) => ending::handle_disconnect(own, c, s, &packet)?,
        Incoming::Auth(auth) => authenticate::handle_reauth(own, c, s, &auth)?,
        // A PUBLISH was handled before.
        Incoming::Publish(_) | Incoming::Connect(_) | Incoming::Ignored => {}
    }
    Ok(())
}

/// Ends a connection, or one data stream with a malformed packet.
fn fail(own: &mut Owners, c: ConnIdx, stream: StreamId, fault: Fault) {
    if stream != StreamId::CONTROL && fault.reason == ReasonCode::MalformedPacket {
        own.stats.protocol_errors += 1;
        return data_streams::reset_stream(own, c, stream, fault.reason);
    }
    ending::fail(own, c, fault);
}

/// Something happened on a connection whose session is here.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    match event {
        NetEventKind::Bytes { stream, data } => {
            let data = data.as_ref();
            own.stats.bytes_received += data.len() as u64;
            handle_bytes(own, c, stream, data);
            pace::check(own, c, data.len());
        }
        NetEventKind::Sent { bytes, .. } => handle_sent(own, c, bytes),
        NetEventKind::StreamBlocked { stream, bytes } => {
            data_streams::handle_blocked(own, c, stream, bytes);
        }
        NetEventKind::Closed { cause } => ending::handle_closed(own, c, &cause),
        NetEventKind::Migrated { addr } => {
            if let Some(conn) = own.conns.mqtt_mut(c) {
                conn.peer.addr = addr;
                let conn = conn.id;
                own.stats.migrations += 1;
                own.outbox.event(Event::Migrated { conn, addr });
            }
        }
        NetEventKind::Datagram { data } => {
            let data = data.as_ref();
            own.stats.bytes_received += data.len() as u64;
            handle_datagram(own, c, data);
            pace::check(own, c, data.len());
        }
        NetEventKind::ChannelBinding { data } => authenticate::handle_binding(own, c, data),
        NetEventKind::StreamOpened { stream } => {
            outgoing_streams::handle_stream_opened(own, c, stream);
        }
        NetEventKind::StreamsAvailable {
            bidirectional: true,
        } => outgoing_streams::handle_streams_available(own, c),
        NetEventKind::StreamDelivered { stream } => {
            outgoing_streams::handle_delivered(own, c, stream);
        }
        NetEventKind::StreamFinished {
            stream: StreamId::CONTROL,
        } => ending::close(own, c, close_code::NO_ERROR),
        NetEventKind::StreamReset {
            stream: StreamId::CONTROL,
            ..
        } => ending::close(own, c, close_code::CONTROL_STREAM_DOWN),
        NetEventKind::StreamFinished { stream } => data_streams::handle_finished(own, c, stream),
        NetEventKind::StreamReset { stream, code } => {
            data_streams::end_stream(own, c, stream, Some(code));
        }
        // Opened was handled where the connection was entered; the rest has no
        // effect on a session.
        NetEventKind::Opened { .. }
        | NetEventKind::StreamsAvailable {
            bidirectional: false,
        }
        | NetEventKind::EarlyData { .. }
        | NetEventKind::Moved { .. }
        | NetEventKind::MoveFailed { .. } => {}
    }
}

/// Bytes left the transport: what waited for them may go on.
fn handle_sent(own: &mut Owners, c: ConnIdx, bytes: usize) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    conn.link.streams.handle_sent(bytes);
    let low = own.config.sending.send_backlog_bytes / 2;
    if conn.blocked && conn.link.backlog() <= own.budget.unsent_limit(low) {
        conn.blocked = false;
        if let Phase::Connected(s) = conn.phase {
            pump::pump(own, s);
        }
    }
    own.weigh_conn(c);
    throttle::release_publishers(own, c);
}

fn park(own: &mut Owners, c: ConnIdx, stream: StreamId, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let limits = &own.config.clients;
    let streams_max = limits.data_streams_max;
    // A packet that waits for an answer has been taken in already.
    let bytes_max = match conn.asked {
        0 => PARKED_BYTES_MAX,
        _ => PARKED_BYTES_MAX.saturating_add(limits.packet_bytes_max as usize),
    };
    // Before CONNECT a pause would keep CONNECT itself away.
    if conn.phase.is_pending() || conn.asked > 0 {
        own.pause(c, true);
    }
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let parked = &mut conn.link.parked;
    if !parked.hold(stream, data, streams_max, bytes_max) {
        let fault = Fault::new(ReasonCode::QuotaExceeded, "too much before an answer");
        return ending::fail(own, c, fault);
    }
    own.weigh_conn(c);
}

/// Handles what came before the CONNECT, or a topic, was decided on.
pub(crate) fn unpark(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let parked = conn.link.parked.take();
    own.weigh_conn(c);
    for (stream, bytes) in parked.streams {
        handle_bytes(own, c, stream, &bytes);
    }
    for (stream, code) in parked.ends {
        let conn = own.conns.peek_mqtt(c);
        if !conn.is_some_and(|conn| matches!(conn.phase, Phase::Connected(_))) {
            break;
        }
        data_streams::end_stream(own, c, stream, code);
    }
    for data in parked.datagrams {
        handle_datagram(own, c, &data);
    }
    asking::settle(own, c);
    own.pause(c, false);
}

fn put_framer(own: &mut Owners, c: ConnIdx, stream: StreamId, framer: Framer) {
    let conn = own.conns.mqtt_mut(c);
    if let Some(place) = conn.and_then(|conn| conn.link.streams.get_mut(stream)) {
        place.framer = framer;
    }
}

/// A datagram from the client: one QoS 0 PUBLISH, or nothing for MQTT.
fn handle_datagram(own: &mut Owners, c: ConnIdx, data: &[u8]) {
    // Empty ones are probes, and 0 begins another protocol's.
    if data.first().is_none_or(|first| *first == 0) {
        return;
    }
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let s = match conn.phase {
        Phase::Connected(s) if conn.asked == 0 => s,
        Phase::Closing | Phase::HandedOver(_) => return,
        _ => {
            if !conn.link.parked.push_datagram(data) {
                own.stats.datagrams_dropped += 1;
            }
            return;
        }
    };
    let decoded = conn
        .link
        .datagram(data, own.config.clients.packet_bytes_max);
    let stream = StreamId::CONTROL;
    let may = match &decoded {
        Ok(packet) => asking::may_publish(own, (c, s), stream, packet),
        Err(_) => true,
    };
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    if !may {
        own.stats.datagrams_dropped += u64::from(!conn.link.parked.push_datagram(data));
        return;
    }
    own.stats.datagrams_received += 1;
    conn.link.keep_alive.heard(own.now);
    let handled = decoded.and_then(|mut publish| {
        publish::handle_publish(own, (c, s), (stream, stream), (&mut publish, data))
    });
    if let Err(fault) = handled {
        ending::fail(own, c, fault);
    }
}
