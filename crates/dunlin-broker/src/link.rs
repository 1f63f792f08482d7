//! From bytes to packets and back to closed connections: the life of a
//! network connection in a shard.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{
    CloseCause, NetCommandKind, NetEvent, NetEventKind, Peer, close_code,
};
use dunlin_base::{ConnId, StreamId, Text};
use dunlin_mqtt::codec::{
    Ack, ConnAck, DecodeError, Disconnect, Packet, PacketType, ReasonCode, ReasonProperties,
    Version, decode, peek,
};
use dunlin_mqtt::flow::stream_code;
use dunlin_mqtt::server::Framer;

use crate::conn::{Conn, ConnIdx, PARKED_BYTES_MAX, Phase};
use crate::fault::Fault;
use crate::io::{BusMessage, Event, Output};
use crate::shard::Shard;
use crate::timers::{Timer, Timers};

/// What to do after a packet.
pub(crate) enum Flow {
    /// Go on with the next one.
    Continue,
    /// The session lives on another shard: give it this packet and the rest.
    HandOver(dunlin_base::ShardId),
}

impl Shard {
    pub(crate) fn handle_opened(&mut self, conn: ConnId, peer: Peer) {
        self.stats.connections += 1;
        let over = self.conns.len() >= self.config.connections_max;
        let mut entry = Conn::new(conn, peer, self.now);
        if !(over || self.is_shutting_down()) {
            let due = self.now + self.config.connect_timeout;
            self.timers.remind(due, Timer::Conn(conn), &mut entry.alarm);
        }
        let c = self.conns.insert(entry);
        self.conn_ids.insert(conn, c);
        if over || self.is_shutting_down() {
            self.close(c, close_code::OVERLOADED);
        }
    }

    /// Takes bytes of one stream and handles every whole packet in them.
    pub(crate) fn handle_bytes(&mut self, c: ConnIdx, stream: StreamId, mut data: &[u8]) {
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        match conn.phase {
            Phase::Closing | Phase::HandedOver(_) => return,
            Phase::Authenticating(_) | Phase::Storing(..) => return self.park(c, stream, data),
            Phase::ExpectConnect | Phase::Exchanging(..) if stream != StreamId::CONTROL => {
                return self.park(c, stream, data);
            }
            _ => {}
        }
        if conn.abandoned.contains(&stream) {
            return;
        }
        if !self.enter_stream(c, stream) {
            return self.reset_stream(c, stream, ReasonCode::QuotaExceeded);
        }
        if !self.read_head(c, stream, &mut data) {
            return;
        }
        loop {
            let Some(conn) = self.conns.get_mut(c) else {
                return;
            };
            match conn.phase {
                Phase::Closing | Phase::HandedOver(_) => return,
                Phase::Authenticating(_) | Phase::Storing(..) => {
                    return self.park(c, stream, data);
                }
                _ => {}
            }
            // A packet may have ended its stream.
            let Some(mut framer) = conn.framer(stream).map(core::mem::take) else {
                return;
            };
            let before = data;
            let outcome = match framer.next(&mut data, self.config.packet_bytes_max) {
                Ok(None) => {
                    self.put_framer(c, stream, framer);
                    return;
                }
                Ok(Some(packet)) => self
                    .handle_packet(c, stream, packet)
                    .map(|flow| (flow, packet)),
                Err(error) => Err(Fault::from(error)),
            };
            match outcome {
                Ok((Flow::Continue, _)) => self.put_framer(c, stream, framer),
                Ok((Flow::HandOver(to), packet)) => {
                    let mut bytes = Vec::with_capacity(packet.len() + before.len());
                    bytes.extend_from_slice(packet);
                    bytes.extend_from_slice(data);
                    return self.hand_over(c, to, bytes.into());
                }
                Err(fault) => return self.fail(c, stream, fault),
            }
        }
    }

