//! The store as the daemon uses it: opened once, submitted to by every shard.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use dunlin_store::{
    MemoryStore, OnDone, Pending, Recovered, Request, StoreDone, StoreError, Waiting,
};

use crate::engine::{CACHE_BYTES_DEFAULT, Engine, EngineConfig};
use crate::error::OpenError;
use crate::file::{self, FilePlace};
use crate::metrics::StoreMetrics;
use crate::salvage;
use crate::snapshot::Snapshot;
use crate::writer::{Command, Core, LOADS_MAX, WAITING_BYTES_MAX, Writer, run_reader};

/// Default of [`StoreConfig::commit_window`].
pub const COMMIT_WINDOW_DEFAULT: Duration = Duration::from_millis(1);

/// Largest commit window: beyond it, waiting costs more than it spares.
pub const COMMIT_WINDOW_MAX: Duration = Duration::from_millis(5);

/// Default of [`StoreConfig::queue_limit`].
pub const QUEUE_LIMIT_DEFAULT: usize = 4096;

/// Default of [`StoreConfig::reserve_bytes`].
pub const RESERVE_BYTES_DEFAULT: u64 = 16 * 1024 * 1024;

/// What `Committed` promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Survives a power cut, as far as the disk keeps its word.
    #[default]
    Fsync,
    /// Survives the end of the process, however violent. A power cut can cost
    /// the latest commits or, because the system writes pages in any order,
    /// the whole file.
    Os,
}

/// How a store is run.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// What `Committed` promises.
    pub durability: Durability,
    /// How long a commit waits for company while requests keep coming; at
    /// most [`COMMIT_WINDOW_MAX`], zero: not at all.
    pub commit_window: Duration,
    /// Requests held for the writer; at least 1. A shard that meets the limit
    /// gets its request back.
    pub queue_limit: usize,
    /// Memory for cached pages.
    pub cache_bytes: usize,
    /// Disk space held in a file beside the store, given up when the disk is
    /// full so that queues can still drain; zero: none.
    pub reserve_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            commit_window: COMMIT_WINDOW_DEFAULT,
            queue_limit: QUEUE_LIMIT_DEFAULT,
            cache_bytes: CACHE_BYTES_DEFAULT,
            reserve_bytes: RESERVE_BYTES_DEFAULT,
        }
    }
}

/// An open store: its threads. Dropping it closes it.
#[derive(Debug)]
pub struct RedbStore {
    commands: SyncSender<Command>,
    threads: Vec<JoinHandle<()>>,
    metrics: Arc<StoreMetrics>,
    waiting: Waiting,
}

impl RedbStore {
    /// Opens the store in the file `path`, creating it if there is none. A
    /// damaged file is kept under another name, and a file with everything of it
    /// that can be read takes its place.
    ///
    /// # Errors
    /// See [`OpenError`]; opening a store twice is [`OpenError::InUse`].
    pub fn open(path: &Path, config: StoreConfig) -> Result<(Self, Recovered), OpenError> {
        let engine_config = EngineConfig {
            cache_bytes: config.cache_bytes,
            sync: config.durability == Durability::Fsync,
            ..EngineConfig::new(path)
        };
        let lock = Arc::new(file::lock(path)?);
        file::create(path)?;
        let open = || {
            let place = FilePlace::new(path, config.reserve_bytes, Arc::clone(&lock));
            Engine::open(place, engine_config.clone())
        };
        let (engine, recovered) = match open() {
            Err(OpenError::Damaged { text, .. }) => {
                tracing::error!(store = %path.display(), "the store is damaged: {text}");
                mend(path)?;
                open()?
            }
            opened => opened?,
        };
        let store = Self::start(Core::Disk(Box::new(engine)), &config)?;
        Ok((store, recovered))
    }

    /// A store of the same shape that keeps nothing: durability `memory`.
    ///
    /// # Errors
    /// [`OpenError::Thread`].
    pub fn in_memory(config: StoreConfig) -> Result<Self, OpenError> {
        let config = StoreConfig {
            commit_window: Duration::ZERO,
            ..config
        };
        Self::start(Core::Memory(MemoryStore::new()), &config)
    }

