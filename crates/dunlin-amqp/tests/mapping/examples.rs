//! The rows of the table, one by one.

use bytes::Bytes;
use dunlin_amqp::codec::{
    self, BodyKind, Header, MessageId, Properties, Section, Symbol, Timestamp, Value,
};
use dunlin_amqp::message::names;
use dunlin_base::{Message, MessageProperties, QoS, Text};

use crate::{NOW, over_mqtt, received, sent};

fn message(properties: MessageProperties) -> Message {
    Message {
        topic: Text::from("plant/7"),
        payload: Bytes::from_static(b"21.5"),
        properties: Some(Box::new(properties)),
        ..Message::default()
    }
}

fn pairs(message: &Message) -> Vec<(&str, &str)> {
    let pairs = message.properties.iter().flat_map(|it| &it.user_properties);
    pairs
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

fn user(pairs: &[(&str, &str)]) -> Vec<(Text, Text)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (Text::from(*name), Text::from(*value)))
        .collect()
}

#[test]
fn mqtt_fields_are_properties_of_amqp() {
    let mut message = message(MessageProperties {
        content_type: Some(Text::from("text/plain")),
        response_topic: Some(Text::from("reply/7")),
        correlation_data: Some(Bytes::from_static(b"c")),
        user_properties: user(&[("unit", "K"), (names::SUBJECT, "temperature")]),
        ..MessageProperties::default()
    });
    message.qos = QoS::AtLeastOnce;
    message.expires = Some(NOW + core::time::Duration::from_secs(60));
    let bytes = sent(&message);
    let scanned = codec::Message::scan(&bytes).unwrap();
    let header = Header {
        durable: true,
        ttl: Some(60_000),
        ..Header::default()
    };
    assert_eq!(scanned.header(), Ok(Some(header)));
    let properties = Properties {
        to: Some("plant/7"),
        subject: Some("temperature"),
        reply_to: Some("reply/7"),
        correlation_id: Some(MessageId::Binary(b"c")),
        content_type: Some(Symbol::from_static("text/plain")),
        absolute_expiry_time: Some(Timestamp(1_800_000_060_123)),
        ..Properties::default()
    };
    assert_eq!(scanned.properties(), Ok(Some(properties)));
    let application = scanned.application_properties().unwrap().unwrap();
    let entries: Vec<_> = application.iter().collect();
    assert_eq!(entries, [(Value::String("unit"), Value::String("K"))]);
    assert_eq!(scanned.body().kind, BodyKind::Data);
    assert_eq!(scanned.body().data().collect::<Vec<_>>(), [b"21.5"]);
}

#[test]
fn text_is_a_string_value_and_qos_2_and_retain_are_annotations() {
    let mut message = message(MessageProperties {
        payload_is_utf8: Some(true),
        ..MessageProperties::default()
    });
    message.qos = QoS::ExactlyOnce;
    message.retain = true;
    let bytes = sent(&message);
    let scanned = codec::Message::scan(&bytes).unwrap();
    let body: Vec<_> = scanned.body().values().collect();
    assert_eq!(body, [Ok(Value::String("21.5"))]);
    let annotations = scanned.message_annotations().unwrap().unwrap();
    assert_eq!(annotations.get(names::QOS), Some(Value::Ubyte(2)));
    assert_eq!(annotations.get(names::RETAIN), Some(Value::Bool(true)));
    assert_eq!(annotations.len(), 2);
}

#[test]
fn repeats_and_their_order_are_in_an_annotation() {
    let all = [("b", "1"), ("a", "2"), ("b", "3")];
    let message = message(MessageProperties {
        user_properties: user(&all),
        ..MessageProperties::default()
    });
    let bytes = sent(&message);
    let scanned = codec::Message::scan(&bytes).unwrap();
    let application = scanned.application_properties().unwrap().unwrap();
    assert_eq!(application.len(), 2);
    assert_eq!(application.get("b"), Some(Value::String("1")));
    let annotations = scanned.message_annotations().unwrap().unwrap();
    assert!(annotations.get(names::USER_PROPERTIES).is_some());
    assert_eq!(pairs(&received(&bytes, "plant/7")), all);

    // A client that changes a property is believed, and the annotation is not.
    let mut changed = bytes.to_vec();
    let at = changed
        .windows(3)
        .rposition(|it| it == b"\xa1\x012")
        .unwrap();
    changed[at + 2] = b'9';
    let changed = Bytes::from(changed);
    let back = received(&changed, "plant/7");
    assert!(pairs(&back).contains(&("a", "9")), "{back:?}");
}

#[test]
fn a_plain_message_needs_nothing_extra() {
    let mut out = Vec::new();
    Properties {
        to: Some("q"),
        ..Properties::default()
    }
    .encode(&mut out)
    .unwrap();
    Section::Data
        .encode(&Value::Binary(b"x"), &mut out)
        .unwrap();
    let message = received(&out.into(), "q");
    assert_eq!(message.properties, None);
    assert_eq!(message.payload, "x");
    assert_eq!(message.qos, QoS::AtMostOnce);
}

