//! What came of visits.

use core::fmt;
use core::time::Duration;

use serde::Serialize;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cost {
    /// Connections measured, each from the first packet to the last step.
    pub connections: u64,
    /// Those whose CONNECT travelled as early data.
    pub early: u64,
    /// Those that failed.
    pub failed: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// CPU time of the broker for one, in milliseconds.
    pub broker_cpu_ms: Option<f64>,
    /// How many a second of its CPU would be enough for.
    pub per_broker_cpu_second: Option<f64>,
    /// How long each client took, where they came at an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// For each client that got so far the time since it began, in microseconds and in
/// the order of the clients: those that took long are no neighbours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// Clients that count.
    pub clients: u64,
    /// Those of them that got to the end.
    pub done: u64,
    /// Those whose early data was taken.
    pub early: u64,
    /// What a client that did not took at least.
    pub timeout_us: u64,
    /// The transport takes bytes.
    pub ready_us: Vec<u64>,
    /// Those of early data: the server has answered.
    pub answered_us: Vec<u64>,
    /// CONNACK.
    pub connack_us: Vec<u64>,
    /// SUBACK.
    pub suback_us: Vec<u64>,
    /// How far behind its schedule it was with all but one in fifty.
    pub late_us: u64,
    /// Why the first one that did not get to the end failed.
    pub why: Option<String>,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.connections as f64 / self.seconds.max(f64::MIN_POSITIVE);
        writeln!(
            f,
            "  connections   {} in {:.2} s, {rate:.0}/s",
            self.connections, self.seconds
        )?;
        writeln!(f, "  early data    {}", self.early)?;
        writeln!(f, "  failed        {}", self.failed)?;
        if let (Some(ms), Some(each)) = (self.broker_cpu_ms, self.per_broker_cpu_second) {
            writeln!(f, "  broker CPU    {ms:.3} ms each, {each:.0}/CPU s")?;
        }
        let Some(times) = &self.times else {
            return Ok(());
        };
        for (step, times) in [
            ("handshake", &times.ready_us),
            ("answered", &times.answered_us),
            ("CONNACK", &times.connack_us),
            ("SUBACK", &times.suback_us),
        ] {
            let mut times = times.clone();
            times.sort_unstable();
            if let (Some(median), Some(max)) = (times.get(times.len() / 2), times.last()) {
                let (median, max) = (*median as f64 / 1e3, *max as f64 / 1e3);
                writeln!(f, "  {step:<13} {median:.2} ms, at most {max:.2}")?;
            }
        }
        Ok(())
    }
}

/// The times of clients in their order.
pub(super) fn in_order(mut times: Vec<(u64, u64)>) -> Vec<u64> {
    times.sort_unstable();
    times.into_iter().map(|(_, took)| took).collect()
}

/// The 98th percentile: what tells a saturated machine from a single hiccup.
pub(in crate::bench) fn all_but_one_in_fifty(mut late: Vec<u64>) -> u64 {
    late.sort_unstable();
    let index = late.len().saturating_sub(1) * 98 / 100;
    late.get(index).copied().unwrap_or_default()
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_order_of_clients() {
        assert_eq!(in_order(vec![(2, 5), (0, 9), (1, 7)]), [9, 7, 5]);
    }

    #[test]
    fn one_hiccup_in_fifty_is_no_saturation() {
        let mut late = vec![1; 100];
        late.extend([90_000, 90_000]);
        assert_eq!(all_but_one_in_fifty(late.clone()), 1);
        late.extend([90_000; 10]);
        assert_eq!(all_but_one_in_fifty(late), 90_000);
        assert_eq!(all_but_one_in_fifty(Vec::new()), 0);
    }
}
