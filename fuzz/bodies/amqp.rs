//! Any bytes as everything that AMQP 1.0 has: decoding does not panic, and what
//! it accepts can be encoded, measured and decoded to the same again.

use dunlin_amqp_codec::limits::FRAME_BYTES_MIN;
use dunlin_amqp_codec::{
    EncodeError, Message, Performative, ProtocolHeader, SaslFrame, Value, encode_annotated, frame,
};

/// One input.
pub(crate) fn run(data: &[u8]) {
    let _ = ProtocolHeader::peek(data);
    value(data);
    performative(data);
    sasl(data);
    message(data);
    let Ok(Some(frame)) = frame::split(data, FRAME_BYTES_MIN) else {
        return;
    };
    assert!(frame.len <= data.len(), "a frame of bytes that are there");
    assert_eq!(data.get(frame.body_range.clone()), Some(frame.body));
    performative(frame.body);
    sasl(frame.body);
}

/// The bytes of an encoder, which fails only for want of room.
fn encoded(len: usize, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(encode(&mut bytes), Ok(()));
    assert_eq!(bytes.len(), len, "measured and written");
    bytes
}

fn value(data: &[u8]) {
    let Ok(value) = Value::decode(data) else {
        return;
    };
    // Compound values are read again, outside of the decoder, by their `Debug`.
    let text = format!("{value:?}");
    let bytes = encoded(value.encoded_len(), |out| value.encode(out));
    assert!(bytes.len() <= data.len(), "the shortest form");
    let again = Value::decode(&bytes).expect("what was written");
    assert_eq!(format!("{again:?}"), text);
    assert_eq!(again.to_vec(), Ok(bytes));
}

fn performative(data: &[u8]) {
    let Ok((performative, rest)) = Performative::decode(data) else {
        return;
    };
    let bytes = encoded(performative.encoded_len(), |out| performative.encode(out));
    let is_transfer = matches!(performative, Performative::Transfer(_));
    assert!(
        is_transfer || rest.is_empty(),
        "only transfer has a payload"
    );
    let (again, none) = Performative::decode(&bytes).expect("what was written");
    assert!(none.is_empty());
    assert_eq!(format!("{again:?}"), format!("{performative:?}"));
}

fn sasl(data: &[u8]) {
    let Ok(sasl) = SaslFrame::decode(data) else {
        return;
    };
    let bytes = encoded(sasl.encoded_len(), |out| sasl.encode(out));
    let again = SaslFrame::decode(&bytes).expect("what was written");
    assert_eq!(format!("{again:?}"), format!("{sasl:?}"));
}

fn message(data: &[u8]) {
    let Ok(message) = Message::scan(data) else {
        return;
    };
    let bare = data.get(message.bare_range()).expect("in the message");
    assert!(message.body_range().len() <= bare.len(), "a part of it");
    if message.check().is_err() {
        return;
    }
    let annotations = message.message_annotations().expect("checked");
    let header = message.header().expect("checked");
    let mut bytes = Vec::new();
    encode_annotated(header.as_ref(), None, annotations, &mut bytes).expect("room");
    bytes.extend_from_slice(message.bare_and_footer());
    let again = Message::scan(&bytes).expect("what was written");
    assert_eq!(bytes.get(again.bare_range()), Some(bare), "untouched");
    assert_eq!(again.body(), message.body());
    assert_eq!(
        format!("{:?}", again.header()),
        format!("{:?}", message.header())
    );
}