    fn hand_over(&mut self, c: ConnIdx, to: dunlin_base::ShardId, data: Bytes) {
        let Some(entry) = self.conns.get_mut(c) else {
            return;
        };
        entry.phase = Phase::HandedOver(to);
        let conn = entry.id;
        self.timers.cancel(Timer::Conn(conn), &mut entry.alarm);
        let message = BusMessage::Handover {
            conn,
            peer: entry.peer.clone(),
            data,
        };
        let parked = core::mem::take(&mut entry.parked);
        let ends = core::mem::take(&mut entry.parked_ends);
        let datagrams = core::mem::take(&mut entry.parked_datagrams);
        self.output(Output::Bus { to, message });
        let parked = parked.into_iter().map(|(stream, bytes)| {
            let data = bytes.into();
            NetEventKind::Bytes { stream, data }
        });
        let ends = ends.into_iter().map(|(stream, code)| match code {
            None => NetEventKind::StreamFinished { stream },
            Some(code) => NetEventKind::StreamReset { stream, code },
        });
        let datagrams = datagrams.into_iter();
        let datagrams = datagrams.map(|data| NetEventKind::Datagram { data });
        for kind in parked.chain(ends).chain(datagrams) {
            let message = BusMessage::Net(NetEvent::new(conn, kind));
            self.output(Output::Bus { to, message });
        }
    }

    fn handle_packet(
        &mut self,
        c: ConnIdx,
        stream: StreamId,
        packet: &[u8],
    ) -> Result<Flow, Fault> {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(c) else {
            return Ok(Flow::Continue);
        };
        conn.last_packet = now;
        conn.reading = stream;
        let decoded = match decode(packet, conn.version) {
            Err(error) if matches!(conn.phase, Phase::ExpectConnect) => {
                self.refuse_connect(c, packet, &error);
                return Ok(Flow::Continue);
            }
            decoded => decoded?,
        };
        let s = match conn.phase {
            Phase::Connected(s) => s,
            Phase::ExpectConnect => {
                return match decoded {
                    Packet::Connect(connect) => self.handle_connect(c, packet, &connect),
                    //= mqtt5#[MQTT-3.1.0-1]
                    _ => Err(Fault::protocol("the first packet must be CONNECT")),
                };
            }
            Phase::Exchanging(..) => {
                return match decoded {
                    Packet::Auth(auth) => self.handle_auth_exchange(c, &auth),
                    Packet::Disconnect(_) => {
                        self.close(c, close_code::NO_ERROR);
                        Ok(Flow::Continue)
                    }
                    //= mqtt5#[MQTT-3.1.2-30]
                    _ => Err(Fault::protocol("only AUTH may follow CONNECT here")),
                };
            }
            _ => return Ok(Flow::Continue),
        };
        self.handle_session_packet(c, s, stream, decoded)?;
        Ok(Flow::Continue)
    }

    /// The first packet could not be decoded. Whoever speaks MQTT 5.0, or a
    /// version that is not known here, is told why.
    fn refuse_connect(&mut self, c: ConnIdx, packet: &[u8], error: &DecodeError) {
        /// Protocol name and its length, before the protocol level.
        const LEVEL_AT: usize = 6;
        self.stats.protocol_errors += 1;
        let body = match peek(packet, u32::MAX) {
            Ok(Some(frame)) if frame.packet_type == PacketType::Connect => {
                packet.get(frame.header_len..).unwrap_or_default()
            }
            _ => &[],
        };
        let version = match (error, body.get(LEVEL_AT)) {
            (DecodeError::ProtocolName, _) | (_, None) => None,
            //= mqtt5#[MQTT-3.1.2-2]
            (DecodeError::ProtocolVersion(..=4), _) => Some(Version::V311),
            (DecodeError::ProtocolVersion(_), _) => Some(Version::V5),
            // 3.1.1 closes without a word [MQTT-3.1.4-1 there].
            (_, Some(4)) => None,
            _ => Some(Version::V5),
        };
        let (Some(version), Some(conn)) = (version, self.conns.get_mut(c)) else {
            return self.close(c, close_code::NO_ERROR);
        };
        conn.version = version;
        self.refuse(c, error.reason());
    }

