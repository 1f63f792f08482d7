//! A message: topic, payload, what goes with it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use bytes::Bytes;
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, Text};

use super::{DecodeError, RETAIN, Reader, decode_qos, put_blob, put_text};

/// 2 has what other protocols know of it, 3 who sent it besides; a message is written
/// in the first version that has all of it.
const MESSAGE_VERSION: u8 = 3;
const MESSAGE_VERSION_2: u8 = 2;
const MESSAGE_VERSION_PLAIN: u8 = 1;

const EXPIRES: u8 = 1 << 3;
const PROPERTIES: u8 = 1 << 4;

const PRIORITY: u8 = 1 << 0;
const CREATED: u8 = 1 << 1;
const ENCODED: u8 = 1 << 2;
/// The payload is a slice of the encoded message.
const WITHIN: u8 = 1 << 3;
const SENDER: u8 = 1 << 4;

const CONTENT_TYPE: u8 = 1 << 2;
const RESPONSE_TOPIC: u8 = 1 << 3;
const CORRELATION: u8 = 1 << 4;

/// Appends a message; until when it is kept back is not part of it.
pub fn encode_message(message: &Message, out: &mut Vec<u8>) {
    let Message {
        topic,
        payload,
        qos,
        retain,
        expires,
        properties,
        extra,
    } = message;
    let mut flags = *qos as u8;
    if *retain {
        flags |= RETAIN;
    }
    if expires.is_some() {
        flags |= EXPIRES;
    }
    if properties.is_some() {
        flags |= PROPERTIES;
    }
    let version = match extra {
        Some(extra) if extra.sender.is_some() => MESSAGE_VERSION,
        Some(_) => MESSAGE_VERSION_2,
        None => MESSAGE_VERSION_PLAIN,
    };
    out.extend_from_slice(&[version, flags]);
    let expires = expires.map_or(0, Instant::as_micros);
    out.extend_from_slice(&expires.to_le_bytes());
    put_text(out, topic);
    if let Some(properties) = properties {
        encode_properties(properties, out);
    }
    if let Some(extra) = extra
        && encode_extra(extra, payload, out)
    {
        return;
    }
    out.extend_from_slice(payload);
}

