//! Puts data that arrives in any order back into order, in the caller's
//! buffer. Serves the handshake and the streams alike.

use crate::wire::{fill, shift};

/// Stretches beyond a gap that are remembered. A packet that would need more
/// is dropped without an acknowledgement, so that the server sends it again.
const GAPS: usize = 4;

/// What [`Assembler::insert`] refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The data ends beyond the buffer.
    Beyond,
    /// Too many gaps; the data must come again.
    Gaps,
}

/// Offsets of the data in a buffer whose first byte has the offset `base`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Assembler {
    base: u32,
    /// End of the data without a gap.
    have: u32,
    /// Stretches after a gap; empty ones are free slots.
    beyond: [(u32, u32); GAPS],
}

impl Assembler {
    /// Nothing received.
    pub(crate) const NEW: Self = Self {
        base: 0,
        have: 0,
        beyond: [(0, 0); GAPS],
    };

    /// Offset of the first byte that was not consumed.
    pub(crate) const fn base(&self) -> u32 {
        self.base
    }

    /// Offset of the first byte that is missing.
    pub(crate) const fn have(&self) -> u32 {
        self.have
    }

    /// Bytes that can be read.
    pub(crate) const fn ready(&self) -> usize {
        self.have.saturating_sub(self.base) as usize
    }

    /// Whether there is data beyond a gap.
    pub(crate) fn has_gap(&self) -> bool {
        self.beyond.iter().any(|&(start, end)| start != end)
    }

    #[inline(never)]
    pub(crate) fn insert(
        &mut self,
        buf: &mut [u8],
        offset: u32,
        data: &[u8],
    ) -> Result<(), Refused> {
        let len = u32::try_from(data.len()).map_err(|_| Refused::Beyond)?;
        let mut end = offset.checked_add(len).ok_or(Refused::Beyond)?;
        if end <= self.have {
            return Ok(());
        }
        // What lies before `have` is here already.
        let mut start = offset.max(self.have);
        let fresh = data.get((start - offset) as usize..).unwrap_or_default();
        let to = buf
            .get_mut((start - self.base) as usize..)
            .and_then(|to| to.get_mut(..fresh.len()))
            .ok_or(Refused::Beyond)?;
        for range in &mut self.beyond {
            if range.0 != range.1 && range.1 >= start && range.0 <= end {
                start = start.min(range.0);
                end = end.max(range.1);
                *range = (0, 0);
            }
        }
        if start <= self.have {
            self.have = end;
        } else {
            let slot = self.beyond.iter_mut().find(|range| range.0 == range.1);
            *slot.ok_or(Refused::Gaps)? = (start, end);
        }
        fill(to, fresh);
        Ok(())
    }

    /// Removes `n` bytes from the front.
    pub(crate) fn consume(&mut self, buf: &mut [u8], n: usize) {
        let n = n.min(self.ready());
        shift(buf, n);
        self.base += u32::try_from(n).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_gives_the_same_bytes() {
        let text = b"abcdefghijklmnopqrstuvwxyz";
        let pieces = [
            (10, 13),
            (3, 6),
            (20, 26),
            (12, 16),
            (0, 4),
            (5, 11),
            (15, 21),
        ];
        for turn in 0..pieces.len() {
            let mut buf = [0; 26];
            let mut assembler = Assembler::default();
            for i in 0..pieces.len() {
                let (from, to) = pieces[(i + turn) % pieces.len()];
                let offset = u32::try_from(from).unwrap();
                assembler.insert(&mut buf, offset, &text[from..to]).unwrap();
            }
            assert_eq!(assembler.ready(), 26);
            assert!(!assembler.has_gap());
            assert_eq!(&buf, text);
        }
    }

    #[test]
    fn the_window_moves() {
        let mut buf = [0; 8];
        let mut assembler = Assembler::default();
        assert_eq!(assembler.insert(&mut buf, 1, &[0; 8]), Err(Refused::Beyond));
        assert_eq!(
            assembler.insert(&mut buf, u32::MAX, &[0; 8]),
            Err(Refused::Beyond)
        );
        assembler.insert(&mut buf, 0, b"01234").unwrap();
        assembler.insert(&mut buf, 7, b"7").unwrap();
        assembler.consume(&mut buf, 3);
        assert_eq!((assembler.base(), assembler.have()), (3, 5));
        assembler.insert(&mut buf, 2, b"23456789a").unwrap();
        assert_eq!(&buf, b"3456789a");
        assert_eq!(
            assembler.insert(&mut buf, 5, b"56789ab"),
            Err(Refused::Beyond)
        );
    }

    #[test]
    fn too_many_gaps_change_nothing() {
        let mut buf = [0; 32];
        let mut assembler = Assembler::default();
        for offset in [2, 4, 6, 8] {
            assembler.insert(&mut buf, offset, b"x").unwrap();
        }
        assert_eq!(assembler.insert(&mut buf, 10, b"y"), Err(Refused::Gaps));
        assembler.insert(&mut buf, 3, b"x").unwrap();
        assembler.insert(&mut buf, 10, b"y").unwrap();
        assert_eq!(assembler.ready(), 0);
    }
}
