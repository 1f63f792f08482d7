//! The process clock: the wall clock read once, then monotonic time added.
//! Every thread of a process shares one value, so instants compare.

use core::time::Duration;
use std::time::{Instant as StdInstant, SystemTime, UNIX_EPOCH};

use dunlin_base::Instant;

/// Wall time at start plus monotonic time since; `Copy`, shared by all threads.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Instant,
    start: StdInstant,
}

impl Clock {
    /// Reads the wall clock.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            wall: Instant::ZERO + wall,
            start: StdInstant::now(),
        }
    }

    /// The current instant.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.wall + self.start.elapsed()
    }

    /// The same instant on the standard library's clock. Instants before the
    /// clock's start map to its start.
    #[must_use]
    pub fn to_std(&self, at: Instant) -> StdInstant {
        /// Far enough to mean "never", near enough not to overflow.
        const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let ahead = at.saturating_duration_since(self.wall).min(FAR);
        self.start.checked_add(ahead).unwrap_or(self.start)
    }

    /// The instant of a time on the standard library's clock.
    #[must_use]
    pub fn from_std(&self, at: StdInstant) -> Instant {
        self.wall + at.saturating_duration_since(self.start)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_inverse_to_a_microsecond() {
        let clock = Clock::new();
        let now = clock.now();
        assert_eq!(clock.from_std(clock.to_std(now)), now);
        assert!(clock.to_std(Instant::FAR_FUTURE) > StdInstant::now());
    }
}
