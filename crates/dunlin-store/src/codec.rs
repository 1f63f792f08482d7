//! Messages, targets, session records and operations as bytes: what files, logs and
//! other nodes have of them. A change of these bytes is a change of their formats.
//!
//! Every value begins with a version, or stands in one that does. Numbers are
//! little-endian; text and bytes have their length in four bytes before them. Nothing
//! is allocated from a length before the bytes are known to be there.

mod message;
mod op;
mod record;
mod target;

use alloc::vec::Vec;

use dunlin_base::{QoS, Text};

pub use message::{decode_message, encode_message, message_head};
pub use op::{decode_op, decode_ops, encode_op, encode_ops};
pub use record::{decode_record, encode_record};
pub use target::{encode_target, read_target, read_targets_version, targets_version};

const QOS_BITS: u8 = 3;
const RETAIN: u8 = 1 << 2;

/// Why bytes are not what this release writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Bytes are missing.
    #[error("a value ends early")]
    Truncated,
    /// Bytes of a text are no UTF-8.
    #[error("a text is not UTF-8")]
    NotUtf8,
    /// A tag, a flag or a count has a value that it never has.
    #[error("a number stands for nothing")]
    BadNumber,
    /// A newer release wrote it.
    #[error("a value has a version that this release does not know")]
    Version,
    /// The bytes are not those that were written.
    #[error("the checksum is wrong")]
    Checksum,
}

/// Takes values off the front of bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not taken.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// So many bytes, copied.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// A byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number of two bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of four bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The version `known`.
    ///
    /// # Errors
    /// [`DecodeError::Version`] for every other.
    pub fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        if self.u8()? == known {
            Ok(())
        } else {
            Err(DecodeError::Version)
        }
    }

    /// Bytes with their length before them.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// A text with its length before it.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn text(&mut self) -> Result<Text, DecodeError> {
        decode_text(self.blob()?)
    }
}

/// Appends bytes with their length before them.
pub fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a text with its length before it.
pub fn put_text(out: &mut Vec<u8>, text: &Text) {
    put_blob(out, text.as_bytes());
}

fn decode_qos(flags: u8) -> Result<QoS, DecodeError> {
    QoS::from_u8(flags & QOS_BITS).ok_or(DecodeError::BadNumber)
}

/// Bytes that must be text, copied.
///
/// # Errors
/// [`DecodeError::NotUtf8`].
pub fn decode_text(bytes: &[u8]) -> Result<Text, DecodeError> {
    let text = core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?;
    Ok(Text::from(text))
}
