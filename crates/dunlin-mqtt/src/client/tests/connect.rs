//! CONNECT, CONNACK and the end of connections.

use dunlin_base::QoS;
use dunlin_mqtt_codec::{DecodeError, Disconnect, DisconnectProperties};

use super::*;
use crate::client::Phase;

#[test]
fn connect_goes_first_and_once() {
    //= mqtt5#[MQTT-3.1.0-1] type=test
    let mut rig = Rig::new(Settings::default());
    assert_eq!(rig.publish("a", 0), Err(CommandError::NotConnected));
    assert_eq!(rig.subscribe("a"), Err(CommandError::NotConnected));
    rig.expect(&[]);
    rig.connect(&Rig::options());
    assert_eq!(
        rig.engine.connect(rig.now, &Rig::options(), &mut rig.out),
        Err(CommandError::AlreadyConnected)
    );
    // Nothing else before CONNACK, unless the owner asked for early messages.
    assert_eq!(rig.publish("a", 0), Err(CommandError::NotConnected));
    rig.connack(false, |_| {});
    assert_eq!(rig.engine.phase(), Phase::Connected);
}

#[test]
fn connack_sets_the_limits() {
    //= mqtt5#[MQTT-3.2.2-21] type=test
    //= mqtt5#[MQTT-3.1.2-21] type=test
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    rig.connack(false, |p| {
        p.receive_maximum = NonZeroU16::new(7);
        p.maximum_packet_size = NonZeroU32::new(77);
        p.maximum_qos = Some(QoS::AtLeastOnce);
        p.retain_available = Some(false);
        p.topic_alias_maximum = Some(3);
        p.server_keep_alive = Some(16);
        p.session_expiry_interval = Some(5);
        p.wildcard_subscription_available = Some(false);
        p.shared_subscription_available = Some(false);
        p.subscription_identifiers_available = Some(false);
    });
    let n = *rig.engine.negotiated();
    assert_eq!(
        (n.receive_maximum, n.packet_bytes_max, n.maximum_qos),
        (7, 77, QoS::AtLeastOnce)
    );
    assert_eq!((n.topic_alias_maximum, n.session_expiry_seconds), (3, 5));
    assert!(!n.retain_available && !n.wildcards_available && !n.shared_available);
    assert!(!n.subscription_ids_available && !n.session_present);
    assert_eq!(n.keep_alive, Duration::from_secs(16));
    rig.wait(14);
    rig.engine.handle_timeout(rig.now).expect("in time");
    rig.expect(&["PINGREQ"]);
}

#[test]
fn a_refusal_ends_the_connection() {
    //= mqtt5#[MQTT-4.13.2-1] type=test
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    let refusal = Packet::ConnAck(ConnAck {
        reason: ReasonCode::NotAuthorized,
        ..ConnAck::default()
    });
    assert_eq!(rig.packet(refusal).as_deref(), Ok("Refused 0x87"));
    assert_eq!(rig.engine.phase(), Phase::Closing);
    rig.expect(&[]);
}

#[test]
fn a_session_that_the_client_does_not_have_is_refused() {
    //= mqtt5#[MQTT-3.2.2-4] type=test
    let mut rig = Rig::new(Settings::default());
    let mut options = Rig::options();
    options.clean_start = true;
    rig.connect(&options);
    let connack = Packet::ConnAck(ConnAck {
        session_present: true,
        ..ConnAck::default()
    });
    assert_eq!(rig.packet(connack), Err(PeerError::UnknownSession));
    rig.expect(&["DISCONNECT 0x82"]);
    assert_eq!(rig.engine.phase(), Phase::Closing);
}

#[test]
fn only_connack_or_auth_may_come_first() {
    //= mqtt5#[MQTT-3.2.0-1] type=test
    //= mqtt5#[MQTT-3.14.0-1] type=test
    for line in [
        "PUBLISH a",
        "PINGRESP",
        "SUBACK 1",
        "DISCONNECT 0x8b",
        "AUTH 0x18 m",
    ] {
        let mut rig = Rig::new(Settings::default());
        rig.connect(&Rig::options());
        assert!(
            matches!(rig.server(line), Err(PeerError::UnexpectedPacket(_))),
            "{line}"
        );
        rig.expect(&["DISCONNECT 0x82"]);
    }
}

#[test]
fn packets_of_the_wrong_direction_end_the_connection() {
    //= mqtt5#[MQTT-4.13.1-1] type=test
    //= mqtt5#[MQTT-3.2.0-2] type=test
    let second = Packet::ConnAck(ConnAck::default());
    let cases = [second, Packet::PingReq, Packet::Connect(Rig::options())];
    for packet in cases {
        let mut rig = Rig::connected();
        let result = rig.packet(packet.clone());
        assert!(
            matches!(
                result,
                Err(PeerError::UnexpectedPacket(_)
                    | PeerError::Decode(DecodeError::UnexpectedPacket))
            ),
            "{packet:?}"
        );
        rig.expect(&["DISCONNECT 0x82"]);
        assert_eq!(rig.engine.phase(), Phase::Closing);
        assert_eq!(rig.hears_nothing(), "Nothing");
    }
}

impl Rig {
    fn hears_nothing(&mut self) -> String {
        self.server("PUBLISH a").expect("ignored after the end")
    }
}

