//! Fields of primitive types (section 1.6) and how each is encoded shortest.

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::writer::{put_variable, variable_len};
use crate::{DecodeError, EncodeError, code};

/// Milliseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A universally unique id (RFC 4122).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Implements [`Field`] for types that have one constructor and a fixed width.
macro_rules! fixed {
    ($($type:ty = $code:ident, $bytes:literal, $from:expr, $to:expr;)*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
                if code != code::$code {
                    return Err(DecodeError::WrongType);
                }
                r.array().map($from)
            }

            fn encoded_len(&self) -> usize {
                1 + $bytes
            }

            #[inline]
            fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
                put_fixed::<{ 1 + $bytes }>(out, code::$code, &$to(*self))
            }
        }
    )*};
}

fixed! {
    u8 = UBYTE, 1, Self::from_be_bytes, Self::to_be_bytes;
    u16 = USHORT, 2, Self::from_be_bytes, Self::to_be_bytes;
    i8 = BYTE, 1, Self::from_be_bytes, Self::to_be_bytes;
    i16 = SHORT, 2, Self::from_be_bytes, Self::to_be_bytes;
    f32 = FLOAT, 4, Self::from_be_bytes, Self::to_be_bytes;
    f64 = DOUBLE, 8, Self::from_be_bytes, Self::to_be_bytes;
    Timestamp = TIMESTAMP, 8,
        |bytes| Self(i64::from_be_bytes(bytes)), |value: Self| value.0.to_be_bytes();
    Uuid = UUID, 16, Self, |value: Self| value.0;
}

/// Writes constructor and data at once.
#[inline]
pub(crate) fn put_fixed<const N: usize>(
    out: &mut (impl ByteSink + ?Sized),
    code: u8,
    data: &[u8],
) -> Result<(), EncodeError> {
    let mut bytes = [code; N];
    for (to, from) in bytes.iter_mut().skip(1).zip(data) {
        *to = *from;
    }
    Ok(out.put(&bytes)?)
}

impl<'a> Field<'a> for bool {
    #[inline]
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::TRUE => Ok(true),
            code::FALSE => Ok(false),
            code::BOOLEAN => match r.u8()? {
                0 => Ok(false),
                1 => Ok(true),
                _ => Err(DecodeError::Boolean),
            },
            _ => Err(DecodeError::WrongType),
        }
    }

    fn encoded_len(&self) -> usize {
        1
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        Ok(out.put_u8(if *self { code::TRUE } else { code::FALSE })?)
    }
}

/// Implements [`Field`] for integers that have a constructor for values of one
/// byte, and the unsigned ones another for 0.
macro_rules! varied {
    ($($type:ty = $wide:ident, $small:ident: $small_type:ty $(, $zero:ident)?;)*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
                match code {
                    code::$wide => r.array().map(Self::from_be_bytes),
                    code::$small => {
                        r.array().map(<$small_type>::from_be_bytes).map(Self::from)
                    }
                    $(code::$zero => Ok(0),)?
                    _ => Err(DecodeError::WrongType),
                }
            }

            fn encoded_len(&self) -> usize {
                $(
                    if *self == 0 {
                        let _ = code::$zero;
                        return 1;
                    }
                )?
                if <$small_type>::try_from(*self).is_ok() { 2 } else { 1 + size_of::<Self>() }
            }

            #[inline]
            fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
                $(
                    if *self == 0 {
                        return Ok(out.put_u8(code::$zero)?);
                    }
                )?
                if let Ok(small) = <$small_type>::try_from(*self) {
                    let [byte] = small.to_be_bytes();
                    return Ok(out.put(&[code::$small, byte])?);
                }
                put_fixed::<{ 1 + size_of::<$type>() }>(out, code::$wide, &self.to_be_bytes())
            }
        }
    )*};
}

varied! {
    u32 = UINT, SMALL_UINT: u8, UINT0;
    u64 = ULONG, SMALL_ULONG: u8, ULONG0;
    i32 = INT, SMALL_INT: i8;
    i64 = LONG, SMALL_LONG: i8;
}

impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::BINARY8 | code::BINARY32 => r.variable(code),
            _ => Err(DecodeError::WrongType),
        }
    }

    fn encoded_len(&self) -> usize {
        variable_len(self.len())
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        put_variable(out, code::BINARY8, self)
    }
}

impl<'a> Field<'a> for &'a str {
    #[inline]
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::STRING8 | code::STRING32 => {
                core::str::from_utf8(r.variable(code)?).map_err(|_| DecodeError::Utf8)
            }
            _ => Err(DecodeError::WrongType),
        }
    }

    fn encoded_len(&self) -> usize {
        variable_len(self.len())
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        put_variable(out, code::STRING8, self.as_bytes())
    }
}

impl<'a> Field<'a> for char {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if code != code::CHAR {
            return Err(DecodeError::WrongType);
        }
        Self::from_u32(r.u32()?).ok_or(DecodeError::Char)
    }

    fn encoded_len(&self) -> usize {
        5
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        put_fixed::<5>(out, code::CHAR, &u32::from(*self).to_be_bytes())
    }
}
