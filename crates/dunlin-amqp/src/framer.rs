//! Cuts the bytes of the transport into protocol headers and frames. A frame
//! that arrives whole is lent; one cut by the end of a read is copied once.

use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;
use dunlin_amqp_codec::{ProtocolHeader, condition, frame};

use crate::error::Fault;
use crate::event::Payload;

/// Bytes of the size that a frame begins with.
const SIZE_BYTES: usize = 4;

/// What is cut next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// A protocol header.
    Header,
    /// A frame of at most so many bytes.
    Frame(u32),
}

/// A protocol header or a frame, whole.
#[derive(Debug)]
pub(crate) enum Cut<'d> {
    Lent(&'d [u8]),
    Owned(Bytes),
}

impl<'d> Cut<'d> {
    /// A part of it.
    pub(crate) fn payload(self, range: Range<usize>) -> Payload<'d> {
        match self {
            Self::Lent(bytes) => Payload::Lent(bytes.get(range).unwrap_or_default()),
            Self::Owned(bytes) if range.end <= bytes.len() => Payload::Owned(bytes.slice(range)),
            Self::Owned(_) => Payload::Owned(Bytes::new()),
        }
    }
}

impl AsRef<[u8]> for Cut<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The boundary of frames. It holds at most one frame that has not come whole,
/// and what waits for a decision.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    partial: Vec<u8>,
}

impl Framer {
    /// The next unit; `None` when all of `data` has been taken.
    pub(crate) fn next<'d>(
        &mut self,
        data: &mut &'d [u8],
        unit: Unit,
    ) -> Result<Option<Cut<'d>>, Fault> {
        if self.partial.is_empty() {
            if let Some(len) = unit_len(data, unit)?
                && let Some((cut, rest)) = data.split_at_checked(len)
            {
                *data = rest;
                return Ok(Some(Cut::Lent(cut)));
            }
            self.partial.extend_from_slice(data);
            *data = &[];
            return Ok(None);
        }
        self.fill(data, SIZE_BYTES);
        let Some(len) = unit_len(&self.partial, unit)? else {
            return Ok(None);
        };
        self.fill(data, len);
        if self.partial.len() < len {
            return Ok(None);
        }
        let rest = self.partial.split_off(len);
        let cut = core::mem::replace(&mut self.partial, rest);
        Ok(Some(Cut::Owned(cut.into())))
    }

    /// Keeps all of `data` for later; `false` if there would be more than `max`.
    pub(crate) fn keep(&mut self, data: &mut &[u8], max: usize) -> bool {
        let fits = self.partial.len() + data.len() <= max;
        if fits {
            self.partial.extend_from_slice(data);
        }
        *data = &[];
        fits
    }

    /// Bytes that are held.
    pub(crate) const fn len(&self) -> usize {
        self.partial.len()
    }

    /// Drops what is held.
    pub(crate) fn clear(&mut self) {
        self.partial = Vec::new();
    }

    /// Takes from `data` until `len` bytes are held.
    fn fill(&mut self, data: &mut &[u8], len: usize) {
        let missing = len.saturating_sub(self.partial.len()).min(data.len());
        let (taken, rest) = data.split_at_checked(missing).unwrap_or((data, &[]));
        self.partial.extend_from_slice(taken);
        *data = rest;
    }
}

/// Bytes of the unit that `buf` begins with, once they are known.
fn unit_len(buf: &[u8], unit: Unit) -> Result<Option<usize>, Fault> {
    let Unit::Frame(max) = unit else {
        return Ok(Some(ProtocolHeader::LEN));
    };
    let Some(size) = buf.first_chunk::<SIZE_BYTES>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(*size);
    if size > max {
        let text = "a frame larger than max-frame-size";
        return Err(Fault::new(condition::FRAMING_ERROR, text));
    }
    let size = size as usize;
    if size < frame::HEADER_BYTES {
        let text = "a frame shorter than its header";
        return Err(Fault::new(condition::FRAMING_ERROR, text));
    }
    Ok(Some(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: &[u8] = &[
        0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 10, 2, 0, 0, 0, 7, 7, 0, 0, 0, 9, 2, 0, 0, 0, 5,
    ];

    fn cut_all(chunk: usize) -> Vec<Vec<u8>> {
        let mut framer = Framer::default();
        let mut cuts = Vec::new();
        for mut data in FRAMES.chunks(chunk) {
            while let Some(cut) = framer.next(&mut data, Unit::Frame(10)).expect("valid") {
                cuts.push(cut.as_ref().to_vec());
            }
            assert!(data.is_empty());
        }
        cuts
    }

    #[test]
    fn cuts_do_not_depend_on_how_bytes_arrive() {
        let whole = cut_all(FRAMES.len());
        assert_eq!(whole.len(), 3);
        assert_eq!(whole.concat(), FRAMES);
        for chunk in 1..FRAMES.len() {
            assert_eq!(cut_all(chunk), whole, "{chunk}");
        }
    }

    #[test]
    fn what_was_kept_comes_first_and_is_bounded() {
        let mut framer = Framer::default();
        let (mut first, mut second) = FRAMES.split_at(21);
        assert!(framer.keep(&mut first, 21));
        assert!(!framer.keep(&mut &[0_u8][..], 21));
        let mut cuts = Vec::new();
        while let Some(cut) = framer.next(&mut second, Unit::Frame(10)).expect("valid") {
            cuts.push(cut.as_ref().to_vec());
        }
        assert_eq!(cuts.concat(), FRAMES);
    }

    #[test]
    fn a_size_out_of_bounds_is_refused_before_the_frame_is_held() {
        for size in [0_u32, 7, 11, u32::MAX] {
            let mut framer = Framer::default();
            let bytes = size.to_be_bytes();
            let next = framer.next(&mut &bytes[..], Unit::Frame(10));
            assert!(next.is_err(), "{size}");
        }
    }
}
