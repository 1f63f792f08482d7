//! MQTT of one connection of the generator: what it says and answers.

use core::num::NonZeroU16;

use bytes::Bytes;
use dunlin_base::{SendBuf, StreamId};
use dunlin_mqtt_codec::{
    Ack, ConnAck, Connect, ConnectProperties, Disconnect, DisconnectProperties, EncodeError, Frame,
    Packet, PacketId, QoS, ReasonCode, Subscribe, SubscribeFilter, SubscribeFilters,
    SubscribeOptions, UserProperties, Version, decode,
};

use super::common::{Common, Cx, Role, Stage};
use super::plan::Plan;
use super::publisher::Writer;
use super::wire::{Framer, Stamp, Template, is_publish, read_publish};

/// Filters in one SUBSCRIBE at most.
const FILTERS_MAX: usize = 100;

/// Streams opened by a broker that are remembered.
const STREAMS_MAX: usize = 256;

/// What a connection of MQTT has beside what every client has.
#[derive(Debug, Default)]
pub(super) struct Mqtt {
    framer: Framer,
    /// Streams that a QUIC broker opened to deliver on.
    streams: Vec<(StreamId, Framer)>,
    /// Of a publisher, by topic.
    templates: Vec<Template>,
}

impl Mqtt {
    pub(super) fn new(plan: &Plan, role: &Role) -> Result<Self, EncodeError> {
        let templates = match role {
            Role::Publisher(publisher) => {
                let size = plan.size_of(publisher.index);
                plan.topics_of_publisher(publisher.index)
                    .map(|t| {
                        Template::new(
                            plan.sessions.version,
                            plan.messages.qos,
                            &plan.topic(t),
                            size,
                        )
                    })
                    .collect::<Result<_, _>>()?
            }
            Role::Subscriber(..) | Role::Idle(_) => Vec::new(),
        };
        Ok(Self {
            templates,
            ..Self::default()
        })
    }

    /// Nothing is left of the connection before.
    pub(super) fn restart(&mut self) {
        self.framer = Framer::default();
        self.streams.clear();
    }

    pub(super) fn on_bytes(
        &mut self,
        client: &mut Common,
        stream: StreamId,
        data: &[u8],
        cx: &mut Cx<'_>,
    ) {
        let framer = self.framer_of(stream);
        let result = framer.feed(data, |frame, packet| on_packet(client, frame, packet, cx));
        if let Err(error) = result {
            client.fail(format!("the broker sent nonsense: {error}"), cx);
        }
    }

    fn framer_of(&mut self, stream: StreamId) -> &mut Framer {
        if stream == Common::STREAM {
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

    /// The broker sends no more on a stream that it opened.
    pub(super) fn on_stream_end(&mut self, stream: StreamId) {
        self.streams.retain(|(id, _)| *id != stream);
    }

    /// Writes messages of a publisher.
    pub(super) fn writer<'a>(&'a self, out: &'a mut SendBuf) -> impl Writer + 'a {
        Packets {
            templates: &self.templates,
            out,
        }
    }
}

/// Writes PUBLISH.
pub(super) struct Packets<'a> {
    pub(super) templates: &'a [Template],
    pub(super) out: &'a mut SendBuf,
}

impl Writer for Packets<'_> {
    fn written(&self) -> usize {
        self.out.len()
    }

    fn may_write(&mut self, _topic: usize) -> bool {
        true
    }

    fn write(&mut self, topic: usize, id: u16, stamp: Stamp, filler: &Bytes) {
        if let Some(template) = self.templates.get(topic) {
            template.write(id, stamp, self.out);
            self.out.put_bytes(filler);
        }
    }
}

/// The transport is open: CONNECT.
pub(super) fn connect(client: &mut Common, plan: &Plan) -> Result<(), EncodeError> {
    let (kind, number) = client.name();
    let target = plan.target_of(kind);
    let persists = plan.sessions.persistent && kind == 's';
    client.keep_alive = plan.sessions.keep_alive;
    let connect = Connect {
        version: plan.sessions.version,
        clean_start: !persists,
        keep_alive: plan.sessions.keep_alive,
        client_id: &plan.client_id(kind, number),
        username: target.user.as_deref(),
        password: target.password.as_deref().map(str::as_bytes),
        properties: ConnectProperties {
            session_expiry_interval: persists.then_some(plan.sessions.expiry),
            ..ConnectProperties::default()
        },
        ..Connect::default()
    };
    Packet::Connect(connect).encode(plan.sessions.version, &mut client.out)
}

