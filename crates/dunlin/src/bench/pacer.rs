//! A thread that wakes a loop at a given microsecond: the kernel's event queue
//! waits in whole milliseconds, which is longer than the latencies measured.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use dunlin_net::{Clock, Waker};

/// No wake is wanted.
const NONE: u64 = u64::MAX;
/// The thread is to end.
const END: u64 = 0;

/// Wakes one loop.
#[derive(Debug)]
pub(super) struct Pacer {
    target_us: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    pub(super) fn new(clock: Clock, waker: Waker) -> std::io::Result<Self> {
        let target_us = Arc::new(AtomicU64::new(NONE));
        let theirs = Arc::clone(&target_us);
        let thread = thread::Builder::new()
            .name("bench-pacer".into())
            .spawn(move || run(clock, &waker, &theirs))?;
        Ok(Self {
            target_us,
            thread: Some(thread),
        })
    }

    /// Wakes the loop at `at_us`, instead of what was asked for before.
    pub(super) fn wake_at(&self, at_us: u64) {
        if self.target_us.swap(at_us, Ordering::SeqCst) != at_us {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.target_us.store(END, Ordering::SeqCst);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(clock: Clock, waker: &Waker, target_us: &AtomicU64) {
    loop {
        let target = target_us.load(Ordering::SeqCst);
        if target == END {
            return;
        }
        if target == NONE {
            thread::park();
            continue;
        }
        let now = clock.now().as_micros();
        if now < target {
            thread::park_timeout(Duration::from_micros(target - now));
        } else if target_us
            .compare_exchange(target, NONE, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            waker.wake();
        }
    }
}
