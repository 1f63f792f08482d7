//! When a message is a spike, and when a spike touches one topic only.
//!
//! A spike is a message that takes more than twice the median of the 50 before
//! it in its topic. It touches one topic only if no other topic has a spike
//! within a window around its arrival: both as in published work on MQTT over
//! QUIC, whose window is 10 ms either way.
//!
//! That work counts at 1 % loss. At 5 % each way there are fifty losses a
//! second, and two that have nothing to do with each other often fall within
//! 10 ms; so the share is shown beside the share that independent topics would
//! reach: the same spikes, shifted in time topic by topic. Where each packet is
//! sent once, the target is judged with a window of 1 ms, which messages
//! released together keep and chance hardly fills.
//!
//! A message that is lost once takes at least a round trip more: 100 ms and
//! more instead of 50. As that happens to one in ten, no transport that only
//! sends again what was lost has a 99th percentile below 100 ms. The policies
//! with more than one stream therefore send small packets twice for a while
//! after a loss; losses are then few enough for the published window. Both
//! targets are judged so, and what is sent once is shown beside it.

use std::collections::BTreeMap;

use crate::run::stats::float;

/// Messages of a topic whose median the next one is compared with.
const HISTORY: usize = 50;

/// Window of published work, in microseconds.
pub(super) const WIDE_US: u64 = 10_000;

/// Window of messages that were released together.
pub(super) const NARROW_US: u64 = 1_000;

/// Arrival times of spikes by topic.
pub(super) fn spikes(samples: &[(u16, u64, u64)]) -> BTreeMap<u16, Vec<u64>> {
    let mut topics: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
    for (topic, sent, received) in samples {
        let entry = (*received, received.saturating_sub(*sent));
        topics.entry(*topic).or_default().push(entry);
    }
    let mut spikes = BTreeMap::new();
    for (topic, mut messages) in topics {
        messages.sort_unstable();
        let mut found = Vec::new();
        for window in messages.windows(HISTORY + 1) {
            let Some(((received, latency), history)) = window.split_last() else {
                continue;
            };
            let mut before: Vec<u64> = history.iter().map(|(_, latency)| *latency).collect();
            before.sort_unstable();
            if before
                .get(HISTORY / 2)
                .is_some_and(|median| *latency > 2 * median)
            {
                found.push(*received);
            }
        }
        spikes.insert(topic, found);
    }
    spikes
}

/// The share of spikes without a spike of another topic within the window.
pub(super) fn alone(spikes: &BTreeMap<u16, Vec<u64>>, window: u64) -> f64 {
    let mut all: Vec<(u64, u16)> = spikes
        .iter()
        .flat_map(|(topic, times)| times.iter().map(|time| (*time, *topic)))
        .collect();
    all.sort_unstable();
    let near = |index: usize| {
        let (time, topic) = all.get(index).copied().unwrap_or_default();
        let other = |(t, k): &&(u64, u16)| *k != topic && t.abs_diff(time) <= window;
        let close = |(t, _): &&(u64, u16)| t.abs_diff(time) <= window;
        let before = all
            .get(..index)
            .unwrap_or_default()
            .iter()
            .rev()
            .take_while(close);
        let after = all
            .get(index + 1..)
            .unwrap_or_default()
            .iter()
            .take_while(close);
        before.chain(after).any(|spike| other(&spike))
    };
    let alone = (0..all.len()).filter(|index| !near(*index)).count();
    float(alone as u64) / float(all.len() as u64)
}

/// The same, after shifting each topic's spikes by a time of its own.
pub(super) fn alone_by_chance(spikes: &BTreeMap<u16, Vec<u64>>, window: u64, span: u64) -> f64 {
    let topics = spikes.len() as u64;
    let shifted = spikes
        .iter()
        .zip(0..)
        .map(|((topic, times), index): (_, u64)| {
            let shift = span / topics.max(1) * index;
            let times = times
                .iter()
                .map(|time| (time + shift) % span.max(1))
                .collect();
            (*topic, times)
        })
        .collect();
    alone(&shifted, window)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight topics, a message each 16 ms, 50 ms each but for some.
    fn samples(slow: impl Fn(u16, u64) -> bool) -> Vec<(u16, u64, u64)> {
        let mut samples = Vec::new();
        for round in 0..1000u64 {
            for topic in 0..8u16 {
                let sent = round * 16_000 + u64::from(topic) * 2_000;
                let latency = if slow(topic, round) { 110_000 } else { 50_000 };
                samples.push((topic, sent, sent + latency));
            }
        }
        samples
    }

    #[test]
    fn spikes_together_and_alone_are_distinguished() {
        let apart = spikes(&samples(|topic, round| round % 80 == u64::from(topic) * 10));
        assert!(alone(&apart, WIDE_US) > 0.99);
        let together = spikes(&samples(|_, round| round % 80 == 0));
        assert!(alone(&together, WIDE_US) < 0.01);
        assert!(alone_by_chance(&together, WIDE_US, 16_000_000) > 0.5);
        assert!(alone(&spikes(&samples(|_, _| false)), WIDE_US).is_nan());
    }
}
