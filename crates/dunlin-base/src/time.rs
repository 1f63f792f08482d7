//! A point in time as a number, so that engines run equally under a real
//! clock, in a simulator and on a microcontroller.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Microseconds since the Unix epoch on the driver's clock.
///
/// The driver takes the wall clock once at start and adds monotonic elapsed
/// time, so values never go backwards in one process and still mean something
/// after a restart (message and session expiry are stored with them). In a
/// simulator the origin is what the scenario says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other instant; "never" for a deadline.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `micros` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the origin.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::FAR_FUTURE`].
    fn add(self, rhs: Duration) -> Self {
        let micros = u64::try_from(rhs.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Duration {
        self.saturating_duration_since(rhs)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let t = Instant::from_micros(5);
        assert_eq!(t + Duration::from_secs(u64::MAX), Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO - t, Duration::ZERO);
        assert_eq!((t + Duration::from_micros(7)) - t, Duration::from_micros(7));
    }
}
