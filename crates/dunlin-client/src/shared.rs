//! What the handles of one client and the background thread share.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_mqtt::client::Negotiated;
use tokio::sync::{Semaphore, broadcast};

use crate::error::DisconnectCause;
use crate::events::{ConnectionEvent, StreamStatistics};
use crate::inbox::Inbox;
use crate::runtime::{Command, Key, Remote};

/// One client, seen from both sides.
pub(crate) struct Shared {
    pub(crate) key: Key,
    pub(crate) remote: Remote,
    pub(crate) inbox: Inbox,
    /// One permit for each message that may be in flight.
    pub(crate) in_flight: Arc<Semaphore>,
    /// One permit for each request that may be in flight.
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) manual_acknowledgement: bool,
    pub(crate) receive_queue: usize,
    /// Clones of `Client`, and `Messages`: when none is left, the client ends.
    pub(crate) handles: AtomicUsize,
    pub(crate) status: Mutex<Status>,
}

/// What the background thread tells about the connection.
pub(crate) struct Status {
    /// `None` when the client is closed.
    pub(crate) events: Option<broadcast::Sender<ConnectionEvent>>,
    pub(crate) client_id: Text,
    pub(crate) negotiated: Option<Negotiated>,
    /// How it is connected.
    pub(crate) transport: Option<Transport>,
    pub(crate) streams: StreamStatistics,
    /// Why the client is closed.
    pub(crate) closed: Option<DisconnectCause>,
}

impl Shared {
    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the background thread to look at this client.
    pub(crate) fn notify(&self) {
        self.remote.push(Command::Look(self.key));
    }

    pub(crate) fn retain(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.remote.push(Command::Release(self.key));
        }
    }

    pub(crate) fn emit(&self, event: ConnectionEvent) {
        if let Some(events) = &self.status().events {
            // Nobody watching is fine.
            let _ = events.send(event);
        }
    }

    /// Why the client is closed.
    pub(crate) fn closed(&self) -> DisconnectCause {
        self.status()
            .closed
            .clone()
            .unwrap_or(DisconnectCause::Local)
    }
}
