//! Described values (section 1.2.3): a value and what it stands for.

use core::fmt;

use dunlin_base::ByteSink;

use super::{Check, Value};
use crate::field::Field;
use crate::reader::Reader;
use crate::{DecodeError, EncodeError, Symbol, code};

/// What a described value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    /// A number: the domain in the upper half, the id in the lower.
    Code(u64),
    /// A name.
    Symbol(Symbol<'a>),
    /// The encoded value of a primitive type that the specification reserves
    /// (section 1.5).
    Reserved(&'a [u8]),
}

impl Descriptor<'_> {
    /// Whether it is this number or this name.
    #[must_use]
    pub fn is(&self, code: u64, symbol: &str) -> bool {
        match self {
            Self::Code(it) => *it == code,
            Self::Symbol(it) => *it == symbol,
            Self::Reserved(_) => false,
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::Code(code) => code.encoded_len(),
            Self::Symbol(symbol) => symbol.encoded_len(),
            Self::Reserved(bytes) => bytes.len(),
        }
    }

    pub(crate) fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        match self {
            Self::Code(code) => code.write(out),
            Self::Symbol(symbol) => symbol.write(out),
            Self::Reserved(bytes) => Ok(out.put(bytes)?),
        }
    }
}

/// Reads the descriptor that follows the constructor 0x00.
#[inline]
pub(crate) fn read_descriptor<'a>(r: &mut Reader<'a>) -> Result<Descriptor<'a>, DecodeError> {
    let start = *r;
    match r.u8()? {
        code @ (code::SMALL_ULONG | code::ULONG | code::ULONG0) => {
            u64::read(code, r).map(Descriptor::Code)
        }
        code @ (code::SYMBOL8 | code::SYMBOL32) => Symbol::read(code, r).map(Descriptor::Symbol),
        code if code::is_primitive(code) => {
            Value::read_data(code, r, Check::ALL)?;
            Ok(Descriptor::Reserved(r.read_since(start)))
        }
        _ => Err(DecodeError::DescriptorType),
    }
}

/// A described value.
#[derive(Clone, Copy)]
pub struct Described<'a> {
    /// What it stands for.
    pub descriptor: Descriptor<'a>,
    inner: Inner<'a>,
}

#[derive(Clone, Copy)]
enum Inner<'a> {
    /// Received: constructor and data, which an array keeps apart.
    Encoded {
        constructor: &'a [u8],
        data: &'a [u8],
    },
    Value(&'a Value<'a>),
}

impl<'a> Described<'a> {
    /// `value` with this descriptor.
    #[must_use]
    pub const fn new(descriptor: Descriptor<'a>, value: &'a Value<'a>) -> Self {
        Self {
            descriptor,
            inner: Inner::Value(value),
        }
    }

    /// The value without the descriptor.
    #[must_use]
    pub fn value(&self) -> Value<'a> {
        match self.inner {
            Inner::Encoded { constructor, data } => {
                // It was read before, so that it can be read.
                read_element(constructor, &mut Reader::new(data), Check::Done).unwrap_or_default()
            }
            Inner::Value(value) => *value,
        }
    }

    /// Constructor and data of a value that was received.
    pub(crate) fn received(&self) -> Option<(u8, Reader<'a>)> {
        match self.inner {
            Inner::Encoded {
                constructor: [code],
                data,
            } => Some((*code, Reader::new(data))),
            _ => None,
        }
    }

    /// Reads the value after its descriptor.
    pub(crate) fn read_value(
        descriptor: Descriptor<'a>,
        r: &mut Reader<'a>,
        check: Check,
    ) -> Result<Self, DecodeError> {
        let start = *r;
        skip_constructor(r)?;
        let constructor = r.read_since(start);
        Self::read_parts(descriptor, constructor, r, check)
    }

    /// Reads the data of a value whose constructor is elsewhere.
    fn read_parts(
        descriptor: Descriptor<'a>,
        constructor: &'a [u8],
        r: &mut Reader<'a>,
        check: Check,
    ) -> Result<Self, DecodeError> {
        let start = *r;
        read_element(constructor, r, check.deeper()?)?;
        let inner = Inner::Encoded {
            constructor,
            data: r.read_since(start),
        };
        Ok(Self { descriptor, inner })
    }
}

/// Passes over a constructor: a code, after any number of descriptors.
pub(crate) fn skip_constructor(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    while r.u8()? == code::DESCRIBED {
        read_descriptor(r)?;
    }
    Ok(())
}

/// Reads the data of a value from `r`, whose constructor is `constructor`.
pub(crate) fn read_element<'a>(
    constructor: &'a [u8],
    r: &mut Reader<'a>,
    check: Check,
) -> Result<Value<'a>, DecodeError> {
    let mut head = Reader::new(constructor);
    match head.u8()? {
        code::DESCRIBED => {
            let descriptor = read_descriptor(&mut head)?;
            Described::read_parts(descriptor, head.rest(), r, check).map(Value::Described)
        }
        code => Value::read_data(code, r, check),
    }
}

impl fmt::Debug for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.descriptor, self.value())
    }
}

impl PartialEq for Described<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.descriptor == other.descriptor && self.value() == other.value()
    }
}

impl<'a> Field<'a> for Described<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if code != code::DESCRIBED {
            return Err(DecodeError::WrongType);
        }
        let descriptor = read_descriptor(r)?;
        Self::read_value(descriptor, r, Check::ALL)
    }

    fn encoded_len(&self) -> usize {
        1 + self.descriptor.encoded_len()
            + match self.inner {
                Inner::Encoded { constructor, data } => constructor.len() + data.len(),
                Inner::Value(value) => value.encoded_len(),
            }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        out.put_u8(code::DESCRIBED)?;
        self.descriptor.write(out)?;
        match self.inner {
            Inner::Encoded { constructor, data } => {
                out.put(constructor)?;
                Ok(out.put(data)?)
            }
            Inner::Value(value) => value.encode(out),
        }
    }
}
