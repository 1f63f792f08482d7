//! There and back gives the same, both ways round.

use dunlin_amqp::codec::{self, Map, Section, Value, encode_annotated};
use dunlin_amqp::message::{from_amqp, to_mqtt};
use dunlin_base::{Message, Text};

use crate::random::Random;
use crate::{NOW, lasting, over_mqtt, received, sent};

/// Messages to try, each way.
const MESSAGES: u64 = 6_000;

/// Without what only AMQP knows, and with the precision that AMQP has.
fn comparable(message: &Message) -> Message {
    Message {
        extra: None,
        expires: message
            .expires
            .map(|at| dunlin_base::Instant::from_micros(at.as_micros() / 1000)),
        ..message.clone()
    }
}

#[test]
fn from_mqtt_and_back() {
    for seed in 0..MESSAGES {
        let message = Random::new(seed).neutral();
        let bytes = sent(&message);
        let back = received(&bytes, &message.topic);
        let (got, want) = (comparable(&back), comparable(&message));
        // A User Property may name another time of expiry.
        let got = if says_expiry(&message) {
            Message {
                expires: want.expires,
                ..got
            }
        } else {
            got
        };
        assert_eq!(got, want, "{seed}: {bytes:x?}");
        let secs = |it: &Message| over_mqtt(it).expires;
        if !says_expiry(&message) {
            assert_eq!(secs(&back), secs(&message), "{seed}");
        }
        assert_eq!(
            lasting(&sent(&back)),
            lasting(&bytes),
            "{seed}: unchanged to AMQP"
        );
    }
}

fn says_expiry(message: &Message) -> bool {
    let pairs = message.properties.iter().flat_map(|it| &it.user_properties);
    pairs
        .into_iter()
        .any(|(name, _)| name.starts_with("amqp-absolute"))
}

#[test]
fn from_amqp_and_back() {
    for seed in 0..MESSAGES {
        let bytes = Random::new(seed).amqp();
        for topic in ["a/b", "topic"] {
            let message = received(&bytes, topic);
            assert_eq!(lasting(&sent(&message)), lasting(&bytes), "{seed}: to AMQP");
            let over_mqtt = over_mqtt(&message);
            let back = sent(&over_mqtt);
            assert_eq!(lasting(&back), lasting(&bytes), "{seed}: {over_mqtt:?}");
            let header = |bytes| codec::Message::scan(bytes).unwrap().header().unwrap();
            let (was, is) = (
                header(&bytes).unwrap_or_default(),
                header(&back).unwrap_or_default(),
            );
            assert_eq!(is.priority, was.priority, "{seed}");
        }
    }
}

/// Messages that a client encodes in ways that only it has.
#[test]
fn from_amqp_with_changes_and_back() {
    let mut valid = 0;
    for seed in 0..MESSAGES * 4 {
        let mut random = Random::new(seed);
        let mut bytes = random.amqp().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() + 1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0x40, 0x41, 0x45, 0x74, 0xff, *byte ^ 1][random.below(8)];
            }
        }
        let bytes = bytes.into();
        let Ok(message) = from_amqp(&bytes, Text::from("a/b"), NOW) else {
            continue;
        };
        valid += 1;
        let message = to_mqtt(&message).expect("valid");
        let back = sent(&over_mqtt(&message));
        assert_eq!(lasting(&back), lasting(&bytes), "{seed}: {message:?}");
    }
    assert!(valid > 1000, "valid ones: {valid}");
}

/// A client that reads a message and sends it again may write it in another
/// form, and a map in another order.
#[test]
fn from_mqtt_and_back_by_a_client_that_encodes_in_its_own_way() {
    let mut seen = 0;
    for seed in 0..MESSAGES / 4 {
        let message = Random::new(seed).neutral();
        let bytes = sent(&message);
        let scanned = codec::Message::scan(&bytes).unwrap();
        let mut out = Vec::new();
        let annotations = scanned.message_annotations().unwrap();
        let header = scanned.header().unwrap();
        encode_annotated(header.as_ref(), None, annotations, &mut out).unwrap();
        if let Some(properties) = scanned.properties().unwrap() {
            let mut encoded = Vec::new();
            properties.encode(&mut encoded).unwrap();
            if let [0, 0x53, 0x73, 0xc0, _, count, fields @ ..] = encoded.as_slice() {
                out.extend_from_slice(&[0, 0x53, 0x73, 0xd0]);
                out.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
                out.extend_from_slice(&u32::from(*count).to_be_bytes());
                out.extend_from_slice(fields);
            } else {
                out.extend_from_slice(&encoded);
            }
        }
        let map = scanned.application_properties().unwrap();
        // Without the annotation nothing else keeps the order.
        let is_reversible = annotations.is_some_and(|it| {
            it.get(dunlin_amqp::message::names::USER_PROPERTIES)
                .is_some()
        });
        if let Some(map) = map {
            let mut entries: Vec<_> = map.iter().collect();
            if is_reversible {
                entries.reverse();
            }
            let map = Value::Map(Map::new(&entries));
            Section::ApplicationProperties
                .encode(&map, &mut out)
                .unwrap();
        }
        out.extend_from_slice(scanned.body().bytes);
        if is_reversible {
            seen += 1;
            let back = received(&out.into(), &message.topic);
            let pairs = |it: &Message| it.properties.as_ref().map(|it| it.user_properties.clone());
            assert_eq!(pairs(&back), pairs(&message), "{seed}");
        }
    }
    assert!(seen > 100, "messages with the annotation: {seen}");
}
