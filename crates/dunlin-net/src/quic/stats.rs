//! What is known of one QUIC connection, gathered from quinn-proto and from our
//! own table when someone asks. Nothing here runs on the data path.

use dunlin_base::transport::Transport;
use quinn_proto::Dir;

use super::conn::QuicConn;
use crate::config::plain_addr;
use crate::qlog::{ConnLog, LogStart};
use crate::{ConnStats, QuicStats};
use crate::{Counters, NetConfig};

/// What of a path is already in the loop's totals. Statistics of a path begin
/// anew when the peer moves to another.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    packets_out: u64,
    packets_lost: u64,
    bytes_lost: u64,
    congestion_events: u64,
    black_holes: u64,
}

/// Marks of ECN (RFC 9000 section 13.4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// What was sent last is marked as capable.
    pub(crate) capable: bool,
    /// Datagrams received that the network marked for congestion.
    pub(crate) congested_in: u32,
}

/// What came since the last look.
const fn fresh(noted: &mut u64, value: u64) -> u64 {
    let before = core::mem::replace(noted, value);
    if value >= before {
        value - before
    } else {
        value
    }
}

impl QuicConn {
    /// Begins its log, if there is to be one.
    pub(crate) fn begin_log(&mut self, start: Option<LogStart>, config: &NetConfig) {
        if let (Some(start), Some(qlog)) = (start, &config.qlog) {
            let remote = plain_addr(self.addr.get());
            self.log = Some(Box::new(start.watch(qlog, remote, &config.limits)));
        }
    }

    /// Begins its log although it is under way.
    pub(crate) fn begin_late_log(&mut self, config: &NetConfig) {
        if let (None, Some(qlog)) = (&self.log, &config.qlog) {
            let remote = plain_addr(self.addr.get());
            let log = ConnLog::late(qlog, self.accepted, remote, &config.limits);
            self.log = Some(Box::new(log));
        }
    }

    /// Its client is known: its log goes on, or is given up.
    pub(crate) fn name_log(&mut self, client_id: &str) {
        if let Some(log) = &self.log {
            log.name(client_id);
            if log.is_off() {
                self.log = None;
            }
        }
    }

    /// Logs what changed of the path.
    pub(crate) fn log_path(&mut self) {
        // It may have ended at a bound.
        if self.log.as_ref().is_some_and(|log| log.is_off()) {
            self.log = None;
        }
        if self.log.is_some() {
            let stats = self.quic_stats();
            if let Some(log) = &mut self.log {
                log.path(&stats);
            }
        }
    }

    /// Adds what is new to the loop's totals.
    pub(crate) fn note_totals(&mut self, stats: &QuicStats, counters: &mut Counters) {
        let noted = &mut self.noted;
        counters.quic_packets_out += fresh(&mut noted.packets_out, stats.packets_out);
        counters.quic_packets_lost += fresh(&mut noted.packets_lost, stats.lost_packets);
        counters.quic_lost_bytes += fresh(&mut noted.bytes_lost, stats.lost_bytes);
        counters.quic_congestion_events +=
            fresh(&mut noted.congestion_events, stats.congestion_events);
        counters.quic_black_holes += fresh(&mut noted.black_holes, stats.black_holes);
    }

    pub(crate) fn stats(&mut self) -> ConnStats {
        let backlog = self.backlogs.iter().map(|b| b.bytes.len()).sum();
        let addr = plain_addr(self.addr.get());
        let mut stats = ConnStats::new(Transport::Quic, addr, self.accepted, backlog);
        stats.protocol = self.protocol();
        stats.quic = Some(self.quic_stats());
        stats
    }

    pub(crate) fn quic_stats(&mut self) -> QuicStats {
        let from = self.proto.stats();
        let streams = self.proto.streams();
        let streams_peer = (
            streams.remote_open_streams(Dir::Bi),
            streams.remote_open_streams(Dir::Uni),
        );
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
            udp_in: from.udp_rx.datagrams,
            udp_bytes_out: from.udp_tx.bytes,
            udp_bytes_in: from.udp_rx.bytes,
            ecn: self.marks.capable,
            ecn_marked_in: u64::from(self.marks.congested_in),
            datagrams_out: from.frame_tx.datagram,
            datagrams_in: from.frame_rx.datagram,
            streams_peer,
            streams_sending: self.sending.len() as u64,
            migrations: u64::from(self.moved),
        }
    }
}