    fn start(core: Core, config: &StoreConfig) -> Result<Self, OpenError> {
        let (commands, receiver) = sync_channel(config.queue_limit.max(1));
        let mut threads = Vec::new();
        let mut spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let builder = thread::Builder::new().name(name.to_owned());
            threads.push(builder.spawn(run).map_err(OpenError::Thread)?);
            Ok(())
        };
        let metrics = Arc::new(StoreMetrics::default());
        let loads = if let Core::Disk(engine) = &core {
            metrics.note_damaged(engine.damaged_rows());
            let (loads, receiver) = sync_channel(LOADS_MAX);
            let metrics = Arc::clone(&metrics);
            let run = move || run_reader(&receiver, &metrics);
            spawn("store-reader", Box::new(run))?;
            Some(loads)
        } else {
            None
        };
        let writer = Writer {
            metrics: Arc::clone(&metrics),
            core,
            commands: receiver,
            loads,
            window: config.commit_window.min(COMMIT_WINDOW_MAX),
        };
        spawn("store-writer", Box::new(move || writer.run()))?;
        Ok(Self {
            commands,
            threads,
            metrics,
            waiting: Waiting::new(WAITING_BYTES_MAX),
        })
    }

    /// A way to views of the store as of a moment.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        let commands = self.commands.clone();
        Snapshots::new(move || {
            let (to, snapshot) = sync_channel(1);
            let closed = |_| StoreError::Closed;
            commands.send(Command::Snapshot(to)).map_err(closed)?;
            snapshot.recv().unwrap_or(Err(StoreError::Closed))
        })
    }

    /// What the writer counts.
    #[must_use]
    pub fn metrics(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.metrics)
    }

    /// A way to submit requests, whose answers go to `on_done`. It is called
    /// on the store's threads, in the order of submission for writes, and must
    /// not block.
    #[must_use]
    pub fn submitter(&self, on_done: Box<dyn Fn(StoreDone) + Send + Sync>) -> Submitter {
        Submitter {
            commands: self.commands.clone(),
            on_done: Arc::from(on_done),
            waiting: self.waiting.clone(),
        }
    }

    /// Carries out what was submitted, closes the file, and waits for both.
    /// What is submitted later is refused.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        // An error means that the writer has gone already.
        let _ = self.commands.send(Command::Close);
        for thread in self.threads.drain(..).rev() {
            let _ = thread.join();
        }
    }
}

/// Opens a store in a file, creating it if there is none, without threads and for one
/// caller. A damaged file is left as it is.
///
/// # Errors
/// See [`OpenError`].
pub fn open_engine(path: &Path, config: EngineConfig) -> Result<(Engine, Recovered), OpenError> {
    let lock = Arc::new(file::lock(path)?);
    file::create(path)?;
    Engine::open(FilePlace::new(path, 0, lock), config)
}

/// Puts what can be read in the place of a damaged file.
fn mend(path: &Path) -> Result<(), OpenError> {
    let (report, kept) = salvage::repair_locked(path)?;
    for damage in &report.damage {
        tracing::error!(store = %path.display(), "damaged: {damage}");
    }
    tracing::error!(
        store = %path.display(),
        damaged = %kept.display(),
        rows = report.rows(),
        lost = report.lost(),
        "repaired: what can be read is kept; the damaged file is set aside"
    );
    Ok(())
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes views of a running store, from any thread.
#[derive(Clone)]
pub struct Snapshots(Arc<dyn Fn() -> Result<Snapshot, StoreError> + Send + Sync>);

dunlin_base::opaque_debug!(Snapshots);

impl Snapshots {
    /// Views that `take` takes, of a store that is built on this one.
    #[must_use]
    pub fn new(take: impl Fn() -> Result<Snapshot, StoreError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Everything that was committed before now. Waits for the writer.
    ///
    /// # Errors
    /// The store is closed, or the disk failed.
    pub fn take(&self) -> Result<Snapshot, StoreError> {
        (self.0)()
    }
}

/// One shard's way into the store. Never blocks.
#[derive(Clone)]
pub struct Submitter {
    commands: SyncSender<Command>,
    on_done: OnDone,
    waiting: Waiting,
}

dunlin_base::opaque_debug!(Submitter);

/// Why a request was not taken. It comes back, and no answer will follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The queue is at [`StoreConfig::queue_limit`], or has
    /// [`WAITING_BYTES_MAX`](crate::WAITING_BYTES_MAX) of messages: hold the request, take
    /// in less, and try again after the next answer.
    #[error("the store is busy")]
    Busy(Request),
    /// The store is closed, or its thread has died.
    #[error("the store is closed")]
    Closed(Request),
}

impl Submitter {
    /// Submits a request. What this submitter submits is carried out in that
    /// order.
    ///
    /// # Errors
    /// [`SubmitError`], with the request.
    pub fn submit(&self, request: Request) -> Result<(), SubmitError> {
        let Some(charge) = self.waiting.charge(&request) else {
            return Err(SubmitError::Busy(request));
        };
        let pending = Box::new(Pending::new(request, self.on_done.clone(), charge));
        let (refused, busy) = match self.commands.try_send(Command::Request(pending)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(refused)) => (refused, true),
            Err(TrySendError::Disconnected(refused)) => (refused, false),
        };
        let request = match refused {
            Command::Request(pending) => pending.withdraw(),
            Command::Close | Command::Snapshot(_) => None,
        };
        match request {
            Some(request) if busy => Err(SubmitError::Busy(request)),
            Some(request) => Err(SubmitError::Closed(request)),
            None => Ok(()),
        }
    }
}
