//! Bytes of keys and values, as drawn in the crate's documentation. Knows
//! nothing of tables and transactions. What messages, targets and records are as
//! bytes, `dunlin-store` says.

mod keys;
mod log;
mod session;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use dunlin_store::codec::Reader;

pub(crate) use dunlin_store::codec::{
    DecodeError, decode_message, decode_record, decode_text, encode_message, encode_record,
};
pub(crate) use keys::{
    decode_packet_key, decode_session_key, mark_key, packet_key, split_mark_key, split_packet_key,
    split_subscription_key, subscription_key,
};
pub(crate) use log::{decode_log_head, decode_log_message, decode_mark, encode_log, encode_mark};
pub(crate) use session::{
    decode_inbound, decode_inflight, decode_subscription, encode_inbound, encode_inflight,
    encode_subscription,
};

const META_VERSION: u8 = 1;

/// Appends a value of `meta`.
pub(crate) fn encode_meta(value: &[u8], out: &mut Vec<u8>) {
    out.push(META_VERSION);
    out.extend_from_slice(value);
}

/// Reads a value of `meta`.
pub(crate) fn decode_meta(bytes: &[u8]) -> Result<Bytes, DecodeError> {
    let mut r = Reader::new(bytes);
    r.version(META_VERSION)?;
    Ok(Bytes::copy_from_slice(r.rest()))
}
