//! Deadlines of connections: one heap with lazy entries. A connection stores
//! its earliest entry and its deadline, so that traffic which only moves a
//! deadline back touches no heap. Entries that are earlier than what they stand
//! for are moved before the loop sleeps: nothing wakes up for them.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use dunlin_base::Instant;

/// Entries kept per live connection before stale ones are swept.
const ENTRIES_PER_CONN_MAX: usize = 4;
/// Entries below which sweeping is not worth it.
const SWEEP_ENTRIES_MIN: usize = 1024;

/// The deadline of one connection, as its owner keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    /// Its earliest entry.
    entry: Instant,
    due: Instant,
}

impl Armed {
    pub(crate) const NEVER: Self = Self {
        entry: Instant::FAR_FUTURE,
        due: Instant::FAR_FUTURE,
    };

    /// Whether the entry for this time is the one that counts.
    pub(crate) fn is_at(&self, at: Instant) -> bool {
        self.entry == at
    }
}

/// When something wants to be looked at, by its serial number.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Timers {
    /// Arms `serial` for `at`; `armed` is where the owner keeps that.
    pub(crate) fn arm(&mut self, serial: u64, at: Instant, armed: &mut Armed) {
        armed.due = at;
        if at < armed.entry {
            armed.entry = at;
            self.heap.push(Reverse((at, serial)));
        }
    }

    /// The entry of `serial` was taken out: `true` if it is due, else it has a
    /// later one now.
    pub(crate) fn fires(&mut self, serial: u64, armed: &mut Armed, now: Instant) -> bool {
        armed.entry = Instant::FAR_FUTURE;
        if armed.due <= now {
            return true;
        }
        self.arm(serial, armed.due, armed);
        false
    }

    /// Removes the next entry if it is stale, or moves it if it is early;
    /// `armed` is that of its owner. Returns whether there may be more to do.
    pub(crate) fn settle(&mut self, armed: Option<&mut Armed>) -> bool {
        let Some(&Reverse((at, serial))) = self.heap.peek() else {
            return false;
        };
        match armed.filter(|armed| armed.is_at(at)) {
            Some(armed) if armed.due <= at => return false,
            Some(armed) => {
                self.heap.pop();
                armed.entry = Instant::FAR_FUTURE;
                self.arm(serial, armed.due, armed);
            }
            None => {
                self.heap.pop();
            }
        }
        true
    }

    /// The next entry that is due, stale ones included.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, u64)> {
        let &Reverse((at, _)) = self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Entries held, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the next entry is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Whose the next entry is.
    pub(crate) fn next_serial(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((_, serial))| *serial)
    }

    /// Drops stale entries when they outnumber `live` connections too far.
    pub(crate) fn sweep(&mut self, live: usize, is_armed: impl Fn(u64, Instant) -> bool) {
        if self.heap.len() > SWEEP_ENTRIES_MIN + ENTRIES_PER_CONN_MAX * live {
            self.heap
                .retain(|Reverse((at, serial))| is_armed(*serial, *at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_deadlines_cost_no_entry_and_earlier_ones_win() {
        let at = Instant::from_micros;
        let mut timers = Timers::default();
        let mut armed = Armed::NEVER;
        timers.arm(7, at(50), &mut armed);
        timers.arm(7, at(90), &mut armed);
        assert_eq!((timers.next(), timers.len()), (Some(at(50)), 1));
        timers.arm(7, at(20), &mut armed);
        assert!(armed.is_at(at(20)));
        assert_eq!(timers.pop_due(at(19)), None);
        assert_eq!(timers.pop_due(at(60)), Some((at(20), 7)));
        assert!(timers.fires(7, &mut armed, at(60)));
        assert_eq!(timers.pop_due(at(60)), Some((at(50), 7)));
        assert!(!armed.is_at(at(50)), "stale");
        assert_eq!(timers.pop_due(at(60)), None);
    }

    #[test]
    fn nothing_wakes_up_for_a_deadline_that_has_moved() {
        let at = Instant::from_micros;
        let mut timers = Timers::default();
        let (mut one, mut two) = (Armed::NEVER, Armed::NEVER);
        timers.arm(1, at(10), &mut one);
        timers.arm(1, at(5), &mut one);
        timers.arm(2, at(7), &mut two);
        timers.arm(1, at(30), &mut one);
        timers.arm(2, Instant::FAR_FUTURE, &mut two);
        while timers.settle(match timers.next_serial() {
            Some(1) => Some(&mut one),
            Some(2) => Some(&mut two),
            _ => None,
        }) {}
        assert_eq!(
            (timers.next(), timers.next_serial()),
            (Some(at(30)), Some(1))
        );
        assert_eq!(timers.len(), 1);
        timers.arm(1, at(40), &mut one);
        assert_eq!(timers.pop_due(at(30)), Some((at(30), 1)));
        assert!(!timers.fires(1, &mut one, at(30)), "it moved meanwhile");
        assert_eq!(timers.next(), Some(at(40)));
        timers.arm(2, at(1), &mut two);
        assert_eq!(timers.next_serial(), Some(2));
    }

    #[test]
    fn stale_entries_are_swept() {
        let mut timers = Timers::default();
        let mut armed = Armed::NEVER;
        for micros in (1..10_000).rev() {
            timers.arm(1, Instant::from_micros(micros), &mut armed);
        }
        timers.sweep(1, |_, at| armed.is_at(at));
        assert_eq!(timers.heap.len(), 1);
    }
}
