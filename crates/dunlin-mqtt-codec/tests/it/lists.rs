//! Borrowed lists behave alike whether they come from bytes or from a slice.

use dunlin_base::Text;
use dunlin_mqtt_codec::*;

use crate::notation;

fn publish(properties: &str) -> Vec<u8> {
    let properties = notation::bytes(properties);
    let mut bytes = vec![0x30, properties.len() as u8 + 4, 0, 1, b't'];
    bytes.push(properties.len() as u8);
    bytes.extend(properties);
    bytes
}

#[test]
fn user_properties() {
    let bytes = publish("26 0001'b' 0001'1' 0b 07 26 0001'a' 0000 03 0000 26 0001'b' 0001'2'");
    let Packet::Publish(publish) = decode(&bytes, Version::V5).unwrap() else {
        panic!("a PUBLISH");
    };
    let wire = publish.properties.user_properties;
    let pairs = [("b", "1"), ("a", ""), ("b", "2")];
    let texts = pairs.map(|(name, value)| (Text::from(name), Text::from(value)));
    for list in [
        wire,
        UserProperties::new(&pairs),
        pairs.as_slice().into(),
        texts.as_slice().into(),
    ] {
        assert_eq!(list, wire);
        assert_eq!(list.len(), 3);
        assert!(!list.is_empty());
        assert_eq!(list.iter().collect::<Vec<_>>(), pairs);
        let debug = r#"[("b", "1"), ("a", ""), ("b", "2")]"#;
        assert_eq!(format!("{list:?}"), debug);
    }
    assert_ne!(UserProperties::new(&pairs[..2]), wire);
    assert!(UserProperties::default().is_empty());
    assert_eq!(publish.properties.subscription_identifiers.len(), 1);
}

#[test]
fn subscription_identifiers() {
    let bytes = publish("0b 01 26 0001'a' 0000 0b ffffff7f 0b 01");
    let Packet::Publish(publish) = decode(&bytes, Version::V5).unwrap() else {
        panic!("a PUBLISH");
    };
    let wire = publish.properties.subscription_identifiers;
    let list = SubscriptionIdentifiers::from([1, 268_435_455, 1].as_slice());
    assert_eq!(wire, list);
    assert_eq!((wire.len(), list.len()), (3, 3));
    assert_eq!(wire.iter().collect::<Vec<_>>(), [1, 268_435_455, 1]);
    assert_eq!(format!("{wire:?}"), format!("{list:?}"));
    assert!(SubscriptionIdentifiers::default().is_empty() && !wire.is_empty());
}

#[test]
fn filters_and_reason_codes() {
    let bytes = notation::bytes("82 0c 0001 00 0001'a' 2e 0002'b/' 01");
    let Packet::Subscribe(subscribe) = decode(&bytes, Version::V5).unwrap() else {
        panic!("a SUBSCRIBE");
    };
    let options = SubscribeOptions {
        qos: QoS::ExactlyOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let second = SubscribeOptions {
        qos: QoS::AtLeastOnce,
        ..SubscribeOptions::default()
    };
    let slice = [("a", options), ("b/", second)]
        .map(|(filter, options)| SubscribeFilter { filter, options });
    let list = SubscribeFilters::from(slice.as_slice());
    assert_eq!(subscribe.filters, list);
    assert_eq!((subscribe.filters.len(), list.len()), (2, 2));
    assert_eq!(subscribe.filters.iter().collect::<Vec<_>>(), slice);
    assert_eq!(format!("{:?}", subscribe.filters), format!("{list:?}"));

    let bytes = notation::bytes("a2 09 0001 00 0001'a' 0001'b'");
    let Packet::Unsubscribe(unsubscribe) = decode(&bytes, Version::V5).unwrap() else {
        panic!("an UNSUBSCRIBE");
    };
    let list = UnsubscribeFilters::from(["a", "b"].as_slice());
    assert_eq!(unsubscribe.filters, list);
    assert_eq!((unsubscribe.filters.len(), list.len()), (2, 2));
    assert_eq!(format!("{:?}", unsubscribe.filters), r#"["a", "b"]"#);

    let bytes = notation::bytes("b0 05 0001 00 00 11");
    let Packet::UnsubAck(ack) = decode(&bytes, Version::V5).unwrap() else {
        panic!("an UNSUBACK");
    };
    let codes = [ReasonCode::Success, ReasonCode::NoSubscriptionExisted];
    assert_eq!(ack.reasons, ReasonCodes::from(codes.as_slice()));
    assert_eq!((ack.reasons.len(), ack.reasons.is_empty()), (2, false));
    assert_eq!(format!("{:?}", ack.reasons), format!("{codes:?}"));
}

#[test]
fn option_bytes() {
    for byte in 0..=u8::MAX {
        if let Ok(options) = SubscribeOptions::from_byte(byte) {
            assert_eq!(options.to_byte(), byte);
        }
    }
}

#[test]
fn passwords_stay_out_of_debug_output() {
    let connect = Connect {
        username: Some("user"),
        password: Some(b"secret"),
        ..Connect::default()
    };
    let text = format!("{connect:?}");
    assert!(
        text.contains("user") && !text.contains("115, 101"),
        "{text}"
    );
}