fn on_packet(client: &mut Common, frame: &Frame, bytes: &[u8], cx: &mut Cx<'_>) {
    if is_publish(frame) {
        return on_publish(client, frame, bytes, cx);
    }
    let packet = match decode(bytes, cx.plan.sessions.version) {
        Ok(packet) => packet,
        Err(error) => return client.fail(format!("the broker sent nonsense: {error}"), cx),
    };
    match &packet {
        Packet::ConnAck(connack) => on_connack(client, connack, cx),
        Packet::SubAck(suback) => {
            if let Some(reason) = suback.reasons.iter().find(|reason| reason.is_error()) {
                return client.fail(format!("subscription refused: {reason:?}"), cx);
            }
            client.subscribed(cx);
        }
        Packet::PubRel(ack) => {
            put_ack(
                Packet::PubComp,
                ack.packet_id,
                cx.plan.sessions.version,
                &mut client.out,
            );
        }
        Packet::PubAck(ack) | Packet::PubComp(ack) => {
            client.acknowledged(ack.packet_id.get(), ack.reason.is_error(), cx);
        }
        Packet::PubRec(ack) if ack.reason.is_error() => {
            client.acknowledged(ack.packet_id.get(), true, cx);
        }
        Packet::PubRec(ack) => release(client, ack.packet_id, cx),
        Packet::Disconnect(disconnect) => {
            client.fail(format!("disconnected: {:?}", disconnect.reason), cx);
        }
        _ => {}
    }
}

/// PUBREC without an error: PUBREL must follow.
fn release(client: &mut Common, id: PacketId, cx: &mut Cx<'_>) {
    if client.is_in_flight(id.get(), cx) {
        put_ack(
            Packet::PubRel,
            id,
            cx.plan.sessions.version,
            &mut client.out,
        );
    }
}

fn on_connack(client: &mut Common, connack: &ConnAck<'_>, cx: &mut Cx<'_>) {
    if !matches!(client.stage, Stage::Connecting | Stage::Greeting) {
        return;
    }
    if connack.reason.is_error() {
        return client.fail(format!("connection refused: {:?}", connack.reason), cx);
    }
    if let Some(keep_alive) = connack.properties.server_keep_alive {
        client.keep_alive = keep_alive;
    }
    if client.stage == Stage::Greeting {
        return client.woken(cx);
    }
    let subscriptions = match client.role {
        Role::Subscriber(number, _) => match subscribe(cx.plan, number, &mut client.out) {
            Ok(count) => count,
            Err(error) => return client.fail(format!("cannot subscribe: {error}"), cx),
        },
        Role::Publisher(_) | Role::Idle(_) => 0,
    };
    let receive_maximum = connack.properties.receive_maximum;
    let window = receive_maximum.map_or(u16::MAX, NonZeroU16::get);
    client.accepted(subscriptions, window, cx);
}

fn on_publish(client: &mut Common, frame: &Frame, bytes: &[u8], cx: &mut Cx<'_>) {
    let version = cx.plan.sessions.version;
    let Some(arrival) = read_publish(frame, bytes, version) else {
        return client.fail("the broker sent a PUBLISH that is none".into(), cx);
    };
    if let Some(id) = PacketId::new(arrival.packet_id) {
        match arrival.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => put_ack(Packet::PubAck, id, version, &mut client.out),
            QoS::ExactlyOnce => put_ack(Packet::PubRec, id, version, &mut client.out),
        }
    }
    client.received(arrival.stamp, cx);
}

/// Writes an acknowledgement without properties.
fn put_ack(
    make: impl FnOnce(Ack<'static>) -> Packet<'static>,
    packet_id: PacketId,
    version: Version,
    out: &mut SendBuf,
) {
    let packet = make(Ack::new(packet_id, ReasonCode::Success));
    // A growing buffer takes everything.
    let _ = packet.encode(version, out);
}

/// Says that the client is still there.
pub(super) fn put_ping(client: &mut Common, plan: &Plan) {
    let _ = Packet::PingReq.encode(plan.sessions.version, &mut client.out);
}

/// Disconnects; a persistent session ends with it, where the version knows how.
pub(super) fn put_disconnect(client: &mut Common, plan: &Plan) {
    let persists = plan.sessions.persistent && matches!(client.role, Role::Subscriber(..));
    let disconnect = Disconnect {
        properties: DisconnectProperties {
            session_expiry_interval: persists.then_some(0),
            ..DisconnectProperties::default()
        },
        ..Disconnect::default()
    };
    let _ = Packet::Disconnect(disconnect).encode(plan.sessions.version, &mut client.out);
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
                    qos: plan.sessions.subscribe_qos,
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
        Packet::Subscribe(subscribe).encode(plan.sessions.version, out)?;
    }
    Ok(packet_id)
}
