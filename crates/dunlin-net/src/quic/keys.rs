//! When a connection takes new keys (RFC 9001 section 6). quinn-proto does so
//! by itself before a cipher's limit; this is for those who want it earlier.

use core::time::Duration;

use dunlin_base::Instant;

use super::QuicConn;
use super::conn::Phase;
use crate::QuicTuning;

/// Age of the keys in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyAge {
    max_packets: u64,
    max_age: Duration,
    /// Packets sent, and the time, when they were taken.
    packets: u64,
    since: Instant,
}

impl KeyAge {
    /// Of a connection that begins now.
    pub(crate) fn new(tuning: &QuicTuning, now: Instant) -> Self {
        Self {
            max_packets: tuning.key_update_packets.unwrap_or(u64::MAX),
            max_age: tuning.key_update_interval.unwrap_or(Duration::MAX),
            packets: 0,
            since: now,
        }
    }

    /// Whether they may ever be over; most connections never ask.
    pub(crate) const fn is_limited(&self) -> bool {
        self.max_packets < u64::MAX || !matches!(self.max_age, Duration::MAX)
    }

    /// Whether it is time for new ones; `packets` were sent until now.
    pub(crate) fn is_over(&self, packets: u64, now: Instant) -> bool {
        packets.saturating_sub(self.packets) >= self.max_packets
            || now.saturating_duration_since(self.since) >= self.max_age
    }

    /// New ones are taken.
    pub(crate) const fn renew(&mut self, packets: u64, now: Instant) {
        self.packets = packets;
        self.since = now;
    }
}

impl QuicConn {
    pub(crate) fn limit_keys(&mut self, tuning: &QuicTuning, now: Instant) {
        self.keys = KeyAge::new(tuning, now);
    }

    /// Takes new keys if the old ones are worn; returns whether it did.
    pub(crate) fn renew_keys(&mut self, now: Instant) -> bool {
        if !self.keys.is_limited() {
            return false;
        }
        let packets = self.proto.stats().udp_tx.datagrams;
        self.keys.is_over(packets, now) && self.update_keys(now)
    }

    /// Takes new keys, if the handshake is confirmed (RFC 9001 section 6.1);
    /// returns whether it did.
    pub(crate) fn update_keys(&mut self, now: Instant) -> bool {
        let stats = self.proto.stats();
        let confirmed = self.accepted || stats.frame_rx.handshake_done > 0;
        if self.phase != Phase::Open || self.proto.is_handshaking() || !confirmed {
            return false;
        }
        self.proto.force_key_update();
        self.keys.renew(stats.udp_tx.datagrams, now);
        true
    }
}