#[test]
fn typed_properties_are_text_with_their_type() {
    let mut out = Vec::new();
    let entries = [
        (Value::String("count"), Value::Int(5)),
        (Value::String("unit"), Value::String("K")),
    ];
    let properties = Properties {
        to: Some("q"),
        message_id: Some(MessageId::Ulong(7)),
        correlation_id: Some(MessageId::String("c-1")),
        group_id: Some("g"),
        creation_time: Some(Timestamp(5)),
        ..Properties::default()
    };
    properties.encode(&mut out).unwrap();
    let map = Value::Map(codec::Map::new(&entries));
    Section::ApplicationProperties
        .encode(&map, &mut out)
        .unwrap();
    Section::Data
        .encode(&Value::Binary(b"x"), &mut out)
        .unwrap();
    let message = received(&out.into(), "q");
    assert_eq!(
        pairs(&message),
        [
            ("count", "5"),
            ("unit", "K"),
            (names::TYPE, "int count"),
            (names::GROUP_ID, "g"),
            (names::MESSAGE_ID_ULONG, "7"),
            (names::CORRELATION_ID, "c-1"),
            (names::CREATION_TIME, "5"),
        ]
    );
    let fields = message.properties.as_ref().unwrap();
    assert_eq!(fields.correlation_data, Some(Bytes::from_static(b"c-1")));
    assert_eq!(message.extra.as_ref().unwrap().created_ms, Some(5));
}

#[test]
fn other_bodies_are_json_or_their_sections() {
    let map = [
        (Value::String("t"), Value::Double(21.5)),
        (Value::Symbol(Symbol::from_static("ok")), Value::Bool(true)),
        (
            Value::String("list"),
            Value::List(codec::List::new(&[Value::Null, Value::Long(-1)])),
        ),
    ];
    let mut out = Vec::new();
    let value = Value::Map(codec::Map::new(&map));
    Section::AmqpValue.encode(&value, &mut out).unwrap();
    let message = received(&out.clone().into(), "q");
    let json = r#"{"t":21.5,"ok":true,"list":[null,-1]}"#;
    assert_eq!(message.payload, json);
    let fields = message.properties.as_ref().unwrap();
    assert_eq!(fields.content_type.as_deref(), Some(names::JSON));
    assert_eq!(fields.payload_is_utf8, Some(true));
    assert_eq!(sent(&over_mqtt(&message)), out, "and back");

    let mut changed = over_mqtt(&message);
    changed.payload = Bytes::from_static(br#"{"t":22}"#);
    let bytes = sent(&changed);
    let body = codec::Message::scan(&bytes).unwrap().body();
    assert_eq!(
        body.data().collect::<Vec<_>>(),
        [br#"{"t":22}"#],
        "what MQTT sent is believed"
    );

    let mut out = Vec::new();
    Section::AmqpValue
        .encode(&Value::Uuid(codec::Uuid([1; 16])), &mut out)
        .unwrap();
    let message = received(&out.clone().into(), "q");
    assert_eq!(message.payload, out);
    let fields = message.properties.as_ref().unwrap();
    assert_eq!(fields.content_type.as_deref(), Some(names::ENCODED));
}

#[test]
fn json_is_not_much_longer_than_the_value() {
    // 256 times `null`, in eight bytes, 1000 times.
    let mut out = vec![0, 0x53, 0x77, 0xd0];
    let array = [0xf0, 0, 0, 0, 5, 0, 0, 1, 0, 0x40];
    out.extend_from_slice(&(4 + 1000 * array.len() as u32).to_be_bytes());
    out.extend_from_slice(&1000u32.to_be_bytes());
    for _ in 0..1000 {
        out.extend_from_slice(&array);
    }
    let message = received(&out.clone().into(), "q");
    assert!(
        message.payload.len() <= out.len(),
        "{}",
        message.payload.len()
    );
}

#[test]
fn ttl_and_absolute_time() {
    let mut out = Vec::new();
    Header {
        ttl: Some(1500),
        ..Header::default()
    }
    .encode(&mut out)
    .unwrap();
    let bare = {
        let mut bare = Vec::new();
        Section::Data
            .encode(&Value::Binary(b"x"), &mut bare)
            .unwrap();
        bare
    };
    out.extend_from_slice(&bare);
    let message = received(&out.into(), "q");
    let at = NOW + core::time::Duration::from_millis(1500);
    assert_eq!(message.expires, Some(at));
    assert!(pairs(&message).contains(&(names::ABSOLUTE_EXPIRY_TIME, "")));

    let mut out = Vec::new();
    let absolute_expiry_time = Some(Timestamp(1_800_000_009_000));
    Properties {
        absolute_expiry_time,
        ..Properties::default()
    }
    .encode(&mut out)
    .unwrap();
    out.extend_from_slice(&bare);
    let message = received(&out.into(), "q");
    assert_eq!(message.expires.unwrap().as_micros(), 1_800_000_009_000_000);
}
