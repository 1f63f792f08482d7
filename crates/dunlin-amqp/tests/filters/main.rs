//! Filters through their public API.

// `allow-unwrap-in-tests` does not reach helpers outside of `#[test]`.
#![allow(clippy::unwrap_used)]

mod corpus;
mod hostile;
mod maps;
mod selectors;

use bytes::Bytes;
use dunlin_amqp::codec::{Header, Map, MessageId, Properties, Section, Symbol, Timestamp, Value};
use dunlin_amqp::codec::{Uuid, encode_annotated};
use dunlin_amqp::message::from_amqp;
use dunlin_base::{Instant, Message, Text};

/// A message with something in every section.
pub(crate) fn message() -> Message {
    let mut out = Vec::new();
    let header = Header {
        durable: true,
        priority: 7,
        ..Header::default()
    };
    let annotations = [(Value::Symbol(Symbol::from_static("x-opt-n")), Value::Int(3))];
    encode_annotated(Some(&header), None, Some(Map::new(&annotations)), &mut out).unwrap();
    let properties = Properties {
        message_id: Some(MessageId::String("ID:1")),
        user_id: Some(b"me"),
        subject: Some("temperature"),
        content_type: Some(Symbol::from_static("text/plain")),
        correlation_id: Some(MessageId::Uuid(Uuid([1; 16]))),
        creation_time: Some(Timestamp(1000)),
        group_id: Some("g"),
        ..Properties::default()
    };
    properties.encode(&mut out).unwrap();
    let entries = [
        (Value::String("a"), Value::Int(5)),
        (Value::String("b"), Value::Double(2.5)),
        (Value::String("s"), Value::String("it's 100%")),
        (Value::String("t"), Value::Bool(true)),
        (Value::String("f"), Value::Bool(false)),
        (Value::String("null"), Value::Null),
        (Value::String("bytes"), Value::Binary(b"x")),
        (Value::String("x.y"), Value::Ulong(u64::MAX)),
        (Value::String("and"), Value::Long(1)),
    ];
    let map = Value::Map(Map::new(&entries));
    Section::ApplicationProperties
        .encode(&map, &mut out)
        .unwrap();
    Section::Data
        .encode(&Value::Binary(b"payload"), &mut out)
        .unwrap();
    from_amqp(&Bytes::from(out), Text::from("q"), Instant::ZERO).unwrap()
}
