//! Numbers of a run: histograms that merge, and the tally of a thread. Knows
//! nothing of sockets and time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::scene::Part;

/// Longest time that a histogram holds; longer ones count as this.
const LONGEST_US: u64 = 3_600_000_000;
/// Significant decimal digits kept.
const DIGITS: u8 = 3;
/// Distinct failure texts kept.
const CAUSES_MAX: usize = 16;

/// A distribution of times in microseconds.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

/// What is printed of a distribution, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many values there are.
    pub count: u64,
    /// Smallest value.
    pub min_us: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half are at most this.
    pub p50_us: u64,
    /// 90 % are at most this.
    pub p90_us: u64,
    /// 99 % are at most this.
    pub p99_us: u64,
    /// 99.9 % are at most this.
    pub p999_us: u64,
    /// Largest value.
    pub max_us: u64,
}

impl Latency {
    /// An empty distribution.
    #[must_use]
    pub fn new() -> Self {
        Self(Histogram::new_with_max(LONGEST_US, DIGITS).expect("constant bounds are valid"))
    }

    /// Adds a value.
    pub fn record(&mut self, us: u64) {
        self.0.saturating_record(us.min(LONGEST_US));
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The figures to print; `max_us` and `min_us` to three digits.
    #[must_use]
    pub fn summary(&self) -> Summary {
        if self.0.is_empty() {
            return Summary::default();
        }
        let at = |quantile| self.0.value_at_quantile(quantile).min(self.0.max());
        Summary {
            count: self.0.len(),
            min_us: self.0.min(),
            mean_us: (self.0.mean() * 10.0).round() / 10.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max(),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

/// Failures by their text.
pub type Causes = BTreeMap<String, u64>;

/// Counts a failure; beyond a bound of texts as "other".
pub fn count_cause(causes: &mut Causes, text: String) {
    let key = if causes.len() < CAUSES_MAX || causes.contains_key(&text) {
        text
    } else {
        "other".into()
    };
    *causes.entry(key).or_default() += 1;
}

/// What the devices of a fleet did in the measured window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Devices {
    /// CONNACKs of devices that woke.
    pub wakes: u64,
    /// Early data taken.
    pub early_data_accepted: u64,
    /// Early data refused.
    pub early_data_refused: u64,
    /// Connections that use another local address.
    pub moves: u64,
    /// Connections that do not although they were to.
    pub moves_failed: u64,
}

impl Devices {
    /// The broker's verdict on early data.
    pub fn early_data(&mut self, accepted: bool) {
        match accepted {
            true => self.early_data_accepted += 1,
            false => self.early_data_refused += 1,
        }
    }

    /// Adds the counts of another thread.
    fn merge(&mut self, other: &Self) {
        self.wakes += other.wakes;
        self.early_data_accepted += other.early_data_accepted;
        self.early_data_refused += other.early_data_refused;
        self.moves += other.moves;
        self.moves_failed += other.moves_failed;
    }
}

/// What became of the messages of one phase of a scenario.
#[derive(Clone, Debug, Default)]
pub struct OfPhase {
    /// Given to the transport.
    pub sent: u64,
    /// Deliveries that they must lead to.
    pub expected: u64,
    /// First deliveries.
    pub delivered: u64,
    /// Intended time to arrival.
    pub latency: Latency,
}

impl OfPhase {
    fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.latency.merge(&other.latency);
    }
}

/// What one thread counted. "Of the window" means: intended to be sent within
/// the measured window, whenever it really was.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Messages of the window.
    pub offered: u64,
    /// Messages of the window given to the transport.
    pub sent: u64,
    /// Deliveries that messages of the window must lead to, those refused
    /// left out.
    pub expected: u64,
    /// Messages of the window acknowledged (QoS 1 and 2).
    pub acknowledged: u64,
    /// Messages of the window refused with a reason code.
    pub refused: u64,
    /// First deliveries of messages of the window.
    pub delivered: u64,
    /// Deliveries of messages that the subscriber had already received.
    pub duplicates: u64,
    /// Messages that a subscriber received after a later one of the same
    /// publisher.
    pub reordered: u64,
    /// Deliveries that fell in the window, of all messages.
    pub delivered_in_window: u64,
    /// Acknowledgements that fell in the window, of all messages.
    pub acknowledged_in_window: u64,
    /// Messages sent in the window, of any schedule.
    pub sent_in_window: u64,
    /// Intended time to arrival.
    pub latency: Latency,
    /// Intended time to acknowledgement.
    pub ack_latency: Latency,
    /// Dialling to CONNACK.
    pub connect: Latency,
    /// The same, of devices that woke in the window.
    pub wake: Latency,
    /// What devices did.
    pub devices: Devices,
    /// Messages of the window by phase of a scenario; none otherwise.
    pub phases: Vec<OfPhase>,
    /// How often a publisher was asked whether it has something to send.
    pub asked: u64,
    /// Connections that did not come about, by cause.
    pub failures: Causes,
    /// Connections that ended before their time, by cause.
    pub losses: Causes,
}

impl Tally {
    /// The counts of messages that were due at a time of the window, in a scenario.
    pub fn phase_of(&mut self, part: Option<&Part>, us: u64) -> Option<&mut OfPhase> {
        let part = part?;
        if self.phases.is_empty() {
            self.phases.resize_with(part.phases(), OfPhase::default);
        }
        self.phases.get_mut(part.phase_at(us))
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.sent += other.sent;
        self.expected += other.expected;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.delivered_in_window += other.delivered_in_window;
        self.acknowledged_in_window += other.acknowledged_in_window;
        self.sent_in_window += other.sent_in_window;
        self.latency.merge(&other.latency);
        self.ack_latency.merge(&other.ack_latency);
        self.connect.merge(&other.connect);
        self.wake.merge(&other.wake);
        self.devices.merge(&other.devices);
        self.asked += other.asked;
        if self.phases.len() < other.phases.len() {
            self.phases
                .resize_with(other.phases.len(), OfPhase::default);
        }
        for (mine, theirs) in self.phases.iter_mut().zip(&other.phases) {
            mine.merge(theirs);
        }
        for (mine, theirs) in [
            (&mut self.failures, &other.failures),
            (&mut self.losses, &other.losses),
        ] {
            for (text, count) in theirs {
                *mine.entry(text.clone()).or_default() += count;
            }
        }
    }

    /// Deliveries that did not come.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_digits_and_merge() {
        let (mut a, mut b) = (Latency::new(), Latency::new());
        (1..=5_000).for_each(|us| a.record(us));
        (5_001..=10_000).for_each(|us| b.record(us));
        b.record(u64::MAX);
        a.merge(&b);
        let s = a.summary();
        assert_eq!((s.count, s.min_us), (10_001, 1));
        for (got, want) in [(s.p50_us, 5_000), (s.p99_us, 9_900), (s.p999_us, 9_990)] {
            assert!(got.abs_diff(want) <= want / 500, "{got} {want}");
        }
        assert!(s.max_us >= LONGEST_US);
        assert_eq!(Latency::new().summary(), Summary::default());
    }

    #[test]
    fn causes_are_bounded() {
        let mut causes = Causes::new();
        (0..100).for_each(|n| count_cause(&mut causes, n.to_string()));
        assert_eq!(causes.len(), CAUSES_MAX + 1);
        assert_eq!(causes["other"], 100 - CAUSES_MAX as u64);
    }
}
