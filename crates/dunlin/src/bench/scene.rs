//! The time that populations of a scenario share: phases one after the other, which begin
//! for all of them at the same instant. Knows nothing of what populations do.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;

use dunlin_net::Clock;

use super::shared::Window;

/// Not begun.
const NOT_YET: u64 = u64::MAX;

/// What all populations look at.
#[derive(Debug)]
pub struct Scene {
    /// The clock of all of them.
    pub clock: Clock,
    /// When the first phase begins, on that clock.
    start_us: AtomicU64,
    /// Populations that are connected and wait for it.
    arrived: AtomicUsize,
    /// It will not begin, or not go on.
    stopped: AtomicBool,
    /// Ends of the phases, counted from the start.
    ends_us: Vec<u64>,
}

/// The phases in which a population is there.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it shares with the others.
    pub scene: Arc<Scene>,
    /// Its first phase.
    pub first: usize,
    /// Its last phase.
    pub last: usize,
}

impl Scene {
    /// Phases of these lengths.
    #[must_use]
    pub fn new(phases: impl Iterator<Item = Duration>) -> Self {
        let mut end = 0;
        let ends_us = phases.map(|length| {
            let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
            end = u64::saturating_add(end, length);
            end
        });
        Self {
            clock: Clock::new(),
            start_us: AtomicU64::new(NOT_YET),
            arrived: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            ends_us: ends_us.collect(),
        }
    }

    /// The first phase begins at this time.
    pub fn begin(&self, at_us: u64) {
        self.start_us.store(at_us, Ordering::Release);
    }

    /// A population is connected.
    pub fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
    }

    /// How many are.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Acquire)
    }

    /// A population has failed that was to be there from the beginning.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether the scenario is given up.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Whether the first phase has a time.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.start_us.load(Ordering::Acquire) != NOT_YET
    }

    /// When a phase begins, or with the number of phases, when the last one ends.
    #[must_use]
    pub fn begins_us(&self, phase: usize) -> u64 {
        let before = phase.checked_sub(1).and_then(|at| self.ends_us.get(at));
        let start = self.start_us.load(Ordering::Acquire);
        start.saturating_add(before.copied().unwrap_or(0))
    }
}

impl Part {
    /// How many phases it has.
    #[must_use]
    pub const fn phases(&self) -> usize {
        self.last + 1 - self.first
    }

    /// What is measured of a population that may publish from now on: from now, or from
    /// the beginning of its first phase if that is to come, to the end of its last.
    #[must_use]
    pub fn window(&self, now_us: u64) -> Window {
        let start_us = self.scene.begins_us(self.first).max(now_us);
        Window {
            start_us,
            measure_us: start_us,
            end_us: self.scene.begins_us(self.last + 1).max(start_us),
        }
    }

    /// The phase at a time, counted from its first.
    #[must_use]
    pub fn phase_at(&self, us: u64) -> usize {
        let since = us.saturating_sub(self.scene.begins_us(0));
        let phase = self.scene.ends_us.partition_point(|end| *end <= since);
        phase.clamp(self.first, self.last) - self.first
    }

    /// Seconds of its phase number `phase` that lie in the window.
    #[must_use]
    pub fn seconds_in(&self, phase: usize, window: Window) -> f64 {
        let from = self.scene.begins_us(self.first + phase);
        let until = self.scene.begins_us(self.first + phase + 1);
        let measured = until
            .min(window.end_us)
            .saturating_sub(from.max(window.measure_us));
        measured as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(first: usize, last: usize) -> Part {
        let scene = Scene::new([2, 1, 3].into_iter().map(Duration::from_secs));
        scene.begin(1_000_000);
        Part {
            scene: Arc::new(scene),
            first,
            last,
        }
    }

    #[test]
    fn phases_follow_each_other() {
        let all = part(0, 2);
        let phases = [0, 1_000_000, 2_999_999, 3_000_000, 4_000_000, 99_000_000];
        assert_eq!(phases.map(|us| all.phase_at(us)), [0, 0, 0, 1, 2, 2]);
        let window = all.window(0);
        assert_eq!((window.measure_us, window.end_us), (1_000_000, 7_000_000));
        assert_eq!((0..3).map(|n| all.seconds_in(n, window)).sum::<f64>(), 6.0);
    }

    #[test]
    fn who_comes_late_is_measured_from_then_on() {
        let late = part(1, 2);
        let window = late.window(3_500_000);
        assert_eq!((window.start_us, window.end_us), (3_500_000, 7_000_000));
        assert_eq!(late.seconds_in(0, window), 0.5);
        assert_eq!(late.seconds_in(1, window), 3.0);
        let never = late.window(8_000_000);
        assert_eq!((never.start_us, never.end_us), (8_000_000, 8_000_000));
        assert_eq!(late.seconds_in(1, never), 0.0);
    }
}
