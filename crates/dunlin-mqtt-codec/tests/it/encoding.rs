//! What encoders refuse, what they leave out for 3.1.1, and the header for a
//! fan-out.

use dunlin_base::{ByteSink as _, SinkFull};
use dunlin_mqtt_codec::*;

use crate::vectors::cases;

const ID: PacketId = PacketId::MIN;

fn encode(packet: &Packet<'_>, version: Version) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::new();
    let result = packet.encode(version, &mut bytes);
    match packet.encoded_len(version) {
        Ok(len) => assert_eq!(len, bytes.len()),
        Err(error) => {
            assert_eq!(result, Err(error));
            assert!(bytes.is_empty(), "checked before the first byte");
        }
    }
    result.map(|()| bytes)
}

#[test]
fn what_no_version_can_express() {
    use EncodeError::*;
    let long = "x".repeat(65_536);
    let long_pair = [(long.as_str(), "")];
    let long_filter = [SubscribeFilter {
        filter: &long,
        ..SubscribeFilter::default()
    }];
    let publish = Publish {
        topic: "t",
        ..Publish::default()
    };
    let with = |properties| {
        Packet::Publish(Publish {
            properties,
            ..publish.clone()
        })
    };
    let properties = PublishProperties::default();
    let filters = |filters| {
        Packet::Subscribe(Subscribe {
            packet_id: ID,
            subscription_identifier: None,
            user_properties: UserProperties::default(),
            filters,
        })
    };
    #[rustfmt::skip]
    let cases = [
        (FieldTooLong, Packet::Publish(Publish { topic: &long, ..publish.clone() })),
        (FieldTooLong, with(PublishProperties { content_type: Some(&long), ..properties.clone() })),
        (FieldTooLong, with(PublishProperties { user_properties: UserProperties::new(&long_pair), ..properties.clone() })),
        (FieldTooLong, Packet::Connect(Connect { client_id: &long, ..Connect::default() })),
        (FieldTooLong, Packet::Connect(Connect { password: Some(long.as_bytes()), ..Connect::default() })),
        (FieldTooLong, filters(SubscribeFilters::new(&long_filter))),
        (ListEmpty, filters(SubscribeFilters::default())),
        (ListEmpty, Packet::Unsubscribe(Unsubscribe { packet_id: ID, user_properties: UserProperties::default(), filters: UnsubscribeFilters::default() })),
        (ListEmpty, Packet::SubAck(SubAck { packet_id: ID, properties: ReasonProperties::default(), reasons: ReasonCodes::default() })),
        //= mqtt5#[MQTT-2.2.1-2] type=test
        (PacketId, Packet::Publish(Publish { packet_id: Some(ID), ..publish.clone() })),
        (PacketId, Packet::Publish(Publish { qos: QoS::AtLeastOnce, ..publish.clone() })),
        //= mqtt5#[MQTT-3.3.1-2] type=test
        (ValueOutOfRange, Packet::Publish(Publish { dup: true, ..publish.clone() })),
        (ValueOutOfRange, Packet::Publish(Publish { topic: "", ..publish.clone() })),
        (ValueOutOfRange, with(PublishProperties { subscription_identifiers: SubscriptionIdentifiers::new(&[0]), ..properties.clone() })),
        (ValueOutOfRange, with(PublishProperties { subscription_identifiers: SubscriptionIdentifiers::new(&[268_435_456]), ..properties.clone() })),
        //= mqtt5#[MQTT-3.2.2-6] type=test
        (ValueOutOfRange, Packet::ConnAck(ConnAck { session_present: true, reason: ReasonCode::NotAuthorized, ..ConnAck::default() })),
        (ValueOutOfRange, Packet::ConnAck(ConnAck { properties: ConnAckProperties { maximum_qos: Some(QoS::ExactlyOnce), ..ConnAckProperties::default() }, ..ConnAck::default() })),
        (ValueOutOfRange, Packet::Auth(Auth { reason: ReasonCode::ContinueAuthentication, ..Auth::default() })),
    ];
    for (want, packet) in cases {
        assert_eq!(encode(&packet, Version::V5), Err(want), "{want:?}");
    }
}

#[test]
fn what_3_1_1_cannot_express() {
    let disconnect = Disconnect {
        reason: ReasonCode::ServerShuttingDown,
        ..Disconnect::default()
    };
    let connect = Connect {
        version: Version::V311,
        password: Some(b"p"),
        ..Connect::default()
    };
    for packet in [
        Packet::Auth(Auth::default()),
        Packet::Disconnect(disconnect),
        Packet::Connect(connect),
    ] {
        let want = Err(EncodeError::NotInVersion);
        assert_eq!(encode(&packet, Version::V311), want, "{packet:?}");
    }
}

