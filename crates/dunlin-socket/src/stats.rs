//! What is known of a connection's path.

use core::time::Duration;

use dunlin_net::QuicStats;

/// What became of early data (0-RTT) on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlyData {
    /// There was none.
    #[default]
    None,
    /// What was written, or what arrived, went with the handshake, which is not
    /// complete: the peer has not proved that it is there now.
    Pending,
    /// The server took it, and the handshake is complete.
    Accepted,
    /// The server did not take it; it was sent again after the handshake.
    Refused,
}

/// What is known of a connection's path at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time seen.
    pub rtt_min: Duration,
    /// Bytes of UDP sent.
    pub bytes_sent: u64,
    /// Bytes of UDP received.
    pub bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets of those that were lost.
    pub packets_lost: u64,
    /// Bytes that may be in flight.
    pub congestion_window: u64,
    /// Bytes that fit a packet.
    pub mtu: u16,
    /// Times that the address of either side changed.
    pub address_changes: u32,
}

impl Stats {
    pub(crate) const fn new(quic: &QuicStats, address_changes: u32) -> Self {
        Self {
            rtt: quic.rtt,
            rtt_min: quic.rtt_min,
            bytes_sent: quic.udp_bytes_out,
            bytes_received: quic.udp_bytes_in,
            packets_sent: quic.packets_out,
            packets_lost: quic.lost_packets,
            congestion_window: quic.congestion_window,
            mtu: quic.mtu,
            address_changes,
        }
    }
}
