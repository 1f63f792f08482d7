//! One connection of the generator, from dialling to its end: what it answers
//! to each packet. Its bytes wait in `out` until the loop sends them.

use core::mem;

use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_mqtt_codec::{
    ConnAck, Connect, ConnectProperties, Disconnect, DisconnectProperties, EncodeError, Frame,
    Packet, PacketId, QoS, Subscribe, SubscribeFilter, SubscribeFilters, SubscribeOptions,
    UserProperties, decode,
};

use super::plan::Plan;
use super::publisher::{Acked, Publisher, put_ack};
use super::shared::{Shared, Window};
use super::stats::{Tally, count_cause};
use super::subscriber::{Order, Received};
use super::wire::{Framer, is_publish, read_publish};

/// Filters in one SUBSCRIBE at most.
const FILTERS_MAX: usize = 100;

/// Streams opened by a broker that are remembered.
const STREAMS_MAX: usize = 256;

/// What a connection is for.
#[derive(Debug)]
pub(super) enum Role {
    Subscriber(usize, Received),
    Publisher(Box<Publisher>),
    Idle(usize),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not dialled.
    Waiting,
    /// Dialled, not accepted.
    Connecting,
    /// Waits for this many SUBACK.
    Subscribing(u16),
    Ready,
    /// Over, or never come about.
    Gone,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) role: Role,
    pub(super) stage: Stage,
    pub(super) conn: Option<ConnId>,
    pub(super) out: SendBuf,
    /// Listed to have `out` sent.
    pub(super) touched: bool,
    /// Bytes given to the transport that have not left.
    pub(super) backlog: usize,
    pub(super) dialled_us: u64,
    pub(super) last_sent_us: u64,
    pub(super) keep_alive: u16,
    framer: Framer,
    /// Streams that a QUIC broker opened to deliver on.
    streams: Vec<(StreamId, Framer)>,
}

/// What a client needs of its thread.
pub(super) struct Cx<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shared: &'a Shared,
    pub(super) tally: &'a mut Tally,
    pub(super) progress: &'a mut Progress,
    pub(super) window: Window,
    pub(super) now_us: u64,
}

/// Counts since they were last made public.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) received: u64,
    pub(super) acknowledged: u64,
    /// Deliveries that will not come because the message was refused.
    pub(super) refused_deliveries: u64,
    pub(super) ready: usize,
    pub(super) failed: usize,
    pub(super) lost: usize,
}

