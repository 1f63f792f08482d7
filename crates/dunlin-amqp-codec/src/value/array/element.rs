//! How the elements of an array that is built are encoded: all with the
//! shortest constructor that fits each of them.

use dunlin_base::ByteSink;

use crate::value::{Descriptor, Value};
use crate::writer::put_wide_compound;
use crate::{EncodeError, code};

/// What the elements have in common.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    descriptor: Option<Descriptor<'a>>,
    code: u8,
}

impl<'a> Shape<'a> {
    /// Looks at all elements.
    pub(super) fn of(values: &[Value<'a>]) -> Result<Self, EncodeError> {
        let Some(first) = values.first() else {
            return Ok(Self {
                descriptor: None,
                code: code::NULL,
            });
        };
        let (descriptor, value) = split(*first);
        let (_, wide) = codes(&value).ok_or(EncodeError::MixedArray)?;
        let mut code = None;
        for value in values {
            let (its_descriptor, value) = split(*value);
            let (own, its_wide) = codes(&value).ok_or(EncodeError::MixedArray)?;
            if its_descriptor != descriptor || its_wide != wide {
                return Err(EncodeError::MixedArray);
            }
            // The same or the wider of two.
            code = match code {
                None => Some(own),
                Some(code) if code == own => Some(code),
                Some(_) => Some(wide),
            };
        }
        let code = code.unwrap_or(wide);
        Ok(Self { descriptor, code })
    }

    /// Bytes of the constructor and the elements.
    pub(super) fn bytes(&self, values: &[Value<'a>]) -> usize {
        let descriptor = self.descriptor.map_or(0, |d| 1 + d.encoded_len());
        let data: usize = values
            .iter()
            .map(|value| data_len(&split(*value).1, self.code))
            .sum();
        descriptor + 1 + data
    }

    /// Writes the constructor and the elements.
    pub(super) fn write(
        &self,
        values: &[Value<'a>],
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        if let Some(descriptor) = self.descriptor {
            out.put_u8(code::DESCRIBED)?;
            descriptor.write(out)?;
        }
        out.put_u8(self.code)?;
        values
            .iter()
            .try_for_each(|value| write_data(&split(*value).1, self.code, out))
    }
}

/// A value without its descriptor.
fn split(value: Value<'_>) -> (Option<Descriptor<'_>>, Value<'_>) {
    match value {
        Value::Described(described) => (Some(described.descriptor), described.value()),
        plain => (None, plain),
    }
}

/// The shortest constructor of a value in an array, and the widest of its type.
fn codes(value: &Value<'_>) -> Option<(u8, u8)> {
    let varied = |fits: bool, narrow, wide| (if fits { narrow } else { wide }, wide);
    let fixed = |code| (code, code);
    let short = |len: usize, narrow: u8| varied(len <= 0xff, narrow, narrow + code::WIDE);
    let small = |(count, bytes): (usize, usize), narrow: u8| {
        varied(count <= 0xff && bytes < 0xff, narrow, narrow + code::WIDE)
    };
    Some(match value {
        Value::Null => fixed(code::NULL),
        Value::Bool(_) => fixed(code::BOOLEAN),
        Value::Ubyte(_) => fixed(code::UBYTE),
        Value::Ushort(_) => fixed(code::USHORT),
        Value::Uint(v) => varied(u8::try_from(*v).is_ok(), code::SMALL_UINT, code::UINT),
        Value::Ulong(v) => varied(u8::try_from(*v).is_ok(), code::SMALL_ULONG, code::ULONG),
        Value::Byte(_) => fixed(code::BYTE),
        Value::Short(_) => fixed(code::SHORT),
        Value::Int(v) => varied(i8::try_from(*v).is_ok(), code::SMALL_INT, code::INT),
        Value::Long(v) => varied(i8::try_from(*v).is_ok(), code::SMALL_LONG, code::LONG),
        Value::Float(_) => fixed(code::FLOAT),
        Value::Double(_) => fixed(code::DOUBLE),
        Value::Decimal32(_) => fixed(code::DECIMAL32),
        Value::Decimal64(_) => fixed(code::DECIMAL64),
        Value::Decimal128(_) => fixed(code::DECIMAL128),
        Value::Char(_) => fixed(code::CHAR),
        Value::Timestamp(_) => fixed(code::TIMESTAMP),
        Value::Uuid(_) => fixed(code::UUID),
        Value::Binary(v) => short(v.len(), code::BINARY8),
        Value::String(v) => short(v.len(), code::STRING8),
        Value::Symbol(v) => short(v.as_str().len(), code::SYMBOL8),
        Value::List(v) => small(v.size(), code::LIST8),
        Value::Map(v) => small(v.size(), code::MAP8),
        Value::Array(v) => small(v.size(), code::ARRAY8),
        Value::Described(_) => return None,
    })
}

/// Bytes of a value after the constructor `code`.
fn data_len(value: &Value<'_>, code: u8) -> usize {
    let narrow = code::is_narrow(code);
    let (len_bytes, size_bytes) = if narrow { (1, 2) } else { (4, 8) };
    match value {
        Value::Bool(_) => 1,
        Value::Uint(_) | Value::Int(_) if code >> 4 == 5 => 1,
        Value::Uint(_) | Value::Int(_) => 4,
        Value::Ulong(_) | Value::Long(_) if code >> 4 == 5 => 1,
        Value::Ulong(_) | Value::Long(_) => 8,
        Value::Binary(v) => len_bytes + v.len(),
        Value::String(v) => len_bytes + v.len(),
        Value::Symbol(v) => len_bytes + v.as_str().len(),
        Value::List(v) => size_bytes + v.size().1,
        Value::Map(v) => size_bytes + v.size().1,
        Value::Array(v) => size_bytes + v.size().1,
        fixed => fixed.encoded_len() - 1,
    }
}

/// Writes a value after the constructor `code`.
fn write_data(
    value: &Value<'_>,
    code: u8,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    let small = code >> 4 == 5;
    match value {
        Value::Bool(v) => Ok(out.put_u8(u8::from(*v))?),
        Value::Uint(v) => put_number(out, small, &v.to_be_bytes()),
        Value::Int(v) => put_number(out, small, &v.to_be_bytes()),
        Value::Ulong(v) => put_number(out, small, &v.to_be_bytes()),
        Value::Long(v) => put_number(out, small, &v.to_be_bytes()),
        Value::Binary(v) => put_bytes(out, code, v),
        Value::String(v) => put_bytes(out, code, v.as_bytes()),
        Value::Symbol(v) => put_bytes(out, code, v.as_str().as_bytes()),
        Value::List(v) => {
            put_size(out, code, v.size())?;
            v.write_elements(out)
        }
        Value::Map(v) => {
            put_size(out, code, v.size())?;
            v.write_elements(out)
        }
        Value::Array(v) => {
            put_size(out, code, v.size())?;
            v.write_elements(out)
        }
        fixed => {
            // The longest are a decimal128 and a uuid, after their constructor.
            let mut bytes = [0; 17];
            fixed.encode(&mut &mut bytes[..])?;
            let data = bytes.get(1..fixed.encoded_len()).unwrap_or(&[]);
            Ok(out.put(data)?)
        }
    }
}

/// Writes a number, or its last byte.
fn put_number(
    out: &mut (impl ByteSink + ?Sized),
    small: bool,
    bytes: &[u8],
) -> Result<(), EncodeError> {
    let from = if small { bytes.len() - 1 } else { 0 };
    Ok(out.put(bytes.get(from..).unwrap_or(&[]))?)
}

/// Writes a length of one byte or four, and the bytes.
fn put_bytes(
    out: &mut (impl ByteSink + ?Sized),
    code: u8,
    bytes: &[u8],
) -> Result<(), EncodeError> {
    let len = u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLarge)?;
    if code::is_narrow(code) {
        out.put_u8(len as u8)?;
    } else {
        out.put(&len.to_be_bytes())?;
    }
    Ok(out.put(bytes)?)
}

/// Writes size and count of one byte or four each.
fn put_size(
    out: &mut (impl ByteSink + ?Sized),
    code: u8,
    (count, bytes): (usize, usize),
) -> Result<(), EncodeError> {
    if code::is_narrow(code) {
        return Ok(out.put(&[bytes as u8 + 1, count as u8])?);
    }
    put_wide_compound(out, count, bytes)
}
