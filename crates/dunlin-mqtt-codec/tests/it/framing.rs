//! `peek`: how much of a packet must be there, and what is refused before the
//! body is.

use dunlin_mqtt_codec::{DecodeError, PacketType, Publish, Version, peek};

use crate::vectors::cases;

#[test]
fn header_is_known_as_soon_as_it_is_complete() {
    let packet = [0x30, 0x80, 0x01];
    assert_eq!(peek(&[], 1000), Ok(None));
    assert_eq!(peek(&packet[..1], 1000), Ok(None));
    assert_eq!(peek(&packet[..2], 1000), Ok(None));
    let frame = peek(&packet, 1000).unwrap().unwrap();
    assert_eq!(frame.packet_type, PacketType::Publish);
    assert_eq!((frame.header_len, frame.total_len), (3, 131));
    let more = peek(&[0x3b, 0x03, 0, 0, 0, 0xc0], 1000).unwrap().unwrap();
    assert_eq!((more.flags, more.header_len, more.total_len), (0x0b, 2, 5));
}

#[test]
fn size_is_checked_before_the_body() {
    let header = [0x30, 0x80, 0x01];
    assert!(peek(&header, 131).unwrap().is_some());
    assert_eq!(peek(&header, 130), Err(DecodeError::PacketTooLarge));
    let largest = [0x30, 0xff, 0xff, 0xff, 0x7f];
    let frame = peek(&largest, u32::MAX).unwrap().unwrap();
    assert_eq!(frame.total_len, 268_435_460);
    assert_eq!(peek(&largest, 1 << 20), Err(DecodeError::PacketTooLarge));
    assert_eq!(DecodeError::PacketTooLarge.reason().to_u8(), 0x95);
}

#[test]
fn first_byte_is_enough_to_refuse() {
    for first in [0x00, 0x0f, 0x36, 0x3f, 0x60, 0x80, 0xa0, 0xc1, 0xff] {
        assert!(peek(&[first], 1000).is_err(), "{first:#04x}");
    }
}

/// Lengths around every change of size, minimal and not, read and written.
#[test]
fn lengths_take_the_fewest_bytes() {
    //= mqtt5#[MQTT-1.5.5-1] type=test
    let edges: [(usize, &[u8]); 8] = [
        (0, &[0]),
        (127, &[0x7f]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xff, 0x7f]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xff, 0xff, 0x7f]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (268_435_455, &[0xff, 0xff, 0xff, 0x7f]),
    ];
    for (value, bytes) in edges {
        let packet = [&[0x30], bytes].concat();
        let frame = peek(&packet, u32::MAX).unwrap().unwrap();
        assert_eq!(frame.total_len, 1 + bytes.len() + value);
        let publish = Publish {
            topic: "t",
            ..Publish::default()
        };
        if let Some(payload_len) = value.checked_sub(3) {
            let mut written = Vec::new();
            let layout = publish.encode_header(Version::V311, payload_len, &mut written);
            assert_eq!(layout.unwrap().len, written.len());
            assert_eq!(written, [&packet, [0, 1, b't'].as_slice()].concat());
        }
        let (last, head) = bytes.split_last().unwrap();
        let longer = [&[0x30], head, &[last | 0x80, 0]].concat();
        let want = match bytes.len() {
            4 => DecodeError::VarintTooLong,
            _ => DecodeError::VarintNotMinimal,
        };
        assert_eq!(peek(&longer, u32::MAX), Err(want), "{value}");
    }
}

#[test]
fn every_valid_case_has_its_own_length() {
    for case in cases() {
        if case.packet().is_some() {
            let frame = peek(&case.bytes, u32::MAX).unwrap().unwrap();
            assert_eq!(frame.total_len, case.bytes.len(), "{}", case.name);
            let packet_type = case.packet().unwrap().packet_type();
            assert_eq!(frame.packet_type, packet_type, "{}", case.name);
        }
    }
}