/// Whether the payload is within what was appended.
fn encode_extra(extra: &MessageExtra, payload: &Bytes, out: &mut Vec<u8>) -> bool {
    let MessageExtra {
        priority,
        created_ms,
        // Goes before the message, where it goes.
        deliver_at: _,
        sender,
        encoded,
    } = extra;
    let encoded = encoded.as_ref();
    let place = encoded.and_then(|encoded| encoded.offset_of(payload));
    let mut flags = 0;
    for (flag, set) in [
        (PRIORITY, priority.is_some()),
        (CREATED, created_ms.is_some()),
        (ENCODED, encoded.is_some()),
        (WITHIN, place.is_some()),
        (SENDER, sender.is_some()),
    ] {
        flags |= if set { flag } else { 0 };
    }
    out.push(flags);
    out.extend(*priority);
    if let Some(created) = created_ms {
        out.extend_from_slice(&created.to_le_bytes());
    }
    if let Some(sender) = sender {
        out.extend_from_slice(&sender.get().to_le_bytes());
    }
    if let Some(Encoded { form, bytes }) = encoded {
        out.push(*form as u8);
        put_blob(out, bytes);
    }
    if let Some(place) = place {
        for number in [place, payload.len()] {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    place.is_some()
}

fn encode_properties(properties: &MessageProperties, out: &mut Vec<u8>) {
    let MessageProperties {
        payload_is_utf8,
        content_type,
        response_topic,
        correlation_data,
        user_properties,
    } = properties;
    let mut flags = match payload_is_utf8 {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    };
    let parts = [
        (CONTENT_TYPE, content_type.as_ref().map(Text::bytes)),
        (RESPONSE_TOPIC, response_topic.as_ref().map(Text::bytes)),
        (CORRELATION, correlation_data.as_ref()),
    ];
    for (flag, part) in &parts {
        if part.is_some() {
            flags |= flag;
        }
    }
    out.push(flags);
    for part in parts.iter().filter_map(|(_, part)| *part) {
        put_blob(out, part);
    }
    let count = u32::try_from(user_properties.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (name, value) in user_properties {
        put_text(out, name);
        put_text(out, value);
    }
}

/// Reads a message that takes all of `bytes`.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_message(bytes: &[u8]) -> Result<Message, DecodeError> {
    rest_as_message(Reader::new(bytes))
}

/// Reads a message that takes all that is left.
pub(super) fn rest_as_message(mut r: Reader<'_>) -> Result<Message, DecodeError> {
    let (version, flags, expires) = message_head(&mut r)?;
    let topic = r.text()?;
    let properties = if flags & PROPERTIES != 0 {
        Some(Box::new(decode_properties(&mut r)?))
    } else {
        None
    };
    let (extra, within) = match version {
        MESSAGE_VERSION_PLAIN => (None, None),
        _ => decode_extra(&mut r)?,
    };
    Ok(Message {
        topic,
        payload: within.unwrap_or_else(|| r.keep_rest()),
        qos: decode_qos(flags)?,
        retain: flags & RETAIN != 0,
        expires,
        properties,
        extra,
    })
}

/// Version, flags and expiry.
///
/// # Errors
/// See [`DecodeError`].
pub fn message_head(r: &mut Reader<'_>) -> Result<(u8, u8, Option<Instant>), DecodeError> {
    let version = r.u8()?;
    if !(MESSAGE_VERSION_PLAIN..=MESSAGE_VERSION).contains(&version) {
        return Err(DecodeError::Version);
    }
    let flags = r.u8()?;
    let expires = r.instant()?;
    Ok((version, flags, (flags & EXPIRES != 0).then_some(expires)))
}

type Extra = (Option<Box<MessageExtra>>, Option<Bytes>);

/// What other protocols know of a message, and its payload if that is a slice of
/// its encoded form.
fn decode_extra(r: &mut Reader<'_>) -> Result<Extra, DecodeError> {
    let flags = r.u8()?;
    let mut extra = MessageExtra::default();
    if flags & PRIORITY != 0 {
        extra.priority = Some(r.u8()?);
    }
    if flags & CREATED != 0 {
        extra.created_ms = Some(r.array().map(i64::from_le_bytes)?);
    }
    // Version 2 has no such flag.
    if flags & SENDER != 0 {
        let sender = NonZeroU64::new(r.u64()?);
        extra.sender = Some(sender.ok_or(DecodeError::BadNumber)?);
    }
    let mut within = None;
    if flags & ENCODED != 0 {
        let form = Form::from_u8(r.u8()?).ok_or(DecodeError::BadNumber)?;
        let bytes = r.bytes()?;
        if flags & WITHIN != 0 {
            let (place, len) = (r.u32()? as usize, r.u32()? as usize);
            let end = place.checked_add(len).filter(|end| *end <= bytes.len());
            let end = end.ok_or(DecodeError::Truncated)?;
            within = Some(bytes.slice(place..end));
        }
        extra.encoded = Some(Encoded { form, bytes });
    }
    Ok((Some(Box::new(extra)), within))
}

fn decode_properties(r: &mut Reader<'_>) -> Result<MessageProperties, DecodeError> {
    let flags = r.u8()?;
    let mut properties = MessageProperties {
        payload_is_utf8: match flags & 3 {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return Err(DecodeError::BadNumber),
        },
        ..MessageProperties::default()
    };
    if flags & CONTENT_TYPE != 0 {
        properties.content_type = Some(r.text()?);
    }
    if flags & RESPONSE_TOPIC != 0 {
        properties.response_topic = Some(r.text()?);
    }
    if flags & CORRELATION != 0 {
        properties.correlation_data = Some(r.bytes()?);
    }
    for _ in 0..r.u32()? {
        properties.user_properties.push((r.text()?, r.text()?));
    }
    Ok(properties)
}
