//! One submitter's way to the log. Never blocks, and what waits is bounded.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use dunlin_store::{Batch, OnDone, Pending, Request, StoreError, StoreOp, Waiting};
use dunlin_store_redb::{Snapshot, StoreMetrics, SubmitError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::ended::Ended;
use crate::limits::BATCH_BYTES_MAX;
use crate::position::POSITION;

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
    if batch.bytes() > BATCH_BYTES_MAX {
        return Err(StoreError::TooLarge("bytes of a batch"));
    }
    Ok(())
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

dunlin_base::opaque_debug!(Submitter);

impl Submitter {
    /// Submits a request. What this submitter submits is carried out in that order.
    ///
    /// # Errors
    /// [`SubmitError`], with the request: too much waits, or the store is closed.
    pub fn submit(&self, request: Request) -> Result<(), SubmitError> {
        let Some(charge) = self.waiting.charge(&request) else {
            return Err(SubmitError::Busy(request));
        };
        let pending = Box::new(Pending::new(request, self.on_done.clone(), charge));
        let (refused, busy) = match self.commands.try_send(Command::Request(pending)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(refused)) => (refused, true),
            Err(TrySendError::Closed(refused)) => (refused, false),
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
