//! What happens to the connection, for those who want to watch.

use core::net::SocketAddr;
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
    /// The server accepted the connection.
    Connected {
        /// It resumed the session of an earlier connection.
        session_present: bool,
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
    /// The connection moved to another local address and goes on there.
    Migrated(Migrated),
    /// The server takes no streams besides the first: everything goes on that
    /// one from now on, on later connections, too.
    StreamsRefused,
    /// There will be no further attempt.
    Closed,
}

/// A move of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The local address that it left.
    pub from: SocketAddr,
    /// The local address that it uses now.
    pub to: SocketAddr,
}

/// What a client did with streams and datagrams, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatistics {
    /// Streams opened besides the first one of each connection.
    pub opened: u64,
    /// Messages of QoS 0 that became too old before they had left this client.
    pub obsolete_dropped: u64,
    /// Messages of QoS 0 given up on their way, by resetting their stream.
    pub obsolete_cancelled: u64,
    /// Messages sent in datagrams.
    pub datagrams_sent: u64,
    /// Messages that were to go in a datagram and went on a stream.
    pub datagram_fallbacks: u64,
    /// Messages received in datagrams.
    pub datagrams_received: u64,
    /// Datagrams received that were no message, or that there was no room for.
    pub datagrams_ignored: u64,
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
