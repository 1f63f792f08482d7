//! Messages on their way to another shard, as bytes: one buffer for all of a
//! turn, in which nothing is allocated for a message.
//!
//! ```text
//! entry = token (8 bytes, little endian; 0: no answer), version (1 byte), PUBLISH
//! ```
//!
//! A packet without a topic alias goes as it came; others are written as one of
//! MQTT 5.0.
//! Both sides are this file. Where the other shard is of another process, the buffer goes
//! there as it is ([`crate::bus`]): an entry of another form is another kind of message.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::QoS;
use dunlin_mqtt::codec::{Publish, Version, decode_publish, peek};

use crate::mqtt::form::Form;

const TOKEN_BYTES: usize = 8;

/// Adds a message. `false`, and nothing is added, if it has no such form.
pub(crate) fn put(out: &mut Vec<u8>, token: Option<u64>, form: &Form<'_>) -> bool {
    let before = out.len();
    out.extend_from_slice(&token.unwrap_or(0).to_le_bytes());
    if let Some((version, packet)) = form.raw() {
        out.push(version_byte(version));
        out.extend_from_slice(packet);
        return true;
    }
    out.push(version_byte(Version::V5));
    let publish = form.view();
    let publish = Publish {
        dup: false,
        // The form asks for one; it has no meaning.
        packet_id: (publish.qos != QoS::AtMostOnce).then_some(NonZeroU16::MIN),
        ..publish.clone()
    };
    let header = publish.encode_header(Version::V5, publish.payload.len(), out);
    if header.is_err() {
        out.truncate(before);
        return false;
    }
    out.extend_from_slice(publish.payload);
    true
}

/// Takes the first message, with its token.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<(Option<u64>, Publish<'a>)> {
    let (token, rest) = bytes.split_first_chunk::<TOKEN_BYTES>()?;
    let token = u64::from_le_bytes(*token);
    let (version, rest) = rest.split_first()?;
    let mut versions = [Version::V311, Version::V5].into_iter();
    let version = versions.find(|it| version_byte(*it) == *version)?;
    let len = peek(rest, u32::MAX).ok()??.total_len;
    let (packet, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    let mut publish = decode_publish(packet, version)?.ok()?;
    publish.dup = false;
    Some(((token != 0).then_some(token), publish))
}

const fn version_byte(version: Version) -> u8 {
    match version {
        Version::V311 => 4,
        Version::V5 => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_in_order() {
        let mut bytes = Vec::new();
        for (token, qos) in [
            (None, QoS::AtMostOnce),
            (Some(7), QoS::AtLeastOnce),
            (Some(u64::MAX), QoS::ExactlyOnce),
        ] {
            let publish = Publish {
                topic: "a/b",
                payload: b"payload",
                qos,
                retain: qos == QoS::AtLeastOnce,
                ..Publish::default()
            };
            assert!(put(&mut bytes, token, &Form::of_packet(&publish, None)));
        }
        let mut rest = &bytes[..];
        let mut seen = Vec::new();
        while let Some((token, publish)) = take(&mut rest) {
            assert_eq!((publish.topic, publish.payload), ("a/b", &b"payload"[..]));
            assert_eq!(publish.retain, publish.qos == QoS::AtLeastOnce);
            seen.push((token, publish.qos as u8));
        }
        assert_eq!(seen, [(None, 0), (Some(7), 1), (Some(u64::MAX), 2)]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_packet_goes_as_it_came() {
        // QoS 1, DUP, packet identifier 7.
        let mqtt_3 = [0x3a, 6, 0, 1, b't', 0, 7, b'x'];
        let mqtt_5 = [0x3a, 7, 0, 1, b't', 0, 7, 0, b'x'];
        let packets = [(Version::V311, &mqtt_3[..]), (Version::V5, &mqtt_5)];
        let mut bytes = Vec::new();
        for (version, packet) in packets {
            let publish = decode_publish(packet, version).expect("a PUBLISH");
            let publish = publish.expect("valid");
            let form = Form::of_packet(&publish, Some((version, packet)));
            assert!(put(&mut bytes, Some(9), &form));
        }
        assert!(bytes.ends_with(&mqtt_5));
        let mut rest = &bytes[..];
        for _ in packets {
            let (token, publish) = take(&mut rest).expect("a message");
            assert_eq!(
                (token, publish.topic, publish.payload),
                (Some(9), "t", &b"x"[..])
            );
            assert!(!publish.dup && publish.qos == QoS::AtLeastOnce);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_cut_buffer_ends() {
        let mut bytes = Vec::new();
        let publish = Publish {
            topic: "t",
            ..Publish::default()
        };
        assert!(put(&mut bytes, Some(1), &Form::of_packet(&publish, None)));
        for len in 0..bytes.len() {
            assert!(take(&mut &bytes[..len]).is_none());
        }
    }
}
