//! UDP datagrams as values, between connections and the loop's sockets.

use core::net::{IpAddr, SocketAddr};

use bytes::BytesMut;

use crate::Counters;

/// The two bits of ECN (RFC 3168) that say that the network is congested.
pub const ECN_CONGESTED: u8 = 0b11;

/// A datagram that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it.
    pub remote: SocketAddr,
    /// Where it arrived, if the system says.
    pub local_ip: Option<IpAddr>,
    /// Its ECN bits, if the system says.
    pub ecn: Option<u8>,
    /// Its payload.
    pub data: BytesMut,
}

/// Datagrams to send with one call. All have `segment_size` bytes but for the
/// last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: SocketAddr,
    /// ECN bits to mark them with.
    pub ecn: Option<u8>,
    /// Bytes of all together.
    pub size: usize,
    /// Bytes of each; `None`: there is one.
    pub segment_size: Option<usize>,
    /// The address to send from; `None`: as the system says.
    pub src_ip: Option<IpAddr>,
}

impl From<quinn_proto::Transmit> for Transmit {
    fn from(transmit: quinn_proto::Transmit) -> Self {
        Self {
            destination: transmit.destination,
            ecn: transmit.ecn.map(|ecn| ecn as u8),
            size: transmit.size,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        }
    }
}

/// The socket that a connection sends by.
pub trait DatagramSender {
    /// Whether it takes nothing now; the connection is to be run again when it
    /// does.
    fn is_blocked(&mut self) -> bool;

    /// Datagrams that it takes with one call.
    fn max_segments(&self) -> usize;

    /// Whether it marks datagrams as capable of ECN.
    fn marks_ecn(&self) -> bool;

    /// Sends the first `size` bytes of `contents`, or keeps them until it can.
    fn send(&mut self, transmit: Transmit, contents: &[u8], counters: &mut Counters);
}
