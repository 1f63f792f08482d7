//! What came of the messages of a cell.

use core::time::Duration;
use std::collections::BTreeMap;

use super::super::bench::{measure, outcome};
use super::super::record::{Factors, Measure, Outcome};
use super::super::stats::float;
use super::{MOVING, STEADY, Size, WARM_UP};

/// What is published so shortly before the first move may have to wait for its end.
const BEFORE_MOVE: Duration = Duration::from_secs(1);

/// What was published, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) count: u64,
    /// Those of the warm-up besides.
    pub(super) warm_up: u64,
    pub(super) at: Vec<Duration>,
    /// How late all but one in fifty were.
    pub(super) late_us: u64,
}

/// Times are those of one clock.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) sent: Sent,
    /// Numbers, in the order in which they came.
    pub(super) arrived: Vec<(u64, Duration)>,
    /// When the address was gone, and when there was another.
    pub(super) moved: Vec<[Duration; 2]>,
    /// On the link, both ways, for all messages, of the warm-up too.
    pub(super) bytes: u64,
}

impl Seen {
    pub(super) fn outcome(&self, size: &Size, invalid: Option<String>) -> Outcome {
        let mut first = BTreeMap::new();
        for (number, at) in &self.arrived {
            first.entry(*number).or_insert(*at);
        }
        let arrived = first.len() as u64;
        let [mut steady, mut moving] = [const { Vec::new() }; 2];
        for (number, sent) in (0..).zip(&self.sent.at) {
            let Some(came) = first.get(&number) else {
                continue;
            };
            let delays = match *sent + BEFORE_MOVE < WARM_UP + size.steady {
                true => &mut steady,
                false => &mut moving,
            };
            delays.push(millis(came.saturating_sub(*sent)));
        }
        let delay = |phase: &str, values| Measure {
            factors: Factors::from([("phase".to_owned(), phase.to_owned())]),
            ..measure("delay", "ms", values)
        };
        let all = self.arrived.len() as u64;
        let lost = self.sent.count.saturating_sub(arrived);
        let (silence, recovery) = self.after_moves(size);
        let measures = vec![
            delay(STEADY, steady),
            delay(MOVING, moving),
            measure("silence", "ms", silence),
            measure("recovery", "ms", recovery),
            measure("lost", "messages", vec![float(lost)]),
            measure("doubled", "messages", vec![float(all - arrived)]),
            measure(
                "bytes",
                "bytes",
                vec![float(self.bytes) / float((self.sent.warm_up + self.sent.count).max(1))],
            ),
        ];
        outcome(measures, invalid)
    }

    /// After each move: the longest time without a delivery, and the time from the new
    /// address to the next delivery. What does not come again counts until the end.
    fn after_moves(&self, size: &Size) -> (Vec<f64>, Vec<f64>) {
        let mut arrivals: Vec<Duration> = self.arrived.iter().map(|(_, at)| *at).collect();
        arrivals.sort_unstable();
        let last = arrivals.last().copied().unwrap_or_default();
        arrivals.push(last.max(size.end()));
        let [mut silence, mut recovery] = [const { Vec::new() }; 2];
        for [gone, back] in &self.moved {
            let end = *gone + size.between;
            let gaps = arrivals.windows(2).filter_map(|pair| {
                let (from, to) = (*pair.first()?, *pair.last()?);
                (to >= *gone && from < end).then(|| to - from)
            });
            silence.push(millis(gaps.max().unwrap_or(size.between)));
            let next = arrivals.partition_point(|at| at < back);
            let next = arrivals.get(next).copied().unwrap_or(end);
            recovery.push(millis(next.saturating_sub(*back)));
        }
        (silence, recovery)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::super::super::record::Scale;
    use super::*;

    fn values<'a>(outcome: &'a Outcome, metric: &str, phase: &str) -> &'a [f64] {
        let found = outcome.measures.iter().find(|measure| {
            let of = measure.factors.get("phase").map_or("", String::as_str);
            measure.metric == metric && of == phase
        });
        &found.unwrap().values
    }

    #[test]
    fn silence_losses_and_doubles_are_counted() {
        let ms = Duration::from_millis;
        let size = Size::of(Scale::Smoke);
        // The first move is at 4 s.
        assert_eq!(size.moves().collect::<Vec<_>>(), [ms(4000)]);
        let at = [2000, 2900, 4500, 5500, 6000].map(ms);
        let seen = Seen {
            sent: Sent {
                count: 5,
                warm_up: 3,
                at: at.to_vec(),
                late_us: 0,
            },
            // The third is lost; the fourth comes twice, after the outage of 1 s.
            arrived: vec![
                (0, ms(2050)),
                (1, ms(2960)),
                (3, ms(5600)),
                (3, ms(5700)),
                (4, ms(6050)),
            ],
            moved: vec![[ms(4000), ms(5000)]],
            bytes: 2000,
        };
        let outcome = seen.outcome(&size, None);
        assert_eq!(values(&outcome, "delay", STEADY), [50.0, 60.0]);
        let moving = values(&outcome, "delay", MOVING);
        assert!((moving[0] - 100.0).abs() < 1e-6, "{moving:?}");
        assert_eq!(moving.len(), 2);
        assert_eq!(values(&outcome, "lost", ""), [1.0]);
        assert_eq!(values(&outcome, "doubled", ""), [1.0]);
        assert_eq!(values(&outcome, "bytes", ""), [250.0]);
        // Nothing comes from 6.05 s to the end, at 9 s.
        assert_eq!(values(&outcome, "silence", ""), [2950.0]);
        assert_eq!(values(&outcome, "recovery", ""), [600.0]);
    }

    #[test]
    fn a_bridge_that_does_not_come_back_is_silent_until_the_end() {
        let ms = Duration::from_millis;
        let size = Size::of(Scale::Smoke);
        let seen = Seen {
            arrived: vec![(0, ms(4050))],
            moved: vec![[ms(4000), ms(5000)]],
            ..Seen::default()
        };
        let (silence, recovery) = seen.after_moves(&size);
        assert_eq!(silence, [4950.0]);
        assert_eq!(recovery, [4000.0]);
    }
}
