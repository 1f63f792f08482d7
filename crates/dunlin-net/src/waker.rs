//! Waking a loop from another thread.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Makes a waiting [`crate::Net::poll`] return. Cheap to clone; many wakes
/// before the loop runs cost one system call.
#[derive(Clone, Debug)]
pub struct Waker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    waker: mio::Waker,
    /// A wake is on its way and the loop has not yet seen it.
    pending: AtomicBool,
}

impl Waker {
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Self {
            inner: Arc::new(Inner {
                waker,
                pending: AtomicBool::new(false),
            }),
        }
    }

    /// Wakes the loop. What was stored for it before this call is visible to
    /// it when `poll` returns.
    pub fn wake(&self) {
        if !self.inner.pending.swap(true, Ordering::SeqCst)
            && let Err(error) = self.inner.waker.wake()
        {
            tracing::error!(%error, "cannot wake an event loop");
        }
    }

    /// The loop is awake and will look at everything stored so far.
    pub(crate) fn clear(&self) {
        self.inner.pending.store(false, Ordering::SeqCst);
    }
}
