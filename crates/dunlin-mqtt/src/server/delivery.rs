//! Between PUBLISH packets (and wills) and the neutral message, both ways.

use alloc::boxed::Box;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::{Instant, Message, MessageProperties, Text};
use dunlin_mqtt_codec::{Publish, PublishProperties, UserProperties, Will};

/// The neutral message of a PUBLISH received at `now`. The topic must be
/// resolved.
#[must_use]
pub fn message(publish: &Publish<'_>, now: Instant) -> Message {
    let from = &publish.properties;
    let properties = Properties {
        payload_is_utf8: from.payload_format_indicator,
        content_type: from.content_type,
        response_topic: from.response_topic,
        correlation_data: from.correlation_data,
        user_properties: from.user_properties,
    };
    Message {
        topic: Text::from(publish.topic),
        payload: Bytes::copy_from_slice(publish.payload),
        qos: publish.qos,
        retain: publish.retain,
        expires: from
            .message_expiry_interval
            .map(|secs| now + Duration::from_secs(u64::from(secs))),
        properties: properties.to_owned(),
        extra: None,
    }
}

/// The neutral message of a will. Its expiry counts from its publication, so
/// it has none yet.
#[must_use]
pub fn will_message(will: &Will<'_>) -> Message {
    let from = &will.properties;
    let properties = Properties {
        payload_is_utf8: from.payload_format_indicator,
        content_type: from.content_type,
        response_topic: from.response_topic,
        correlation_data: from.correlation_data,
        user_properties: from.user_properties,
    };
    Message {
        topic: Text::from(will.topic),
        payload: Bytes::copy_from_slice(will.payload),
        qos: will.qos,
        retain: will.retain,
        expires: None,
        properties: properties.to_owned(),
        extra: None,
    }
}

/// A message as PUBLISH with the message's own QoS and RETAIN, no packet
/// identifier, and what is left of its expiry at `now` [MQTT-3.3.2-6].
#[must_use]
pub fn view(message: &Message, now: Instant) -> Publish<'_> {
    let mut properties = PublishProperties {
        message_expiry_interval: message.expires.map(|at| remaining_secs(at, now)),
        ..PublishProperties::default()
    };
    if let Some(from) = message.properties.as_deref() {
        properties.payload_format_indicator = from.payload_is_utf8;
        properties.content_type = from.content_type.as_deref();
        properties.response_topic = from.response_topic.as_deref();
        properties.correlation_data = from.correlation_data.as_deref();
        properties.user_properties = UserProperties::from(from.user_properties.as_slice());
    }
    Publish {
        dup: false,
        qos: message.qos,
        retain: message.retain,
        topic: &message.topic,
        packet_id: None,
        payload: &message.payload,
        properties,
    }
}

/// Whole seconds left, rounded up so that a message just received keeps the
/// interval that it came with.
fn remaining_secs(at: Instant, now: Instant) -> u32 {
    let micros = (at - now).as_micros();
    u32::try_from(micros.div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// Properties that travel unaltered, borrowed.
struct Properties<'a> {
    payload_is_utf8: Option<bool>,
    content_type: Option<&'a str>,
    response_topic: Option<&'a str>,
    correlation_data: Option<&'a [u8]>,
    user_properties: UserProperties<'a>,
}

impl Properties<'_> {
    /// Copies them, into nothing when there are none.
    fn to_owned(&self) -> Option<Box<MessageProperties>> {
        if self.payload_is_utf8.is_none()
            && self.content_type.is_none()
            && self.response_topic.is_none()
            && self.correlation_data.is_none()
            && self.user_properties.is_empty()
        {
            return None;
        }
        Some(Box::new(MessageProperties {
            payload_is_utf8: self.payload_is_utf8,
            content_type: self.content_type.map(Text::from),
            response_topic: self.response_topic.map(Text::from),
            correlation_data: self.correlation_data.map(Bytes::copy_from_slice),
            user_properties: self
                .user_properties
                .iter()
                .map(|(name, value)| (Text::from(name), Text::from(value)))
                .collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_base::QoS;

    use super::*;

    #[test]
    fn a_message_keeps_its_properties_and_loses_time() {
        //= mqtt5#[MQTT-3.3.2-6] type=test
        //= mqtt5#[MQTT-3.3.2-4] type=test
        //= mqtt5#[MQTT-3.3.2-15] type=test
        //= mqtt5#[MQTT-3.3.2-16] type=test
        //= mqtt5#[MQTT-3.3.2-17] type=test
        //= mqtt5#[MQTT-3.3.2-18] type=test
        //= mqtt5#[MQTT-3.3.2-20] type=test
        let pairs = [("b", "1"), ("a", "2"), ("b", "3")];
        let publish = Publish {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: "t",
            payload: b"p",
            properties: PublishProperties {
                payload_format_indicator: Some(true),
                message_expiry_interval: Some(10),
                content_type: Some("text"),
                response_topic: Some("r"),
                correlation_data: Some(b"c"),
                user_properties: UserProperties::new(&pairs),
                ..PublishProperties::default()
            },
            ..Publish::default()
        };
        let start = Instant::from_micros(5);
        let message = message(&publish, start);
        assert_eq!(view(&message, start), publish);
        let later = view(&message, start + Duration::from_millis(3200));
        assert_eq!(later.properties.message_expiry_interval, Some(7));
        assert!(message.is_expired(start + Duration::from_secs(10)));
    }
}
