//! A cursor over received bytes: the data types of MQTT 5.0 section 1.5.

use core::num::NonZeroU16;

use dunlin_base::limits::TOPIC_LEVELS_MAX;
use dunlin_base::topic::{self, TopicError};

use crate::DecodeError;

/// Identifies a message or request in flight; never 0 [MQTT-2.2.1-3].
pub type PacketId = NonZeroU16;

/// Reads a Variable Byte Integer (section 1.5.5) at the start of `bytes`: its
/// value and length, or `None` when more bytes are needed.
#[inline]
pub(crate) fn varint(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            if byte == 0 && at > 0 {
                return Err(DecodeError::VarintNotMinimal);
            }
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() < 4 {
        return Ok(None);
    }
    Err(DecodeError::VarintTooLong)
}

/// Whether any byte is what `is_wanted` says. Looks at all of them: without a
/// branch per byte it is a few vector instructions on a host, and short on a
/// microcontroller.
#[inline]
fn any(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> bool {
    bytes
        .iter()
        .fold(false, |found, &byte| found | is_wanted(byte))
}

/// What remains to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes all that is left.
    pub(crate) const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Nothing may be left.
    pub(crate) const fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes)
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u32, DecodeError> {
        let (value, len) = varint(self.rest)?.ok_or(DecodeError::Truncated)?;
        self.take(len)?;
        Ok(value)
    }

    /// Binary Data (section 1.5.6).
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// UTF-8 Encoded String (section 1.5.4). A byte order mark is kept
    /// [MQTT-1.5.4-3].
    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.binary()?;
        let text = core::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)?;
        if any(bytes, |byte| byte == 0) {
            return Err(DecodeError::NullCharacter);
        }
        Ok(text)
    }

    /// A string that is a topic name or empty; `fault` is what it means that
    /// it is neither.
    ///
    /// Every PUBLISH comes through here. One look at the bytes clears nearly
    /// all names; the rules, one by one, are for what it does not clear.
    #[inline]
    pub(crate) fn topic_name(
        &mut self,
        fault: fn(TopicError) -> DecodeError,
    ) -> Result<&'a str, DecodeError> {
        let mut ahead = *self;
        let bytes = ahead.binary()?;
        let has_special = any(bytes, |byte| byte == 0 || byte == b'+' || byte == b'#');
        // So short a name has fewer levels than the limit.
        if !has_special && bytes.len() < TOPIC_LEVELS_MAX {
            *self = ahead;
            return core::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8);
        }
        self.unusual_topic_name(fault)
    }

    #[cold]
    fn unusual_topic_name(
        &mut self,
        fault: fn(TopicError) -> DecodeError,
    ) -> Result<&'a str, DecodeError> {
        let name = self.text()?;
        topic::validate_name(name).map_err(fault)?;
        Ok(name)
    }

    /// A Packet Identifier (section 2.2.1).
    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::PacketIdZero)
    }
}
