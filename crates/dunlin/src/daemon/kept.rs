//! Where what is durable is kept: what the rest of the daemon asks of a store, whichever
//! it is.

use std::path::PathBuf;
use std::sync::Arc;

use dunlin_store::{Recovered, Request, StoreDone};
use dunlin_store_redb::{RedbStore, Snapshots, StoreMetrics, SubmitError};

use super::StartError;
use super::settings;
use crate::config::Config;

/// An open store. Dropping it closes it.
#[derive(Debug)]
pub(super) enum Kept {
    /// A file.
    Disk { path: PathBuf, store: RedbStore },
}

impl Kept {
    /// Opens what the configuration names; `None`: nothing is kept.
    pub(super) fn open(config: &Config) -> Result<(Option<Self>, Recovered), StartError> {
        let Some(settings) = settings::store(config) else {
            return Ok((None, Recovered::default()));
        };
        let path = config.store_path();
        let (store, recovered) = RedbStore::open(&path, settings)?;
        Ok((Some(Self::Disk { path, store }), recovered))
    }

    /// A way to submit requests, whose answers go to `on_done`. It must not block.
    pub(super) fn submitter(&self, on_done: Box<dyn Fn(StoreDone) + Send + Sync>) -> Submits {
        match self {
            Self::Disk { store, .. } => Submits::Disk(store.submitter(on_done)),
        }
    }

    /// What it counts.
    pub(super) fn metrics(&self) -> Arc<StoreMetrics> {
        match self {
            Self::Disk { store, .. } => store.metrics(),
        }
    }

    /// The file on this machine, and a way to views of it.
    pub(super) fn snapshots(&self) -> (PathBuf, Snapshots) {
        match self {
            Self::Disk { path, store } => (path.clone(), store.snapshots()),
        }
    }

    /// Carries out what was submitted, and ends.
    pub(super) fn close(self) {
        match self {
            Self::Disk { store, .. } => store.close(),
        }
    }
}

/// One way into a store.
#[derive(Debug)]
pub(crate) enum Submits {
    Disk(dunlin_store_redb::Submitter),
}

impl Submits {
    /// Submits a request. What goes this way is carried out in that order.
    pub(crate) fn submit(&self, request: Request) -> Result<(), SubmitError> {
        match self {
            Self::Disk(submitter) => submitter.submit(request),
        }
    }
}
