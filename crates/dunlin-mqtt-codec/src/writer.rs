//! The data types of MQTT 5.0 section 1.5 for encoders. Lengths are computed
//! and checked first, so that writing can only fail for want of room.

use dunlin_base::ByteSink;
use dunlin_base::limits::{MQTT_PACKET_BYTES_MAX, MQTT_STRING_BYTES_MAX};

use crate::EncodeError;

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

/// Writes a Variable Byte Integer at the start of `to`, and tells its length.
/// `value` is at most [`VARINT_MAX`].
#[inline]
pub(crate) const fn varint_bytes(mut value: u32) -> ([u8; 4], usize) {
    let len = varint_len(value as usize);
    let mut bytes = [0; 4];
    let mut rest: &mut [u8] = &mut bytes;
    while let Some((byte, next)) = rest.split_first_mut() {
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
        rest = next;
    }
    (bytes, len)
}

pub(crate) fn put_varint(
    out: &mut (impl ByteSink + ?Sized),
    value: usize,
) -> Result<(), EncodeError> {
    let value = u32::try_from(value).map_err(|_| EncodeError::PacketTooLarge)?;
    if value > VARINT_MAX {
        return Err(EncodeError::PacketTooLarge);
    }
    let (bytes, len) = varint_bytes(value);
    out.put(bytes.get(..len).unwrap_or(&bytes))?;
    Ok(())
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

/// Writes the fixed header of a packet that is not PUBLISH.
pub(crate) fn put_header(
    out: &mut (impl ByteSink + ?Sized),
    packet_type: crate::PacketType,
    remaining: usize,
) -> Result<(), EncodeError> {
    packet_len(remaining)?;
    out.put_u8(packet_type.first_byte())?;
    put_varint(out, remaining)
}
