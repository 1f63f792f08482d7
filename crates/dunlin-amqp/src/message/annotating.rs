//! Message annotations that a node adds to a message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::{Map, Message as Scanned, Value, encode_annotated};
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra};

use super::neutral::from_amqp;
use super::sending::{Attempt, to_amqp};

/// The message with these message annotations, which replace those of the same
/// name. What did not come as AMQP is written as such. `None`: the message or its
/// annotations are not valid.
#[must_use]
pub fn annotate(
    message: &Message,
    now: Instant,
    annotations: &[(Value<'_>, Value<'_>)],
) -> Option<Message> {
    let written = written(message, now)?;
    let scanned = Scanned::scan(&written).ok()?;
    let old = scanned.message_annotations().ok()?.unwrap_or_default();
    let is_new = |name: &Value<'_>| {
        annotations
            .iter()
            .any(|(it, _)| it.as_str() == name.as_str())
    };
    let kept = old.iter().filter(|(name, _)| !is_new(name));
    let all: Vec<_> = kept.chain(annotations.iter().copied()).collect();
    let mut bytes = Vec::with_capacity(written.len() + 128);
    encode_annotated(None, None, Some(Map::new(&all)), &mut bytes).ok()?;
    bytes.extend_from_slice(scanned.bare_and_footer());
    let bytes = Bytes::from(bytes);
    let read = from_amqp(&bytes, message.topic.clone(), now).ok()?;
    let extra = message.extra.as_deref().cloned().unwrap_or_default();
    Some(Message {
        payload: read.payload,
        properties: None,
        extra: Some(Box::new(MessageExtra {
            encoded: Some(Encoded {
                form: Form::Amqp,
                bytes,
            }),
            ..extra
        })),
        ..message.clone()
    })
}

/// Message annotations and bare message.
fn written(message: &Message, now: Instant) -> Option<Bytes> {
    let encoded = message.extra.as_ref().and_then(|it| it.encoded.as_ref());
    if let Some(encoded) = encoded.filter(|encoded| encoded.form == Form::Amqp) {
        return Some(encoded.bytes.clone());
    }
    let mut bytes = Vec::new();
    to_amqp(message, now, Attempt::default(), &mut bytes).ok()?;
    // Without the header, which is the delivery's.
    let lasting = Scanned::scan(&bytes).ok()?.lasting_range();
    Some(Bytes::from(bytes).slice(lasting))
}

#[cfg(test)]
mod tests {
    use dunlin_amqp_codec::Symbol;
    use dunlin_base::{QoS, Text};

    use super::*;
    use crate::message::to_mqtt;

    const NOW: Instant = Instant::from_micros(1_000_000);

    fn annotation(message: &Message, name: &str) -> Option<Vec<u8>> {
        let extra = message.extra.as_ref().expect("AMQP");
        let bytes = &extra.encoded.as_ref().expect("AMQP").bytes;
        let scanned = Scanned::scan(bytes).expect("a message");
        scanned.check().expect("valid");
        let map = scanned.message_annotations().expect("valid")?;
        map.get(name).map(|it| it.to_vec().expect("encoded"))
    }

    #[test]
    fn annotations_are_added_and_replaced_and_the_rest_stays() {
        let mqtt = Message {
            topic: Text::from_static("a/b"),
            payload: Bytes::from_static(b"x"),
            qos: QoS::ExactlyOnce,
            retain: true,
            expires: Some(NOW + core::time::Duration::from_secs(9)),
            ..Message::default()
        };
        let pair = |name: &'static str, value| {
            let name = Symbol::from_static(name);
            (Value::Symbol(name), Value::String(value))
        };
        let once = annotate(&mqtt, NOW, &[pair("x-a", "1"), pair("x-b", "2")]).expect("valid");
        let twice = annotate(&once, NOW, &[pair("x-b", "3")]).expect("valid");
        let is = |name, value| {
            let value = Value::String(value).to_vec().expect("encoded");
            assert_eq!(annotation(&twice, name), Some(value), "{name}");
        };
        is("x-a", "1");
        is("x-b", "3");
        assert_eq!((&twice.payload, twice.qos), (&mqtt.payload, mqtt.qos));
        assert_eq!((twice.expires, twice.retain), (mqtt.expires, true));
        let back = to_mqtt(&twice).expect("valid");
        assert_eq!((&back.payload, back.qos), (&mqtt.payload, mqtt.qos));
    }
}
