//! What a QUIC client can take besides its control stream: streams that the
//! broker opens for deliveries, and datagrams.

use alloc::boxed::Box;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{NetCommandKind, Transport};
use dunlin_base::{QoS, Repeat, SendBuf, StreamId};
use dunlin_mqtt::codec::{Connect, Packet, ReasonCode, decode, peek};
use dunlin_mqtt::flow::{FlowFlags, FlowHeader, HEADER_BYTES_MAX, option, stream_code};

use crate::conn::{ConnIdx, DataStream, Phase};
use crate::fault::Fault;
use crate::lanes::{Action, Lanes, Place};
use crate::shard::Shard;

/// Bytes up to which a PUBLISH is tried as a datagram: what every path takes
/// (RFC 9000 section 14.1) without the headers of QUIC.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 1150;

/// Longest age limit of a datagram.
const DATAGRAM_AGE_MAX: Duration = Duration::from_secs(60);

/// Datagrams kept of a client that has not got its CONNACK.
const PARKED_DATAGRAMS_MAX: usize = 16;

/// What the client said, in CONNECT or by its application protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Streams of the broker that it takes.
    pub(crate) streams: usize,
    /// Age limit of datagrams to it; zero: it takes none.
    pub(crate) datagram_age: Duration,
    pub(crate) isolate: bool,
    /// When small packets to it are sent twice.
    pub(crate) repeat: Repeat,
    /// Subscriptions of data streams outlive them.
    pub(crate) durable: bool,
}

impl StreamOptions {
    fn of(connect: &Connect<'_>, flows: bool) -> Self {
        let mut options = Self {
            streams: if flows { usize::MAX } else { 0 },
            datagram_age: Duration::ZERO,
            isolate: false,
            repeat: Repeat::Never,
            durable: true,
        };
        for (name, value) in connect.properties.user_properties.iter() {
            let Ok(number) = value.parse::<u32>() else {
                continue;
            };
            match name {
                option::STREAMS => options.streams = number as usize,
                option::DATAGRAMS => {
                    options.datagram_age = Duration::from_millis(u64::from(number));
                }
                option::ISOLATE => options.isolate = number == 1,
                option::REPEAT => {
                    options.repeat = match number {
                        1 => Repeat::Always,
                        2 => Repeat::OnLoss,
                        _ => Repeat::Never,
                    };
                }
                option::DURABLE_STREAMS => options.durable = number != 0,
                _ => {}
            }
        }
        options
    }
}

impl Shard {
    /// Takes over what the client can take on this connection.
    pub(crate) fn take_stream_options(&mut self, c: ConnIdx, connect: &Connect<'_>) {
        let (streams_max, datagrams) = (self.config.delivery_streams_max, self.config.datagrams);
        let repeat_packets = self.config.repeat_packets;
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        if conn.peer.transport != Transport::Quic {
            return;
        }
        let options = StreamOptions::of(connect, conn.speaks_next());
        let streams = options.streams.min(streams_max);
        conn.lanes = (streams > 0).then(|| Box::new(Lanes::new(streams)));
        conn.datagram_age = match datagrams {
            true => options.datagram_age.min(DATAGRAM_AGE_MAX),
            false => Duration::ZERO,
        };
        conn.durable_streams = options.durable;
        let conn = conn.id;
        if options.isolate {
            let isolate = true;
            self.command(conn, NetCommandKind::IsolateStreams { isolate });
        }
        if options.repeat != Repeat::Never && repeat_packets {
            let repeat = options.repeat;
            self.command(conn, NetCommandKind::RepeatPackets { repeat });
        }
    }

    /// The buffer for a PUBLISH: of the stream of its SUBSCRIBE, and if that
    /// is control, of the stream of its topic where the client takes such.
    /// Also says which stream, if it is known yet.
    pub(crate) fn delivery_out(
        &mut self,
        c: ConnIdx,
        stream: StreamId,
        topic: &str,
    ) -> (StreamId, Option<&mut SendBuf>) {
        let lanes = match self.conns.get_mut(c) {
            Some(conn) if stream == StreamId::CONTROL => conn.lanes.as_mut(),
            _ => None,
        };
        let config = &self.config;
        let Some(place) = lanes.map(|lanes| lanes.place(topic, config.level(topic))) else {
            return (stream, self.out(c, stream));
        };
        self.run_lanes(c);
        match place {
            Place::Control => (stream, self.out(c, stream)),
            Place::Stream(own) => (own, self.out(c, own)),
            Place::Held(lane) => {
                let lanes = self.conns.get_mut(c).and_then(|conn| conn.lanes.as_mut());
                (stream, lanes.and_then(|lanes| lanes.held(lane)))
            }
        }
    }