    fn handle_session_packet(
        &mut self,
        c: ConnIdx,
        s: usize,
        stream: StreamId,
        packet: Packet<'_>,
    ) -> Result<(), Fault> {
        let control = stream == StreamId::CONTROL;
        // What came one way is answered on control, as if it had come there.
        let stream = match stream.is_unidirectional() {
            true => StreamId::CONTROL,
            false => stream,
        };
        match packet {
            Packet::Publish(publish) => self.handle_publish(c, s, stream, &publish),
            Packet::PubAck(ack) => {
                self.handle_puback(c, s, &ack);
                Ok(())
            }
            Packet::PubRec(ack) => {
                self.handle_pubrec(c, s, stream, &ack);
                Ok(())
            }
            Packet::PubRel(ack) => {
                self.handle_pubrel(c, s, stream, &ack);
                Ok(())
            }
            Packet::PubComp(ack) => {
                self.handle_pubcomp(c, s, &ack);
                Ok(())
            }
            // The draft of MQTT-next, section 9.19.
            Packet::Subscribe(_) | Packet::Unsubscribe(_) if stream.is_server_initiated() => {
                self.end_stream(c, stream, Some(stream_code::STREAM_TYPE));
                Ok(())
            }
            Packet::Subscribe(subscribe) => self.handle_subscribe(c, s, stream, &subscribe),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(c, s, stream, &unsubscribe),
            //= mqtt5#[MQTT-3.12.4-1]
            Packet::PingReq => {
                self.send(c, stream, &Packet::PingResp);
                Ok(())
            }
            Packet::Disconnect(disconnect) if control => self.handle_disconnect(c, s, &disconnect),
            Packet::Auth(auth) if control => self.handle_reauth(c, s, &auth),
            //= mqtt5#[MQTT-3.1.0-2]
            _ => Err(Fault::protocol("this packet is not allowed here")),
        }
    }

    /// Something happened on a connection whose session is here.
    pub(crate) fn handle_conn_event<B: AsRef<[u8]>>(&mut self, c: ConnIdx, event: NetEventKind<B>) {
        match event {
            NetEventKind::Bytes { stream, data } => {
                let data = data.as_ref();
                self.stats.bytes_received += data.len() as u64;
                self.handle_bytes(c, stream, data);
            }
            NetEventKind::Sent { bytes } => self.handle_sent(c, bytes),
            NetEventKind::StreamBlocked { stream, bytes } => self.handle_blocked(c, stream, bytes),
            NetEventKind::Closed { cause } => self.handle_closed(c, &cause),
            NetEventKind::Migrated { addr } => {
                if let Some(conn) = self.conns.get_mut(c) {
                    conn.peer.addr = addr;
                    let conn = conn.id;
                    self.stats.migrations += 1;
                    self.event(Event::Migrated { conn, addr });
                }
            }
            NetEventKind::Datagram { data } => {
                let data = data.as_ref();
                self.stats.bytes_received += data.len() as u64;
                self.handle_datagram(c, data);
            }
            NetEventKind::StreamOpened { stream } => self.handle_stream_opened(c, stream),
            NetEventKind::StreamsAvailable {
                bidirectional: true,
            } => {
                self.handle_streams_available(c);
            }
            NetEventKind::StreamDelivered { stream } => self.handle_delivered(c, stream),
            NetEventKind::StreamFinished {
                stream: StreamId::CONTROL,
            } => {
                self.close(c, close_code::NO_ERROR);
            }
            NetEventKind::StreamReset {
                stream: StreamId::CONTROL,
                ..
            } => {
                self.close(c, close_code::CONTROL_STREAM_DOWN);
            }
            NetEventKind::StreamFinished { stream } => self.handle_finished(c, stream),
            NetEventKind::StreamReset { stream, code } => self.end_stream(c, stream, Some(code)),
            // Opened was handled where the connection was entered; the rest
            // has no effect on a session.
            NetEventKind::Opened { .. }
            | NetEventKind::StreamsAvailable {
                bidirectional: false,
            }
            | NetEventKind::EarlyData { .. }
            | NetEventKind::Moved { .. }
            | NetEventKind::MoveFailed { .. } => {}
        }
    }

