//! Symbols: ASCII text from a domain that both sides know (section 1.6.21).

use core::fmt;

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::writer::{put_variable, variable_len};
use crate::{DecodeError, EncodeError, code};

/// ASCII text.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol<'a>(&'a str);

impl<'a> Symbol<'a> {
    /// A symbol, if the text is ASCII.
    #[must_use]
    pub const fn new(text: &'a str) -> Option<Self> {
        if text.is_ascii() {
            Some(Self(text))
        } else {
            None
        }
    }

    /// A symbol that is known when the program is compiled.
    ///
    /// # Panics
    /// The text is not ASCII.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Symbol<'static> {
        assert!(text.is_ascii(), "a symbol that is not ASCII");
        Symbol(text)
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for Symbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for Symbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl PartialEq<str> for Symbol<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Symbol<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<'a> Field<'a> for Symbol<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if !matches!(code, code::SYMBOL8 | code::SYMBOL32) {
            return Err(DecodeError::WrongType);
        }
        let bytes = r.variable(code)?;
        core::str::from_utf8(bytes)
            .ok()
            .and_then(Self::new)
            .ok_or(DecodeError::SymbolNotAscii)
    }

    fn encoded_len(&self) -> usize {
        variable_len(self.0.len())
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        put_variable(out, code::SYMBOL8, self.0.as_bytes())
    }
}
