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

use bytes::Bytes;
use dunlin_base::sendbuf::SHARE_BYTES_MIN;
use dunlin_base::{Instant, QoS, Text};

pub use message::{decode_message, encode_message, message_head};
pub use op::{decode_op, decode_ops, encode_op, encode_ops, put_message, read_message};
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

/// A slice keeps all of its buffer: it is a copy where that is more than so many times
/// its bytes.
const SHARED_BUFFER_FACTOR_MAX: usize = 8;

/// How times of another clock are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    there: Instant,
    here: Instant,
}

impl Times {
    /// The other clock says `there` when the own one says `here`.
    #[must_use]
    pub const fn new(there: Instant, here: Instant) -> Self {
        Self { there, here }
    }

    /// What the own clock says at a time of the other one. "Never" stays what it is.
    #[must_use]
    pub fn here(self, at: Instant) -> Instant {
        if at == Instant::FAR_FUTURE {
            return at;
        }
        let before = at.as_micros() < self.there.as_micros();
        let away = self.there.as_micros().abs_diff(at.as_micros());
        let here = self.here.as_micros();
        Instant::from_micros(match before {
            true => here.saturating_sub(away),
            false => here.saturating_add(away).min(u64::MAX - 1),
        })
    }
}

/// Takes values off the front of bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The buffer that `rest` is part of, if it is shared.
    buffer: Option<&'a Bytes>,
    times: Times,
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            buffer: None,
            times: Times {
                there: Instant::ZERO,
                here: Instant::ZERO,
            },
        }
    }

    /// Reads a buffer, of which large values are slices; times are read as `times` says.
    #[must_use]
    pub fn shared(buffer: &'a Bytes, times: Times) -> Self {
        Self {
            rest: buffer,
            buffer: Some(buffer),
            times,
        }
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

    /// Likewise, to be kept: a copy, or a slice of a shared buffer.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let bytes = self.blob()?;
        Ok(self.keep(bytes))
    }

    /// Likewise, to be read as this one is.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn nested(&mut self) -> Result<Self, DecodeError> {
        Ok(Self {
            rest: self.blob()?,
            buffer: self.buffer,
            times: self.times,
        })
    }

    /// A text with its length before it.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn text(&mut self) -> Result<Text, DecodeError> {
        Text::from_utf8(self.bytes()?).map_err(|_| DecodeError::NotUtf8)
    }

    /// A time.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn instant(&mut self) -> Result<Instant, DecodeError> {
        let at = Instant::from_micros(self.u64()?);
        Ok(self.times.here(at))
    }

    /// What was not taken, to be kept.
    fn keep_rest(&self) -> Bytes {
        self.keep(self.rest)
    }

    /// `bytes` are part of what this reads.
    fn keep(&self, bytes: &'a [u8]) -> Bytes {
        match self.buffer {
            Some(buffer)
                if bytes.len() >= SHARE_BYTES_MIN
                    && buffer.len() / SHARED_BUFFER_FACTOR_MAX <= bytes.len() =>
            {
                buffer.slice_ref(bytes)
            }
            _ => Bytes::copy_from_slice(bytes),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn times_of_another_clock_are_as_far_away_by_the_own_one() {
        let at = Instant::from_micros;
        let times = Times::new(at(1_000), at(5_000));
        assert_eq!(times.here(at(1_000)), at(5_000));
        assert_eq!(times.here(at(1_700)), at(5_700));
        assert_eq!(times.here(at(400)), at(4_400));
        assert_eq!(times.here(Instant::FAR_FUTURE), Instant::FAR_FUTURE);
        let never = Instant::FAR_FUTURE.as_micros();
        assert_eq!(times.here(at(never - 1)), at(never - 1), "is not never");
        let times = Times::new(at(5_000), at(1_000));
        assert_eq!(times.here(at(3_000)), Instant::ZERO);
        assert_eq!(Times::default().here(at(3_000)), at(3_000));
    }

    /// A slice of a large buffer would keep all of it.
    #[test]
    fn values_are_slices_where_that_keeps_little_else() {
        let (large, small) = (vec![1; SHARE_BYTES_MIN], vec![2; SHARE_BYTES_MIN - 1]);
        let mut all = Vec::new();
        put_blob(&mut all, &large);
        put_blob(&mut all, &small);
        let is_within = |buffer: &Bytes, bytes: &Bytes| {
            let range = buffer.as_ptr_range();
            range.contains(&bytes.as_ptr())
        };
        let read = |buffer: &Bytes| {
            let mut r = Reader::shared(buffer, Times::default());
            let (first, second) = (r.bytes().expect("whole"), r.bytes().expect("whole"));
            assert_eq!((&first[..], &second[..]), (&large[..], &small[..]));
            [is_within(buffer, &first), is_within(buffer, &second)]
        };
        assert_eq!(read(&Bytes::from(all.clone())), [true, false]);
        all.resize(SHARED_BUFFER_FACTOR_MAX * (SHARE_BYTES_MIN + 1), 0);
        assert_eq!(read(&Bytes::from(all.clone())), [false, false]);
        let mut r = Reader::new(&all);
        assert_eq!(r.bytes().expect("whole"), large);
    }
}