    fn handle_closed(&mut self, c: ConnIdx, cause: &CloseCause) {
        if let Some(conn) = self.conns.get(c) {
            let (id, session) = (conn.id, conn.session());
            let client_id = session.and_then(|s| Some(self.sessions.get(s)?.client_id.clone()));
            let cause = Text::from(alloc::format!("{cause}"));
            self.event(Event::Disconnected {
                conn: id,
                client_id,
                cause,
            });
            if let Some(s) = session {
                self.detach(s, true);
            }
        }
        self.remove_conn(c);
    }

    pub(crate) fn remove_conn(&mut self, c: ConnIdx) {
        self.release_all(c);
        if let Some(mut conn) = self.conns.try_remove(c) {
            self.conn_ids.remove(&conn.id);
            let timer = Timer::Conn(conn.id);
            self.timers.cancel(timer, &mut conn.alarm);
        }
    }

    /// Bytes left the transport: what waited for them may go on.
    fn handle_sent(&mut self, c: ConnIdx, bytes: usize) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        conn.unsent -= bytes as i64;
        if conn.blocked && conn.backlog() <= self.config.send_backlog_bytes / 2 {
            conn.blocked = false;
            if let Phase::Connected(s) = conn.phase {
                self.pump(s);
            }
        }
        self.release_publishers(c);
    }

    /// The CONNECT deadline or the keep alive may have passed.
    pub(crate) fn check_silence(&mut self, c: ConnIdx) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        Timers::came(&mut conn.alarm);
        let allowed = match conn.phase {
            Phase::Connected(_) => conn.silence_max,
            Phase::Closing | Phase::HandedOver(_) => Duration::ZERO,
            _ => self.config.connect_timeout,
        };
        if allowed.is_zero() {
            return;
        }
        let due = conn.last_packet + allowed;
        if now < due {
            let timer = Timer::Conn(conn.id);
            self.timers.remind(due, timer, &mut conn.alarm);
        } else if conn.session().is_some() {
            //= mqtt5#[MQTT-3.1.2-22]
            self.stats.keep_alive_timeouts += 1;
            self.fail(
                c,
                StreamId::CONTROL,
                Fault::new(ReasonCode::KeepAliveTimeout, "keep alive timeout"),
            );
        } else {
            self.close(c, close_code::NO_ERROR);
        }
    }

    /// Ends a connection, or one data stream, for a broken rule: with the
    /// reason code where the protocol has a packet for it.
    pub(crate) fn fail(&mut self, c: ConnIdx, stream: StreamId, fault: Fault) {
        self.stats.protocol_errors += 1;
        if stream != StreamId::CONTROL && fault.reason == ReasonCode::MalformedPacket {
            return self.reset_stream(c, stream, fault.reason);
        }
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        let id = conn.id;
        let session = conn.session();
        let client_id = session.and_then(|s| Some(self.sessions.get(s)?.client_id.clone()));
        self.event(Event::Disconnected {
            conn: id,
            client_id,
            cause: Text::from_static(fault.text),
        });
        self.disconnect(c, fault.reason);
    }

    /// Sends DISCONNECT (or a refusing CONNACK) with a reason, publishes the
    /// will, closes.
    pub(crate) fn disconnect(&mut self, c: ConnIdx, reason: ReasonCode) {
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        match (&conn.phase, conn.version) {
            //= mqtt5#[MQTT-4.13.2-1]
            (Phase::Connected(_), Version::V5) => {
                let packet = Packet::Disconnect(Disconnect {
                    reason,
                    ..Disconnect::default()
                });
                self.send(c, StreamId::CONTROL, &packet);
            }
            (Phase::Authenticating(_) | Phase::Exchanging(..) | Phase::Storing(..), _) => {
                self.send_refusal(c, connack_reason(reason));
            }
            _ => {}
        }
        if let Some(s) = self.conns.get(c).and_then(Conn::session) {
            self.detach(s, reason != ReasonCode::ServerShuttingDown);
        }
        let code = match reason {
            ReasonCode::ServerShuttingDown | ReasonCode::ServerBusy => close_code::OVERLOADED,
            _ => close_code::NO_ERROR,
        };
        self.close(c, code);
    }

    /// CONNACK with an error.
    pub(crate) fn send_refusal(&mut self, c: ConnIdx, reason: ReasonCode) {
        self.stats.clients_refused += 1;
        let packet = Packet::ConnAck(ConnAck {
            reason,
            ..ConnAck::default()
        });
        self.send(c, StreamId::CONTROL, &packet);
    }

    /// Sends what is waiting and closes; the connection is deaf from now on.
    pub(crate) fn close(&mut self, c: ConnIdx, code: u64) {
        self.close_link(c, code, false);
    }

    /// Likewise, after the client said goodbye.
    pub(crate) fn part(&mut self, c: ConnIdx) {
        self.close_link(c, close_code::NO_ERROR, true);
    }

    fn close_link(&mut self, c: ConnIdx, code: u64, promptly: bool) {
        if let Some(s) = self.conns.get(c).and_then(Conn::session) {
            self.detach(s, true);
        }
        self.flush(c);
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        if matches!(conn.phase, Phase::Closing) {
            return;
        }
        conn.phase = Phase::Closing;
        conn.parked = Vec::new();
        conn.parked_ends = Vec::new();
        conn.parked_datagrams = Vec::new();
        let conn = conn.id;
        self.command(conn, NetCommandKind::Close { code, promptly });
    }

    /// Encodes a packet onto a stream, unless the client does not take one of
    /// that size.
    pub(crate) fn send(&mut self, c: ConnIdx, stream: StreamId, packet: &Packet<'_>) {
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        let (version, max) = (conn.version, conn.packet_bytes_max as usize);
        //= mqtt5#[MQTT-3.1.2-24]
        if packet.encoded_len(version).is_ok_and(|len| len <= max)
            && let Some(out) = self.out(c, stream)
        {
            let _ = packet.encode(version, out);
        }
    }

    /// Sends an acknowledgement; a success needs no properties.
    pub(crate) fn send_ack(
        &mut self,
        c: ConnIdx,
        stream: StreamId,
        kind: PacketType,
        packet_id: core::num::NonZeroU16,
        reason: ReasonCode,
    ) {
        let ack = Ack {
            packet_id,
            reason,
            properties: ReasonProperties::default(),
        };
        let packet = match kind {
            PacketType::PubRec => Packet::PubRec(ack),
            PacketType::PubRel => Packet::PubRel(ack),
            PacketType::PubComp => Packet::PubComp(ack),
            _ => Packet::PubAck(ack),
        };
        self.send(c, stream, &packet);
    }

    pub(crate) fn pause(&mut self, c: ConnIdx, paused: bool) {
        if let Some(conn) = self.conns.get_mut(c)
            && conn.paused != paused
        {
            conn.paused = paused;
            let conn = conn.id;
            self.command(conn, NetCommandKind::PauseReading { paused });
        }
    }

    fn park(&mut self, c: ConnIdx, stream: StreamId, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        // Before CONNECT a pause would keep CONNECT itself away.
        if matches!(conn.phase, Phase::Authenticating(_) | Phase::Storing(..)) {
            self.pause(c, true);
        }
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let parked: usize = conn.parked.iter().map(|(_, bytes)| bytes.len()).sum();
        if parked + data.len() > PARKED_BYTES_MAX
            || conn.parked.len() > self.config.data_streams_max
        {
            let fault = Fault::new(ReasonCode::QuotaExceeded, "too much before CONNACK");
            return self.fail(c, StreamId::CONTROL, fault);
        }
        match conn.parked.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, bytes)) => bytes.extend_from_slice(data),
            None => conn.parked.push((stream, data.to_vec())),
        }
    }

    /// Handles what came before the CONNECT was decided.
    pub(crate) fn unpark(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let parked = core::mem::take(&mut conn.parked);
        for (stream, bytes) in parked {
            self.handle_bytes(c, stream, &bytes);
        }
        let ends = self.conns.get_mut(c).map(|conn| &mut conn.parked_ends);
        for (stream, code) in ends.map(core::mem::take).unwrap_or_default() {
            self.end_stream(c, stream, code);
        }
        self.unpark_datagrams(c);
        self.pause(c, false);
    }

    fn put_framer(&mut self, c: ConnIdx, stream: StreamId, framer: Framer) {
        if let Some(place) = self.conns.get_mut(c).and_then(|conn| conn.framer(stream)) {
            *place = framer;
        }
    }

    fn reset_stream(&mut self, c: ConnIdx, stream: StreamId, reason: ReasonCode) {
        self.end_stream(c, stream, Some(u64::from(reason as u8)));
    }

    /// The client sends no more on a data stream. Acknowledgements that are due
    /// on it still leave before our side ends.
    fn handle_finished(&mut self, c: ConnIdx, stream: StreamId) {
        let session = self.conns.get(c).and_then(Conn::session);
        let session = session.and_then(|s| self.sessions.get(s));
        if session.is_some_and(|session| session.inbound.awaits(stream))
            && let Some(data) = self
                .conns
                .get_mut(c)
                .and_then(|conn| conn.data_stream(stream))
        {
            data.half_closed = true;
        } else {
            self.end_stream(c, stream, None);
        }
    }

    /// An acknowledgement left on a data stream: perhaps it was the last that
    /// its end waited for.
    pub(crate) fn end_if_answered(&mut self, c: ConnIdx, s: usize, stream: StreamId) {
        let session = self.sessions.get(s);
        let waits = session.is_some_and(|session| session.inbound.awaits(stream));
        let data = self
            .conns
            .get_mut(c)
            .and_then(|conn| conn.data_stream(stream));
        if !waits && data.is_some_and(|data| data.half_closed) {
            self.end_stream(c, stream, None);
        }
    }

    /// A data stream ended: its subscriptions move to control when the session
    /// is persistent, and go otherwise.
    pub(crate) fn end_stream(&mut self, c: ConnIdx, stream: StreamId, code: Option<u64>) {
        if self.end_server_stream(c, stream, code) {
            return;
        }
        if let Some(conn) = self.conns.get_mut(c)
            && conn.parked.iter().any(|(id, _)| *id == stream)
        {
            // After what it carried; once for each parked stream.
            conn.parked_ends.retain(|(id, _)| *id != stream);
            conn.parked_ends.push((stream, code));
            return;
        }
        self.flush(c);
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let (id, session) = (conn.id, conn.session());
        let data = conn.data_stream(stream);
        let flow = data.as_ref().map_or(0, |data| data.flow);
        // A stream with a name says so when it ends within a packet.
        let cut = data.is_some_and(|data| data.is_cut() && data.has_head());
        let code = code.or_else(|| cut.then_some(stream_code::INCOMPLETE_PACKET));
        let answer = match code {
            None if stream.is_unidirectional() => None,
            None => Some(NetCommandKind::FinishStream { stream }),
            Some(code) => Some(NetCommandKind::ResetStream { stream, code }),
        };
        if let Some(command) = answer {
            self.command(id, command);
        }
        if let Some(s) = session {
            if let Some(session) = self.sessions.get_mut(s) {
                session.inbound.adopt(stream);
            }
            self.end_flow(s, flow, stream, code.is_none());
            self.rehome_subscriptions(c, s, stream);
        }
        if let Some(conn) = self.conns.get_mut(c) {
            match code {
                None => conn.forget(stream),
                Some(_) => conn.abandon(stream),
            }
        }
        self.streams_changed(c);
    }
}

/// The reason for a CONNACK that is closest to one for a DISCONNECT.
const fn connack_reason(reason: ReasonCode) -> ReasonCode {
    match reason {
        ReasonCode::ServerShuttingDown => ReasonCode::ServerUnavailable,
        // The authenticator or the store took too long.
        ReasonCode::KeepAliveTimeout => ReasonCode::ServerBusy,
        ReasonCode::SessionTakenOver | ReasonCode::ReceiveMaximumExceeded => {
            ReasonCode::UnspecifiedError
        }
        other => other,
    }
}
