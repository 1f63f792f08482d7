//! Keys of the tables.

use dunlin_base::Text;
use dunlin_store::SessionKey;
use dunlin_store::codec::{DecodeError, Reader, decode_text};

/// Key of `inflight` and `inbound`.
pub(crate) fn packet_key(session: u64, packet_id: u16) -> [u8; 10] {
    let [a, b, c, d, e, f, g, h] = session.to_be_bytes();
    let [i, j] = packet_id.to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j]
}

/// Reads the bytes of a key of `inflight` and `inbound`.
pub(crate) fn decode_packet_key(key: &[u8]) -> Result<(u64, u16), DecodeError> {
    let key = key.try_into().map_err(|_| DecodeError::Truncated)?;
    Ok(split_packet_key(key))
}

/// Reads the bytes of a key of `sessions`.
pub(crate) fn decode_session_key(key: &[u8]) -> Result<SessionKey, DecodeError> {
    Reader::new(key).u64().map(SessionKey)
}

/// Splits a key of `inflight` and `inbound`.
pub(crate) fn split_packet_key(key: [u8; 10]) -> (u64, u16) {
    let [a, b, c, d, e, f, g, h, i, j] = key;
    (
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u16::from_be_bytes([i, j]),
    )
}

/// Key of `marks`.
pub(crate) fn mark_key(seq: u64, session: u64) -> [u8; 16] {
    ((u128::from(seq) << 64) | u128::from(session)).to_be_bytes()
}

/// Reads a key of `marks`.
pub(crate) fn split_mark_key(key: [u8; 16]) -> (u64, u64) {
    let both = u128::from_be_bytes(key);
    ((both >> 64) as u64, both as u64)
}

/// Key of `subscriptions`.
pub(crate) fn subscription_key(session: u64, filter: &Text) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + filter.as_bytes().len());
    key.extend_from_slice(&session.to_be_bytes());
    key.extend_from_slice(filter.as_bytes());
    key
}

/// Reads a key of `subscriptions`.
pub(crate) fn split_subscription_key(key: &[u8]) -> Result<(u64, Text), DecodeError> {
    let mut r = Reader::new(key);
    let session = r.array().map(u64::from_be_bytes)?;
    Ok((session, decode_text(r.rest())?))
}
