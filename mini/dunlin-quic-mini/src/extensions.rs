//! The list of extensions in a TLS message of the server (RFC 8446 section
//! 4.2). Knows which may be there, and nothing of what they say.

use crate::error::Error;
use crate::wire::Reader;

/// The extensions that this client knows.
const KNOWN: u64 = bits(&[0, 10, 13, 16, 41, 42, 43, 44, 45, 51, 57]);

/// A set of extensions, one bit for each number below 64.
pub(crate) const fn bits(mut numbers: &[u8]) -> u64 {
    let mut bits = 0;
    while let [number, rest @ ..] = numbers {
        bits |= 1 << *number;
        numbers = rest;
    }
    bits
}

/// Those of a list that have not been read yet.
pub(crate) struct Extensions<'a> {
    list: Reader<'a>,
    /// Those that may still come.
    may: u64,
}

impl<'a> Extensions<'a> {
    /// A list in a message that may have those of a set.
    pub(crate) const fn new(list: Reader<'a>, may: u64) -> Self {
        Self { list, may }
    }

    /// Number and value of the next one, if there is one.
    #[inline(never)]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Reader<'a>)>, Error> {
        if self.list.is_empty() {
            return Ok(None);
        }
        let number = self.list.u16().ok_or(Error::Decode)?.into();
        let value = self.list.vector(2).ok_or(Error::Decode)?;
        let bit = 1_u64.checked_shl(number).unwrap_or(0);
        if KNOWN & bit == 0 {
            return Err(Error::UnsupportedExtension);
        }
        if self.may & bit == 0 {
            return Err(Error::IllegalExtension);
        }
        self.may ^= bit;
        Ok(Some((number, value)))
    }
}
