//! Sizes and headers of encoded values. Encoding picks the shortest form.

use dunlin_base::ByteSink;

use crate::{EncodeError, code};

/// Longest string or compound with a length of one byte.
const NARROW_MAX: usize = u8::MAX as usize;

pub(crate) fn put_null(out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
    Ok(out.put_u8(code::NULL)?)
}

/// Bytes of a string, symbol or binary with constructor.
pub(crate) const fn variable_len(len: usize) -> usize {
    len + if len <= NARROW_MAX { 2 } else { 5 }
}

/// Writes a string, symbol or binary; `narrow` is its short constructor.
#[inline]
pub(crate) fn put_variable(
    out: &mut (impl ByteSink + ?Sized),
    narrow: u8,
    bytes: &[u8],
) -> Result<(), EncodeError> {
    if let Ok(len) = u8::try_from(bytes.len()) {
        out.put(&[narrow, len])?;
    } else {
        let len = u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLarge)?;
        out.put_u8(narrow + code::WIDE)?;
        out.put(&len.to_be_bytes())?;
    }
    Ok(out.put(bytes)?)
}

/// Whether a compound of `count` elements in `bytes` has the short form.
const fn is_narrow(count: usize, bytes: usize) -> bool {
    count <= NARROW_MAX && bytes < NARROW_MAX
}

/// Bytes of a list, map or array with constructor.
pub(crate) const fn compound_len(count: usize, bytes: usize) -> usize {
    bytes + if is_narrow(count, bytes) { 3 } else { 9 }
}

/// Writes what comes before the elements; `narrow` is the short constructor.
#[inline]
pub(crate) fn put_compound(
    out: &mut (impl ByteSink + ?Sized),
    narrow: u8,
    count: usize,
    bytes: usize,
) -> Result<(), EncodeError> {
    if is_narrow(count, bytes) {
        return Ok(out.put(&[narrow, bytes as u8 + 1, count as u8])?);
    }
    out.put_u8(narrow + code::WIDE)?;
    put_wide_compound(out, count, bytes)
}

/// Writes size and count of four bytes each.
pub(crate) fn put_wide_compound(
    out: &mut (impl ByteSink + ?Sized),
    count: usize,
    bytes: usize,
) -> Result<(), EncodeError> {
    let size = u32::try_from(bytes)
        .ok()
        .and_then(|bytes| bytes.checked_add(4))
        .ok_or(EncodeError::TooLarge)?;
    let count = u32::try_from(count).map_err(|_| EncodeError::TooLarge)?;
    out.put(&size.to_be_bytes())?;
    Ok(out.put(&count.to_be_bytes())?)
}
