//! Whether a broker is being drained, and what follows then.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// What ends the process, if it may be ended.
type Stop = Box<dyn Fn() + Send + Sync>;

/// Whether a broker drains.
#[derive(Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    stop: OnceLock<Stop>,
}

dunlin_base::opaque_debug!(Drain);

impl Drain {
    /// What is to be done when no client is left.
    pub(super) fn then(&self, stop: Stop) {
        // The first one holds.
        let _ = self.stop.set(stop);
    }

    /// It begins; whether it had before.
    pub(super) fn begin(&self) -> bool {
        self.begun.swap(true, Ordering::Relaxed)
    }

    /// It could not begin.
    pub(super) fn give_up(&self) {
        self.begun.store(false, Ordering::Relaxed);
    }

    /// No client is left.
    pub(super) fn end(&self) {
        if let Some(stop) = self.stop.get() {
            stop();
        }
    }

    /// Whether it has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}
