//! The exchange against packets of a server, without a transport.

use dunlin_dial::Channel;
use dunlin_dial::RuntimeLimits;
use dunlin_mqtt::codec::{Ack, ConnAck, Packet, decode_from_client, peek};

use super::*;
use crate::runtime::ClientTask;
use crate::shared::Remote;

/// An exchange, and what it wrote.
struct Rig {
    exchange: Exchange,
    shared: Arc<Shared>,
    out: SendBuf,
    answer: oneshot::Receiver<Result<(), DisconnectCause>>,
}

const NOW: Instant = Instant::ZERO;

impl Rig {
    fn new(set: impl FnOnce(&mut Options)) -> Self {
        let limits = RuntimeLimits::default();
        let remote = Remote::start::<ClientTask>("test", limits, None).expect("an event loop");
        let key = remote.register().expect("a place");
        let mut options = Options::new("mqtt://h".parse().expect("URL"));
        set(&mut options);
        let options = Arc::new(options);
        let shared = Arc::new(Shared::new(key, remote, &options));
        let (connected, answer) = oneshot::channel();
        Self {
            exchange: Exchange::new(Arc::clone(&shared), options, connected),
            shared,
            out: SendBuf::new(),
            answer,
        }
    }

    fn connected(set: impl FnOnce(&mut Options)) -> Self {
        let mut rig = Self::new(set);
        rig.exchange
            .begin(NOW, Channel::default(), 0, false, &mut rig.out);
        assert_eq!(rig.sent(), ["CONNECT"]);
        let connack = Packet::ConnAck(ConnAck::default());
        assert!(matches!(
            rig.receive(&connack),
            Some(Received::Connected(_))
        ));
        rig
    }

    fn receive(&mut self, packet: &Packet<'_>) -> Option<Received> {
        let mut bytes = Vec::new();
        packet.encode(Version::V5, &mut bytes).expect("encoded");
        let received = self.exchange.receive(NOW, &bytes, &mut self.out);
        while self.exchange.write_owed(NOW, &mut self.out) {}
        received.map(|(len, received)| {
            assert_eq!(len, bytes.len());
            received
        })
    }

    fn message(&mut self, id: u16) -> Option<Received> {
        self.receive(&Packet::Publish(codec::Publish {
            topic: "t",
            qos: QoS::AtLeastOnce,
            packet_id: PacketId::new(id),
            ..codec::Publish::default()
        }))
    }

    /// The names of the packets written since the last call.
    fn sent(&mut self) -> Vec<&'static str> {
        let out = core::mem::replace(&mut self.out, SendBuf::new());
        let bytes: Vec<u8> = out.slices().flatten().copied().collect();
        let mut rest = bytes.as_slice();
        let mut names = Vec::new();
        while let Some(frame) = peek(rest, u32::MAX).expect("well-formed") {
            let (packet, tail) = rest.split_at(frame.total_len);
            let packet = decode_from_client(packet, Version::V5).expect("well-formed");
            names.push(match packet {
                Packet::Connect(_) => "CONNECT",
                Packet::Publish(_) => "PUBLISH",
                Packet::PubAck(_) => "PUBACK",
                Packet::Disconnect(_) => "DISCONNECT",
                other => unreachable!("{other:?}"),
            });
            rest = tail;
        }
        names
    }
}

#[test]
fn connack_says_what_streams_the_server_takes() {
    let mut rig = Rig::new(|_| {});
    rig.exchange
        .begin(NOW, Channel::default(), 0, false, &mut rig.out);
    let name = Text::from_static(dunlin_mqtt::streams::option::DATA_STREAMS);
    let properties = [(name, Text::from_static("8"))];
    let mut connack = ConnAck::default();
    connack.properties.user_properties = properties.as_slice().into();
    connack.properties.assigned_client_identifier = Some("chosen");
    let received = rig.receive(&Packet::ConnAck(connack));
    assert!(matches!(received, Some(Received::Connected(Some(8)))));
    assert_eq!(rig.shared.status().client_id.as_str(), "chosen");
    rig.exchange.answer_connected();
    assert!(matches!(rig.answer.try_recv(), Ok(Ok(()))));
}

#[test]
fn a_full_inbox_is_reported_and_an_abandoned_one_acknowledges() {
    let mut rig = Rig::connected(|options| options.inbox.messages_max = 2);
    assert!(matches!(rig.message(1), Some(Received::Nothing)));
    assert!(matches!(rig.message(2), Some(Received::Full)));
    assert!(rig.sent().is_empty());
    rig.shared.inbox.abandon();
    assert!(matches!(rig.message(3), Some(Received::Nothing)));
    assert_eq!(rig.sent(), ["PUBACK"; 3]);
}

#[test]
fn a_message_under_way_ends_with_its_acknowledgement() {
    let mut rig = Rig::connected(|_| {});
    let (done, mut outcome) = oneshot::channel();
    let permit = Arc::clone(&rig.shared.in_flight).try_acquire_owned();
    let publish = Publish::new("t", "x").qos(QoS::AtLeastOnce);
    let queued = QueuedPublish::new(publish, permit.expect("room"), done);
    let id = rig.exchange.publish(NOW, &queued, true, &mut rig.out);
    let id = id.expect("written").expect("an identifier");
    let stream = StreamId(4);
    rig.exchange.keep(id, queued, stream);
    assert_eq!(rig.sent(), ["PUBLISH"]);
    let ack = Packet::PubAck(Ack::new(id, ReasonCode::NoMatchingSubscribers));
    match rig.receive(&ack) {
        Some(Received::Acknowledged(topic, on)) => assert_eq!((&*topic, on), ("t", stream)),
        other => panic!("{other:?}"),
    }
    let outcome = outcome.try_recv().expect("an outcome");
    assert_eq!(outcome.ok(), Some(ReasonCode::NoMatchingSubscribers));
}

#[test]
fn the_first_reason_to_end_the_connection_counts() {
    let mut rig = Rig::connected(|_| {});
    let disconnect = Packet::Disconnect(Disconnect {
        reason: ReasonCode::ServerShuttingDown,
        ..Disconnect::default()
    });
    assert!(matches!(rig.receive(&disconnect), Some(Received::Nothing)));
    rig.exchange.fail(DisconnectCause::Local);
    let fault = rig.exchange.take_fault();
    assert!(matches!(fault, Some(DisconnectCause::Server { .. })));
    assert!(!rig.exchange.has_failed());
}
