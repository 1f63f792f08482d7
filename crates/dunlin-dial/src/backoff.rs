//! How long to wait before the next attempt to connect, and random bits.

use core::time::Duration;

/// Exponential back-off with jitter: waits double from `min` to `max`; each is
/// shortened by a random part of itself, so that clients of a restarted server
/// do not all return at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Wait after the first failure. Default 1 s.
    pub min: Duration,
    /// Longest wait. Default 60 s.
    pub max: Duration,
    /// Largest part of a wait that is taken off, from 0 to 1. Default 0.5.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
            jitter: 0.5,
        }
    }
}

impl Backoff {
    /// The wait after `failures` failures in a row, from 1; `random` chooses
    /// within the jitter.
    #[must_use]
    pub fn wait(&self, failures: u32, random: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let wait = self.min.saturating_mul(1 << doublings).min(self.max);
        let part = f64::from(random) / f64::from(u32::MAX) * self.jitter.clamp(0.0, 1.0);
        wait.mul_f64(1.0 - part)
    }
}

/// Random bits; from the clock's address space if the system has none, which
/// only makes names less unlikely to collide.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => {
            use core::hash::BuildHasher as _;
            std::hash::RandomState::new().hash_one(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let backoff = Backoff {
            min: Duration::from_millis(100),
            max: Duration::from_secs(1),
            jitter: 0.5,
        };
        let waits = [1, 2, 3, 4, 5, 99].map(|failures| backoff.wait(failures, 0).as_millis());
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.wait(2, u32::MAX), Duration::from_millis(100));
    }

    #[test]
    fn senseless_jitter_is_bounded() {
        let backoff = Backoff {
            jitter: 7.0,
            ..Backoff::default()
        };
        assert_eq!(backoff.wait(1, u32::MAX), Duration::ZERO);
    }
}
