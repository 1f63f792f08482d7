//! Borrowed lists: user properties, subscription identifiers and reason codes.
//! Each is backed either by received bytes, which the decoder has checked, or
//! by a caller's slice.

use dunlin_base::{ByteSink, Text};

use crate::property::skip;
use crate::property_id::PropertyId;
use crate::reader::Reader;
use crate::writer::{VARINT_MAX, prefixed_len, put_prefixed, put_varint, varint_len};
use crate::{EncodeError, ReasonCode};

/// What a list that has `new` and `iter` can do besides: be empty, be made of a
/// slice, be compared and be shown, each by its items.
macro_rules! list {
    ($list:ident, $item:ty) => {
        impl Default for $list<'_> {
            fn default() -> Self {
                Self::new(&[])
            }
        }

        impl<'a> From<&'a [$item]> for $list<'a> {
            fn from(items: &'a [$item]) -> Self {
                Self::new(items)
            }
        }

        impl PartialEq for $list<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.iter().eq(other.iter())
            }
        }

        impl Eq for $list<'_> {}

        impl core::fmt::Debug for $list<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }
    };
}
pub(crate) use list;

/// The values of one repeatable property in a property section that the
/// decoder has checked; `rest` starts with an occurrence of it.
#[derive(Clone)]
struct Occurrences<'a> {
    rest: Reader<'a>,
    id: PropertyId,
}

impl<'a> Occurrences<'a> {
    const fn new(section: &'a [u8], id: PropertyId) -> Self {
        Self {
            rest: Reader::new(section),
            id,
        }
    }

    /// Moves to the value of the next occurrence. The bytes are checked, so
    /// the errors cannot happen; were they to, the list would end early.
    fn advance(&mut self) -> Option<&mut Reader<'a>> {
        loop {
            let id = self.rest.u8().ok()?;
            if id == self.id as u8 {
                return Some(&mut self.rest);
            }
            skip(&mut self.rest, id).ok()?;
        }
    }
}

/// User properties, in order, repeats kept (section 2.2.2.2).
#[derive(Clone, Copy)]
pub struct UserProperties<'a>(Pairs<'a>);

#[derive(Clone, Copy)]
enum Pairs<'a> {
    Strs(&'a [(&'a str, &'a str)]),
    Texts(&'a [(Text, Text)]),
    Wire(&'a [u8]),
}

impl<'a> UserProperties<'a> {
    /// The pairs of a slice.
    #[must_use]
    pub const fn new(pairs: &'a [(&'a str, &'a str)]) -> Self {
        Self(Pairs::Strs(pairs))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            Pairs::Strs(pairs) => pairs.is_empty(),
            Pairs::Texts(pairs) => pairs.is_empty(),
            Pairs::Wire(section) => section.is_empty(),
        }
    }

    /// How many there are; counts them when they are on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Pairs::Strs(pairs) => pairs.len(),
            Pairs::Texts(pairs) => pairs.len(),
            Pairs::Wire(_) => self.bytes().count(),
        }
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.bytes().map(|(name, value)| (text(name), text(value)))
    }

    /// Names and values as bytes, which encoding needs and which costs no
    /// UTF-8 check.
    fn bytes(&self) -> PairBytes<'a> {
        match self.0 {
            Pairs::Strs(pairs) => PairBytes::Strs(pairs.iter()),
            Pairs::Texts(pairs) => PairBytes::Texts(pairs.iter()),
            Pairs::Wire(section) => {
                PairBytes::Wire(Occurrences::new(section, PropertyId::UserProperty))
            }
        }
    }

    pub(crate) fn note_wire(&mut self, section: &'a [u8]) {
        if self.is_empty() {
            self.0 = Pairs::Wire(section);
        }
    }

    #[inline]
    pub(crate) fn wire_len(&self) -> Result<usize, EncodeError> {
        if self.is_empty() {
            return Ok(0);
        }
        self.bytes().try_fold(0, |sum, (name, value)| {
            Ok(sum + 1 + prefixed_len(name)? + prefixed_len(value)?)
        })
    }

    pub(crate) fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        for (name, value) in self.bytes() {
            out.put_u8(PropertyId::UserProperty as u8)?;
            put_prefixed(out, name)?;
            put_prefixed(out, value)?;
        }
        Ok(())
    }
}

/// Bytes that the decoder, or the type that they come from, knows as UTF-8.
fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

