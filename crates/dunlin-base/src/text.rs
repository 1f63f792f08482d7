//! A shared, immutable UTF-8 string: `Bytes` that is known to be text.

use alloc::string::String;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Deref;

use bytes::Bytes;

/// Cheaply clonable UTF-8 text, often a slice of a received packet.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// The empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self(Bytes::new())
    }

    /// Text from a string with static lifetime, without a copy.
    #[must_use]
    pub const fn from_static(s: &'static str) -> Self {
        Self(Bytes::from_static(s.as_bytes()))
    }

    /// Takes bytes that must be UTF-8.
    ///
    /// # Errors
    /// The bytes are not well-formed UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, core::str::Utf8Error> {
        core::str::from_utf8(&bytes)?;
        Ok(Self(bytes))
    }

    /// The text as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked at construction; the fallback keeps this free of `unsafe`
        // and of panics.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text as bytes, without checking anything.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The shared bytes behind the text.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Self {
        Self(Bytes::copy_from_slice(s.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(s: String) -> Self {
        Self(Bytes::from(s.into_bytes()))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

// `Hash`, `Eq` and `Ord` of `str` are those of its bytes followed by 0xff for
// `Hash`, so `Borrow<[u8]>` is the consistent one; `Borrow<str>` is not offered.
impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
