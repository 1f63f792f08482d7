//! Whether a peer that sent steadily has fallen silent, which a NAT that
//! forgot us looks like: the peer sends to a port that leads nowhere, and cannot
//! know better before we say something. It knows neither sockets nor frames.
//!
//! A client that only listens would say nothing until its keep alive. So it
//! asks once when an unusual silence begins. That costs a peer that merely has
//! no more to say two small packets; one that sends now and then is never
//! asked, and one that does so after a flow, once.

use core::time::Duration;

use dunlin_base::Instant;

/// Data that comes at least so often is a flow.
const FLOW_GAP_MAX: Duration = Duration::from_secs(2);

/// A flow that has lasted so long and had so many arrivals is steady.
const STEADY_MIN: Duration = Duration::from_millis(500);
const STEADY_ARRIVALS: u32 = 8;

/// A silence is unusual when it is longer than so many gaps, but not sooner.
const GAPS: u32 = 4;
const SILENCE_MIN: Duration = Duration::from_millis(500);

/// Weight of the gaps before against the newest.
const SMOOTHING: u32 = 8;

/// When data came.
#[derive(Debug, Default)]
pub(super) struct Silence {
    flow: Option<Flow>,
}

#[derive(Debug)]
struct Flow {
    since: Instant,
    last: Instant,
    /// Since it began, or since it was asked for.
    arrivals: u32,
    /// Smoothed time between two arrivals.
    gap: Duration,
    /// It was asked in this silence.
    asked: bool,
}

impl Silence {
    /// Data arrived.
    pub(super) fn on_data(&mut self, now: Instant) {
        let begin = Flow {
            since: now,
            last: now,
            arrivals: 0,
            gap: Duration::ZERO,
            asked: false,
        };
        let flow = self.flow.get_or_insert(begin);
        let gap = now.saturating_duration_since(flow.last);
        if gap > FLOW_GAP_MAX && !flow.asked {
            flow.since = now;
            flow.arrivals = 0;
            flow.gap = Duration::ZERO;
        } else if flow.arrivals == 1 {
            flow.gap = gap;
        } else if !flow.asked {
            flow.gap = (flow.gap * (SMOOTHING - 1) + gap) / SMOOTHING;
        }
        flow.last = now;
        flow.arrivals = flow.arrivals.saturating_add(1);
        flow.asked = false;
    }

    /// When the silence becomes unusual.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let flow = self.flow.as_ref().filter(|flow| !flow.asked)?;
        let lasted = flow.last.saturating_duration_since(flow.since);
        let steady = lasted >= STEADY_MIN && flow.arrivals >= STEADY_ARRIVALS;
        steady.then(|| flow.last + (flow.gap * GAPS).max(SILENCE_MIN))
    }

    /// Whether to ask now; only once for each silence.
    pub(super) fn must_ask(&mut self, now: Instant) -> bool {
        let due = self.deadline().is_some_and(|at| at <= now);
        if let Some(flow) = &mut self.flow
            && due
        {
            flow.asked = true;
            // Unless it flows again, there is nothing to ask for.
            flow.arrivals = 0;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data at these times in milliseconds; when it asks, up to the end.
    fn asks(arrivals: impl IntoIterator<Item = u64>, end: u64) -> Vec<u64> {
        let at = |ms: u64| Instant::from_micros(ms * 1000);
        let mut silence = Silence::default();
        let mut asked = Vec::new();
        let mut arrivals = arrivals.into_iter().peekable();
        for now in 0..=end {
            while arrivals.next_if(|a| *a <= now).is_some() {
                silence.on_data(at(now));
            }
            if silence.must_ask(at(now)) {
                asked.push(now);
            }
        }
        asked
    }

    #[test]
    fn a_steady_flow_that_stops_is_asked_for_once() {
        let every = |ms: u64, n: u64| (0..n).map(move |i| i * ms);
        assert_eq!(asks(every(20, 200), 60_000), [199 * 20 + 500]);
        let slow = asks(every(1000, 60), 120_000);
        assert_eq!(slow.len(), 1);
        assert!((62_000..=63_000).contains(&slow[0]), "{slow:?}");
    }

    const NEVER: [u64; 0] = [];

    #[test]
    fn what_comes_now_and_then_is_not_missed() {
        assert_eq!(asks((0..20).map(|i| i * 3000), 90_000), NEVER);
        assert_eq!(asks([0, 1, 2, 3, 4, 5], 10_000), NEVER, "a burst");
        assert_eq!(asks([], 10_000), NEVER);
        let bursts = (0..40).map(|i| i / 4 * 3000 + i % 4);
        assert_eq!(asks(bursts, 60_000), NEVER);
    }

    #[test]
    fn what_comes_now_and_then_after_a_flow_is_asked_for_once() {
        for pause in [600, 1000, 1900, 3000, 60_000] {
            let later = (1..40).map(|i| 1000 + i * pause);
            let asked = asks((0..100).map(|i| i * 10).chain(later), 3_000_000);
            assert!((1..=2).contains(&asked.len()), "{pause}: {asked:?}");
        }
    }

    #[test]
    fn a_flow_with_gaps_that_asking_ended_stays_steady() {
        // Forgotten every second: half a second of data, then silence.
        let arrivals = (0..3000).chain((3..10).flat_map(|s| s * 1000 + 520..s * 1000 + 1000));
        let asked = asks(arrivals, 11_000);
        assert_eq!(asked.len(), 8, "{asked:?}");
    }
}
