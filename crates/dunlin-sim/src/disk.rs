//! The store of a simulated world: the reference store behind a delay, with
//! faults. What was not committed when the world crashes is lost.

use std::collections::BTreeSet;

use bytes::Bytes;
use dunlin_store::{Batch, MemoryStore, Recovered, Request, StoreDone, StoreError, StoreOp};

/// What is wrong with the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// No room: batches of removals alone still work.
    Full,
    /// Nothing can be written or read.
    Broken,
    /// What is written is there, and said not to be.
    Unsure,
}

/// The disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    store: MemoryStore,
    /// What is wrong with it.
    pub fault: Fault,
    /// Payloads of messages that it has refused.
    refused: BTreeSet<Bytes>,
}

impl Disk {
    pub(crate) fn handle(&mut self, request: &Request) -> StoreDone {
        let token = request.token();
        let error = match self.fault {
            Fault::None => return self.store.handle(request),
            Fault::Full if !needs_room(request) => return self.store.handle(request),
            Fault::Full => StoreError::DiskFull,
            Fault::Broken => StoreError::Io("broken".into()),
            Fault::Unsure => {
                self.store.handle(request);
                StoreError::Io("no answer".into())
            }
        };
        self.note_refused(request);
        StoreDone::Failed { token, error }
    }

    fn note_refused(&mut self, request: &Request) {
        let Request::Write(batch) = request else {
            return;
        };
        let payloads = batch.ops.iter().filter_map(|op| match op {
            StoreOp::Enqueue { message, .. } => Some(message.payload.clone()),
            _ => None,
        });
        self.refused.extend(payloads);
    }

    /// Whether it has refused a message with this payload.
    #[must_use]
    pub fn has_refused(&self, payload: &str) -> bool {
        self.refused.contains(payload.as_bytes())
    }

    /// What another process left on it.
    pub fn write(&mut self, ops: Vec<StoreOp>) {
        self.store.apply(&Batch { token: 0, ops });
    }

    /// What a restart would find.
    #[must_use]
    pub fn recover(&self) -> Recovered {
        self.store.recover()
    }

    /// Messages on it.
    #[must_use]
    pub fn stored_messages(&self) -> usize {
        self.store.stored_messages()
    }
}

fn needs_room(request: &Request) -> bool {
    let Request::Write(batch) = request else {
        return false;
    };
    !batch.ops.iter().all(|op| {
        matches!(
            op,
            StoreOp::Dequeue { .. }
                | StoreOp::DeleteInflight { .. }
                | StoreOp::DeleteInbound { .. }
                | StoreOp::DeleteSession { .. }
                | StoreOp::DeleteSubscription { .. }
                | StoreOp::DeleteRetained { .. }
                | StoreOp::DeleteMeta { .. }
        )
    })
}
