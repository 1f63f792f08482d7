//! Arrays (section 1.6.24): many values behind one constructor.

use dunlin_base::ByteSink;

use super::described::{read_element, skip_constructor};
use super::{Check, Value};
use crate::field::Field;
use crate::limits::{ARRAY_CONSTRUCTOR_BYTES_MAX, EMPTY_ELEMENTS_MAX};
use crate::reader::Reader;
use crate::writer::{compound_len, put_compound};
use crate::{DecodeError, EncodeError, code};

mod element;

use element::Shape;

/// An array: received bytes that were checked, or values to encode.
#[derive(Clone, Copy)]
pub struct Array<'a>(Items<'a>);

#[derive(Clone, Copy)]
enum Items<'a> {
    Encoded {
        count: u32,
        constructor: &'a [u8],
        elements: &'a [u8],
    },
    Values(&'a [Value<'a>]),
}

impl<'a> Array<'a> {
    /// An array of these values, which must have one type; described values
    /// must have one descriptor.
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
        let (count, constructor, elements, values): (_, _, _, &[Value<'a>]) = match self.0 {
            Items::Encoded {
                count,
                constructor,
                elements,
            } => (count, constructor, elements, &[]),
            Items::Values(values) => (0, &[][..], &[][..], values),
        };
        let mut r = Reader::new(elements);
        (0..count)
            .map_while(move |_| read_element(constructor, &mut r, Check::Done).ok())
            .chain(values.iter().copied())
    }

    pub(crate) fn read_array(
        code: u8,
        r: &mut Reader<'a>,
        check: Check,
    ) -> Result<Self, DecodeError> {
        let (count, mut body) = r.compound(code)?;
        let start = body;
        skip_constructor(&mut body)?;
        let constructor = body.read_since(start);
        if let Check::Levels(_) = check {
            check_elements(count, constructor, body, check)?;
        }
        Ok(Self(Items::Encoded {
            count,
            constructor,
            elements: body.rest(),
        }))
    }

    /// Number of elements, and bytes of them and their constructor.
    fn size(&self) -> (usize, usize) {
        let bytes = match self.0 {
            Items::Encoded {
                constructor,
                elements,
                ..
            } => constructor.len() + elements.len(),
            Items::Values(values) => Shape::of(values).map_or(0, |shape| shape.bytes(values)),
        };
        (self.len(), bytes)
    }

    /// Writes constructor and elements.
    fn write_elements(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        match self.0 {
            Items::Encoded {
                constructor,
                elements,
                ..
            } => {
                out.put(constructor)?;
                Ok(out.put(elements)?)
            }
            Items::Values(values) => Shape::of(values)?.write(values, out),
        }
    }
}

/// Checks that `r` has exactly `count` elements.
fn check_elements<'a>(
    count: u32,
    constructor: &'a [u8],
    mut r: Reader<'a>,
    check: Check,
) -> Result<(), DecodeError> {
    if constructor.len() > ARRAY_CONSTRUCTOR_BYTES_MAX {
        return Err(DecodeError::ArrayConstructor);
    }
    let mut to_read = count;
    if constructor.last().is_some_and(|&code| code::is_empty(code)) {
        if count > EMPTY_ELEMENTS_MAX {
            return Err(DecodeError::EmptyElements);
        }
        // One is like the other.
        to_read = count.min(1);
    } else if count as usize > r.len() {
        return Err(DecodeError::Truncated);
    }
    let check = check.deeper()?;
    for _ in 0..to_read {
        read_element(constructor, &mut r, check)?;
    }
    r.finish()
}

impl<'a> Field<'a> for Array<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::ARRAY8 | code::ARRAY32 => Self::read_array(code, r, Check::ALL),
            _ => Err(DecodeError::WrongType),
        }
    }

    fn encoded_len(&self) -> usize {
        let (count, bytes) = self.size();
        compound_len(count, bytes)
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let (count, bytes) = self.size();
        put_compound(out, code::ARRAY8, count, bytes)?;
        self.write_elements(out)
    }
}

as_its_elements!(Array, debug_list);