#[derive(Clone)]
enum PairBytes<'a> {
    Strs(core::slice::Iter<'a, (&'a str, &'a str)>),
    Texts(core::slice::Iter<'a, (Text, Text)>),
    Wire(Occurrences<'a>),
}

impl<'a> Iterator for PairBytes<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Strs(pairs) => pairs.next().map(|(n, v)| (n.as_bytes(), v.as_bytes())),
            Self::Texts(pairs) => pairs.next().map(|(n, v)| (n.as_bytes(), v.as_bytes())),
            Self::Wire(section) => {
                let r = section.advance()?;
                Some((r.binary().ok()?, r.binary().ok()?))
            }
        }
    }
}

list!(UserProperties, (&'a str, &'a str));

impl<'a> From<&'a [(Text, Text)]> for UserProperties<'a> {
    fn from(pairs: &'a [(Text, Text)]) -> Self {
        Self(Pairs::Texts(pairs))
    }
}

/// Subscription identifiers of a PUBLISH (section 3.3.2.3.8).
#[derive(Clone, Copy)]
pub struct SubscriptionIdentifiers<'a>(Identifiers<'a>);

#[derive(Clone, Copy)]
enum Identifiers<'a> {
    Slice(&'a [u32]),
    Wire(&'a [u8]),
}

impl<'a> SubscriptionIdentifiers<'a> {
    /// The identifiers of a slice; each is 1 to 268,435,455, or encoding fails.
    #[must_use]
    pub const fn new(identifiers: &'a [u32]) -> Self {
        Self(Identifiers::Slice(identifiers))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            Identifiers::Slice(identifiers) => identifiers.is_empty(),
            Identifiers::Wire(section) => section.is_empty(),
        }
    }

    /// How many there are; counts them when they are on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Identifiers::Slice(identifiers) => identifiers.len(),
            Identifiers::Wire(_) => self.iter().count(),
        }
    }

    /// The identifiers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        let (slice, section) = match self.0 {
            Identifiers::Slice(slice) => (slice, [].as_slice()),
            Identifiers::Wire(section) => ([].as_slice(), section),
        };
        let mut section = Occurrences::new(section, PropertyId::SubscriptionIdentifier);
        slice.iter().copied().chain(core::iter::from_fn(move || {
            section.advance()?.varint().ok()
        }))
    }

    pub(crate) fn note_wire(&mut self, section: &'a [u8]) {
        if self.is_empty() {
            self.0 = Identifiers::Wire(section);
        }
    }

    #[inline]
    pub(crate) fn wire_len(&self) -> Result<usize, EncodeError> {
        if self.is_empty() {
            return Ok(0);
        }
        self.iter().try_fold(0, |sum, identifier| {
            if !(1..=VARINT_MAX).contains(&identifier) {
                return Err(EncodeError::ValueOutOfRange);
            }
            Ok(sum + 1 + varint_len(identifier as usize))
        })
    }

    pub(crate) fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        for identifier in self.iter() {
            out.put_u8(PropertyId::SubscriptionIdentifier as u8)?;
            put_varint(out, identifier as usize)?;
        }
        Ok(())
    }
}

list!(SubscriptionIdentifiers, u32);

/// Reason codes of a SUBACK or UNSUBACK, one per filter.
#[derive(Clone, Copy)]
pub struct ReasonCodes<'a>(Codes<'a>);

#[derive(Clone, Copy)]
enum Codes<'a> {
    Slice(&'a [ReasonCode]),
    Wire(&'a [u8]),
}

impl<'a> ReasonCodes<'a> {
    /// The reason codes of a slice.
    #[must_use]
    pub const fn new(codes: &'a [ReasonCode]) -> Self {
        Self(Codes::Slice(codes))
    }

    /// Bytes that are all reason codes.
    pub(crate) const fn from_wire(bytes: &'a [u8]) -> Self {
        Self(Codes::Wire(bytes))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Codes::Slice(codes) => codes.len(),
            Codes::Wire(bytes) => bytes.len(),
        }
    }

    /// The reason codes, in order.
    pub fn iter(&self) -> impl Iterator<Item = ReasonCode> + Clone + use<'a> {
        let (slice, bytes) = match self.0 {
            Codes::Slice(slice) => (slice, [].as_slice()),
            Codes::Wire(bytes) => ([].as_slice(), bytes),
        };
        // The decoder has checked every byte, so none is left out.
        let wire = bytes.iter().filter_map(|&byte| ReasonCode::from_u8(byte));
        slice.iter().copied().chain(wire)
    }
}

list!(ReasonCodes, ReasonCode);