#[test]
fn malformed_packets_are_answered_with_their_reason() {
    //= mqtt5#[MQTT-3.14.1-1] type=test
    let cases: &[(&[u8], &str)] = &[
        (&[0xd1, 0x00], "DISCONNECT 0x81"),
        (&[0x40, 0x03, 0x00, 0x01, 0x01], "DISCONNECT 0x82"),
        (&[0x30, 0xe9, 0x07], "DISCONNECT 0x95"),
        (&[0x36, 0x02, 0x00, 0x00], "DISCONNECT 0x81"),
        (&[0x30, 0x04, 0x00, 0x01, b'+', 0x00], "DISCONNECT 0x90"),
    ];
    for (bytes, want) in cases {
        let mut rig = Rig::connected();
        assert!(
            rig.engine.handle_bytes(rig.now, bytes).is_err(),
            "{bytes:?}"
        );
        rig.expect(&[want]);
    }
}

#[test]
fn packets_arrive_in_pieces() {
    let mut rig = Rig::connected();
    let bytes = [0x30, 0x05, 0x00, 0x01, b'a', 0x00, b'x'];
    for end in 0..bytes.len() {
        let event = rig.engine.handle_bytes(rig.now, &bytes[..end]);
        assert_eq!(event, Ok(None), "{end}");
    }
    assert_eq!(rig.bytes(&bytes).as_deref(), Ok("Message q0 a"));
}

#[test]
fn disconnect_is_the_last_packet() {
    //= mqtt5#[MQTT-3.14.4-1] type=test
    let mut rig = Rig::connected();
    rig.hears("PUBLISH 5 q1 a", "Message q1 a");
    rig.take(ReasonCode::Success);
    let last = Disconnect {
        reason: ReasonCode::DisconnectWithWill,
        ..Disconnect::default()
    };
    rig.engine
        .disconnect(rig.now, &last, &mut rig.out)
        .expect("disconnect");
    assert_eq!(rig.engine.phase(), Phase::Closing);
    assert_eq!(rig.publish("a", 0), Err(CommandError::NotConnected));
    rig.expect(&["DISCONNECT 0x04"]);
    assert_eq!(
        rig.engine.disconnect(rig.now, &last, &mut rig.out),
        Err(CommandError::NotConnected)
    );
}

#[test]
fn disconnect_cannot_begin_a_session_expiry() {
    let mut rig = Rig::new(Settings::default());
    let mut options = Rig::options();
    options.properties.session_expiry_interval = None;
    rig.connect(&options);
    rig.connack(false, |_| {});
    let last = Disconnect {
        properties: DisconnectProperties {
            session_expiry_interval: Some(1),
            ..DisconnectProperties::default()
        },
        ..Disconnect::default()
    };
    let result = rig.engine.disconnect(rig.now, &last, &mut rig.out);
    assert!(matches!(result, Err(CommandError::Connect(_))));
}

#[test]
fn the_server_may_disconnect() {
    let mut rig = Rig::connected();
    rig.hears("DISCONNECT 0x8e", "Disconnected 0x8e");
    assert_eq!(rig.engine.phase(), Phase::Closing);
    rig.expect(&[]);
}

#[test]
fn connect_promises_only_what_there_is_memory_for() {
    let mut options = Rig::options();
    options.properties.receive_maximum = NonZeroU16::new(9);
    let mut rig = Rig::new(Settings::default());
    let result = rig.engine.connect(rig.now, &options, &mut rig.out);
    assert!(matches!(result, Err(CommandError::Connect(_))));
    options.properties.receive_maximum = NonZeroU16::new(8);
    options.properties.topic_alias_maximum = Some(5);
    let result = rig.engine.connect(rig.now, &options, &mut rig.out);
    assert!(matches!(result, Err(CommandError::Connect(_))));
    // Absent means 65,535.
    options.properties.receive_maximum = None;
    options.properties.topic_alias_maximum = None;
    let result = rig.engine.connect(rig.now, &options, &mut rig.out);
    assert!(matches!(result, Err(CommandError::Connect(_))));
    rig.expect(&[]);
}

#[test]
fn version_3_1_1_has_no_disconnect_for_errors() {
    let mut rig = Rig::new(Settings::default());
    let mut options = Rig::options();
    options.version = Version::V311;
    rig.connect(&options);
    rig.connack(false, |_| {});
    assert!(rig.packet(Packet::PingReq).is_err());
    // A clean DISCONNECT would suppress the will.
    rig.expect(&[]);
    assert_eq!(rig.engine.phase(), Phase::Closing);
}

#[test]
fn a_full_sink_changes_nothing() {
    let mut rig = Rig::connected();
    rig.hears("PUBLISH 5 q1 a", "Message q1 a");
    rig.take(ReasonCode::Success);
    for room in 0..12 {
        let mut space = [0; 12];
        let mut sink = &mut space[..room];
        let result = rig.engine.publish(rig.now, &message("topic", 1), &mut sink);
        assert_eq!(result, Err(CommandError::SinkFull), "{room}");
    }
    let mut space = [0; 3];
    let mut sink = &mut space[..];
    assert!(rig.engine.poll_output(rig.now, &mut sink).is_err());
    assert_eq!(rig.publish("topic", 1), Ok(Some(id(1))));
    rig.expect(&["PUBLISH 1 q1 topic", "PUBACK 5"]);
}
