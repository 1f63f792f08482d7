//! What the threads of a run tell each other: the phase, the measured window,
//! progress. Plain atomics; nothing here waits.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;

use dunlin_net::Waker;

/// What the threads are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Connect subscribers (or idle connections) and subscribe.
    Subscribers = 0,
    /// Connect publishers.
    Publishers = 1,
    /// Publish: warm-up, then the measured window.
    Run = 2,
    /// Publish nothing new, receive what is on its way.
    Drain = 3,
    /// Disconnect and return.
    Stop = 4,
}

/// One publisher's deliveries, alone in its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Delivered(AtomicU64);

impl Delivered {
    /// Counts a delivery.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Deliveries so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Shared by the threads of a run.
#[derive(Debug, Default)]
pub struct Shared {
    phase: AtomicU8,
    start_us: AtomicU64,
    measure_us: AtomicU64,
    end_us: AtomicU64,
    /// Per publisher.
    pub delivered: Vec<Delivered>,
    /// Connections ready for use.
    pub ready: AtomicUsize,
    /// When the last of them became so.
    pub last_ready_us: AtomicU64,
    /// Connections that did not come about.
    pub failed: AtomicUsize,
    /// Connections that ended too early.
    pub lost: AtomicUsize,
    /// Messages sent, warm-up included.
    pub sent: AtomicU64,
    /// Messages delivered, warm-up included.
    pub received: AtomicU64,
    /// Messages acknowledged, warm-up included.
    pub acknowledged: AtomicU64,
    /// Deliveries that everything sent must lead to.
    pub expected: AtomicU64,
    /// Messages that are due and not sent, plus those not acknowledged.
    pub waiting: AtomicU64,
    /// A thread failed.
    pub broken: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Shared {
    /// For this many publishers.
    #[must_use]
    pub fn new(publishers: usize) -> Self {
        Self {
            delivered: core::iter::repeat_with(Delivered::default)
                .take(publishers)
                .collect(),
            ..Self::default()
        }
    }

    /// What to do now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Subscribers,
            1 => Phase::Publishers,
            2 => Phase::Run,
            3 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    /// Goes on to another phase and wakes the threads.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.wake();
    }

    /// Lays down when publishing starts, what is measured, and when it ends.
    pub fn set_window(&self, start_us: u64, measure_us: u64, end_us: u64) {
        self.start_us.store(start_us, Ordering::Relaxed);
        self.measure_us.store(measure_us, Ordering::Relaxed);
        self.end_us.store(end_us, Ordering::Relaxed);
    }

    /// Start of publishing, start and end of what is measured. Valid from
    /// [`Phase::Run`] on.
    #[must_use]
    pub fn window(&self) -> Window {
        Window {
            start_us: self.start_us.load(Ordering::Relaxed),
            measure_us: self.measure_us.load(Ordering::Relaxed),
            end_us: self.end_us.load(Ordering::Relaxed),
        }
    }

    /// Makes a thread known, to be woken when the phase changes.
    pub fn register(&self, waker: Waker) {
        self.wakers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(waker);
    }

    /// Wakes all threads.
    pub fn wake(&self) {
        let wakers = self
            .wakers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        wakers.iter().for_each(Waker::wake);
    }
}

/// Instants of a run, in microseconds of the process clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// Publishing starts.
    pub start_us: u64,
    /// Measuring starts.
    pub measure_us: u64,
    /// Both end.
    pub end_us: u64,
}

impl Window {
    /// Whether what happened (or was due) at `us` is measured.
    #[must_use]
    pub const fn contains(&self, us: u64) -> bool {
        us >= self.measure_us && us < self.end_us
    }

    /// How long measuring takes.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end_us.saturating_sub(self.measure_us) as f64 / 1e6
    }
}
