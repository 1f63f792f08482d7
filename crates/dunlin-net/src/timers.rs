//! Deadlines of connections: one heap with lazy entries. A connection stores
//! its earliest armed entry; later deadlines are found when that entry fires,
//! so that traffic which only moves a deadline back touches no heap.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use dunlin_base::Instant;

/// Entries kept per live connection before stale ones are swept.
const ENTRIES_PER_CONN_MAX: usize = 4;
/// Entries below which sweeping is not worth it.
const SWEEP_ENTRIES_MIN: usize = 1024;

/// When something wants to be looked at, by its serial number.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Timers {
    /// Arms `serial` for `at` unless it already is for an earlier time;
    /// `armed` is where the owner keeps its earliest entry.
    pub(crate) fn arm(&mut self, serial: u64, at: Instant, armed: &mut Instant) {
        if at < *armed {
            *armed = at;
            self.heap.push(Reverse((at, serial)));
        }
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
        let mut armed = Instant::FAR_FUTURE;
        timers.arm(7, at(50), &mut armed);
        timers.arm(7, at(90), &mut armed);
        assert_eq!(timers.next(), Some(at(50)));
        timers.arm(7, at(20), &mut armed);
        assert_eq!(armed, at(20));
        assert_eq!(timers.pop_due(at(19)), None);
        assert_eq!(timers.pop_due(at(60)), Some((at(20), 7)));
        assert_eq!(timers.pop_due(at(60)), Some((at(50), 7)));
        assert_eq!(timers.pop_due(at(60)), None);
    }

    #[test]
    fn stale_entries_are_swept() {
        let mut timers = Timers::default();
        let mut last = Instant::FAR_FUTURE;
        for micros in (1..10_000).rev() {
            timers.arm(1, Instant::from_micros(micros), &mut last);
        }
        timers.sweep(1, |_, at| at == last);
        assert_eq!(timers.heap.len(), 1);
    }
}
