//! What the bus counts, for metrics: read by other threads at any time. It knows nothing of
//! how it is shown.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use crate::cause::Lost;
use crate::wire::Dropped;

/// Upper bounds of the classes of round-trip times, in microseconds; longer ones are in none.
pub const ROUND_TRIP_MICROS: [u64; 10] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000,
];

/// Totals of a bus since its node joined.
#[derive(Debug, Default)]
pub struct BusMetrics {
    members: AtomicU64,
    links: AtomicU64,
    linked: AtomicU64,
    messages: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    batches: [AtomicU64; 2],
    lost: [AtomicU64; Lost::ALL.len()],
    dropped: [AtomicU64; Dropped::ALL.len()],
    evicted: AtomicU64,
    round_trips: AtomicU64,
    round_trip_micros: AtomicU64,
    by_time: [AtomicU64; ROUND_TRIP_MICROS.len()],
}

/// [`BusMetrics`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusTotals {
    /// Other nodes that are members now.
    pub members: u64,
    /// Links now.
    pub links: u64,
    /// Links that were made.
    pub linked: u64,
    /// Messages sent: batches, greetings, heartbeats.
    pub messages_sent: u64,
    /// Bytes of those.
    pub bytes_sent: u64,
    /// Batches in those.
    pub batches_sent: u64,
    /// Messages received and not dropped.
    pub messages_received: u64,
    /// Bytes of those.
    pub bytes_received: u64,
    /// Batches in those.
    pub batches_received: u64,
    /// Links lost, in the order of [`Lost::ALL`].
    pub lost: [u64; Lost::ALL.len()],
    /// Messages and entries dropped, in the order of [`Dropped::ALL`].
    pub dropped: [u64; Dropped::ALL.len()],
    /// Entries of other nodes that this one ended.
    pub evicted: u64,
    /// Heartbeats whose way and that of their answer was measured.
    pub round_trips: u64,
    /// Time of all of them together, in microseconds.
    pub round_trip_micros: u64,
    /// By the first of [`ROUND_TRIP_MICROS`] that they did not exceed.
    pub by_time: [u64; ROUND_TRIP_MICROS.len()],
}

impl BusTotals {
    /// Links lost for one cause.
    #[must_use]
    pub fn lost_by(&self, cause: Lost) -> u64 {
        let at = Lost::ALL.iter().position(|other| *other == cause);
        at.and_then(|at| self.lost.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// Messages and entries dropped for one cause.
    #[must_use]
    pub fn dropped_by(&self, cause: Dropped) -> u64 {
        let at = Dropped::ALL.iter().position(|other| *other == cause);
        at.and_then(|at| self.dropped.get(at))
            .copied()
            .unwrap_or_default()
    }
}

fn add(to: &AtomicU64, n: u64) {
    to.fetch_add(n, Ordering::Relaxed);
}

impl BusMetrics {
    pub(crate) fn note_sent(&self, bytes: usize, batches: u64) {
        add(&self.messages[0], 1);
        add(&self.bytes[0], bytes as u64);
        add(&self.batches[0], batches);
    }

    pub(crate) fn note_received(&self, bytes: usize) {
        add(&self.messages[1], 1);
        add(&self.bytes[1], bytes as u64);
    }

    pub(crate) fn note_batch(&self) {
        add(&self.batches[1], 1);
    }

    pub(crate) fn note_members(&self, members: usize) {
        self.members.store(members as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_linked(&self) {
        add(&self.linked, 1);
        add(&self.links, 1);
    }

    pub(crate) fn note_lost(&self, cause: Lost) {
        self.links.fetch_sub(1, Ordering::Relaxed);
        let at = Lost::ALL.iter().position(|other| *other == cause);
        if let Some(count) = at.and_then(|at| self.lost.get(at)) {
            add(count, 1);
        }
    }

    pub(crate) fn note_dropped(&self, cause: Dropped) {
        let at = Dropped::ALL.iter().position(|other| *other == cause);
        if let Some(count) = at.and_then(|at| self.dropped.get(at)) {
            add(count, 1);
        }
    }

    pub(crate) fn note_evicted(&self) {
        add(&self.evicted, 1);
    }

    pub(crate) fn note_round_trip(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        add(&self.round_trips, 1);
        add(&self.round_trip_micros, micros);
        let class = ROUND_TRIP_MICROS.iter().position(|bound| micros <= *bound);
        if let Some(class) = class.and_then(|at| self.by_time.get(at)) {
            add(class, 1);
        }
    }

    /// The totals now.
    #[must_use]
    pub fn totals(&self) -> BusTotals {
        let get = |from: &AtomicU64| from.load(Ordering::Relaxed);
        BusTotals {
            members: get(&self.members),
            links: get(&self.links),
            linked: get(&self.linked),
            messages_sent: get(&self.messages[0]),
            bytes_sent: get(&self.bytes[0]),
            batches_sent: get(&self.batches[0]),
            messages_received: get(&self.messages[1]),
            bytes_received: get(&self.bytes[1]),
            batches_received: get(&self.batches[1]),
            lost: core::array::from_fn(|at| self.lost.get(at).map_or(0, get)),
            dropped: core::array::from_fn(|at| self.dropped.get(at).map_or(0, get)),
            evicted: get(&self.evicted),
            round_trips: get(&self.round_trips),
            round_trip_micros: get(&self.round_trip_micros),
            by_time: core::array::from_fn(|at| self.by_time.get(at).map_or(0, get)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_counted_by_its_cause() {
        let metrics = BusMetrics::default();
        for cause in Lost::ALL {
            metrics.note_linked();
            metrics.note_linked();
            metrics.note_lost(cause);
        }
        metrics.note_lost(Lost::Hole);
        metrics.note_dropped(Dropped::Secret);
        for micros in [1, 100, 101, 5_000_000] {
            metrics.note_round_trip(Duration::from_micros(micros));
        }
        let totals = metrics.totals();
        assert_eq!((totals.linked, totals.links), (18, 8));
        assert_eq!(
            (totals.lost_by(Lost::Hole), totals.lost_by(Lost::Own)),
            (2, 1)
        );
        assert_eq!(totals.dropped_by(Dropped::Secret), 1);
        assert_eq!(totals.dropped_by(Dropped::Garbage), 0);
        assert_eq!((totals.by_time[0], totals.by_time[1]), (2, 1));
        assert_eq!(totals.round_trips, 4);
    }
}
