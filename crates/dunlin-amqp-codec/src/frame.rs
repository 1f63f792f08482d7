//! Frames (section 2.3): where one ends, what is in it, and how to write one.

use core::ops::Range;

use dunlin_base::ByteSink;

use crate::{DecodeError, EncodeError, Performative, SaslFrame, Transfer};

/// Bytes of a frame header without an extended header.
pub const HEADER_BYTES: usize = 8;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// A performative of AMQP, or nothing.
    Amqp = 0,
    /// An exchange of SASL.
    Sasl = 1,
}

/// A frame, of which the header is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is for.
    pub frame_type: FrameType,
    /// The channel of an AMQP frame; without meaning in a SASL frame.
    pub channel: u16,
    /// What follows the header; empty in a frame that only keeps a connection open.
    pub body: &'a [u8],
    /// Where the body is in the bytes that the frame was cut from.
    pub body_range: Range<usize>,
    /// Bytes of the whole frame.
    pub len: usize,
}

/// Cuts the first frame from `buf`: `Ok(None)` while more bytes are needed.
///
/// The size is checked as soon as it is there, before the rest is waited for.
///
/// # Errors
/// The frame is larger than `max_frame_bytes`, or its header is invalid.
pub fn split(buf: &[u8], max_frame_bytes: u32) -> Result<Option<Frame<'_>>, DecodeError> {
    let Some((size, rest)) = buf.split_first_chunk() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(*size);
    if size > max_frame_bytes {
        return Err(DecodeError::FrameSize(size));
    }
    let len = size as usize;
    if len < HEADER_BYTES {
        return Err(DecodeError::FrameTooShort);
    }
    let Some(&[doff, frame_type, high, low]) = rest.first_chunk() else {
        return Ok(None);
    };
    let start = usize::from(doff) * 4;
    if start < HEADER_BYTES || start > len {
        return Err(DecodeError::DataOffset);
    }
    let frame_type = match frame_type {
        0 => FrameType::Amqp,
        1 => FrameType::Sasl,
        other => return Err(DecodeError::FrameType(other)),
    };
    let body_range = start..len;
    Ok(buf.get(body_range.clone()).map(|body| Frame {
        frame_type,
        channel: u16::from_be_bytes([high, low]),
        body,
        body_range,
        len,
    }))
}

/// Writes a frame header.
fn put_header(
    out: &mut (impl ByteSink + ?Sized),
    frame_type: FrameType,
    channel: u16,
    body_len: usize,
) -> Result<(), EncodeError> {
    let len = body_len
        .checked_add(HEADER_BYTES)
        .and_then(|len| u32::try_from(len).ok())
        .ok_or(EncodeError::TooLarge)?;
    let [a, b, c, d] = len.to_be_bytes();
    let [high, low] = channel.to_be_bytes();
    Ok(out.put(&[a, b, c, d, 2, frame_type as u8, high, low])?)
}

/// Bytes of the frame with this performative and nothing after it.
#[must_use]
pub fn encoded_len(performative: &Performative<'_>) -> usize {
    HEADER_BYTES + performative.encoded_len()
}

/// Writes the frame with this performative and nothing after it.
///
/// # Errors
/// The sink is full, or a value is larger than AMQP can say.
pub fn encode(
    channel: u16,
    performative: &Performative<'_>,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    put_header(out, FrameType::Amqp, channel, performative.encoded_len())?;
    performative.encode(out)
}

/// Writes what comes before the `payload_len` bytes of a message, or of a part
/// of one, in its frame.
///
/// # Errors
/// As [`encode`].
pub fn encode_transfer(
    channel: u16,
    transfer: &Transfer<'_>,
    payload_len: usize,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    let body_len = transfer
        .encoded_len()
        .checked_add(payload_len)
        .ok_or(EncodeError::TooLarge)?;
    put_header(out, FrameType::Amqp, channel, body_len)?;
    transfer.encode(out)
}

/// Writes a frame without a body, which keeps a connection open.
///
/// # Errors
/// The sink is full.
pub fn encode_empty(out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
    put_header(out, FrameType::Amqp, 0, 0)
}

/// Writes a SASL frame.
///
/// # Errors
/// As [`encode`].
pub fn encode_sasl(
    sasl: &SaslFrame<'_>,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    put_header(out, FrameType::Sasl, 0, sasl.encoded_len())?;
    sasl.encode(out)
}
