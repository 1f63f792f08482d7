//! The data types of MQTT 5.0 section 1.5 for encoders. Lengths are computed
//! and checked first, so that writing can only fail for want of room.

use dunlin_base::ByteSink;
use dunlin_base::limits::{MQTT_PACKET_BYTES_MAX, MQTT_STRING_BYTES_MAX};

use crate::{EncodeError, PacketType};

/// Largest value of a Variable Byte Integer (section 1.5.5).
pub(crate) const VARINT_MAX: u32 = 268_435_455;

const _: () = assert!(MQTT_PACKET_BYTES_MAX == VARINT_MAX + 5);

/// Bytes that a Variable Byte Integer takes.
pub(crate) const fn varint_len(value: usize) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

/// Bytes that a string or binary field takes with its length.
#[inline]
pub(crate) const fn prefixed_len(bytes: &[u8]) -> Result<usize, EncodeError> {
    if bytes.len() > MQTT_STRING_BYTES_MAX {
        return Err(EncodeError::FieldTooLong);
    }
    Ok(2 + bytes.len())
}

/// Bytes that a packet takes whose remaining length is `remaining`.
#[inline]
pub(crate) const fn packet_len(remaining: usize) -> Result<usize, EncodeError> {
    if remaining > VARINT_MAX as usize {
        return Err(EncodeError::PacketTooLarge);
    }
    Ok(1 + varint_len(remaining) + remaining)
}

/// A Variable Byte Integer (section 1.5.5) as a little-endian number, and its
/// length. `value` is at most [`VARINT_MAX`].
#[inline]
const fn varint_word(value: u32) -> (u32, usize) {
    let spread = (value & 0x7f)
        | (value & (0x7f << 7)) << 1
        | (value & (0x7f << 14)) << 2
        | (value & (0x7f << 21)) << 3;
    let len = varint_len(value as usize);
    // Every byte but the last says that another follows.
    let more = 0x0080_8080 & ((1u32 << (8 * (len - 1))) - 1);
    (spread | more, len)
}

pub(crate) fn put_varint(
    out: &mut (impl ByteSink + ?Sized),
    value: usize,
) -> Result<(), EncodeError> {
    let value = u32::try_from(value).map_err(|_| EncodeError::PacketTooLarge)?;
    if value > VARINT_MAX {
        return Err(EncodeError::PacketTooLarge);
    }
    let (word, len) = varint_word(value);
    put_word(out, u64::from(word), len)
}

/// Writes the first `len` bytes of the little-endian `word`: one call to the
/// sink for several short fields.
#[inline]
fn put_word(out: &mut (impl ByteSink + ?Sized), word: u64, len: usize) -> Result<(), EncodeError> {
    let bytes = word.to_le_bytes();
    Ok(out.put(bytes.get(..len).unwrap_or(&bytes))?)
}

pub(crate) fn put_u16(out: &mut (impl ByteSink + ?Sized), value: u16) -> Result<(), EncodeError> {
    Ok(out.put(&value.to_be_bytes())?)
}

/// Writes a string or binary field with its length.
pub(crate) fn put_prefixed(
    out: &mut (impl ByteSink + ?Sized),
    bytes: &[u8],
) -> Result<(), EncodeError> {
    let len = u16::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong)?;
    put_u16(out, len)?;
    Ok(out.put(bytes)?)
}

/// A fixed header as a little-endian number, and its length; `remaining` is at
/// most [`VARINT_MAX`].
#[inline]
const fn header_word(first_byte: u8, remaining: usize) -> (u64, usize) {
    let (varint, len) = varint_word(remaining as u32);
    (first_byte as u64 | (varint as u64) << 8, 1 + len)
}

/// Writes the fixed header of a packet that is not PUBLISH.
pub(crate) fn put_header(
    out: &mut (impl ByteSink + ?Sized),
    packet_type: PacketType,
    remaining: usize,
) -> Result<(), EncodeError> {
    packet_len(remaining)?;
    let (word, len) = header_word(packet_type.first_byte(), remaining);
    put_word(out, word, len)
}

/// Writes a fixed header and a two byte field, which many packets begin with.
#[inline]
pub(crate) fn put_header_and_u16(
    out: &mut (impl ByteSink + ?Sized),
    first_byte: u8,
    remaining: usize,
    field: u16,
) -> Result<(), EncodeError> {
    packet_len(remaining)?;
    let (word, len) = header_word(first_byte, remaining);
    put_word(
        out,
        word | u64::from(field.swap_bytes()) << (8 * len),
        len + 2,
    )
}
