//! Sections of a message: found, read, and written again without a change to
//! the bare message.

use dunlin_amqp_codec::*;

use crate::notation;

fn full() -> Vec<u8> {
    notation::bytes(
        "00 53 70 c0 {05 41 50 09 52 0a 40 52 01} \
         00 53 71 c1 {02 a3 01 'd' 41} \
         00 53 72 c1 {02 a3 03 'm-a' 52 05} \
         00 53 73 c0 {06 a1 01 'i' 40 a1 01 't' a1 01 's' a1 01 'r' 80 0000000000000100} \
         00 53 74 c1 {02 a1 01 'k' a1 01 'v'} \
         00 53 75 a0 02 'ab' 00 53 75 b0 00000001 'c' \
         00 53 78 c1 {02 a3 01 'f' 42}",
    )
}

#[test]
fn every_section_is_found() {
    let bytes = full();
    let message = Message::scan(&bytes).unwrap();
    message.check().unwrap();
    let header = Header {
        durable: true,
        priority: 9,
        ttl: Some(10),
        first_acquirer: false,
        delivery_count: 1,
    };
    assert_eq!(message.header(), Ok(Some(header)));
    let properties = Properties {
        message_id: Some(MessageId::String("i")),
        to: Some("t"),
        subject: Some("s"),
        reply_to: Some("r"),
        correlation_id: Some(MessageId::Ulong(256)),
        ..Properties::default()
    };
    assert_eq!(message.properties(), Ok(Some(properties)));
    let get = |map: Result<Option<Map<'static>>, DecodeError>, key| map.unwrap().unwrap().get(key);
    let bytes: &'static [u8] = bytes.leak();
    let message = Message::scan(bytes).unwrap();
    assert_eq!(
        get(message.delivery_annotations(), "d"),
        Some(Value::Bool(true))
    );
    assert_eq!(
        get(message.message_annotations(), "m-a"),
        Some(Value::Uint(5))
    );
    assert_eq!(
        get(message.application_properties(), "k"),
        Some(Value::String("v"))
    );
    assert_eq!(get(message.footer(), "f"), Some(Value::Bool(false)));
    let body = message.body();
    assert_eq!(body.kind, BodyKind::Data);
    assert_eq!(body.data().collect::<Vec<_>>(), [&b"ab"[..], b"c"]);
    assert_eq!(body.value_bytes(), None);
}

#[test]
fn the_bare_message_stays() {
    let bytes = full();
    let message = Message::scan(&bytes).unwrap();
    let bare = &bytes[message.bare_range()];
    let header = Header {
        delivery_count: 2,
        ..message.header().unwrap().unwrap()
    };
    let entries = [(
        Value::Symbol(Symbol::from_static("x-opt-n")),
        Value::Uint(1),
    )];
    let mut out = Vec::new();
    encode_annotated(Some(&header), None, Some(Map::new(&entries)), &mut out).unwrap();
    out.extend_from_slice(message.bare_and_footer());
    let again = Message::scan(&out).unwrap();
    again.check().unwrap();
    assert_eq!(&out[again.bare_range()], bare);
    assert_eq!(again.header(), Ok(Some(header)));
    assert_eq!(again.delivery_annotations(), Ok(None));
    assert_eq!(again.message_annotations(), Ok(Some(Map::new(&entries))));
    assert_eq!(again.footer(), message.footer());
}

#[test]
fn bodies() {
    let value = notation::bytes("00 53 77 c0 03 01 52 07");
    let body = Message::scan(&value).unwrap().body();
    assert_eq!(body.kind, BodyKind::Value);
    assert_eq!(body.value_bytes(), value.get(3..));
    assert_eq!(body.data().count(), 0);

    let binary = notation::bytes("00 53 77 a0 01 'x'");
    let body = Message::scan(&binary).unwrap().body();
    assert_eq!(body.data().count(), 0, "a value is no data");
    assert_eq!(body.values().collect::<Vec<_>>(), [Ok(Value::Binary(b"x"))]);

    let sequences = notation::bytes("00 53 76 45 00 a3 17 'amqp:amqp-sequence:list' c0 02 01 40");
    let body = Message::scan(&sequences).unwrap().body();
    assert_eq!(body.kind, BodyKind::Sequence);
    let lens = body.values().map(|value| match value {
        Ok(Value::List(list)) => list.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(lens.collect::<Vec<_>>(), [0, 1]);

    assert_eq!(Message::scan(&[]).unwrap().body().kind, BodyKind::Missing);
    assert_eq!(Message::scan(&[]).unwrap().check(), Ok(()));
}

#[test]
fn sections_are_written() {
    for len in [0, 255, 256] {
        let data = vec![7; len];
        let mut out = Vec::new();
        Section::encode_data_start(len, &mut out).unwrap();
        out.extend_from_slice(&data);
        assert_eq!(out.len(), Section::data_len(len));
        let message = Message::scan(&out).unwrap();
        assert_eq!(message.body().data().collect::<Vec<_>>(), [&data[..]]);
    }
    let text = Value::String("text");
    let mut out = Vec::new();
    Section::AmqpValue.encode(&text, &mut out).unwrap();
    assert_eq!(out.len(), Section::AmqpValue.encoded_len(&text));
    let body = Message::scan(&out).unwrap().body();
    assert_eq!(Value::decode(body.value_bytes().unwrap()), Ok(text));
}