impl Client {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            stage: Stage::Waiting,
            conn: None,
            out: SendBuf::new(),
            touched: false,
            backlog: 0,
            dialled_us: 0,
            last_sent_us: 0,
            keep_alive: 0,
            framer: Framer::default(),
            streams: Vec::new(),
        }
    }

    /// Kind and number, which are in its identifier.
    pub(super) fn name(&self) -> (char, usize) {
        match &self.role {
            Role::Subscriber(number, _) => ('s', *number),
            Role::Publisher(publisher) => ('p', publisher.index),
            Role::Idle(number) => ('i', *number),
        }
    }

    /// The transport is open: send CONNECT.
    pub(super) fn on_opened(&mut self, plan: &Plan) -> Result<(), EncodeError> {
        let (kind, number) = self.name();
        let persists = plan.persistent && kind == 's';
        self.keep_alive = plan.keep_alive;
        let connect = Connect {
            version: plan.version,
            clean_start: !persists,
            keep_alive: plan.keep_alive,
            client_id: &plan.client_id(kind, number),
            username: plan.target.user.as_deref(),
            password: plan.target.password.as_deref().map(str::as_bytes),
            properties: ConnectProperties {
                session_expiry_interval: persists.then_some(plan.session_expiry),
                ..ConnectProperties::default()
            },
            ..Connect::default()
        };
        Packet::Connect(connect).encode(plan.version, &mut self.out)
    }

    pub(super) fn on_bytes(&mut self, stream: StreamId, data: &[u8], cx: &mut Cx<'_>) {
        let mut framer = mem::take(self.framer_of(stream));
        let result = framer.feed(data, |frame, packet| self.on_packet(frame, packet, cx));
        *self.framer_of(stream) = framer;
        if let Err(error) = result {
            self.fail(format!("the broker sent nonsense: {error}"), cx);
        }
    }

    fn framer_of(&mut self, stream: StreamId) -> &mut Framer {
        if stream == Self::STREAM {
            return &mut self.framer;
        }
        let streams = &mut self.streams;
        let index = match streams.iter().position(|(id, _)| *id == stream) {
            Some(index) => index,
            None => {
                // The transport bounds the streams open at a time; old ones
                // that never ended go first.
                if streams.len() >= STREAMS_MAX {
                    streams.remove(0);
                }
                streams.push((stream, Framer::default()));
                streams.len() - 1
            }
        };
        &mut streams[index].1
    }

    /// The broker sends no more on a stream; without the first one nothing
    /// goes on.
    pub(super) fn on_stream_end(&mut self, stream: StreamId, cx: &mut Cx<'_>) {
        if stream == Self::STREAM {
            self.fail("the broker ended the stream".into(), cx);
        } else {
            self.streams.retain(|(id, _)| *id != stream);
        }
    }

    fn on_packet(&mut self, frame: &Frame, bytes: &[u8], cx: &mut Cx<'_>) {
        if is_publish(frame) {
            return self.on_publish(frame, bytes, cx);
        }
        let packet = match decode(bytes, cx.plan.version) {
            Ok(packet) => packet,
            Err(error) => return self.fail(format!("the broker sent nonsense: {error}"), cx),
        };
        match &packet {
            Packet::ConnAck(connack) => self.on_connack(connack, cx),
            Packet::SubAck(suback) => {
                if let Some(reason) = suback.reasons.iter().find(|reason| reason.is_error()) {
                    return self.fail(format!("subscription refused: {reason:?}"), cx);
                }
                self.on_suback(cx);
            }
            Packet::PubRel(ack) => {
                let version = cx.plan.version;
                put_ack(Packet::PubComp, ack.packet_id, version, &mut self.out);
            }
            Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_) => {
                self.on_ack(&packet, cx);
            }
            Packet::Disconnect(disconnect) => {
                self.fail(format!("disconnected: {:?}", disconnect.reason), cx);
            }
            _ => {}
        }
    }

    fn on_connack(&mut self, connack: &ConnAck<'_>, cx: &mut Cx<'_>) {
        if self.stage != Stage::Connecting {
            return;
        }
        if connack.reason.is_error() {
            return self.fail(format!("connection refused: {:?}", connack.reason), cx);
        }
        let took = cx.now_us.saturating_sub(self.dialled_us);
        cx.tally.connect.record(took);
        if let Some(keep_alive) = connack.properties.server_keep_alive {
            self.keep_alive = keep_alive;
        }
        match &mut self.role {
            Role::Subscriber(number, _) => {
                let number = *number;
                match subscribe(cx.plan, number, &mut self.out) {
                    Ok(count) => self.stage = Stage::Subscribing(count),
                    Err(error) => self.fail(format!("cannot subscribe: {error}"), cx),
                }
                return;
            }
            Role::Publisher(publisher) => {
                let maximum = connack.properties.receive_maximum;
                publisher.accepted(maximum.map_or(u16::MAX, core::num::NonZeroU16::get));
            }
            Role::Idle(_) => {}
        }
        self.stage = Stage::Ready;
        cx.progress.ready += 1;
    }

    fn on_suback(&mut self, cx: &mut Cx<'_>) {
        match self.stage {
            Stage::Subscribing(left) if left > 1 => self.stage = Stage::Subscribing(left - 1),
            Stage::Subscribing(_) => {
                self.stage = Stage::Ready;
                cx.progress.ready += 1;
            }
            _ => {}
        }
    }

    fn on_publish(&mut self, frame: &Frame, bytes: &[u8], cx: &mut Cx<'_>) {
        let version = cx.plan.version;
        let (Role::Subscriber(_, received), Some(arrival)) =
            (&mut self.role, read_publish(frame, bytes, version))
        else {
            return self.fail("the broker sent a PUBLISH that is none".into(), cx);
        };
        if let Some(id) = PacketId::new(arrival.packet_id) {
            match arrival.qos {
                QoS::AtMostOnce => {}
                QoS::AtLeastOnce => put_ack(Packet::PubAck, id, version, &mut self.out),
                QoS::ExactlyOnce => put_ack(Packet::PubRec, id, version, &mut self.out),
            }
        }
        let measured_now = u64::from(cx.window.contains(cx.now_us));
        // Messages of others on the same topic are none of our business.
        let Some(stamp) = arrival.stamp else {
            return;
        };
        let Some(delivered) = cx.shared.delivered.get(stamp.publisher as usize) else {
            return;
        };
        match received.note(stamp.publisher, stamp.seq) {
            Order::InOrder => {}
            Order::Late => cx.tally.reordered += 1,
            Order::Duplicate => {
                cx.tally.duplicates += 1;
                return;
            }
        }
        cx.tally.delivered_in_window += measured_now;
        cx.progress.received += 1;
        delivered.add();
        if cx.window.contains(stamp.at_us) {
            cx.tally.delivered += 1;
            let took = cx.now_us.saturating_sub(stamp.at_us);
            cx.tally.latency.record(took);
        }
    }

    fn on_ack(&mut self, packet: &Packet<'_>, cx: &mut Cx<'_>) {
        let Role::Publisher(publisher) = &mut self.role else {
            return;
        };
        match publisher.on_ack(packet, cx.now_us, cx.window, cx.tally) {
            Acked::Done => cx.progress.acknowledged += 1,
            Acked::Refused(deliveries) => cx.progress.refused_deliveries += deliveries,
            Acked::Release(id) => put_ack(Packet::PubRel, id, cx.plan.version, &mut self.out),
            Acked::Unknown => {
                self.fail("the broker acknowledged what was not sent".into(), cx);
            }
        }
    }

    /// It is over, for this reason, which is counted once.
    pub(super) fn fail(&mut self, cause: String, cx: &mut Cx<'_>) {
        match self.stage {
            Stage::Gone => return,
            Stage::Ready => {
                cx.progress.lost += 1;
                count_cause(&mut cx.tally.losses, cause);
            }
            _ => {
                cx.progress.failed += 1;
                count_cause(&mut cx.tally.failures, cause);
            }
        }
        self.stage = Stage::Gone;
    }

    /// Disconnects; a persistent session ends with it, where the version
    /// knows how.
    pub(super) fn put_disconnect(&mut self, plan: &Plan) {
        let persists = plan.persistent && matches!(self.role, Role::Subscriber(..));
        let disconnect = Disconnect {
            properties: DisconnectProperties {
                session_expiry_interval: persists.then_some(0),
                ..DisconnectProperties::default()
            },
            ..Disconnect::default()
        };
        // A growing buffer takes everything.
        let _ = Packet::Disconnect(disconnect).encode(plan.version, &mut self.out);
    }

    /// The stream on which everything travels.
    pub(super) const STREAM: StreamId = StreamId::CONTROL;
}

/// Writes the SUBSCRIBE packets of a subscriber; returns how many.
fn subscribe(plan: &Plan, number: usize, out: &mut SendBuf) -> Result<u16, EncodeError> {
    let names = plan.filters_of_subscriber(number);
    let mut packet_id = 0u16;
    for names in names.chunks(FILTERS_MAX) {
        let filters: Vec<SubscribeFilter<'_>> = names
            .iter()
            .map(|filter| SubscribeFilter {
                filter,
                options: SubscribeOptions {
                    qos: plan.subscribe_qos,
                    ..SubscribeOptions::default()
                },
            })
            .collect();
        packet_id += 1;
        let subscribe = Subscribe {
            packet_id: PacketId::new(packet_id).unwrap_or(PacketId::MIN),
            subscription_identifier: None,
            user_properties: UserProperties::default(),
            filters: SubscribeFilters::new(&filters),
        };
        Packet::Subscribe(subscribe).encode(plan.version, out)?;
    }
    Ok(packet_id)
}
