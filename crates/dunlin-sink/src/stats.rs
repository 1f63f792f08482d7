//! What a sink has done, counted by its workers and read by others.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use crate::refusal::Cause;

/// Totals of a sink.
#[derive(Debug, Default)]
pub struct Stats {
    /// Workers whose connection to the broker is there.
    pub connected: AtomicUsize,
    /// Workers whose target is there.
    pub open: AtomicUsize,
    /// Messages received.
    pub received: AtomicU64,
    /// Of these, marked as repeated by the broker.
    pub repeated: AtomicU64,
    /// Bytes of their payloads.
    pub bytes: AtomicU64,
    /// Messages acknowledged.
    pub acknowledged: AtomicU64,
    /// Messages given back: received, and not acknowledged before their connection ended.
    pub returned: AtomicU64,
    /// Rows stored.
    pub rows: AtomicU64,
    /// Batches stored.
    pub batches: AtomicU64,
    /// Microseconds that storing took, those of failures included.
    pub store_micros: AtomicU64,
    /// Attempts that failed and were followed by another.
    pub retries: AtomicU64,
    /// Messages refused, by cause.
    pub refused: [AtomicU64; Cause::ALL.len()],
    /// A message was refused and there is no place for it.
    pub halted: AtomicBool,
}

impl Stats {
    /// Messages that are received and not acknowledged.
    #[must_use]
    pub fn held(&self) -> u64 {
        let done = self.acknowledged.load(Relaxed) + self.returned.load(Relaxed);
        self.received.load(Relaxed).saturating_sub(done)
    }

    /// Messages refused for this cause.
    #[must_use]
    pub fn refused(&self, cause: Cause) -> u64 {
        self.refused
            .get(cause as usize)
            .map_or(0, |it| it.load(Relaxed))
    }

    pub(crate) fn refuse(&self, cause: Cause) {
        if let Some(total) = self.refused.get(cause as usize) {
            total.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn stored(&self, rows: usize) {
        self.batches.fetch_add(1, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
    }

    pub(crate) fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.store_micros.fetch_add(micros, Relaxed);
    }
}
