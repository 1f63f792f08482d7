//! The neutral message as AMQP.

use bytes::Bytes;
use dunlin_amqp_codec::{EncodeError, Header, encode_annotated};
use dunlin_base::{ByteSink, Form, Instant, Message, MessageProperties, QoS};

use super::form::View;
use super::neutral::{Arrival, Read};
use super::original;

/// What a node says of one delivery of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Failed deliveries before.
    pub delivery_count: u32,
    /// No other link had the message before.
    pub first_acquirer: bool,
}

/// Writes a message with its header. What came as AMQP goes as it came, but for
/// header and delivery annotations.
///
/// # Errors
/// The sink is full, or the message is larger than AMQP can say.
pub fn to_amqp(
    message: &Message,
    now: Instant,
    attempt: Attempt,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    let body = to_amqp_parts(message, now, attempt, out)?;
    Ok(out.put(&body)?)
}

/// As [`to_amqp`], but for the bytes that go as they came: they follow what is written
/// to `head`, and are given back instead of copied.
///
/// # Errors
/// As [`to_amqp`].
pub fn to_amqp_parts(
    message: &Message,
    now: Instant,
    attempt: Attempt,
    head: &mut (impl ByteSink + ?Sized),
) -> Result<Bytes, EncodeError> {
    let none = MessageProperties::default();
    let view = View::of(message, message.properties.as_deref().unwrap_or(&none));
    let extra = message.extra.as_deref();
    let encoded = extra.and_then(|extra| extra.encoded.as_ref());
    let original = match encoded {
        Some(encoded) if encoded.form == Form::Amqp => Some(encoded.bytes.clone()),
        _ => original_bytes(&view),
    };
    let usual = Header::default();
    let header = Header {
        durable: message.qos != QoS::AtMostOnce,
        priority: view.said_priority().unwrap_or(usual.priority),
        ttl: message.expires.map(|at| remaining_ms(at, now)),
        first_acquirer: attempt.first_acquirer,
        delivery_count: attempt.delivery_count,
    };
    let header = (header != usual).then_some(&header);
    encode_annotated(header, None, None, head)?;
    if let Some(bytes) = original {
        return Ok(bytes);
    }
    view.write(head)?;
    Ok(Bytes::new())
}

/// Milliseconds left, at least one: 0 is none for some.
fn remaining_ms(at: Instant, now: Instant) -> u32 {
    let left = at.saturating_duration_since(now).as_micros().div_ceil(1000);
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

/// The bytes that the User Properties of a message have, if they still are
/// those of the message.
fn original_bytes(view: &View<'_>) -> Option<Bytes> {
    let bytes = original::gather(&view.properties.user_properties, view.payload)?;
    let arrival = Arrival {
        topic: view.topic,
        expires: view.expires,
        priority: view.said_priority(),
    };
    let read = Read::of(&bytes, &arrival, true).ok()?;
    let is_twice = |qos| qos == QoS::ExactlyOnce;
    let is_same = read.payload == view.payload
        && read.properties == *view.properties
        && read.retain == view.retain
        && is_twice(read.qos) == is_twice(view.qos);
    is_same.then_some(bytes)
}
