//! Which packets of one number space arrived, as the largest number and a
//! bitmap of those below it. Serves duplicate detection and ACK frames.

use crate::wire::Writer;

/// Numbers below the largest that are remembered. Older packets count as
/// lost on the way, which the server repairs like any loss.
const WINDOW: u32 = 64;

/// The packets that arrived in one number space.
#[derive(Default)]
pub(crate) struct Received {
    /// One more than the largest number, so that zero means none.
    next: u32,
    /// Bit `i` is the packet `next - 1 - i`.
    seen: u64,
}

impl Received {
    /// No packet.
    pub(crate) const NEW: Self = Self { next: 0, seen: 0 };

    /// The number that a packet which is not late has.
    pub(crate) const fn expected(&self) -> u32 {
        self.next
    }

    /// Whether the packet came before, or is too old to tell.
    pub(crate) const fn is_known(&self, pn: u32) -> bool {
        match self.next.checked_sub(pn) {
            Some(back @ 1..=WINDOW) => self.seen >> (back - 1) & 1 != 0,
            Some(0) | None => false,
            Some(_) => true,
        }
    }

    /// Remembers a packet. Whether it is the largest so far.
    pub(crate) fn insert(&mut self, pn: u32) -> bool {
        let after = pn.saturating_add(1);
        if let Some(ahead @ 1..) = after.checked_sub(self.next) {
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.next = after;
            return true;
        }
        let bit = 1_u64.checked_shl(self.next.saturating_sub(after));
        self.seen |= bit.unwrap_or(0);
        false
    }

    /// Writes an ACK frame with the newest ranges that fit into half of the
    /// room: what else goes into the packet must not starve.
    #[inline(never)]
    pub(crate) fn write(&self, writer: &mut Writer<'_>, delay: u32) {
        let Some(mut largest) = self.next.checked_sub(1) else {
            return;
        };
        let most = 1 + writer.room() / 32;
        writer.u8(0x02);
        writer.varint(largest);
        writer.varint(delay);
        // The count of ranges is patched when it is known; it is below 64.
        writer.u8(0);
        let count_at = writer.len();
        let mut seen = self.seen;
        let mut count = 0;
        loop {
            let run = seen.trailing_ones();
            seen = seen.checked_shr(run).unwrap_or(0);
            writer.varint(run.saturating_sub(1));
            if seen == 0 || count >= most.min(30) {
                break;
            }
            let gap = seen.trailing_zeros();
            seen = seen.checked_shr(gap).unwrap_or(0);
            writer.varint(gap.saturating_sub(1));
            largest = largest.wrapping_sub(run.wrapping_add(gap));
            count += 1;
        }
        writer.count(count_at, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_and_forgets() {
        let mut received = Received::default();
        assert!(!received.is_known(0));
        assert!(received.insert(3));
        assert!(received.is_known(3));
        assert!(!received.is_known(0));
        assert!(!received.insert(0));
        assert!(received.is_known(0));
        assert!(received.insert(100));
        assert!(received.is_known(36), "too old to tell");
        assert!(!received.is_known(37));
        assert!(!received.is_known(101));
    }

    #[test]
    fn ranges_are_written() {
        let mut received = Received::default();
        for pn in [0, 1, 4, 5, 6, 9] {
            received.insert(pn);
        }
        let mut buf = [0; 100];
        let mut writer = Writer::new(&mut buf);
        received.write(&mut writer, 70);
        let len = writer.len();
        // Largest 9, delay 70, two more ranges; 9, gap 7-8, 4-6, gap 2-3, 0-1.
        assert_eq!(buf[..len], [2, 9, 0x40, 70, 2, 0, 1, 2, 1, 1]);
    }
}
