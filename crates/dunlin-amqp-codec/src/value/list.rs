//! Lists (section 1.6.22).

use core::iter;

use dunlin_base::ByteSink;

use super::{Check, Value};
use crate::field::Field;
use crate::reader::Reader;
use crate::writer::{compound_len, put_compound};
use crate::{DecodeError, EncodeError, code};

/// A list: received bytes that were checked, or values to encode.
#[derive(Clone, Copy)]
pub struct List<'a>(Items<'a>);

#[derive(Clone, Copy)]
enum Items<'a> {
    Encoded { count: u32, elements: &'a [u8] },
    Values(&'a [Value<'a>]),
}

/// Checks that `r` has exactly `count` values.
pub(crate) fn check_values(count: u32, mut r: Reader<'_>, check: Check) -> Result<(), DecodeError> {
    // Without a byte for each, it need not be tried.
    if count as usize > r.len() {
        return Err(DecodeError::Truncated);
    }
    let check = check.deeper()?;
    for _ in 0..count {
        Value::read_any(&mut r, check)?;
    }
    r.finish()
}

/// Values of bytes that were checked.
pub(crate) fn checked_values(mut r: Reader<'_>) -> impl Iterator<Item = Value<'_>> + Clone {
    iter::from_fn(move || {
        if r.is_empty() {
            return None;
        }
        Value::read_any(&mut r, Check::Done).ok()
    })
}

impl<'a> List<'a> {
    /// A list of these values.
    #[must_use]
    pub const fn new(values: &'a [Value<'a>]) -> Self {
        Self(Items::Values(values))
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Items::Encoded { count, .. } => count as usize,
            Items::Values(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        let (elements, values): (&[u8], &[Value<'a>]) = match self.0 {
            Items::Encoded { elements, .. } => (elements, &[]),
            Items::Values(values) => (&[], values),
        };
        checked_values(Reader::new(elements)).chain(values.iter().copied())
    }

    pub(crate) fn read_list(
        code: u8,
        r: &mut Reader<'a>,
        check: Check,
    ) -> Result<Self, DecodeError> {
        if code == code::LIST0 {
            return Ok(Self::new(&[]));
        }
        let (count, body) = r.compound(code)?;
        if let Check::Levels(_) = check {
            check_values(count, body, check)?;
        }
        let elements = body.rest();
        Ok(Self(Items::Encoded { count, elements }))
    }

    /// Number and bytes of the elements.
    pub(crate) fn size(&self) -> (usize, usize) {
        let bytes = match self.0 {
            Items::Encoded { elements, .. } => elements.len(),
            Items::Values(values) => values.iter().map(Value::encoded_len).sum(),
        };
        (self.len(), bytes)
    }

    /// Writes the elements.
    pub(crate) fn write_elements(
        &self,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        match self.0 {
            Items::Encoded { elements, .. } => Ok(out.put(elements)?),
            Items::Values(values) => values.iter().try_for_each(|value| value.encode(out)),
        }
    }
}

impl<'a> Field<'a> for List<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::LIST0 | code::LIST8 | code::LIST32 => Self::read_list(code, r, Check::ALL),
            _ => Err(DecodeError::WrongType),
        }
    }

    fn encoded_len(&self) -> usize {
        let (count, bytes) = self.size();
        if count == 0 {
            1
        } else {
            compound_len(count, bytes)
        }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let (count, bytes) = self.size();
        if count == 0 {
            return Ok(out.put_u8(code::LIST0)?);
        }
        put_compound(out, code::LIST8, count, bytes)?;
        self.write_elements(out)
    }
}

as_its_elements!(List, debug_list);
