//! How late packets left, which tells what an emulated delay is worth.

use core::time::Duration;

use serde::Serialize;

/// Buckets, each twice as wide as the one before, from one microsecond.
const BUCKETS: usize = 24;

/// Times between when packets were due and when they left.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lateness {
    /// Packets.
    pub packets: u64,
    /// The latest, in microseconds.
    pub max_us: u64,
    /// Packets by the binary logarithm of their lateness in microseconds.
    pub by_log2_us: [u64; BUCKETS],
}

impl Lateness {
    pub(super) fn record(&mut self, late: Duration) {
        let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.packets += 1;
        self.max_us = self.max_us.max(late);
        let bucket = (u64::BITS - late.leading_zeros()) as usize;
        if let Some(count) = self.by_log2_us.get_mut(bucket.min(BUCKETS - 1)) {
            *count += 1;
        }
    }

    /// A bound in microseconds that this share of packets keeps.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (self.packets as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.by_log2_us.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return (1u64 << bucket).min(self.max_us);
            }
        }
        self.max_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile_us(0.5), 0);
        for us in 0..100 {
            lateness.record(Duration::from_micros(us));
        }
        assert_eq!(lateness.max_us, 99);
        assert_eq!(lateness.quantile_us(0.5), 64);
        assert_eq!(lateness.quantile_us(1.0), 99);
    }
}
