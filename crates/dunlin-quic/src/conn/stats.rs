//! What is known of one QUIC connection, gathered from quinn-proto and from our
//! own table when someone asks. Nothing here runs on the data path.

use dunlin_base::transport::{Transport, plain_addr};
use quinn_proto::Dir;
use rustls::pki_types::CertificateDer;

use super::QuicConn;
use crate::{ConnStats, QuicStats};

impl QuicConn {
    /// What is known of it, for those who ask.
    pub fn stats(&mut self) -> ConnStats {
        let addr = plain_addr(self.path.addr());
        let backlog = self.streams.waiting();
        let mut stats = ConnStats::new(Transport::Quic, addr, self.is_accepted(), backlog);
        stats.protocol = super::protocol(&self.proto);
        stats.quic = Some(self.quic_stats());
        stats
    }

    /// What is known of its path.
    pub fn quic_stats(&mut self) -> QuicStats {
        let from = self.proto.stats();
        let streams = self.proto.streams();
        let streams_peer = (
            streams.remote_open_streams(Dir::Bi),
            streams.remote_open_streams(Dir::Uni),
        );
        let (credits, credited) = self.path.credited();
        QuicStats {
            early_data: self.early.is_taken() || self.proto.accepted_0rtt(),
            rtt: from.path.rtt,
            rtt_min: from.path.min_rtt,
            congestion_window: from.path.cwnd,
            congestion_events: from.path.congestion_events,
            packets_out: from.path.sent_packets,
            lost_packets: from.path.lost_packets,
            lost_bytes: from.path.lost_bytes,
            mtu: from.path.current_mtu,
            black_holes: from.path.black_holes_detected,
            udp_out: from.udp_tx.datagrams,
            udp_in: from.udp_rx.datagrams.saturating_sub(credits.into()),
            udp_bytes_out: from.udp_tx.bytes,
            udp_bytes_in: from.udp_rx.bytes.saturating_sub(credited),
            ecn: self.path.marks().capable,
            ecn_marked_in: u64::from(self.path.marks().congested_in),
            datagrams_out: from.frame_tx.datagram,
            datagrams_in: from.frame_rx.datagram,
            streams_peer,
            streams_sending: self.streams.sending() as u64,
            migrations: u64::from(self.path.migrations()),
        }
    }
}

/// The certificate that the peer of a connection presented, in DER.
#[must_use]
pub fn peer_certificate(conn: &QuicConn) -> Option<Vec<u8>> {
    let chain = conn.proto.crypto_session().peer_identity()?;
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.first().map(|certificate| certificate.to_vec())
}

/// The peer's transport parameters (RFC 9000 section 18), in their encoding.
#[must_use]
pub fn peer_parameters(conn: &QuicConn) -> Option<Vec<u8>> {
    let parameters = conn.proto.crypto_session().transport_parameters();
    let parameters = parameters.ok()??;
    let mut encoded = Vec::new();
    parameters.write(&mut encoded);
    Some(encoded)
}
