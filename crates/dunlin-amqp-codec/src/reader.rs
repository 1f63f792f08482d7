//! A cursor over received bytes.

use crate::{DecodeError, code};

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

    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What was read since this reader was where `start` is.
    pub(crate) fn read_since(&self, start: Self) -> &'a [u8] {
        let len = start.len().saturating_sub(self.len());
        start.rest.get(..len).unwrap_or(&[])
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
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
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
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A size or count after `code`: of one byte or four.
    #[inline]
    fn size(&mut self, code: u8) -> Result<u32, DecodeError> {
        if code::is_narrow(code) {
            self.u8().map(u32::from)
        } else {
            self.u32()
        }
    }

    /// The bytes of a string, symbol or binary with this constructor.
    #[inline]
    pub(crate) fn variable(&mut self, code: u8) -> Result<&'a [u8], DecodeError> {
        let len = self.size(code)?;
        self.take(len as usize)
    }

    /// Count and body of a list, map or array with this constructor.
    #[inline]
    pub(crate) fn compound(&mut self, code: u8) -> Result<(u32, Self), DecodeError> {
        let mut body = Self::new(self.variable(code)?);
        let count = body.size(code)?;
        Ok((count, body))
    }
}
