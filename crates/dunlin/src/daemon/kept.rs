//! Where what is durable is kept: what the rest of the daemon asks of a store, whichever
//! it is.

use std::path::PathBuf;
use std::sync::Arc;

use dunlin_store::{Recovered, Request, StoreDone};
#[cfg(feature = "cluster")]
use dunlin_store_nats::{NatsStandby, NatsStore};
use dunlin_store_redb::{RedbStore, Snapshots, StoreMetrics, SubmitError};

use super::StartError;
use super::settings;
use crate::config::Config;
#[cfg(feature = "cluster")]
use crate::metrics::LogView;
use crate::metrics::LogViews;

/// Why a store acknowledges nothing any more: the broker is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GivenUp {
    /// Another broker has it.
    TakenOver,
    /// Anything else; the text is for people.
    Failed(String),
}

/// What is done then.
pub(super) type Then = Box<dyn FnOnce(GivenUp) + Send>;

/// From what a store is opened.
#[derive(Debug)]
pub(super) enum Source {
    /// What the configuration names.
    Configured,
    /// What a standby has followed, which takes it over.
    #[cfg(feature = "cluster")]
    Standby(NatsStandby),
}

/// An open store. Dropping it closes it.
#[derive(Debug)]
pub(super) enum Kept {
    /// A file.
    Disk { path: PathBuf, store: RedbStore },
    /// A log in NATS; the file is a copy.
    #[cfg(feature = "cluster")]
    Log {
        path: PathBuf,
        store: Box<NatsStore>,
    },
}

impl Kept {
    /// Opens what the configuration names; `None`: nothing is kept.
    pub(super) fn open(
        config: &Config,
        source: Source,
    ) -> Result<(Option<Self>, Recovered), StartError> {
        let path = config.store_path();
        #[cfg(feature = "cluster")]
        if let Source::Standby(standby) = source {
            let (store, recovered) = standby.take_over().map_err(Box::new)?;
            let store = Box::new(store);
            return Ok((Some(Self::Log { path, store }), recovered));
        }
        #[cfg(not(feature = "cluster"))]
        let Source::Configured = source;
        #[cfg(feature = "cluster")]
        if let Some(settings) = settings::log(config) {
            warn(config, &settings);
            let (store, recovered) = NatsStore::open(settings).map_err(Box::new)?;
            let store = Box::new(store);
            return Ok((Some(Self::Log { path, store }), recovered));
        }
        let Some(settings) = settings::store(config) else {
            return Ok((None, Recovered::default()));
        };
        let (store, recovered) = RedbStore::open(&path, settings)?;
        Ok((Some(Self::Disk { path, store }), recovered))
    }

    /// A way to submit requests, whose answers go to `on_done`. It must not block.
    pub(super) fn submitter(&self, on_done: Box<dyn Fn(StoreDone) + Send + Sync>) -> Submits {
        match self {
            Self::Disk { store, .. } => Submits::Disk(store.submitter(on_done)),
            #[cfg(feature = "cluster")]
            Self::Log { store, .. } => Submits::Log(store.submitter(on_done)),
        }
    }

    /// What it counts.
    pub(super) fn metrics(&self) -> Arc<StoreMetrics> {
        match self {
            Self::Disk { store, .. } => store.metrics(),
            #[cfg(feature = "cluster")]
            Self::Log { store, .. } => store.metrics(),
        }
    }

    /// What this process is to the store, where that is a log.
    pub(super) fn log(&self) -> Option<LogViews> {
        match self {
            Self::Disk { .. } => None,
            #[cfg(feature = "cluster")]
            Self::Log { store, .. } => Some(views(store.role())),
        }
    }

    /// The file on this machine, and a way to views of it.
    pub(super) fn snapshots(&self) -> (PathBuf, Snapshots) {
        match self {
            Self::Disk { path, store } => (path.clone(), store.snapshots()),
            #[cfg(feature = "cluster")]
            Self::Log { path, store } => (path.clone(), store.snapshots()),
        }
    }

    /// Calls `then`, from any thread, when nothing is acknowledged any more; at once if
    /// that is so. A file is never given up: a full disk may have room again.
    pub(super) fn when_given_up(&self, then: Then) {
        match self {
            Self::Disk { .. } => drop(then),
            #[cfg(feature = "cluster")]
            Self::Log { store, .. } => store.when_given_up(Box::new(|cause| {
                then(match cause {
                    dunlin_store_nats::GaveUp::TakenOver => GivenUp::TakenOver,
                    other => GivenUp::Failed(other.to_string()),
                });
            })),
        }
    }

    /// Carries out what was submitted, and ends.
    pub(super) fn close(self) {
        match self {
            Self::Disk { store, .. } => store.close(),
            #[cfg(feature = "cluster")]
            Self::Log { store, .. } => store.close(),
        }
    }
}

/// What is to be known of a log before it is used.
#[cfg(feature = "cluster")]
pub(super) fn warn(config: &Config, settings: &dunlin_store_nats::NatsConfig) {
    let file = config.data_dir.join("store.redb");
    if file.exists() {
        let file = file.display();
        tracing::warn!(%file, "the store on this machine is not used");
    }
    if settings.unsynced_accepted {
        tracing::warn!(
            "store.nats.accept_unsynced: a power cut may take back what was acknowledged; \
             early data is off"
        );
    }
}

/// What a process is to a log, for metrics.
#[cfg(feature = "cluster")]
pub(super) fn views(role: Arc<dunlin_store_nats::LogMetrics>) -> LogViews {
    Arc::new(move || {
        let role = role.role();
        LogView {
            is_owner: role.is_owner,
            holds_lease: role.holds_lease,
            lease_age: role.lease_age,
            is_lease_of_other: role.is_lease_of_other,
            behind: role.behind,
        }
    })
}

/// One way into a store.
#[derive(Debug)]
pub(crate) enum Submits {
    Disk(dunlin_store_redb::Submitter),
    #[cfg(feature = "cluster")]
    Log(dunlin_store_nats::Submitter),
}

impl Submits {
    /// Submits a request. What goes this way is carried out in that order.
    pub(crate) fn submit(&self, request: Request) -> Result<(), SubmitError> {
        match self {
            Self::Disk(submitter) => submitter.submit(request),
            #[cfg(feature = "cluster")]
            Self::Log(submitter) => submitter.submit(request),
        }
    }
}
