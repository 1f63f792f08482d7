//! When a connection takes new keys (RFC 9001 section 6). quinn-proto does so
//! by itself before a cipher's limit; this is for those who want it earlier.

use core::time::Duration;

use dunlin_base::Instant;
use quinn_proto::Connection;

use crate::QuicTuning;

/// Age of the keys in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyAge {
    max_packets: u64,
    max_age: Duration,
    /// Packets sent, and the time, when they were taken.
    packets: u64,
    since: Instant,
}

impl KeyAge {
    /// Of a connection that begins now.
    pub(super) fn new(tuning: &QuicTuning, now: Instant) -> Self {
        Self {
            max_packets: tuning.key_update_packets.unwrap_or(u64::MAX),
            max_age: tuning.key_update_interval.unwrap_or(Duration::MAX),
            packets: 0,
            since: now,
        }
    }

    /// Whether they may ever be over; most connections never ask.
    const fn is_limited(&self) -> bool {
        self.max_packets < u64::MAX || !matches!(self.max_age, Duration::MAX)
    }

    /// Whether it is time for new ones.
    pub(super) fn is_over(&self, proto: &Connection, now: Instant) -> bool {
        if !self.is_limited() {
            return false;
        }
        let packets = proto.stats().udp_tx.datagrams;
        packets.saturating_sub(self.packets) >= self.max_packets
            || now.saturating_duration_since(self.since) >= self.max_age
    }

    /// Takes new ones, if the handshake is confirmed; returns whether it did.
    pub(super) fn update(&mut self, proto: &mut Connection, accepted: bool, now: Instant) -> bool {
        let stats = proto.stats();
        let confirmed = accepted || stats.frame_rx.handshake_done > 0;
        if proto.is_handshaking() || !confirmed {
            return false;
        }
        proto.force_key_update();
        self.packets = stats.udp_tx.datagrams;
        self.since = now;
        true
    }
}