    /// Does what the lanes of a connection ask for.
    fn run_lanes(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let id = conn.id;
        let Some(lanes) = &mut conn.lanes else {
            return;
        };
        for action in core::mem::take(&mut lanes.actions) {
            match action {
                Action::Open => self.command(
                    id,
                    NetCommandKind::OpenStream {
                        bidirectional: true,
                    },
                ),
                Action::Finish(stream) => {
                    self.take_back(c);
                    self.flush(c);
                    let conn = self.conns.get_mut(c);
                    if let Some(data) = conn.and_then(|conn| conn.data_stream(stream)) {
                        data.ended = true;
                    }
                    self.command(id, NetCommandKind::FinishStream { stream });
                }
                Action::Prioritise(stream, level) => self.command(
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
    pub(crate) fn handle_stream_opened(&mut self, c: ConnIdx, stream: Option<StreamId>) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let id = conn.id;
        let opened = conn.lanes.as_mut().and_then(|lanes| lanes.opened(stream));
        let (Some(mut opened), Some(stream)) = (opened, stream) else {
            // Nobody waits for it, or there is none: then control it is.
            if let Some(stream) = stream {
                let code = stream_code::FLOW_CANCELLED;
                self.command(id, NetCommandKind::ResetStream { stream, code });
            }
            return self.send_held(c);
        };
        let mut data = DataStream::opened();
        let header = FlowHeader::Data {
            server: true,
            id: opened.flow,
            expire_secs: 0,
            flags: FlowFlags::default(),
        };
        let mut bytes = [0; HEADER_BYTES_MAX];
        let len = header.emit(&mut bytes);
        data.out.put_slice(bytes.get(..len).unwrap_or_default());
        data.out.append(&mut opened.held);
        conn.streams.push((stream, data));
        self.touch(c);
        if opened.level > 0 {
            let priority = i32::from(opened.level);
            self.command(id, NetCommandKind::SetPriority { stream, priority });
        }
        self.prune_server_streams(c);
    }

    /// What lanes held and belongs to control now.
    fn send_held(&mut self, c: ConnIdx) {
        let lanes = self.conns.get_mut(c).and_then(|conn| conn.lanes.as_mut());
        let Some(mut held) = lanes.and_then(|lanes| lanes.take_displaced()) else {
            return;
        };
        if let Some(out) = self.out(c, StreamId::CONTROL) {
            out.append(&mut held);
        }
    }

    pub(crate) fn handle_streams_available(&mut self, c: ConnIdx) {
        if let Some(lanes) = self.conns.get_mut(c).and_then(|conn| conn.lanes.as_mut()) {
            lanes.available();
        }
    }

    /// Everything sent on a stream that we ended has arrived.
    pub(crate) fn handle_delivered(&mut self, c: ConnIdx, stream: StreamId) {
        if let Some(lanes) = self.conns.get_mut(c).and_then(|conn| conn.lanes.as_mut()) {
            lanes.delivered(stream);
            self.run_lanes(c);
        }
    }

    /// The client ended a stream that the broker opened: gracefully, or it
    /// does not want it. `true` if that is what it was.
    pub(crate) fn end_server_stream(
        &mut self,
        c: ConnIdx,
        stream: StreamId,
        code: Option<u64>,
    ) -> bool {
        if !stream.is_server_initiated() {
            return false;
        }
        self.flush(c);
        let Some(conn) = self.conns.get_mut(c) else {
            return true;
        };
        let id = conn.id;
        match code {
            None => conn.forget(stream),
            Some(_) => conn.abandon(stream),
        }
        if let Some(lanes) = &mut conn.lanes {
            match code {
                None => lanes.finished(stream),
                Some(_) => lanes.refused(stream),
            }
        }
        if let Some(code) = code {
            self.command(id, NetCommandKind::ResetStream { stream, code });
        }
        self.run_lanes(c);
        self.send_held(c);
        self.streams_changed(c);
        true
    }

    /// Gives up the oldest streams that we ended and the client has not: it
    /// could have us remember any number of them.
    fn prune_server_streams(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let (id, max) = (conn.id, 2 * self.config.delivery_streams_max + 1);
        let opened = conn.streams.iter().filter(|(s, _)| s.is_server_initiated());
        if opened.count() <= max {
            return;
        }
        let lanes = conn.lanes.as_deref();
        let unused = |stream| lanes.is_none_or(|lanes| !lanes.knows(stream));
        let ended = conn.streams.iter().map(|(stream, _)| *stream);
        let mut ended = ended.filter(|s| s.is_server_initiated() && unused(*s));
        if let Some(stream) = ended.next() {
            conn.abandon(stream);
            let code = stream_code::FLOW_OPEN_IDLE;
            self.command(id, NetCommandKind::ResetStream { stream, code });
        }
    }

    /// Sends a QoS 0 PUBLISH as a datagram, if the client takes them and it is
    /// not too large; `false` if it must go on a stream.
    pub(crate) fn send_datagram(&mut self, c: ConnIdx, packet: &SendBuf) -> bool {
        let Some(conn) = self.conns.get_mut(c) else {
            return false;
        };
        if conn.datagram_age.is_zero() || packet.len() > DATAGRAM_BYTES_MAX {
            return false;
        }
        let data: alloc::vec::Vec<u8> = packet.slices().flatten().copied().collect();
        conn.unsent += data.len() as i64;
        let (conn, command) = (
            conn.id,
            NetCommandKind::SendDatagram {
                expires: self.now + conn.datagram_age,
                fallback: StreamId::CONTROL,
                data: Bytes::from(data),
            },
        );
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += packet.len() as u64;
        // Where it goes if the transport cannot: behind what is there.
        self.flush(c);
        self.command(conn, command);
        true
    }

    /// A datagram from the client: one QoS 0 PUBLISH, or nothing for MQTT.
    pub(crate) fn handle_datagram(&mut self, c: ConnIdx, data: &[u8]) {
        // Empty ones are probes, and 0 begins another protocol's.
        if data.first().is_none_or(|first| *first == 0) {
            return;
        }
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let s = match conn.phase {
            Phase::Connected(s) => s,
            Phase::Closing | Phase::HandedOver(_) => return,
            _ => {
                if conn.parked_datagrams.len() >= PARKED_DATAGRAMS_MAX {
                    conn.parked_datagrams.remove(0);
                    self.stats.datagrams_dropped += 1;
                }
                conn.parked_datagrams.push(Bytes::copy_from_slice(data));
                return;
            }
        };
        self.stats.datagrams_received += 1;
        conn.last_packet = self.now;
        if let Err(fault) = self.handle_datagram_packet(c, s, data) {
            self.fail(c, StreamId::CONTROL, fault);
        }
    }

    fn handle_datagram_packet(&mut self, c: ConnIdx, s: usize, data: &[u8]) -> Result<(), Fault> {
        let malformed = Fault::new(
            ReasonCode::MalformedPacket,
            "a datagram that is not one packet",
        );
        let Some(conn) = self.conns.get(c) else {
            return Ok(());
        };
        let frame = peek(data, self.config.packet_bytes_max)?.ok_or(malformed)?;
        if frame.total_len != data.len() {
            return Err(malformed);
        }
        let Packet::Publish(publish) = decode(data, conn.version)? else {
            return Err(Fault::protocol("a datagram carries PUBLISH only"));
        };
        if publish.qos != QoS::AtMostOnce {
            return Err(Fault::protocol("a datagram carries QoS 0 only"));
        }
        // What may be lost must not say what later packets mean, and what may
        // overtake must not depend on earlier ones.
        if publish.properties.topic_alias.is_some() {
            return Err(Fault::new(
                ReasonCode::TopicAliasInvalid,
                "a topic alias in a datagram",
            ));
        }
        self.handle_publish(c, s, StreamId::CONTROL, &publish)
    }

    /// Handles the datagrams that came before CONNACK.
    pub(crate) fn unpark_datagrams(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        for data in core::mem::take(&mut conn.parked_datagrams) {
            self.handle_datagram(c, &data);
        }
    }
}
