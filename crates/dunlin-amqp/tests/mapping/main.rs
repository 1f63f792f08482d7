//! The mapping between AMQP and the neutral message through its public API.

// `allow-unwrap-in-tests` does not reach helpers outside of `#[test]`.
#![allow(clippy::unwrap_used)]

mod examples;
mod random;
mod round_trips;

use bytes::Bytes;
use dunlin_amqp::codec;
use dunlin_amqp::message::{Attempt, from_amqp, to_amqp, to_amqp_parts, to_mqtt};
use dunlin_base::{Form, Instant, Message, Text};

/// When all messages are sent and received.
pub(crate) const NOW: Instant = Instant::from_micros(1_800_000_000_123_456);

/// The bytes that a receiver of AMQP gets.
pub(crate) fn sent(message: &Message) -> Bytes {
    let mut out = Vec::new();
    to_amqp(message, NOW, Attempt::default(), &mut out).expect("room");
    let mut head = Vec::new();
    let body = to_amqp_parts(message, NOW, Attempt::default(), &mut head).expect("room");
    assert_eq!([&head, &*body].concat(), out, "in two parts it is the same");
    // What came as AMQP is shared, not copied.
    let extra = message.extra.as_ref();
    let encoded = extra.and_then(|extra| extra.encoded.as_ref());
    if let Some(encoded) = encoded.filter(|it| it.form == Form::Amqp) {
        assert_eq!(body.as_ptr(), encoded.bytes.as_ptr());
    }
    Bytes::from(out)
}

/// The message of what a sender of AMQP sends to `topic`, with what MQTT has of it.
pub(crate) fn received(bytes: &Bytes, topic: &str) -> Message {
    let message = from_amqp(bytes, Text::from(topic), NOW).expect("valid");
    assert_eq!(
        lasting(&sent(&message)),
        lasting(bytes),
        "to AMQP it is unchanged"
    );
    to_mqtt(&message).expect("valid")
}

/// Message annotations, bare message and footer.
pub(crate) fn lasting(bytes: &Bytes) -> Bytes {
    bytes.slice(codec::Message::scan(bytes).unwrap().lasting_range())
}

/// The message as MQTT carries it: with whole seconds to its expiry, and
/// without what only AMQP knows.
pub(crate) fn over_mqtt(message: &Message) -> Message {
    let expires = message.expires.map(|at| {
        let secs = (at - NOW).as_micros().div_ceil(1_000_000) as u64;
        NOW + core::time::Duration::from_secs(secs)
    });
    Message {
        expires,
        extra: None,
        ..message.clone()
    }
}
