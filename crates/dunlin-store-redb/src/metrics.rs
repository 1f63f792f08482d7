//! What the writer counts, for metrics: read by other threads at any time. It
//! knows nothing of how it is shown.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

/// Upper bounds of the classes of commit times, in microseconds; longer ones
/// are in none.
pub const COMMIT_MICROS: [u64; 12] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000,
];

/// Totals of a store since it was opened.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    commits: AtomicU64,
    batches: AtomicU64,
    operations: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    failing: AtomicBool,
    damaged: AtomicU64,
    micros: AtomicU64,
    by_time: [AtomicU64; COMMIT_MICROS.len()],
}

/// [`StoreMetrics`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreTotals {
    /// Groups committed, or tried to.
    pub commits: u64,
    /// Batches of shards in them.
    pub batches: u64,
    /// Operations in those.
    pub operations: u64,
    /// Bytes of messages in those.
    pub bytes: u64,
    /// Batches that the store refused.
    pub failed: u64,
    /// Records that could not be read, for which the log has their names.
    pub damaged: u64,
    /// Time of all commits together, in microseconds.
    pub commit_micros: u64,
    /// Commits by the first of [`COMMIT_MICROS`] that they did not exceed.
    pub by_time: [u64; COMMIT_MICROS.len()],
}

impl StoreMetrics {
    /// A group was committed, or that was tried.
    pub fn note(&self, took: Duration, batches: usize, ops: usize, bytes: usize) {
        let add = |to: &AtomicU64, n: u64| to.fetch_add(n, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        add(&self.commits, 1);
        add(&self.batches, batches as u64);
        add(&self.operations, ops as u64);
        add(&self.bytes, bytes as u64);
        add(&self.micros, micros);
        let class = COMMIT_MICROS.iter().position(|bound| micros <= *bound);
        if let Some(class) = class.and_then(|at| self.by_time.get(at)) {
            add(class, 1);
        }
    }

    /// So many of the last group's batches were refused, and so many not.
    pub fn note_failed(&self, refused: u64, written: u64) {
        self.failed.fetch_add(refused, Ordering::Relaxed);
        let failing = refused > 0 && written == 0;
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Nothing can be written any more.
    pub fn note_given_up(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Whether nothing of the last group could be written.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(crate) fn note_damaged(&self, records: u64) {
        self.damaged.fetch_add(records, Ordering::Relaxed);
    }

    /// The totals now.
    #[must_use]
    pub fn totals(&self) -> StoreTotals {
        let get = |from: &AtomicU64| from.load(Ordering::Relaxed);
        StoreTotals {
            commits: get(&self.commits),
            batches: get(&self.batches),
            operations: get(&self.operations),
            bytes: get(&self.bytes),
            failed: get(&self.failed),
            damaged: get(&self.damaged),
            commit_micros: get(&self.micros),
            by_time: core::array::from_fn(|at| self.by_time.get(at).map_or(0, get)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_counted_in_one_class_each() {
        let metrics = StoreMetrics::default();
        for micros in [1, 100, 101, 2_000_000] {
            metrics.note(Duration::from_micros(micros), 1, 2, 3);
        }
        let totals = metrics.totals();
        assert_eq!(
            (totals.commits, totals.operations, totals.bytes),
            (4, 8, 12)
        );
        assert_eq!((totals.by_time[0], totals.by_time[1]), (2, 1));
        assert_eq!(totals.by_time.iter().sum::<u64>(), 3, "one is beyond");
        assert_eq!(totals.commit_micros, 2_000_202);
    }

    #[test]
    fn a_store_fails_until_something_is_written() {
        let metrics = StoreMetrics::default();
        for (refused, written, failing) in
            [(0, 1, false), (1, 1, false), (2, 0, true), (0, 3, false)]
        {
            metrics.note_failed(refused, written);
            assert_eq!(metrics.is_failing(), failing);
        }
        assert_eq!(metrics.totals().failed, 3);
    }
}
