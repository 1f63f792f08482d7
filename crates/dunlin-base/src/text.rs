//! A shared, immutable UTF-8 string: `Bytes` that was checked once.

use alloc::string::String;
use core::borrow::Borrow;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use bytes::Bytes;
use bytestring::ByteString;

/// Cheaply clonable UTF-8 text, often a slice of a received packet.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(ByteString);

impl Text {
    /// The empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self(ByteString::new())
    }

    /// Text from a string with static lifetime, without a copy.
    #[must_use]
    pub const fn from_static(s: &'static str) -> Self {
        Self(ByteString::from_static(s))
    }

    /// Takes bytes that must be UTF-8.
    ///
    /// # Errors
    /// The bytes are not well-formed UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, core::str::Utf8Error> {
        ByteString::try_from(bytes).map(Self)
    }

    /// The text as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The shared bytes behind the text.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Self {
        Self(ByteString::from(s))
    }
}

impl From<String> for Text {
    fn from(s: String) -> Self {
        Self(ByteString::from(s))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

// `Hash` is that of the bytes, which differs from that of `str`; `Borrow<[u8]>` is
// consistent with it, and `Borrow<str>` is not offered.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
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
