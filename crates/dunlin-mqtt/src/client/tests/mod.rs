//! The engine against a scripted server in virtual time. Packets are written
//! as short lines, so that a test reads like the figures of the specification.

mod ahead;
mod auth;
mod connect;
mod flow;
mod inbound;
mod keep_alive;
mod limits;
mod notation;
mod publish;
mod random;
mod resume;
mod streams;

use alloc::string::String;
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

use dunlin_base::{Instant, QoS};
use dunlin_mqtt_codec::{
    ConnAck, ConnAckProperties, Connect, ConnectProperties, Packet, PacketId, Publish, ReasonCode,
    Subscribe, SubscribeFilter, SubscribeFilters, Unsubscribe, UnsubscribeFilters, Version,
};

use super::{CommandError, Event, PeerError, Receipt, Resume, Session, Settings};
use notation::{parse, show};

/// Both sides of a connection.
struct Rig {
    engine: Session,
    now: Instant,
    out: Vec<u8>,
    receipts: Vec<Receipt>,
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not zero")
}

fn message<'a>(topic: &'a str, qos: u8) -> Publish<'a> {
    Publish {
        topic,
        qos: QoS::from_u8(qos).expect("QoS"),
        payload: b"x",
        ..Publish::default()
    }
}

impl Rig {
    fn new(settings: Settings) -> Self {
        Self {
            engine: Session::new(Settings {
                outbound_max: 8,
                inbound_max: 8,
                aliases_in_max: 4,
                aliases_out_max: 4,
                ..settings
            }),
            now: Instant::from_micros(1_000_000),
            out: Vec::new(),
            receipts: Vec::new(),
        }
    }

    /// A connected rig whose session outlives connections.
    fn connected() -> Self {
        let mut rig = Self::new(Settings::default());
        rig.connect(&Self::options());
        rig.connack(false, |_| {});
        rig
    }

    fn options() -> Connect<'static> {
        Connect {
            version: Version::V5,
            client_id: "c",
            keep_alive: 80,
            properties: ConnectProperties {
                receive_maximum: NonZeroU16::new(4),
                topic_alias_maximum: Some(4),
                maximum_packet_size: NonZeroU32::new(1000),
                session_expiry_interval: Some(3600),
                ..ConnectProperties::default()
            },
            ..Connect::default()
        }
    }

    fn connect(&mut self, options: &Connect<'_>) {
        self.engine
            .connect(self.now, options, &mut self.out)
            .expect("connect");
        self.expect(&["CONNECT c"]);
    }

    fn connack(&mut self, session_present: bool, set: impl FnOnce(&mut ConnAckProperties<'_>)) {
        let mut connack = ConnAck {
            session_present,
            ..ConnAck::default()
        };
        set(&mut connack.properties);
        let event = self.packet(Packet::ConnAck(connack));
        assert!(event.expect("CONNACK").starts_with("Connected"));
    }

    /// The connection breaks and comes back.
    fn reconnect(&mut self, session_present: bool) {
        self.engine.handle_closed();
        self.out.clear();
        self.receipts.clear();
        self.connect(&Self::options());
        self.connack(session_present, |_| {});
    }

    /// A packet from the server; the event by its name.
    fn packet(&mut self, packet: Packet<'_>) -> Result<String, PeerError> {
        let mut bytes = Vec::new();
        packet
            .encode(self.engine.version(), &mut bytes)
            .expect("encode");
        self.bytes(&bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<String, PeerError> {
        let (len, event) = self
            .engine
            .handle_bytes(self.now, bytes)?
            .expect("a whole packet");
        assert_eq!(len, bytes.len());
        if let Event::Message(_, Some(receipt)) = &event {
            self.receipts.push(*receipt);
        }
        Ok(notation::event(&event))
    }

    /// A packet from the server, as a line.
    fn server(&mut self, line: &str) -> Result<String, PeerError> {
        self.packet(parse(line))
    }

    /// A line from the server and the event that it causes.
    fn hears(&mut self, line: &str, event: &str) {
        assert_eq!(self.server(line).as_deref(), Ok(event), "{line}");
    }

    /// Everything written since the last look.
    fn sent(&mut self) -> Vec<String> {
        while self
            .engine
            .poll_output(self.now, &mut self.out)
            .expect("a vector has room")
        {}
        let bytes = core::mem::take(&mut self.out);
        let version = self.engine.version();
        let mut rest = bytes.as_slice();
        let mut lines = Vec::new();
        while let Some(frame) = dunlin_mqtt_codec::peek(rest, u32::MAX).expect("well-formed") {
            let (packet, tail) = rest.split_at(frame.total_len);
            lines.push(show(
                &dunlin_mqtt_codec::decode(packet, version).expect("well-formed"),
            ));
            rest = tail;
        }
        assert!(rest.is_empty());
        lines
    }

    fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.sent(), lines);
    }

    fn publish(&mut self, topic: &str, qos: u8) -> Result<Option<PacketId>, CommandError> {
        self.engine
            .publish(self.now, &message(topic, qos), &mut self.out)
    }

    fn subscribe(&mut self, filter: &str) -> Result<PacketId, CommandError> {
        let filters = [SubscribeFilter {
            filter,
            ..SubscribeFilter::default()
        }];
        let subscribe = Subscribe {
            packet_id: id(1),
            subscription_identifier: None,
            user_properties: Default::default(),
            filters: SubscribeFilters::new(&filters),
        };
        self.engine.subscribe(self.now, &subscribe, &mut self.out)
    }

    fn unsubscribe(&mut self, filters: &[&str]) -> Result<PacketId, CommandError> {
        let unsubscribe = Unsubscribe {
            packet_id: id(1),
            user_properties: Default::default(),
            filters: UnsubscribeFilters::new(filters),
        };
        self.engine
            .unsubscribe(self.now, &unsubscribe, &mut self.out)
    }

    /// The application takes the oldest message that it has not taken.
    fn take(&mut self, reason: ReasonCode) {
        let receipt = self.receipts.remove(0);
        assert!(self.engine.acknowledge(receipt, reason));
    }

    /// Sends again what the engine asks for, from messages of topic `t<id>`.
    fn resume(&mut self, qos: &[(u16, u8)]) -> Vec<Resume> {
        let mut seen = Vec::new();
        while let Some(resume) = self.engine.poll_resume() {
            seen.push(resume);
            if let Resume::Publish(packet_id) = resume {
                let (_, qos) = qos
                    .iter()
                    .find(|(id, _)| *id == packet_id.get())
                    .expect("known");
                self.engine
                    .resend(self.now, packet_id, &message("again", *qos), &mut self.out)
                    .expect("resend");
            }
        }
        seen
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}
