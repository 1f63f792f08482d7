//! Tests of the codec through its public API.

use dunlin_mqtt_codec::{Packet, Publish, PublishProperties, Version, decode, peek};

#[test]
fn publish_round_trip() {
    let packet = Packet::Publish(Publish {
        topic: "a/b",
        payload: b"hello",
        properties: PublishProperties {
            content_type: Some("text"),
            user_properties: [("a", "b"), ("a", "c")].as_slice().into(),
            subscription_identifiers: [1, 300].as_slice().into(),
            ..PublishProperties::default()
        },
        ..Publish::default()
    });
    let mut bytes = Vec::new();
    packet.encode(Version::V5, &mut bytes).unwrap();
    assert_eq!(packet.encoded_len(Version::V5), Ok(bytes.len()));
    assert_eq!(peek(&bytes, 100).unwrap().unwrap().total_len, bytes.len());
    assert_eq!(decode(&bytes, Version::V5), Ok(packet));
}
