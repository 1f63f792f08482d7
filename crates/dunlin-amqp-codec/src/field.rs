//! What a field of a composite type can be.

use dunlin_base::ByteSink;

use crate::reader::Reader;
use crate::{DecodeError, EncodeError};

/// What a field of a composite type can be.
pub(crate) trait Field<'a>: Sized {
    /// Reads the data that follow the constructor `code`, which is not null.
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Bytes with constructor.
    fn encoded_len(&self) -> usize;

    /// Writes constructor and data.
    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError>;
}

/// Reads exactly one value from `bytes`.
pub(crate) fn read_whole<'a, T: Field<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut r = Reader::new(bytes);
    let code = r.u8()?;
    let value = T::read(code, &mut r)?;
    r.finish()?;
    Ok(value)
}
