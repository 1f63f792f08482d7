//! Maps (section 1.6.23). Received maps keep their order and their repeated
//! keys; a search finds the first.

use core::iter;

use dunlin_base::ByteSink;

use super::list::{check_values, checked_values};
use super::{Check, Value};
use crate::field::Field;
use crate::reader::Reader;
use crate::writer::{compound_len, put_compound};
use crate::{DecodeError, EncodeError, code};

/// A map: received bytes that were checked, or entries to encode.
#[derive(Clone, Copy)]
pub struct Map<'a>(Entries<'a>);

#[derive(Clone, Copy)]
enum Entries<'a> {
    Encoded { count: u32, elements: &'a [u8] },
    Values(&'a [(Value<'a>, Value<'a>)]),
}

impl<'a> Map<'a> {
    /// A map of these entries.
    #[must_use]
    pub const fn new(entries: &'a [(Value<'a>, Value<'a>)]) -> Self {
        Self(Entries::Values(entries))
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Entries::Encoded { count, .. } => count as usize / 2,
            Entries::Values(entries) => entries.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> + Clone + use<'a> {
        let (elements, entries): (&[u8], &[(Value<'a>, Value<'a>)]) = match self.0 {
            Entries::Encoded { elements, .. } => (elements, &[]),
            Entries::Values(entries) => (&[], entries),
        };
        let mut received = checked_values(Reader::new(elements));
        iter::from_fn(move || Some((received.next()?, received.next()?)))
            .chain(entries.iter().copied())
    }

    /// The value of the first key that is this symbol or string.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.iter()
            .find(|(k, _)| k.as_str() == Some(key))
            .map(|(_, value)| value)
    }

    pub(crate) fn read_map(
        code: u8,
        r: &mut Reader<'a>,
        check: Check,
    ) -> Result<Self, DecodeError> {
        let (count, body) = r.compound(code)?;
        if count % 2 == 1 {
            return Err(DecodeError::MapOdd);
        }
        if let Check::Levels(_) = check {
            check_values(count, body, check)?;
        }
        let elements = body.rest();
        Ok(Self(Entries::Encoded { count, elements }))
    }

    /// Number and bytes of keys and values.
    pub(crate) fn size(&self) -> (usize, usize) {
        let bytes = match self.0 {
            Entries::Encoded { elements, .. } => elements.len(),
            Entries::Values(entries) => entries
                .iter()
                .map(|(key, value)| key.encoded_len() + value.encoded_len())
                .sum(),
        };
        (self.len() * 2, bytes)
    }

    /// Writes keys and values.
    pub(crate) fn write_elements(
        &self,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        match self.0 {
            Entries::Encoded { elements, .. } => Ok(out.put(elements)?),
            Entries::Values(entries) => entries.iter().try_for_each(|(key, value)| {
                key.encode(out)?;
                value.encode(out)
            }),
        }
    }
}

impl<'a> Field<'a> for Map<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::MAP8 | code::MAP32 => Self::read_map(code, r, Check::ALL),
            _ => Err(DecodeError::WrongType),
        }
    }

    fn encoded_len(&self) -> usize {
        let (count, bytes) = self.size();
        compound_len(count, bytes)
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let (count, bytes) = self.size();
        put_compound(out, code::MAP8, count, bytes)?;
        self.write_elements(out)
    }
}

as_its_elements!(Map, debug_map);
