//! What the handles of one client and the background thread share.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_base::transport::Transport;
use dunlin_dial::{Key, Remote, Watch};
use tokio::sync::{broadcast, oneshot};

use crate::command::{Command, LinkKey};
use crate::error::DisconnectCause;
use crate::events::{ConnectionEvent, EVENTS_MAX};
use crate::options::{Options, StreamPolicy};

/// A client that connects.
pub(crate) struct NewClient {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Arc<Options>,
    pub(crate) connected: oneshot::Sender<Result<(), DisconnectCause>>,
}

/// One client, seen from both sides.
pub(crate) struct Shared {
    pub(crate) key: Key,
    pub(crate) remote: Remote<NewClient, Command>,
    next_link: AtomicU64,
    policy: StreamPolicy,
    status: Mutex<Status>,
}

/// What the background thread publishes about the connection.
struct Status {
    /// `None` when the client is closed.
    events: Option<broadcast::Sender<ConnectionEvent>>,
    /// How it is connected.
    transport: Option<Transport>,
    /// Streams in use.
    streams: usize,
    /// Why the client is closed.
    closed: Option<DisconnectCause>,
}

impl Shared {
    pub(crate) fn new(key: Key, remote: Remote<NewClient, Command>, policy: StreamPolicy) -> Self {
        Self {
            key,
            remote,
            next_link: AtomicU64::new(0),
            policy,
            status: Mutex::new(Status {
                events: Some(broadcast::Sender::new(EVENTS_MAX)),
                transport: None,
                streams: 0,
                closed: None,
            }),
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, command: Command) {
        self.remote.push(self.key, command);
    }

    /// Whether all links are on one AMQP connection.
    pub(crate) fn has_one_connection(&self) -> bool {
        self.policy == StreamPolicy::Single
    }

    pub(crate) fn next_link(&self) -> LinkKey {
        LinkKey(self.next_link.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn emit(&self, event: ConnectionEvent) {
        if let Some(events) = &self.status().events {
            // It is fine if nothing watches.
            let _ = events.send(event);
        }
    }

    pub(crate) fn watch(&self) -> broadcast::Receiver<ConnectionEvent> {
        match &self.status().events {
            Some(events) => events.subscribe(),
            None => broadcast::Sender::new(EVENTS_MAX).subscribe(),
        }
    }

    pub(crate) fn transport(&self) -> Option<Transport> {
        self.status().transport
    }

    pub(crate) fn set_transport(&self, transport: Option<Transport>) {
        self.status().transport = transport;
    }

    pub(crate) fn streams(&self) -> usize {
        self.status().streams
    }

    pub(crate) fn set_streams(&self, streams: usize) {
        self.status().streams = streams;
    }

    /// Why the client is closed.
    pub(crate) fn closed(&self) -> DisconnectCause {
        let closed = self.status().closed.clone();
        closed.unwrap_or(DisconnectCause::Local)
    }

    /// The client is closed.
    pub(crate) fn end(&self, cause: &DisconnectCause) {
        self.remote.unregister();
        self.emit(ConnectionEvent::Closed);
        let mut status = self.status();
        status.closed = Some(cause.clone());
        status.events = None;
        status.transport = None;
    }
}

impl Watch for Shared {
    type Cause = DisconnectCause;

    fn disconnected(&self, cause: &DisconnectCause) {
        self.emit(ConnectionEvent::Disconnected {
            cause: cause.clone(),
        });
    }

    fn reconnecting(&self, wait: Duration) {
        self.emit(ConnectionEvent::Reconnecting { wait });
    }
}

/// What keeps a client alive: handles of it, of its senders and receivers.
pub(crate) struct Alive(pub(crate) Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.push(Command::Release);
    }
}
