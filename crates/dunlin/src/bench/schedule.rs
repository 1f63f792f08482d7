//! When messages are to be sent at a fixed rate: instants laid down before the
//! run, so that a broker that stalls cannot slow the clock by which it is measured
//! (coordinated omission).

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use dunlin_base::Random;

/// How the messages of a rate are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// One after the other at equal distances, publishers in turn.
    #[default]
    Even,
    /// So many at the same instant, publishers in turn.
    Clusters(u32),
    /// Each publisher on its own at random, a Poisson process.
    Poisson,
}

/// On a grid message `k` of this thread is due at `start + k / rate` and belongs
/// to publisher `k mod publishers`; at random each publisher has its own times.
#[derive(Clone, Debug)]
pub struct Schedule {
    start_us: u64,
    rate: f64,
    publishers: u64,
    /// First message of the grid not yet announced.
    next: u64,
    /// Messages of the grid that are due together.
    cluster: u64,
    random: Option<Poisson>,
}

impl Schedule {
    /// A grid of `rate` messages a second, shared by `publishers`.
    #[must_use]
    pub fn new(start_us: u64, rate: f64, publishers: usize) -> Self {
        Self::arriving(Arrival::Even, start_us, rate, publishers, 0)
    }

    /// The same rate, spread as `arrival` says; `seed` decides what is random.
    #[must_use]
    pub fn arriving(
        arrival: Arrival,
        start_us: u64,
        rate: f64,
        publishers: usize,
        seed: u64,
    ) -> Self {
        let publishers = publishers.max(1);
        Self {
            start_us,
            rate,
            publishers: publishers as u64,
            next: 0,
            cluster: match arrival {
                Arrival::Clusters(size) => u64::from(size.max(1)),
                Arrival::Even | Arrival::Poisson => 1,
            },
            random: (arrival == Arrival::Poisson)
                .then(|| Poisson::new(start_us, rate, publishers, seed)),
        }
    }

    /// When message `k` of the grid is due.
    fn at(&self, k: u64) -> u64 {
        self.start_us + ((k - k % self.cluster) as f64 * 1e6 / self.rate) as u64
    }

    /// When message `n` (from 0) of a publisher is due; to be asked once for each,
    /// in order.
    #[must_use]
    pub fn due(&mut self, publisher: usize, n: u64) -> u64 {
        match &mut self.random {
            Some(random) => random.due(publisher),
            None => self.at(n * self.publishers + publisher as u64),
        }
    }

    /// When the next message is due that was not yet announced.
    #[must_use]
    pub fn next_us(&self) -> u64 {
        match &self.random {
            Some(random) => random.next_us(),
            None => self.at(self.next),
        }
    }

    /// Announces every message that is due by `now_us`: the publisher it
    /// belongs to, and when it was due.
    pub fn announce(&mut self, now_us: u64, mut due: impl FnMut(usize, u64)) {
        loop {
            let at = self.next_us();
            if at > now_us {
                break;
            }
            let publisher = match &mut self.random {
                Some(random) => random.announce(),
                None => {
                    self.next += 1;
                    ((self.next - 1) % self.publishers) as usize
                }
            };
            due(publisher, at);
        }
    }
}

/// A Poisson process for each publisher.
#[derive(Clone, Debug)]
struct Poisson {
    /// Mean distance of two messages of a publisher.
    mean_us: f64,
    /// By publisher, as far as announced and as far as asked for: the same
    /// numbers twice, so that what waits between the two needs no memory.
    announced: Vec<Walk>,
    asked: Vec<Walk>,
    /// The next of each publisher.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Poisson {
    fn new(start_us: u64, rate: f64, publishers: usize, seed: u64) -> Self {
        let mean_us = publishers as f64 * 1e6 / rate;
        let walk = |publisher| Walk {
            random: Random::new(seed).split(publisher as u64),
            at_us: start_us as f64,
        };
        let asked: Vec<Walk> = (0..publishers).map(walk).collect();
        let mut announced = asked.clone();
        let first =
            |(publisher, walk): (usize, &mut Walk)| Reverse((walk.step(mean_us), publisher));
        let queue = announced.iter_mut().enumerate().map(first).collect();
        Self {
            mean_us,
            announced,
            asked,
            queue,
        }
    }

    fn next_us(&self) -> u64 {
        self.queue.peek().map_or(u64::MAX, |Reverse((at, _))| *at)
    }

    /// Goes on to the message after the next; whose the next was.
    fn announce(&mut self) -> usize {
        let Some(Reverse((_, publisher))) = self.queue.pop() else {
            return 0;
        };
        if let Some(walk) = self.announced.get_mut(publisher) {
            let at = walk.step(self.mean_us);
            self.queue.push(Reverse((at, publisher)));
        }
        publisher
    }

    fn due(&mut self, publisher: usize) -> u64 {
        let walk = self.asked.get_mut(publisher);
        walk.map_or(0, |walk| walk.step(self.mean_us))
    }
}

/// One publisher's instants.
#[derive(Clone, Debug)]
struct Walk {
    random: Random,
    at_us: f64,
}

impl Walk {
    /// The next instant, an exponentially distributed time after the one before.
    fn step(&mut self, mean_us: f64) -> u64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        // Above 0 and at most 1.
        let share = ((self.random.next() >> 11) as f64 + 1.0) / STEPS;
        self.at_us -= share.ln() * mean_us;
        self.at_us as u64
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
        assert_eq!(schedule.due(0, 1), 1_003_000);
        assert_eq!(schedule.due(1, 1), 1_004_000);
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
                    corrected.record(answered - schedule.due(p, sent[p]));
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

    #[test]
    fn clusters_are_due_together_and_keep_the_rate() {
        let mut schedule = Schedule::arriving(Arrival::Clusters(10), 500, 1000.0, 3, 0);
        let mut seen = Vec::new();
        schedule.announce(40_499, |p, at| seen.push((p, at)));
        assert_eq!(seen.len(), 40);
        for (k, (publisher, at)) in seen.iter().enumerate() {
            assert_eq!((*publisher, *at), (k % 3, 500 + k as u64 / 10 * 10_000));
            assert_eq!(schedule.due(*publisher, k as u64 / 3), *at);
        }
        assert_eq!(schedule.next_us(), 40_500);
    }

    /// The same instants are announced and asked for; their distances have the
    /// mean and the variance of an exponential distribution.
    #[test]
    fn random_arrivals_are_poisson_and_known_again() {
        let mut schedule = Schedule::arriving(Arrival::Poisson, 0, 1000.0, 4, 7);
        let (mut announced, mut seen) = (Vec::new(), [0u64; 4]);
        schedule.announce(100_000_000, |p, at| announced.push((p, at)));
        let due: Vec<u64> = announced
            .iter()
            .map(|(p, _)| {
                seen[*p] += 1;
                schedule.due(*p, seen[*p] - 1)
            })
            .collect();
        assert!(announced.iter().map(|(_, at)| *at).eq(due.iter().copied()));
        assert!(due.is_sorted());
        assert!((98_500..101_500).contains(&due.len()), "{}", due.len());
        let gaps = || due.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
        let count = gaps().count() as f64;
        let mean = gaps().sum::<f64>() / count;
        let variance = gaps().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        let ratio = variance / mean.powi(2);
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
    }
}
