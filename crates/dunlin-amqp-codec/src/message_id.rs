//! Message ids (sections 3.2.11 to 3.2.14).

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::value::Check;
use crate::{DecodeError, EncodeError, Uuid, Value};

/// A message id or correlation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageId<'a> {
    /// A number.
    Ulong(u64),
    /// A UUID.
    Uuid(Uuid),
    /// Bytes.
    Binary(&'a [u8]),
    /// Text.
    String(&'a str),
}

impl<'a> MessageId<'a> {
    /// The id as a value.
    #[must_use]
    pub const fn value(&self) -> Value<'a> {
        match *self {
            Self::Ulong(id) => Value::Ulong(id),
            Self::Uuid(id) => Value::Uuid(id),
            Self::Binary(id) => Value::Binary(id),
            Self::String(id) => Value::String(id),
        }
    }

    /// The id that a value is, if it has one of the types.
    #[must_use]
    pub const fn from_value(value: Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Ulong(id) => Self::Ulong(id),
            Value::Uuid(id) => Self::Uuid(id),
            Value::Binary(id) => Self::Binary(id),
            Value::String(id) => Self::String(id),
            _ => return None,
        })
    }
}

impl<'a> Field<'a> for MessageId<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let value = Value::read_data(code, r, Check::ALL)?;
        Self::from_value(value).ok_or(DecodeError::WrongType)
    }

    fn encoded_len(&self) -> usize {
        self.value().encoded_len()
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.value().encode(out)
    }
}
