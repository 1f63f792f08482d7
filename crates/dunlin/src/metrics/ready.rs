//! Whether clients should come here, for load balancers: not while the broker is
//! being stopped, and not while its store fails.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use dunlin_store_redb::StoreMetrics;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    draining: AtomicBool,
    store: Option<Arc<StoreMetrics>>,
}

impl Readiness {
    pub(crate) fn new(store: Option<Arc<StoreMetrics>>) -> Self {
        Self {
            draining: AtomicBool::new(false),
            store,
        }
    }

    /// No more clients are wanted.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// Why no clients are wanted.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::Relaxed) {
            return Err("the broker is being stopped");
        }
        if self.store.as_ref().is_some_and(|store| store.is_failing()) {
            return Err("the store fails: the last commit was refused");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_being_stopped_wants_no_clients() {
        let ready = Readiness::new(None);
        assert_eq!(ready.check(), Ok(()));
        ready.drain();
        assert!(ready.check().is_err());
    }
}
