//! When messages are to be sent at a fixed rate: a grid of instants laid down
//! before the run, so that a broker that stalls cannot slow the clock by which
//! it is measured (coordinated omission).

/// The grid: message `k` of this thread is due at `start + k / rate` and
/// belongs to publisher `k mod publishers`.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start_us: u64,
    rate: f64,
    publishers: u64,
    /// First message not yet announced.
    next: u64,
}

impl Schedule {
    /// A grid of `rate` messages a second, shared by `publishers`.
    #[must_use]
    pub fn new(start_us: u64, rate: f64, publishers: usize) -> Self {
        Self {
            start_us,
            rate,
            publishers: publishers.max(1) as u64,
            next: 0,
        }
    }

    /// When message `k` is due.
    fn at(&self, k: u64) -> u64 {
        self.start_us + (k as f64 * 1e6 / self.rate) as u64
    }

    /// When message `n` (from 0) of a publisher is due.
    #[must_use]
    pub fn at_of(&self, publisher: usize, n: u64) -> u64 {
        self.at(n * self.publishers + publisher as u64)
    }

    /// When the next message is due that was not yet announced.
    #[must_use]
    pub fn next_us(&self) -> u64 {
        self.at(self.next)
    }

    /// Announces every message that is due by `now_us`: the publisher it
    /// belongs to, and when it was due.
    pub fn announce(&mut self, now_us: u64, mut due: impl FnMut(usize, u64)) {
        loop {
            let at = self.next_us();
            if at > now_us {
                break;
            }
            due((self.next % self.publishers) as usize, at);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::stats::Latency;

    #[test]
    fn each_message_is_announced_once_at_its_time() {
        let mut schedule = Schedule::new(1_000_000, 1000.0, 3);
        let mut counts = [0u64; 3];
        schedule.announce(999_999, |p, _| counts[p] += 1);
        assert_eq!(counts, [0, 0, 0]);
        assert_eq!(schedule.next_us(), 1_000_000);
        schedule.announce(1_003_000, |p, _| counts[p] += 1);
        assert_eq!(counts, [2, 1, 1]);
        assert_eq!(schedule.at_of(0, 1), 1_003_000);
        assert_eq!(schedule.at_of(1, 1), 1_004_000);
        assert_eq!(schedule.next_us(), 1_004_000);
    }

    #[test]
    fn rates_that_divide_no_second_do_not_drift() {
        let mut schedule = Schedule::new(0, 333.3, 1);
        let mut due = 0u64;
        schedule.announce(100_000_000 - 1, |_, _| due += 1);
        assert_eq!(due, 33_330);
    }

    /// A broker that answers in 1 ms but stands still from 1 s to 2 s of a run
    /// of 4 s: a generator that waits for it would send one late message and
    /// report 1 ms up to p99.9. The users whose messages were due meanwhile
    /// waited 0.5 s on average, and that is what must come out.
    #[test]
    fn a_stall_counts_for_every_message_that_was_due_in_it() {
        let (stall, resume) = (1_000_000, 2_000_000);
        let mut schedule = Schedule::new(0, 1000.0, 2);
        let (mut sent, mut due) = ([0u64; 2], [0u64; 2]);
        let (mut corrected, mut naive) = (Latency::new(), Latency::new());
        for now in (0..4_000_000).step_by(500) {
            schedule.announce(now, |p, _| due[p] += 1);
            let stalled = (stall..resume).contains(&now);
            for p in 0..2 {
                while sent[p] < due[p] && !stalled {
                    let answered = now + 1_000;
                    corrected.record(answered - schedule.at_of(p, sent[p]));
                    naive.record(answered - now);
                    sent[p] += 1;
                }
            }
        }
        assert_eq!(corrected.count(), 4_000);
        let (c, n) = (corrected.summary(), naive.summary());
        assert!(n.p99_us <= 1_000, "naive {n:?}");
        assert!((980_000..=1_002_000).contains(&c.max_us), "{c:?}");
        // A quarter of all messages were due in the stall: p99 lies 4 % into
        // it from its worst end.
        assert!((950_000..=970_000).contains(&c.p99_us), "{c:?}");
        assert!(c.p50_us <= 1_500, "{c:?}");
    }
}
