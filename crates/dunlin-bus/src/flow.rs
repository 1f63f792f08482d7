//! What a link shares with the threads that hand batches over and with those that take them:
//! a queue behind a lock that is held for one push, and numbers.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::limits::{ANNOUNCE_BYTES, BATCH_BYTES_MAX, BATCH_COST, LINK_BYTES_HARD, LINK_BYTES_MAX};

/// Wakes the thread that drives the links.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a batch counts for.
pub(crate) const fn cost(bytes: usize) -> u64 {
    (bytes + BATCH_COST) as u64
}

/// Why a batch was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The link is lost: a new one has another [`Peer`](crate::Peer).
    #[error("the link to this node is lost")]
    Lost,
    /// The batch has more than [`BATCH_BYTES_MAX`] bytes.
    #[error("a batch has more than {BATCH_BYTES_MAX} bytes")]
    TooLarge,
}

#[derive(Default)]
struct Queue {
    batches: Vec<Bytes>,
    /// The link is lost: nothing goes in any more.
    closed: bool,
}

/// Shared by the driver of a link, its senders and the receipts of its batches.
pub(crate) struct Flow {
    queue: Mutex<Queue>,
    has_mail: AtomicBool,
    /// Cost of what waits or is on its way and was not taken.
    load: AtomicUsize,
    overflowed: AtomicBool,
    /// Cost of the peer's batches that consumers here were given.
    given: AtomicU64,
    /// Cost of what consumers here have taken of the peer's batches.
    taken: AtomicU64,
    /// As much of that as the peer was informed of.
    announced: AtomicU64,
    /// How long a message and its answer took last, in microseconds; 0: not measured yet.
    round_trip: AtomicU64,
    wake: Wake,
}

impl core::fmt::Debug for Flow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Flow")
            .field("load", &self.load)
            .finish_non_exhaustive()
    }
}

impl Flow {
    pub(crate) fn new(wake: Wake) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            has_mail: AtomicBool::new(false),
            load: AtomicUsize::new(0),
            overflowed: AtomicBool::new(false),
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            wake,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a batch over to the driver.
    pub(crate) fn send(&self, batch: Bytes) -> Result<(), SendError> {
        if batch.len() > BATCH_BYTES_MAX {
            return Err(SendError::TooLarge);
        }
        let cost = batch.len() + BATCH_COST;
        let mut queue = self.lock();
        if queue.closed {
            return Err(SendError::Lost);
        }
        // Under the lock: the driver lessens it only for what it took out.
        let load = self.load.fetch_add(cost, Ordering::Relaxed) + cost;
        let overflows = load > LINK_BYTES_HARD;
        if overflows {
            *queue = Queue {
                batches: Vec::new(),
                closed: true,
            };
            self.overflowed.store(true, Ordering::Relaxed);
        } else {
            queue.batches.push(batch);
        }
        drop(queue);
        // One wake-up for all that is handed over until the driver looks.
        if !self.has_mail.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
        match overflows {
            true => Err(SendError::Lost),
            false => Ok(()),
        }
    }

