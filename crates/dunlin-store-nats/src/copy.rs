//! The copy on disk: a file of `dunlin-store-redb`, not synced, that holds what counts
//! up to a place in the log, and that place. A thread has it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use dunlin_base::Text;
use dunlin_store::{Batch, OnDone, Recovered, Seq, StoreDone, StoreError, StoreOp};
use dunlin_store_redb::{Engine, EngineConfig, Snapshot, open_engine};
use tokio::sync::Notify;

use crate::error::OpenError;
use crate::limits::COPY_QUEUE_MAX;
use crate::live::{self, Chunk};
use crate::position::{POSITION, Position};
use crate::submit::View;

/// An open copy, for one caller.
pub(crate) struct Copy {
    path: PathBuf,
    engine: Engine,
    pub(crate) position: Option<Position>,
    /// What the next write fails with.
    #[cfg(test)]
    pub(crate) fails: Option<StoreError>,
}

impl Copy {
    /// Opens the copy in this file, or begins one.
    pub(crate) fn open(path: &Path) -> Result<(Self, Recovered), OpenError> {
        let config = EngineConfig {
            sync: false,
            ..EngineConfig::new(path)
        };
        let (engine, mut recovered) = match open_engine(path, config.clone()) {
            Err(dunlin_store_redb::OpenError::Damaged { text, .. }) => {
                tracing::warn!(copy = %path.display(), "the copy is damaged: {text}");
                remove(path)?;
                open_engine(path, config)?
            }
            opened => opened?,
        };
        let position = take_position(&mut recovered);
        let path = path.to_owned();
        let copy = Self {
            path,
            engine,
            position,
            #[cfg(test)]
            fails: None,
        };
        Ok((copy, recovered))
    }

    /// What is in it now.
    pub(crate) fn read(mut self) -> Result<(Self, Recovered), OpenError> {
        let (mut recovered, damaged) = self.engine.recovered().map_err(OpenError::CopyFailed)?;
        if damaged == 0 {
            take_position(&mut recovered);
            return Ok((self, recovered));
        }
        // Opening it says what is damaged.
        let path = self.path.clone();
        drop(self);
        Self::open(&path)
    }

    /// Begins an empty one in its place.
    pub(crate) fn empty(self) -> Result<Self, OpenError> {
        let path = self.path.clone();
        drop(self);
        remove(&path)?;
        Self::open(&path).map(|(copy, _)| copy)
    }

    /// Everything as of now, without what is the copy's own.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        let snapshot = self.engine.snapshot()?;
        Ok(snapshot.without(POSITION))
    }

    /// Whether rows of it cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.engine.damaged_rows() > 0
    }

    /// Adds all of these, or nothing, and how far the copy is then.
    pub(crate) fn apply(
        &mut self,
        mut batches: Vec<Batch>,
        position: Option<Position>,
    ) -> Result<(), StoreError> {
        #[cfg(test)]
        if let Some(error) = self.fails.take() {
            return Err(error);
        }
        if let Some(position) = &position {
            batches.push(Batch {
                token: 0,
                ops: vec![StoreOp::PutMeta {
                    key: Text::from_static(POSITION),
                    value: position.encode(),
                }],
            });
        }
        self.engine.write_all(&batches)?;
        if position.is_some() {
            self.position = position;
        }
        Ok(())
    }
}

/// Takes what is the copy's own out of what was found in it.
fn take_position(recovered: &mut Recovered) -> Option<Position> {
    let mut position = None;
    recovered.meta.retain(|(key, value)| {
        let other = key.as_str() != POSITION;
        if !other {
            position = Position::decode(value);
        }
        other
    });
    position
}

/// Removes a copy. What is beside its file goes with it.
fn remove(path: &Path) -> Result<(), OpenError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let path = path.to_owned();
            Err(dunlin_store_redb::OpenError::Io { path, error }.into())
        }
        _ => Ok(()),
    }
}

/// What the thread of a copy does.
pub(crate) enum Work {
    /// Add what is acknowledged.
    Apply {
        batches: Vec<Batch>,
        position: Position,
    },
    /// Read messages.
    Load {
        token: u64,
        seqs: Vec<Seq>,
        on_done: OnDone,
    },
    /// Show everything as of now.
    Snapshot(View),
    /// Say what is live.
    Live(tokio::sync::mpsc::Sender<Chunk>),
    Close,
}

/// Why a copy cannot be written any more, and who waits to hear of it.
#[derive(Debug, Default)]
pub(crate) struct Failed {
    pub(crate) error: OnceLock<StoreError>,
    pub(crate) happened: Notify,
}

/// The way to a copy and its thread.
pub(crate) struct CopyThread {
    pub(crate) work: SyncSender<Work>,
    pub(crate) failed: Arc<Failed>,
    thread: Option<thread::JoinHandle<()>>,
}

impl CopyThread {
    pub(crate) fn start(copy: Copy) -> Result<Self, OpenError> {
        let (work, orders) = sync_channel(COPY_QUEUE_MAX);
        let failed = Arc::new(Failed::default());
        let of_thread = Arc::clone(&failed);
        let thread = thread::Builder::new()
            .name("store-copy".to_owned())
            .spawn(move || run(copy, &orders, &of_thread))
            .map_err(OpenError::Thread)?;
        Ok(Self {
            work,
            failed,
            thread: Some(thread),
        })
    }

    /// Hands work over; waits where there is too much.
    pub(crate) fn order(&self, work: Work) {
        if let Err(refused) = self.work.send(work)
            && let Work::Load { token, on_done, .. } = refused.0
        {
            let error = StoreError::Closed;
            on_done(StoreDone::Failed { token, error });
        }
    }
}

impl Drop for CopyThread {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.work.send(Work::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut copy: Copy, orders: &Receiver<Work>, failed: &Failed) {
    for work in orders {
        match work {
            Work::Apply { batches, position } => {
                if failed.error.get().is_some() {
                    continue;
                }
                if let Err(error) = copy.apply(batches, Some(position)) {
                    // What is set already is the first error.
                    let _ = failed.error.set(error);
                    failed.happened.notify_one();
                }
            }
            Work::Load {
                token,
                seqs,
                on_done,
            } => on_done(match copy.engine.load(&seqs) {
                Ok(messages) => StoreDone::Loaded { token, messages },
                Err(error) => StoreDone::Failed { token, error },
            }),
            // Without a receiver, nothing wants it.
            Work::Snapshot(to) => drop(to.send(copy.snapshot())),
            Work::Live(to) => {
                let base = copy.position.clone().unwrap_or_default();
                match copy.snapshot() {
                    Ok(snapshot) => live::start(snapshot, base.place, to),
                    Err(error) => tracing::warn!("the copy cannot be read: {error}"),
                }
            }
            Work::Close => return,
        }
    }
}
