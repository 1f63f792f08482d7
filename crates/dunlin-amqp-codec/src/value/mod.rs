//! Any value of AMQP (section 1): primitive, described, or several.

use alloc::vec::Vec;

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::limits::DEPTH_MAX;
use crate::primitive::put_fixed;
use crate::reader::Reader;
use crate::writer::put_null;
use crate::{DecodeError, EncodeError, Symbol, Timestamp, Uuid, code};

mod array;
mod described;
mod list;
mod map;

pub use array::Array;
pub(crate) use described::read_descriptor;
pub use described::{Described, Descriptor};
pub use list::List;
pub use map::Map;

/// A value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the types of section 1.6, by their names")]
pub enum Value<'a> {
    #[default]
    Null,
    Bool(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    Timestamp(Timestamp),
    Uuid(Uuid),
    Binary(&'a [u8]),
    String(&'a str),
    Symbol(Symbol<'a>),
    List(List<'a>),
    Map(Map<'a>),
    Array(Array<'a>),
    Described(Described<'a>),
}

/// What a reader of nested values still has to check.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// Everything, with so many levels left.
    Levels(usize),
    /// Nothing below the first level: it was checked before.
    Done,
}

impl Check {
    /// Everything.
    pub(crate) const ALL: Self = Self::Levels(DEPTH_MAX);

    /// The same, one level deeper.
    pub(crate) fn deeper(self) -> Result<Self, DecodeError> {
        match self {
            Self::Done => Ok(Self::Done),
            Self::Levels(left) => match left.checked_sub(1) {
                Some(left) => Ok(Self::Levels(left)),
                None => Err(DecodeError::Depth),
            },
        }
    }
}

impl<'a> Value<'a> {
    /// Decodes `bytes`, which are exactly one value.
    ///
    /// # Errors
    /// The first rule that the bytes break, at any depth.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let value = Self::read_any(&mut r, Check::ALL)?;
        r.finish()?;
        Ok(value)
    }

    /// Bytes that encoding takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Null => 1,
            Self::Bool(v) => v.encoded_len(),
            Self::Ubyte(v) => v.encoded_len(),
            Self::Ushort(v) => v.encoded_len(),
            Self::Uint(v) => v.encoded_len(),
            Self::Ulong(v) => v.encoded_len(),
            Self::Byte(v) => v.encoded_len(),
            Self::Short(v) => v.encoded_len(),
            Self::Int(v) => v.encoded_len(),
            Self::Long(v) => v.encoded_len(),
            Self::Float(v) => v.encoded_len(),
            Self::Double(v) => v.encoded_len(),
            Self::Decimal32(v) => 1 + v.len(),
            Self::Decimal64(v) => 1 + v.len(),
            Self::Decimal128(v) => 1 + v.len(),
            Self::Char(v) => v.encoded_len(),
            Self::Timestamp(v) => v.encoded_len(),
            Self::Uuid(v) => v.encoded_len(),
            Self::Binary(v) => v.encoded_len(),
            Self::String(v) => v.encoded_len(),
            Self::Symbol(v) => v.encoded_len(),
            Self::List(v) => v.encoded_len(),
            Self::Map(v) => v.encoded_len(),
            Self::Array(v) => v.encoded_len(),
            Self::Described(v) => v.encoded_len(),
        }
    }

    /// Writes the value in its shortest form; compound values that were decoded
    /// keep the bytes of their elements.
    ///
    /// # Errors
    /// The sink is full, the value is larger than AMQP can say, or an array was
    /// built of different types.
    pub fn encode(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        match self {
            Self::Null => put_null(out),
            Self::Bool(v) => v.write(out),
            Self::Ubyte(v) => v.write(out),
            Self::Ushort(v) => v.write(out),
            Self::Uint(v) => v.write(out),
            Self::Ulong(v) => v.write(out),
            Self::Byte(v) => v.write(out),
            Self::Short(v) => v.write(out),
            Self::Int(v) => v.write(out),
            Self::Long(v) => v.write(out),
            Self::Float(v) => v.write(out),
            Self::Double(v) => v.write(out),
            Self::Decimal32(v) => put_fixed::<5>(out, code::DECIMAL32, v),
            Self::Decimal64(v) => put_fixed::<9>(out, code::DECIMAL64, v),
            Self::Decimal128(v) => put_fixed::<17>(out, code::DECIMAL128, v),
            Self::Char(v) => v.write(out),
            Self::Timestamp(v) => v.write(out),
            Self::Uuid(v) => v.write(out),
            Self::Binary(v) => v.write(out),
            Self::String(v) => v.write(out),
            Self::Symbol(v) => v.write(out),
            Self::List(v) => v.write(out),
            Self::Map(v) => v.write(out),
            Self::Array(v) => v.write(out),
            Self::Described(v) => v.write(out),
        }
    }

    /// The encoded value.
    ///
    /// # Errors
    /// As [`Value::encode`].
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode(&mut out)?;
        Ok(out)
    }

    /// The text of a string or symbol.
    #[must_use]
    pub const fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(text) => Some(text),
            Self::Symbol(symbol) => Some(symbol.as_str()),
            _ => None,
        }
    }

    /// An unsigned integer of any width.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        Some(match *self {
            Self::Ubyte(v) => v.into(),
            Self::Ushort(v) => v.into(),
            Self::Uint(v) => v.into(),
            Self::Ulong(v) => v,
            _ => return None,
        })
    }

    /// An integer of any width and sign, if it fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        Some(match *self {
            Self::Byte(v) => v.into(),
            Self::Short(v) => v.into(),
            Self::Int(v) => v.into(),
            Self::Long(v) => v,
            _ => return self.as_u64()?.try_into().ok(),
        })
    }

    /// Reads a value with its constructor.
    pub(crate) fn read_any(r: &mut Reader<'a>, check: Check) -> Result<Self, DecodeError> {
        let code = r.u8()?;
        Self::read_data(code, r, check)
    }

    /// Reads the data that follow a constructor of one byte.
    pub(crate) fn read_data(
        code: u8,
        r: &mut Reader<'a>,
        check: Check,
    ) -> Result<Self, DecodeError> {
        Ok(match code {
            code::NULL => Self::Null,
            code::TRUE | code::FALSE | code::BOOLEAN => Self::Bool(Field::read(code, r)?),
            code::UBYTE => Self::Ubyte(Field::read(code, r)?),
            code::USHORT => Self::Ushort(Field::read(code, r)?),
            code::UINT0 | code::SMALL_UINT | code::UINT => Self::Uint(Field::read(code, r)?),
            code::ULONG0 | code::SMALL_ULONG | code::ULONG => Self::Ulong(Field::read(code, r)?),
            code::BYTE => Self::Byte(Field::read(code, r)?),
            code::SHORT => Self::Short(Field::read(code, r)?),
            code::SMALL_INT | code::INT => Self::Int(Field::read(code, r)?),
            code::SMALL_LONG | code::LONG => Self::Long(Field::read(code, r)?),
            code::FLOAT => Self::Float(Field::read(code, r)?),
            code::DOUBLE => Self::Double(Field::read(code, r)?),
            code::DECIMAL32 => Self::Decimal32(r.array()?),
            code::DECIMAL64 => Self::Decimal64(r.array()?),
            code::DECIMAL128 => Self::Decimal128(r.array()?),
            code::CHAR => Self::Char(Field::read(code, r)?),
            code::TIMESTAMP => Self::Timestamp(Field::read(code, r)?),
            code::UUID => Self::Uuid(Field::read(code, r)?),
            code::BINARY8 | code::BINARY32 => Self::Binary(Field::read(code, r)?),
            code::STRING8 | code::STRING32 => Self::String(Field::read(code, r)?),
            code::SYMBOL8 | code::SYMBOL32 => Self::Symbol(Field::read(code, r)?),
            code::LIST0 | code::LIST8 | code::LIST32 => {
                Self::List(List::read_list(code, r, check)?)
            }
            code::MAP8 | code::MAP32 => Self::Map(Map::read_map(code, r, check)?),
            code::ARRAY8 | code::ARRAY32 => Self::Array(Array::read_array(code, r, check)?),
            code::DESCRIBED => {
                let descriptor = read_descriptor(r)?;
                Self::Described(Described::read_value(descriptor, r, check)?)
            }
            _ => return Err(DecodeError::UnknownCode(code)),
        })
    }
}

impl<'a> Field<'a> for Value<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read_data(code, r, Check::ALL)
    }

    fn encoded_len(&self) -> usize {
        Self::encoded_len(self)
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.encode(out)
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident,)*) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

from! {
    bool => Bool,
    u8 => Ubyte,
    u16 => Ushort,
    u32 => Uint,
    u64 => Ulong,
    i8 => Byte,
    i16 => Short,
    i32 => Int,
    i64 => Long,
    f32 => Float,
    f64 => Double,
    char => Char,
    Timestamp => Timestamp,
    Uuid => Uuid,
    &'a [u8] => Binary,
    &'a str => String,
    Symbol<'a> => Symbol,
    List<'a> => List,
    Map<'a> => Map,
    Array<'a> => Array,
    Described<'a> => Described,
}
