//! The encoded bytes of a message in User Properties, for what AMQP can say in
//! several ways and MQTT cannot.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::Text;

use super::fields::Pairs;
use super::names;
use super::typed::{base64, from_base64};

/// Bytes in one User Property, which are at most 65,535 characters of Base64.
const CHUNK_BYTES: usize = 49_149;

/// Adds the bytes of a message, without those of its payload if that is a slice
/// of them.
pub(super) fn append(pairs: &mut Pairs, form: &Bytes, payload: &Bytes) {
    let mut push = |name: &'static str, bytes: &[u8]| {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            pairs.push((Text::from_static(name), Text::from(base64(chunk))));
        }
    };
    match around(form, payload) {
        Some((head, tail)) => {
            push(names::HEAD, head);
            push(names::TAIL, tail);
        }
        None => push(names::WHOLE, form),
    }
}

/// What is before and after the payload, if it is a slice of the bytes.
fn around<'a>(form: &'a Bytes, payload: &Bytes) -> Option<(&'a [u8], &'a [u8])> {
    let begin = (payload.as_ptr() as usize).checked_sub(form.as_ptr() as usize)?;
    let end = begin.checked_add(payload.len())?;
    // A head of nothing looks like none.
    if payload.is_empty() || begin == 0 {
        return None;
    }
    Some((form.get(..begin)?, form.get(end..)?))
}

/// The bytes that User Properties have around `payload`, or as a whole.
pub(super) fn gather(pairs: &[(Text, Text)], payload: &[u8]) -> Option<Bytes> {
    let is_there = |wanted: &str| pairs.iter().any(|(name, _)| name.as_str() == wanted);
    let gather = |wanted: &str| {
        let mut text = pairs.iter().filter(|(name, _)| name.as_str() == wanted);
        text.try_fold(Vec::new(), |mut bytes, (_, value)| {
            bytes.extend(from_base64(value)?);
            Some(bytes)
        })
    };
    if is_there(names::WHOLE) {
        return gather(names::WHOLE).map(Bytes::from);
    }
    if !is_there(names::HEAD) {
        return None;
    }
    let mut bytes = gather(names::HEAD)?;
    bytes.extend_from_slice(payload);
    bytes.extend(gather(names::TAIL)?);
    Some(Bytes::from(bytes))
}
