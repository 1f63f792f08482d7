//! Whether clients should come here, for load balancers: not while the broker is
//! being stopped, not while its store fails, and not before the shards of an edge have heard
//! what the others have.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use dunlin_store_redb::StoreMetrics;

use super::text::Exposition;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    draining: AtomicBool,
    store: Option<Arc<StoreMetrics>>,
    /// Shards of an edge that have not heard everything that they have to know.
    unheard: AtomicUsize,
}

impl Readiness {
    pub(crate) fn new(store: Option<Arc<StoreMetrics>>) -> Self {
        Self {
            draining: AtomicBool::new(false),
            store,
            unheard: AtomicUsize::new(0),
        }
    }

    /// A shard here serves when it has heard what the others have.
    #[cfg(feature = "cluster")]
    pub(crate) fn wait_for_shard(&self) {
        self.unheard.fetch_add(1, Ordering::Relaxed);
    }

    /// It has.
    #[cfg(feature = "cluster")]
    pub(crate) fn shard_serves(&self) {
        self.unheard.fetch_sub(1, Ordering::Relaxed);
    }

    /// Of a node of a cluster: how many shards are waited for.
    pub(crate) fn metrics(&self, out: &mut Exposition) {
        let help = "Shards here that have not heard yet what the other nodes have.";
        let unheard = self.unheard.load(Ordering::Relaxed);
        out.gauge("dunlin_cluster_shards_waiting", help, &[], unheard as f64);
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
        if self.unheard.load(Ordering::Relaxed) > 0 {
            return Err("this edge of the cluster has not heard yet what the other nodes have");
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

    #[cfg(feature = "cluster")]
    #[test]
    fn an_edge_wants_clients_when_all_its_shards_serve() {
        let ready = Readiness::new(None);
        ready.wait_for_shard();
        ready.wait_for_shard();
        ready.shard_serves();
        assert!(ready.check().expect_err("one is left").contains("edge"));
        ready.shard_serves();
        assert_eq!(ready.check(), Ok(()));
    }
}
