//! Messages on their way to another shard, as bytes: one buffer for all of a
//! turn, in which nothing is allocated for a message.
//!
//! ```text
//! entry = token (8 bytes, little endian; 0: no answer), PUBLISH of MQTT 5.0
//! ```
//!
//! The bytes stay within the process; both sides are this file.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::QoS;
use dunlin_mqtt::codec::{Packet, Publish, Version, decode, peek};

use crate::mqtt::form::Form;

/// Payloads from here on are shared instead of copied.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 4096;

/// Bytes after which a buffer is full.
pub(crate) const BUFFER_BYTES_MAX: usize = 64 * 1024;

const TOKEN_BYTES: usize = 8;

/// Adds a message. `false`, and nothing is added, if it has no such form.
pub(crate) fn put(out: &mut Vec<u8>, token: Option<u64>, publish: &Publish<'_>) -> bool {
    let before = out.len();
    out.extend_from_slice(&token.unwrap_or(0).to_le_bytes());
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

/// Takes the first message.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<(Option<u64>, Form<'a>)> {
    let (token, rest) = bytes.split_first_chunk::<TOKEN_BYTES>()?;
    let token = u64::from_le_bytes(*token);
    let len = peek(rest, u32::MAX).ok()??.total_len;
    let (packet, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    match decode(packet, Version::V5).ok()? {
        Packet::Publish(publish) => {
            let form = Form::of_packet(&publish, publish.topic);
            Some(((token != 0).then_some(token), form))
        }
        _ => None,
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
            assert!(put(&mut bytes, token, &publish));
        }
        let mut rest = &bytes[..];
        let mut seen = Vec::new();
        while let Some((token, form)) = take(&mut rest) {
            assert_eq!((form.topic(), form.payload()), ("a/b", &b"payload"[..]));
            assert_eq!(form.retain(), form.qos() == QoS::AtLeastOnce);
            seen.push((token, form.qos() as u8));
        }
        assert_eq!(seen, [(None, 0), (Some(7), 1), (Some(u64::MAX), 2)]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_cut_buffer_ends() {
        let mut bytes = Vec::new();
        let publish = Publish {
            topic: "t",
            ..Publish::default()
        };
        assert!(put(&mut bytes, Some(1), &publish));
        for len in 0..bytes.len() {
            assert!(take(&mut &bytes[..len]).is_none());
        }
    }
}
