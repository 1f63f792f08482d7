//! What the handles of one client and the background thread share.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_dial::{Key, Watch};
use dunlin_mqtt::client::{Negotiated, Receipt};
use tokio::sync::{Semaphore, broadcast, oneshot};

use crate::command::Command;
use crate::error::DisconnectCause;
use crate::events::{ConnectionEvent, EVENTS_MAX, StreamStatistics};
use crate::inbox::Inbox;
use crate::message::{Acknowledge, Message};
use crate::options::{Options, REQUESTS_MAX};

/// The way to the background thread.
pub(crate) type Remote = dunlin_dial::Remote<NewClient, Command>;

/// A client that connects.
pub(crate) struct NewClient {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Arc<Options>,
    pub(crate) connected: oneshot::Sender<Result<(), DisconnectCause>>,
}

/// One client, seen from both sides.
pub(crate) struct Shared {
    pub(crate) key: Key,
    pub(crate) remote: Remote,
    pub(crate) inbox: Inbox,
    /// One permit for each message that may be in flight.
    pub(crate) in_flight: Arc<Semaphore>,
    /// One permit for each request that may be in flight.
    pub(crate) requests: Arc<Semaphore>,
    /// Clones of `Client`, and `Messages`: when none is left, the client ends.
    pub(crate) handles: AtomicUsize,
    pub(crate) status: Mutex<Status>,
}

/// What the background thread publishes about the connection.
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
    /// A client with two handles: a `Client` and its `Messages`.
    pub(crate) fn new(key: Key, remote: Remote, options: &Options) -> Self {
        let inbox = &options.inbox;
        let session = &options.session;
        Self {
            key,
            remote,
            inbox: Inbox::new(inbox.messages_max, inbox.manual_acknowledgement),
            in_flight: Arc::new(Semaphore::new(session.max_in_flight.into())),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX.into())),
            handles: AtomicUsize::new(2),
            status: Mutex::new(Status {
                events: Some(broadcast::Sender::new(EVENTS_MAX)),
                client_id: session.client_id.clone(),
                negotiated: None,
                transport: None,
                streams: StreamStatistics::default(),
                closed: None,
            }),
        }
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, command: Command) {
        self.remote.push(self.key, command);
    }

    /// Has the background thread run this client.
    pub(crate) fn notify(&self) {
        self.push(Command::Run);
    }

    pub(crate) fn retain(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.push(Command::Release);
        }
    }

    pub(crate) fn emit(&self, event: ConnectionEvent) {
        if let Some(events) = &self.status().events {
            // It is fine if nothing watches.
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

    /// The connection stands, or is gone.
    pub(crate) fn set_connection(&self, connection: Option<(Negotiated, Transport)>) {
        let mut status = self.status();
        status.negotiated = connection.map(|(negotiated, _)| negotiated);
        status.transport = connection.map(|(_, transport)| transport);
    }

    /// The next received message.
    pub(crate) fn poll_message(&self, cx: &Context<'_>) -> Poll<Option<Message>> {
        self.inbox.poll_pop(cx).map(|popped| {
            let popped = popped?;
            if popped.notify {
                self.notify();
            }
            Some(popped.message)
        })
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

impl Acknowledge for Shared {
    fn acknowledge(&self, receipt: Receipt) {
        if self.inbox.acknowledge(receipt) {
            self.notify();
        }
    }
}