/// Detail that 3.1.1 has no place for is left out: what remains decodes as
/// 3.1.1 and says the same otherwise.
#[test]
fn detail_is_left_out_for_3_1_1() {
    for case in cases() {
        let Some(packet) = case.packet() else {
            continue;
        };
        if let Ok(bytes) = encode(&packet, Version::V311) {
            let version = Version::V311;
            let shorter = decode(&bytes, version).expect(&case.name);
            assert_eq!(shorter.packet_type(), packet.packet_type());
            assert_eq!(encode(&shorter, version), Ok(bytes), "{}", case.name);
        }
    }
    let refused = [ReasonCode::NotAuthorized, ReasonCode::GrantedQos1];
    let ack = Packet::SubAck(SubAck {
        packet_id: ID,
        properties: ReasonProperties::default(),
        reasons: ReasonCodes::new(&refused),
    });
    let bytes = encode(&ack, Version::V311).unwrap();
    assert_eq!(bytes, [0x90, 4, 0, 1, 0x80, 1]);
}

#[test]
fn packets_beyond_the_largest_are_refused() {
    let publish = Publish {
        topic: "t",
        ..Publish::default()
    };
    let mut sink = Vec::new();
    let most = 268_435_455 - 4;
    let layout = publish.encode_header(Version::V5, most, &mut sink);
    assert_eq!(layout.map(|l| l.len), Ok(9));
    for len in [most + 1, usize::MAX] {
        let layout = publish.encode_header(Version::V5, len, &mut sink);
        assert_eq!(layout, Err(EncodeError::PacketTooLarge));
    }
}

#[test]
fn full_sinks_are_reported() {
    for case in cases() {
        let Some(packet) = case.packet() else {
            continue;
        };
        let len = packet.encoded_len(case.version).expect(&case.name);
        for room in 0..len {
            let mut buffer = vec![0; room];
            let result = packet.encode(case.version, &mut buffer.as_mut_slice());
            let want = Err(EncodeError::SinkFull(SinkFull));
            assert_eq!(result, want, "{} in {room}", case.name);
        }
        let mut buffer = vec![0; len];
        let result = packet.encode(case.version, &mut buffer.as_mut_slice());
        assert_eq!(result, Ok(()), "{}", case.name);
    }
}

/// One header serves many receivers: patch identifier and DUP, append the
/// payload.
#[test]
fn header_is_patched_per_receiver() {
    for version in [Version::V311, Version::V5] {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let has_id = qos != QoS::AtMostOnce;
            let publish = |id: u16, dup: bool| Publish {
                dup: dup && has_id,
                qos,
                topic: "some/topic",
                packet_id: PacketId::new(id).filter(|_| has_id),
                payload: b"payload",
                ..Publish::default()
            };
            let mut shared = Vec::new();
            let first = publish(1, false);
            let layout = first.encode_header(version, 7, &mut shared).unwrap();
            assert_eq!(layout.len, shared.len());
            assert_eq!(layout.packet_id_offset.is_some(), has_id);
            for (id, dup) in [(0x1234, false), (0xffff, true)] {
                let mut bytes = shared.clone();
                if let Some(at) = layout.packet_id_offset {
                    bytes[at..at + 2].copy_from_slice(&u16::to_be_bytes(id));
                    bytes[0] |= if dup { HeaderLayout::DUP } else { 0 };
                }
                bytes.put(b"payload").unwrap();
                let packet = Packet::Publish(publish(id, dup));
                assert_eq!(decode(&bytes, version), Ok(packet));
            }
        }
    }
}

#[test]
fn payload_format_is_checked_on_request() {
    let mut publish = Publish {
        topic: "t",
        payload: b"\xff",
        ..Publish::default()
    };
    assert_eq!(publish.check_payload_format(), Ok(()));
    publish.properties.payload_format_indicator = Some(false);
    assert_eq!(publish.check_payload_format(), Ok(()));
    publish.properties.payload_format_indicator = Some(true);
    let error = publish.check_payload_format().unwrap_err();
    assert_eq!(error, DecodeError::PayloadFormat);
    assert_eq!(error.reason(), ReasonCode::PayloadFormatInvalid);
    publish.payload = "é".as_bytes();
    assert_eq!(publish.check_payload_format(), Ok(()));
}
