//! Requests on their way to a back end that works on threads of its own: how much of
//! them waits, and that each has an answer.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{Request, StoreDone, StoreError};

/// Where a submitter wants its answers.
pub type OnDone = Arc<dyn Fn(StoreDone) + Send + Sync>;

/// Bytes of messages that are submitted and not committed, of all submitters.
#[derive(Clone, Debug)]
pub struct Waiting {
    bytes: Arc<AtomicUsize>,
    max: usize,
}

impl Waiting {
    /// From `max` bytes on, more is refused.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            bytes: Arc::default(),
            max,
        }
    }

    /// Counts a request; `None` if there is no room for it.
    #[must_use]
    pub fn charge(&self, request: &Request) -> Option<Charge> {
        let bytes = match request {
            Request::Write(batch) => batch.bytes(),
            _ => 0,
        };
        if bytes > 0 && self.bytes.load(Ordering::Relaxed) >= self.max {
            return None;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = self.clone();
        Some(Charge { waiting, bytes })
    }
}

/// What a request adds to [`Waiting`], until it is dropped.
#[derive(Debug)]
pub struct Charge {
    waiting: Waiting,
    bytes: usize,
}

impl Charge {
    /// What it counts for.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request on its way. Dropped without an answer, it answers that the store is closed.
pub struct Pending {
    /// What is asked, until it is answered.
    pub request: Option<Request>,
    /// Where the answer goes.
    pub on_done: OnDone,
    /// What it counts for.
    pub charge: Option<Charge>,
}

impl Pending {
    /// A request that is to be answered.
    #[must_use]
    pub const fn new(request: Request, on_done: OnDone, charge: Charge) -> Self {
        Self {
            request: Some(request),
            on_done,
            charge: Some(charge),
        }
    }

    /// Takes the request back, unanswered.
    #[must_use]
    pub fn withdraw(mut self) -> Option<Request> {
        self.request.take()
    }

    /// Answers that it failed.
    pub fn fail(mut self, error: StoreError) {
        self.answer(error);
    }

    fn answer(&mut self, error: StoreError) {
        if let Some(request) = self.request.take() {
            let token = request.token();
            (self.on_done)(StoreDone::Failed { token, error });
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.answer(StoreError::Closed);
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
