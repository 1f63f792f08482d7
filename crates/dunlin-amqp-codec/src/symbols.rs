//! Fields of several symbols (section 1.4, `multiple`): null, one, or an array.
//! Those of this side are an array also where there is one: not all peers read
//! a single value.

use core::iter;

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::writer::{compound_len, put_compound};
use crate::{Array, DecodeError, EncodeError, Symbol, Value, code};

/// Several symbols: received, or to encode.
#[derive(Clone, Copy)]
pub struct Symbols<'a>(Repr<'a>);

#[derive(Clone, Copy)]
enum Repr<'a> {
    One(Symbol<'a>),
    Array(Array<'a>),
    Slice(&'a [Symbol<'a>]),
}

impl<'a> Symbols<'a> {
    /// These symbols.
    #[must_use]
    pub const fn new(symbols: &'a [Symbol<'a>]) -> Self {
        Self(Repr::Slice(symbols))
    }

    /// The symbols, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'a>> + Clone + use<'a> {
        let (one, array, slice): (_, _, &[Symbol<'a>]) = match self.0 {
            Repr::One(symbol) => (Some(symbol), Array::default(), &[]),
            Repr::Array(array) => (None, array, &[]),
            Repr::Slice(slice) => (None, Array::default(), slice),
        };
        let in_array = array.iter().filter_map(|value| match value {
            Value::Symbol(symbol) => Some(symbol),
            _ => None,
        });
        iter::empty()
            .chain(one)
            .chain(in_array)
            .chain(slice.iter().copied())
    }

    /// Whether `symbol` is one of them.
    #[must_use]
    pub fn contains(&self, symbol: &str) -> bool {
        self.iter().any(|it| it == symbol)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Constructor for all, and bytes of constructor and elements.
fn slice_shape(symbols: &[Symbol<'_>]) -> (bool, usize) {
    let narrow = symbols.iter().all(|symbol| symbol.as_str().len() <= 0xff);
    let prefix = if narrow { 1 } else { 4 };
    let bytes = symbols.iter().map(|symbol| prefix + symbol.as_str().len());
    (narrow, 1 + bytes.sum::<usize>())
}

impl<'a> Field<'a> for Symbols<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::ARRAY8 | code::ARRAY32 => {
                let array = Array::read(code, r)?;
                let is_symbols = array.iter().all(|value| matches!(value, Value::Symbol(_)));
                if !is_symbols {
                    return Err(DecodeError::WrongType);
                }
                Ok(Self(Repr::Array(array)))
            }
            _ => Symbol::read(code, r).map(|symbol| Self(Repr::One(symbol))),
        }
    }

    fn encoded_len(&self) -> usize {
        match &self.0 {
            Repr::One(symbol) => symbol.encoded_len(),
            Repr::Array(array) => array.encoded_len(),
            Repr::Slice(slice) => compound_len(slice.len(), slice_shape(slice).1),
        }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let slice = match &self.0 {
            Repr::One(symbol) => return symbol.write(out),
            Repr::Array(array) => return array.write(out),
            Repr::Slice(slice) => *slice,
        };
        let (narrow, bytes) = slice_shape(slice);
        put_compound(out, code::ARRAY8, slice.len(), bytes)?;
        out.put_u8(if narrow {
            code::SYMBOL8
        } else {
            code::SYMBOL32
        })?;
        for symbol in slice {
            let text = symbol.as_str().as_bytes();
            let len = u32::try_from(text.len()).map_err(|_| EncodeError::TooLarge)?;
            if narrow {
                out.put_u8(len as u8)?;
            } else {
                out.put(&len.to_be_bytes())?;
            }
            out.put(text)?;
        }
        Ok(())
    }
}

as_its_elements!(Symbols, debug_list);
