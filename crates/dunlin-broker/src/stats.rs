//! Counters of a shard.

use dunlin_base::Instant;

/// Counters since the start of the shard.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// When the shard started.
    pub started: Instant,
    /// Connections opened.
    pub connections: u64,
    /// Clients accepted.
    pub clients_accepted: u64,
    /// CONNECTs refused.
    pub clients_refused: u64,
    /// Connections ended for want of a packet within 1.5 times keep alive.
    pub keep_alive_timeouts: u64,
    /// Sessions taken over by a new connection.
    pub take_overs: u64,
    /// PUBLISH packets received.
    pub messages_received: u64,
    /// PUBLISH packets sent.
    pub messages_sent: u64,
    /// QoS 0 messages dropped because a receiver did not keep up.
    pub messages_dropped_slow: u64,
    /// QoS 1 and 2 messages dropped for a receiver by policy `drop-newest`.
    pub messages_dropped_full: u64,
    /// Publishes refused because a queue was full.
    pub publishes_refused: u64,
    /// Messages that expired in a queue.
    pub messages_expired: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Connections that broke the protocol.
    pub protocol_errors: u64,
    /// Address changes of QUIC connections.
    pub migrations: u64,
}

impl Stats {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            ..Self::default()
        }
    }
}
