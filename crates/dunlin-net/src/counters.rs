//! What a loop counts, for metrics and tests.

use core::time::Duration;

use dunlin_base::transport::Transport;

/// Totals of one loop since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections accepted by listeners.
    pub accepted: u64,
    /// Connections dialled.
    pub dialled: u64,
    /// Handshakes completed, accepted and dialled.
    pub opened: u64,
    /// Connections gone, opened or not.
    pub closed: u64,
    /// Refused: all connection slots in use.
    pub refused_full: u64,
    /// Refused: too many connections from one address.
    pub refused_per_address: u64,
    /// Refused: too many handshakes from one address in this second.
    pub refused_rate: u64,
    /// Refused: too many handshakes pending.
    pub refused_pending: u64,
    /// Accepting stopped for a while because no file descriptor was left.
    pub accept_exhausted: u64,
    /// QUIC clients asked to prove their address first.
    pub retries_sent: u64,
    /// Handshakes that did not end in time.
    pub handshake_timeouts: u64,
    /// Clients that completed the handshake and said nothing.
    pub silent_timeouts: u64,
    /// Connections closed because nothing arrived.
    pub idle_timeouts: u64,
    /// Handshakes that failed.
    pub handshake_failures: u64,
    /// Connections aborted because their backlog passed its cap.
    pub backlog_overflows: u64,
    /// Bytes received from streams of TCP.
    pub tcp_bytes_in: u64,
    /// Bytes written to streams of TCP.
    pub tcp_bytes_out: u64,
    /// UDP datagrams received.
    pub datagrams_in: u64,
    /// UDP datagrams sent.
    pub datagrams_out: u64,
    /// Bytes of UDP payload received.
    pub udp_bytes_in: u64,
    /// Bytes of UDP payload sent.
    pub udp_bytes_out: u64,
    /// Datagrams that belong to another shard.
    pub datagrams_foreign: u64,
    /// Datagrams that could not be sent and count as lost.
    pub datagrams_unsent: u64,
    /// QUIC connections whose peer address changed.
    pub migrations: u64,
}

/// What is known of one connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConnStats {
    /// How it is connected.
    pub transport: Transport,
    /// Application protocol negotiated by ALPN, if any.
    pub protocol: Option<Vec<u8>>,
    /// Bytes given to `send` that have not left.
    pub backlog_bytes: usize,
    /// Smoothed round-trip time (QUIC).
    pub rtt: Option<Duration>,
    /// Congestion window in bytes (QUIC).
    pub congestion_window: Option<u64>,
    /// Packets declared lost (QUIC).
    pub lost_packets: u64,
    /// Path MTU in bytes (QUIC).
    pub mtu: Option<u16>,
    /// Datagrams sent (QUIC).
    pub datagrams_out: u64,
    /// Datagrams received (QUIC).
    pub datagrams_in: u64,
}

impl ConnStats {
    pub(crate) const fn new(transport: Transport, backlog_bytes: usize) -> Self {
        Self {
            transport,
            protocol: None,
            backlog_bytes,
            rtt: None,
            congestion_window: None,
            lost_packets: 0,
            mtu: None,
            datagrams_out: 0,
            datagrams_in: 0,
        }
    }
}
