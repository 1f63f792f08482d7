//! Bytes of keys and values, as drawn in the crate's documentation. Knows
//! nothing of tables and transactions.

mod keys;
mod log;
mod message;
mod session;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use dunlin_base::{QoS, Text};

pub(crate) use keys::{
    decode_packet_key, decode_session_key, mark_key, packet_key, split_mark_key, split_packet_key,
    split_subscription_key, subscription_key,
};
pub(crate) use log::{decode_log_head, decode_log_message, decode_mark, encode_log, encode_mark};
pub(crate) use message::{decode_message, encode_message};
pub(crate) use session::{
    decode_inbound, decode_inflight, decode_record, decode_subscription, encode_inbound,
    encode_inflight, encode_record, encode_subscription,
};

const META_VERSION: u8 = 1;

const QOS_BITS: u8 = 3;
const RETAIN: u8 = 1 << 2;

/// Why stored bytes are not what this crate writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a value ends early")]
    Truncated,
    #[error("a text is not UTF-8")]
    NotUtf8,
    #[error("a number stands for nothing")]
    BadNumber,
    #[error("a value has a version that this release does not know")]
    Version,
    #[error("the checksum is wrong")]
    Checksum,
}

/// Takes values off the front of shared bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        if self.u8()? == known {
            Ok(())
        } else {
            Err(DecodeError::Version)
        }
    }

    fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Result<Text, DecodeError> {
        decode_text(self.blob()?)
    }
}

fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &Text) {
    put_blob(out, text.as_bytes());
}

fn decode_qos(flags: u8) -> Result<QoS, DecodeError> {
    QoS::from_u8(flags & QOS_BITS).ok_or(DecodeError::BadNumber)
}

/// Bytes that must be text, copied.
pub(crate) fn decode_text(bytes: &[u8]) -> Result<Text, DecodeError> {
    let text = core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?;
    Ok(Text::from(text))
}

/// Appends a value of `meta`.
pub(crate) fn encode_meta(value: &[u8], out: &mut Vec<u8>) {
    out.push(META_VERSION);
    out.extend_from_slice(value);
}

/// Reads a value of `meta`.
pub(crate) fn decode_meta(bytes: &[u8]) -> Result<Bytes, DecodeError> {
    let mut r = Reader { rest: bytes };
    r.version(META_VERSION)?;
    Ok(Bytes::copy_from_slice(r.rest))
}
