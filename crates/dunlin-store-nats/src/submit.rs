//! One submitter's way to the log. Never blocks, and what waits is bounded.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use dunlin_store::{Batch, Request, StoreDone, StoreError, StoreOp};
use dunlin_store_redb::{Snapshot, StoreMetrics, SubmitError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::ended::Ended;
use crate::limits::{BATCH_BYTES_MAX, WAITING_BYTES_MAX};
use crate::position::POSITION;

/// Where a submitter wants its answers.
pub(crate) type OnDone = Arc<dyn Fn(StoreDone) + Send + Sync>;

/// Bytes of messages that are submitted and not acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicUsize>);

/// What a request adds to [`Waiting`], until it is dropped.
pub(crate) struct Charge {
    waiting: Waiting,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.waiting.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Waiting {
    /// Counts a request; `None` if there is no room for it.
    fn charge(&self, request: &Request) -> Option<Charge> {
        let bytes = match request {
            Request::Write(batch) => batch.ops.iter().map(cost).sum(),
            _ => 0,
        };
        if bytes > 0 && self.0.load(Ordering::Relaxed) >= WAITING_BYTES_MAX {
            return None;
        }
        self.0.fetch_add(bytes, Ordering::Relaxed);
        let waiting = self.clone();
        Some(Charge { waiting, bytes })
    }
}

/// Bytes that an operation counts for.
pub(crate) fn cost(op: &StoreOp) -> usize {
    match op {
        StoreOp::Enqueue { message, .. } | StoreOp::PutRetained { message } => message.cost(),
        StoreOp::PutMeta { value, .. } => value.len(),
        _ => 0,
    }
}

/// The limits of every back end, and the name that is the copy's own.
pub(crate) fn check(batch: &Batch) -> Result<(), StoreError> {
    batch.check()?;
    let reserved = |op: &StoreOp| match op {
        StoreOp::PutMeta { key, .. } | StoreOp::DeleteMeta { key } => key.as_str() == POSITION,
        _ => false,
    };
    if batch.ops.iter().any(reserved) {
        return Err(StoreError::TooLarge("values with the name $log"));
    }
    if batch.ops.iter().map(cost).sum::<usize>() > BATCH_BYTES_MAX {
        return Err(StoreError::TooLarge("bytes of a batch"));
    }
    Ok(())
}

/// A request on its way. Dropped without an answer, it answers that the store is closed.
pub(crate) struct Pending {
    pub(crate) request: Option<Request>,
    pub(crate) on_done: OnDone,
    pub(crate) charge: Option<Charge>,
}

impl Pending {
    /// Answers that it failed.
    pub(crate) fn fail(mut self, error: StoreError) {
        if let Some(request) = self.request.take() {
            let token = request.token();
            (self.on_done)(StoreDone::Failed { token, error });
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            (self.on_done)(StoreDone::Failed {
                token: request.token(),
                error: StoreError::Closed,
            });
        }
    }
}

/// Where a view of the copy is wanted.
pub(crate) type View = SyncSender<Result<Snapshot, StoreError>>;

/// What the log's thread receives.
pub(crate) enum Command {
    Request(Box<Pending>),
    /// A view of what is acknowledged, or why there is none.
    Snapshot(View),
    Close,
}

/// What an owner's thread is given.
pub(crate) struct Orders {
    pub(crate) commands: Receiver<Command>,
    pub(crate) ended: Arc<Ended>,
    pub(crate) metrics: Arc<StoreMetrics>,
}

/// One submitter's way into the store.
#[derive(Clone)]
pub struct Submitter {
    pub(crate) commands: Sender<Command>,
    pub(crate) on_done: OnDone,
    pub(crate) waiting: Waiting,
}

impl core::fmt::Debug for Submitter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Submitter").finish_non_exhaustive()
    }
}

impl Submitter {
    /// Submits a request. What this submitter submits is carried out in that order.
    ///
    /// # Errors
    /// [`SubmitError`], with the request: too much waits, or the store is closed.
    pub fn submit(&self, request: Request) -> Result<(), SubmitError> {
        let Some(charge) = self.waiting.charge(&request) else {
            return Err(SubmitError::Busy(request));
        };
        let pending = Box::new(Pending {
            request: Some(request),
            on_done: self.on_done.clone(),
            charge: Some(charge),
        });
        let (refused, busy) = match self.commands.try_send(Command::Request(pending)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(refused)) => (refused, true),
            Err(TrySendError::Closed(refused)) => (refused, false),
        };
        let request = match refused {
            Command::Request(mut pending) => pending.request.take(),
            Command::Close | Command::Snapshot(_) => None,
        };
        match request {
            Some(request) if busy => Err(SubmitError::Busy(request)),
            Some(request) => Err(SubmitError::Closed(request)),
            None => Ok(()),
        }
    }
}
