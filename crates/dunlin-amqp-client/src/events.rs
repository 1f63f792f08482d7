//! What happens to the connection, for those who want to watch.

use core::time::Duration;

use dunlin_base::transport::Transport;
use tokio::sync::broadcast;

use crate::error::DisconnectCause;

/// Events kept for a watcher that does not look; older ones are dropped.
pub(crate) const EVENTS_MAX: usize = 16;

/// Something that happened to the connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The server accepted the connection. Links are attached again.
    Connected {
        /// How it is connected.
        transport: Transport,
    },
    /// The server has answered a connection that began with early data (0-RTT).
    EarlyData {
        /// It took what was sent early; else that was sent again.
        accepted: bool,
    },
    /// The connection ended, or an attempt failed.
    Disconnected {
        /// Why.
        cause: DisconnectCause,
    },
    /// The next attempt follows.
    Reconnecting {
        /// After this time.
        wait: Duration,
    },
    /// There will be no further attempt.
    Closed,
}

/// Events of one client, from the moment of
/// [`Client::events`](crate::Client::events), or all
/// ([`Connecting::events`](crate::Connecting::events)). At most 16 wait for a slow
/// watcher, who then misses the oldest.
#[derive(Debug)]
pub struct Events {
    pub(crate) receiver: broadcast::Receiver<ConnectionEvent>,
}

impl Events {
    /// What has come and is not yet taken, and what will come; leaves what comes from
    /// now on.
    pub(crate) fn take(&mut self) -> Self {
        let later = self.receiver.resubscribe();
        Self {
            receiver: core::mem::replace(&mut self.receiver, later),
        }
    }

    /// The next event; `None` when the client is closed.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<ConnectionEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
