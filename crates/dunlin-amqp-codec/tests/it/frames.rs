//! Frames and protocol headers as they arrive: byte by byte.

use dunlin_amqp_codec::limits::FRAME_BYTES_MIN;
use dunlin_amqp_codec::*;

#[test]
fn a_frame_is_cut_when_it_is_complete() {
    let mut bytes = Vec::new();
    let close = Performative::Close(Close::default());
    frame::encode(7, &close, &mut bytes).unwrap();
    assert_eq!(frame::encoded_len(&close), bytes.len());
    frame::encode_empty(&mut bytes).unwrap();
    for len in 0..12 {
        assert_eq!(
            frame::split(&bytes[..len], FRAME_BYTES_MIN),
            Ok(None),
            "{len}"
        );
    }
    let first = frame::split(&bytes, FRAME_BYTES_MIN).unwrap().unwrap();
    assert_eq!(
        (first.frame_type, first.channel, first.len),
        (FrameType::Amqp, 7, 12)
    );
    assert_eq!(Performative::decode(first.body), Ok((close, &[][..])));
    let second = frame::split(&bytes[12..], FRAME_BYTES_MIN)
        .unwrap()
        .unwrap();
    assert_eq!((second.len, second.body), (8, &[][..]));
}

#[test]
fn an_extended_header_is_passed_over() {
    let bytes = [0, 0, 0, 16, 3, 0, 0, 1, 9, 9, 9, 9, 0, 0x53, 0x18, 0x45];
    let frame = frame::split(&bytes, FRAME_BYTES_MIN).unwrap().unwrap();
    assert_eq!(frame.body_range, 12..16);
    assert_eq!(
        Performative::decode(frame.body).unwrap().0,
        Close::default().into()
    );
}

#[test]
fn a_transfer_is_written_around_its_payload() {
    let transfer = Transfer {
        handle: 3,
        settled: Some(true),
        ..Transfer::default()
    };
    let mut bytes = Vec::new();
    frame::encode_transfer(1, &transfer, 4, &mut bytes).unwrap();
    bytes.extend_from_slice(b"data");
    let frame = frame::split(&bytes, FRAME_BYTES_MIN).unwrap().unwrap();
    assert_eq!(frame.len, bytes.len());
    let decoded = Performative::decode(frame.body);
    assert_eq!(decoded, Ok((transfer.into(), &b"data"[..])));
}

#[test]
fn a_sasl_frame_has_its_type() {
    let outcome = SaslFrame::Outcome(SaslOutcome::default());
    let mut bytes = Vec::new();
    frame::encode_sasl(&outcome, &mut bytes).unwrap();
    let frame = frame::split(&bytes, FRAME_BYTES_MIN).unwrap().unwrap();
    assert_eq!(frame.frame_type, FrameType::Sasl);
    assert_eq!(SaslFrame::decode(frame.body), Ok(outcome));
}

#[test]
fn a_full_sink_is_an_error() {
    let close = Performative::Close(Close::default());
    let mut room = [0; 11];
    let error = frame::encode(0, &close, &mut &mut room[..]);
    assert!(matches!(error, Err(EncodeError::Sink(_))), "{error:?}");
}

#[test]
fn protocol_headers() {
    for (header, bytes) in [
        (ProtocolHeader::Amqp, b"AMQP\x00\x01\x00\x00"),
        (ProtocolHeader::Tls, b"AMQP\x02\x01\x00\x00"),
        (ProtocolHeader::Sasl, b"AMQP\x03\x01\x00\x00"),
    ] {
        assert_eq!(&header.bytes(), bytes);
        assert_eq!(
            ProtocolHeader::peek(&[bytes, &b"more"[..]].concat()),
            Ok(Some(header))
        );
        for len in 0..8 {
            assert_eq!(ProtocolHeader::peek(&bytes[..len]), Ok(None), "{len}");
        }
    }
    for wrong in [
        &b"M"[..],
        b"AMQQ",
        b"AMQP\x01",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x03\x01\x00\x01",
    ] {
        assert_eq!(ProtocolHeader::peek(wrong), Err(NotAProtocolHeader));
    }
}