    /// Whether there may be something to collect.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Takes all that was handed over.
    pub(crate) fn collect(&self, into: &mut Vec<Bytes>) {
        if self.has_mail.swap(false, Ordering::AcqRel) {
            into.append(&mut self.lock().batches);
        }
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Nothing is handed over from here on, and what waits is dropped.
    pub(crate) fn close(&self) {
        *self.lock() = Queue {
            batches: Vec::new(),
            closed: true,
        };
        self.load.store(0, Ordering::Relaxed);
    }

    /// The peer's consumers have taken so much more.
    pub(crate) fn lessen(&self, cost: u64) {
        let cost = usize::try_from(cost).unwrap_or(usize::MAX);
        self.load.fetch_sub(cost, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.load() >= LINK_BYTES_MAX
    }

    /// A consumer here has taken a batch of this cost.
    fn take(&self, cost: u64) {
        let taken = self.taken.fetch_add(cost, Ordering::Relaxed) + cost;
        let news = taken.saturating_sub(self.announced.load(Ordering::Relaxed));
        // Once, by the one that passes the limit.
        if news >= ANNOUNCE_BYTES && news - cost < ANNOUNCE_BYTES {
            (self.wake)();
        }
    }

    /// Cost of the peer's batches that consumers here have and did not drop.
    pub(crate) fn held(&self) -> u64 {
        // In this order: what is taken was given before.
        let taken = self.taken();
        self.given.load(Ordering::Relaxed).saturating_sub(taken)
    }

    /// A message and its answer took so long.
    pub(crate) fn note_round_trip(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.round_trip.store(micros.max(1), Ordering::Relaxed);
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn announce(&self, taken: u64) {
        self.announced.store(taken, Ordering::Relaxed);
    }

    /// Whether the peer should be informed of what was taken.
    pub(crate) fn has_news(&self) -> bool {
        let announced = self.announced.load(Ordering::Relaxed);
        self.taken().saturating_sub(announced) >= ANNOUNCE_BYTES
    }
}

/// Stands for a batch that a consumer has: dropped, it says that the batch was taken.
#[derive(Debug)]
pub(crate) struct Receipt {
    flow: Arc<Flow>,
    cost: u64,
}

impl Receipt {
    pub(crate) fn new(flow: Arc<Flow>, cost: u64) -> Self {
        flow.given.fetch_add(cost, Ordering::Relaxed);
        Self { flow, cost }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.flow.take(self.cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> (Arc<Flow>, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let wake = move || _ = count.fetch_add(1, Ordering::Relaxed);
        (Flow::new(Arc::new(wake)), woken)
    }

    #[test]
    fn a_sender_wakes_once_until_the_driver_looks() {
        let (flow, woken) = counted();
        let mut batches = Vec::new();
        for round in 1..=3 {
            for _ in 0..5 {
                flow.send(Bytes::from_static(b"x")).expect("room");
            }
            assert_eq!(woken.load(Ordering::Relaxed), round);
            flow.collect(&mut batches);
            assert_eq!(batches.len(), 5 * round);
        }
    }

    #[test]
    fn a_link_is_full_and_then_lost() {
        let (flow, _) = counted();
        let batch = Bytes::from(vec![0; (1 << 20) - BATCH_COST]);
        for _ in 0..15 {
            flow.send(batch.clone()).expect("room");
        }
        assert!(!flow.is_full());
        flow.send(batch.clone()).expect("room");
        assert!(flow.is_full());
        for _ in 16..64 {
            flow.send(batch.clone()).expect("room, although it is full");
        }
        assert!(!flow.has_overflowed());
        assert_eq!(flow.send(batch), Err(SendError::Lost));
        assert!(flow.has_overflowed());
        let mut batches = Vec::new();
        flow.collect(&mut batches);
        assert!(batches.is_empty(), "what waited is dropped");
        assert_eq!(flow.send(Bytes::new()), Err(SendError::Lost));
        let (flow, _) = counted();
        let large = Bytes::from(vec![0; BATCH_BYTES_MAX + 1]);
        assert_eq!(flow.send(large), Err(SendError::TooLarge));
        assert!(flow.send(Bytes::new()).is_ok());
    }

    #[test]
    fn what_is_taken_wakes_when_it_is_much() {
        let (flow, woken) = counted();
        let receipts: Vec<_> = (0..10)
            .map(|_| Receipt::new(Arc::clone(&flow), ANNOUNCE_BYTES / 2))
            .collect();
        assert_eq!(flow.held(), 5 * ANNOUNCE_BYTES);
        drop(receipts);
        assert_eq!(flow.held(), 0);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert!(flow.has_news());
        flow.announce(flow.taken());
        assert!(!flow.has_news());
    }
}
