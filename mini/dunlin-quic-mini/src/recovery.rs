//! Loss detection and congestion control (RFC 9002), in milliseconds and
//! bytes of 32 bits. Knows packets in flight by a short note on what they
//! carried, and neither keys nor buffers.

use crate::time::is_due;

/// Packets in flight that are remembered; no more are sent.
pub(crate) const SENT: usize = 24;
/// Largest datagram that is sent; QUIC guarantees that it passes.
pub(crate) const DATAGRAM: usize = 1200;

/// Bytes of a datagram, for the window.
const MSS: u32 = 1200;
/// RFC 9002 section 7.2.
const INITIAL_WINDOW: u32 = 10 * MSS;
const MINIMUM_WINDOW: u32 = 2 * MSS;
/// More than the table of packets can hold is of no use.
const MAXIMUM_WINDOW: u32 = 1 << 16;
/// RFC 9002 section 6.1.1.
const PACKET_THRESHOLD: u32 = 3;
/// Milliseconds before the first sample, RFC 9002 section 6.2.2.
const INITIAL_RTT: u32 = 333;
/// Clocks of devices tick slowly; RFC 9002 wants at least one millisecond.
const GRANULARITY: u32 = 4;
/// The backoff ends at 2^10: by then every idle timeout has come.
const MAX_BACKOFF: u8 = 10;
/// RFC 9002 section 7.6.1.
const PERSISTENT: u32 = 3;

/// What a packet carried, to repeat it after a loss. The first three belong to
/// the connection, the others to one stream, or to the handshake below 1-RTT.
pub(crate) mod what {
    pub(crate) const MAX_DATA: u8 = 1;
    pub(crate) const RETIRE: u8 = 2;
    pub(crate) const CHALLENGE: u8 = 4;
    pub(crate) const MAX_STREAM_DATA: u8 = 8;
    pub(crate) const RESET: u8 = 16;
    pub(crate) const STOP: u8 = 32;
    pub(crate) const DATA: u8 = 64;
    pub(crate) const FIN: u8 = 128;
}

/// A note on a packet in flight.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) pn: u32,
    pub(crate) time: u32,
    /// Of the data; or the number of the connection id that was retired.
    pub(crate) offset: u32,
    pub(crate) len: u16,
    /// Of the packet; zero marks a free entry.
    pub(crate) size: u16,
    pub(crate) space: u8,
    /// Slot of the stream.
    pub(crate) stream: u8,
    /// Bits of [`what`].
    pub(crate) what: u8,
}

/// Packets in flight, round-trip time and congestion window.
pub(crate) struct Recovery {
    sent: [Sent; SENT],
    /// One more than the largest acknowledged number of each space.
    acked: [u32; 3],
    /// Milliseconds times eight; zero before the first sample.
    srtt8: u32,
    /// Milliseconds times four.
    var4: u32,
    latest: u32,
    min: u32,
    pub(crate) backoff: u8,
    /// When the anti-deadlock timer was last set off.
    pub(crate) probe_from: u32,
    window: u32,
    threshold: u32,
    /// When the current recovery period began.
    recovery: Option<u32>,
    /// Sending times of the first packet of the current run of losses.
    run: Option<u32>,
}

impl Recovery {
    /// Before [`clear`](Self::clear), as zeros in memory.
    pub(crate) const ZERO: Self = {
        Self {
            sent: [Sent {
                pn: 0,
                time: 0,
                offset: 0,
                len: 0,
                size: 0,
                space: 0,
                stream: 0,
                what: 0,
            }; SENT],
            acked: [0; 3],
            srtt8: 0,
            var4: 0,
            latest: 0,
            min: 0,
            backoff: 0,
            probe_from: 0,
            window: 0,
            threshold: 0,
            recovery: None,
            run: None,
        }
    };

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        for sent in &mut self.sent {
            sent.size = 0;
        }
        self.acked = [0; 3];
        (self.srtt8, self.var4, self.latest, self.min) = (0, 0, 0, 0);
        self.backoff = 0;
        self.window = INITIAL_WINDOW;
        self.threshold = u32::MAX;
        (self.recovery, self.run) = (None, None);
    }

    /// Begins again on another path (RFC 9000 section 9.4); what is in flight
    /// stays known.
    #[cfg(feature = "migration")]
    pub(crate) fn new_path(&mut self) {
        self.srtt8 = 0;
        self.backoff = 0;
        self.window = INITIAL_WINDOW;
        self.threshold = u32::MAX;
        self.recovery = None;
    }

    /// Smoothed round-trip time in milliseconds.
    pub(crate) const fn rtt(&self) -> u32 {
        if self.srtt8 == 0 {
            INITIAL_RTT
        } else {
            self.srtt8 / 8
        }
    }

    /// The probe timeout without backoff and without the server's delay.
    pub(crate) fn pto(&self) -> u32 {
        if self.srtt8 == 0 {
            return 3 * INITIAL_RTT;
        }
        self.rtt() + self.var4.max(GRANULARITY)
    }

    /// The same for this attempt.
    pub(crate) fn backed_off(&self, pto: u32) -> u32 {
        pto << self.backoff.min(MAX_BACKOFF)
    }

    fn loss_delay(&self) -> u32 {
        let rtt = self.rtt().max(self.latest);
        (rtt + rtt / 8).max(GRANULARITY)
    }

    fn in_flight(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(|sent| sent.size != 0)
    }

    /// Whether a packet of this space waits for its acknowledgement, and when
    /// the last one was sent.
    pub(crate) fn last(&self, space: u8) -> Option<u32> {
        let mut last = None;
        for sent in self.in_flight().filter(|sent| sent.space == space) {
            if last.is_none_or(|last| is_due(sent.time, last)) {
                last = Some(sent.time);
            }
        }
        last
    }

    /// Whether data of the stream in this slot is in flight.
    pub(crate) fn carries(&self, slot: u8) -> bool {
        let data =
            |sent: &Sent| sent.space == 2 && sent.stream == slot && sent.what & what::DATA != 0;
        self.in_flight().any(data)
    }

    /// Whether the congestion window and the table have room for a packet.
    pub(crate) fn may_send(&self) -> bool {
        let bytes: u32 = self.in_flight().map(|sent| u32::from(sent.size)).sum();
        bytes + MSS <= self.window && self.has_room()
    }

    /// Whether the table has room for a packet.
    pub(crate) fn has_room(&self) -> bool {
        self.sent.iter().any(|sent| sent.size == 0)
    }

    /// Notes a packet. Without room it is forgotten: probes must go out.
    pub(crate) fn record(&mut self, packet: Sent) {
        if let Some(free) = self.sent.iter_mut().find(|sent| sent.size == 0) {
            *free = packet;
        }
    }

    /// Forgets the packets of a space (RFC 9002 section 6.4).
    pub(crate) fn discard(&mut self, space: u8) {
        for sent in &mut self.sent {
            if sent.space == space {
                sent.size = 0;
            }
        }
        self.backoff = 0;
    }

    /// The slot has another stream now: what was in flight for the old one
    /// means nothing to it.
    pub(crate) fn release(&mut self, slot: u8) {
        let connection = what::MAX_DATA | what::RETIRE | what::CHALLENGE;
        for sent in &mut self.sent {
            if sent.space == 2 && sent.stream == slot {
                sent.what &= connection;
            }
        }
    }

    /// Packets in flight by number, for probes that repeat them.
    pub(crate) fn entry(&self, index: usize) -> Option<Sent> {
        self.sent.get(index).copied()
    }

    /// Takes the oldest packet within a range that was acknowledged.
    #[inline(never)]
    pub(crate) fn take(&mut self, space: u8, low: u32, high: u32) -> Option<Sent> {
        self.remove(|sent| sent.space == space && (low..=high).contains(&sent.pn))
    }

    fn remove(&mut self, which: impl Fn(&Sent) -> bool) -> Option<Sent> {
        let matching = self
            .sent
            .iter_mut()
            .filter(|sent| sent.size != 0 && which(sent));
        let oldest = matching.min_by_key(|sent| sent.pn)?;
        let copy = *oldest;
        oldest.size = 0;
        Some(copy)
    }

    /// A packet was acknowledged: the window grows (RFC 9002 section 7.3).
    pub(crate) fn grow(&mut self, packet: &Sent) {
        let in_recovery = self
            .recovery
            .is_some_and(|start| is_due(start, packet.time));
        // Only a window that is used may grow (section 7.8).
        let bytes: u32 = self.in_flight().map(|sent| u32::from(sent.size)).sum();
        if in_recovery || bytes * 2 < self.window.min(SENT as u32 * MSS / 4) {
            return;
        }
        let size = u32::from(packet.size);
        self.window += if self.window < self.threshold {
            size
        } else {
            (MSS * size).checked_div(self.window).unwrap_or(0)
        };
        self.window = self.window.min(MAXIMUM_WINDOW);
    }

    /// Notes the largest number that was acknowledged, which ends a run of
    /// losses.
    pub(crate) fn acknowledge(&mut self, space: u8, largest: u32) {
        if let Some(acked) = self.acked.get_mut(usize::from(space)) {
            *acked = largest.saturating_add(1).max(*acked);
        }
        self.run = None;
    }

    /// A sample of the round-trip time (RFC 9002 section 5). `delay` is how
    /// long the server says it held the acknowledgement back.
    #[inline(never)]
    pub(crate) fn sample(&mut self, now: u32, sent: u32, delay: u32) {
        // The clock may have ticked just before; zero means no sample.
        let latest = now.wrapping_sub(sent).clamp(0, 60_000) + 1;
        self.latest = latest;
        if self.srtt8 == 0 {
            self.min = latest;
            self.srtt8 = latest * 8;
            self.var4 = latest * 2;
            return;
        }
        self.min = self.min.min(latest);
        let adjusted = if latest >= self.min + delay {
            latest - delay
        } else {
            latest
        };
        let difference = self.rtt().abs_diff(adjusted);
        self.var4 = self.var4 - self.var4 / 4 + difference;
        self.srtt8 = (self.srtt8 - self.srtt8 / 8 + adjusted).max(1);
    }

    /// Whether this packet counts as lost now (RFC 9002 section 6.1).
    fn is_lost(&self, now: u32, sent: &Sent) -> bool {
        let acked = self.acked.get(usize::from(sent.space));
        let ahead = acked.and_then(|acked| acked.checked_sub(sent.pn.saturating_add(1)));
        ahead.is_some_and(|ahead| {
            ahead >= PACKET_THRESHOLD
                || ahead > 0 && is_due(now, sent.time.wrapping_add(self.loss_delay()))
        })
    }

    /// When the next packet counts as lost because of its age.
    pub(crate) fn loss_deadline(&self, now: u32) -> Option<u32> {
        let mut nearest: Option<u32> = None;
        for sent in self.in_flight() {
            // What would be lost in the far future has an ack above it.
            if self.is_lost(now.wrapping_add(1 << 24), sent) {
                let at = sent.time.wrapping_add(self.loss_delay());
                if nearest.is_none_or(|nearest| is_due(nearest, at)) {
                    nearest = Some(at);
                }
            }
        }
        nearest
    }

    /// Takes a packet that is lost; the window shrinks with the first.
    #[inline(never)]
    pub(crate) fn take_lost(&mut self, now: u32) -> Option<Sent> {
        // The oldest first: a run of losses goes on from there.
        let lost = self.in_flight().filter(|sent| self.is_lost(now, sent));
        let lost = *lost.min_by_key(|sent| sent.pn)?;
        self.remove(|sent| sent.space == lost.space && sent.pn == lost.pn);
        let fresh = self.recovery.is_none_or(|start| !is_due(start, lost.time));
        if fresh {
            self.recovery = Some(now);
            self.threshold = (self.window / 2).max(MINIMUM_WINDOW);
            self.window = self.threshold;
        }
        let first = *self.run.get_or_insert(lost.time);
        let long = first.wrapping_add(self.pto() * PERSISTENT + 1);
        if self.srtt8 != 0 && is_due(lost.time, long) {
            self.window = MINIMUM_WINDOW;
        }
        Some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Recovery {
        let mut recovery = Recovery::ZERO;
        recovery.clear();
        recovery
    }

    fn packet(pn: u32, time: u32) -> Sent {
        Sent {
            pn,
            time,
            size: 1200,
            space: 2,
            ..Sent::default()
        }
    }

    #[test]
    fn three_packets_or_time_make_a_loss() {
        let mut recovery = new();
        for pn in 0..5 {
            recovery.record(packet(pn, 100 + pn));
        }
        assert!(recovery.take_lost(10_000).is_none(), "nothing acknowledged");
        assert!(recovery.take(2, 3, 3).is_some());
        recovery.sample(200, 103, 0);
        recovery.acknowledge(2, 3);
        assert_eq!(recovery.take_lost(200).map(|sent| sent.pn), Some(0));
        assert!(recovery.take_lost(200).is_none());
        let deadline = recovery.loss_deadline(200).unwrap();
        assert_eq!(deadline, 101 + 98 + 98 / 8);
        assert_eq!(recovery.take_lost(deadline).map(|sent| sent.pn), Some(1));
        assert_eq!(
            recovery.take_lost(deadline + 1).map(|sent| sent.pn),
            Some(2)
        );
        assert!(
            recovery.take_lost(deadline + 1000).is_none(),
            "4 is not older"
        );
    }

    #[test]
    fn the_window_halves_once_a_round() {
        let mut recovery = new();
        for pn in 0..8 {
            recovery.record(packet(pn, pn));
        }
        recovery.take(2, 7, 7);
        recovery.acknowledge(2, 7);
        while recovery.take_lost(50).is_some() {}
        assert_eq!(recovery.window, INITIAL_WINDOW / 2);
        assert_eq!(recovery.last(2), Some(6));
    }

    #[test]
    fn persistent_congestion_leaves_the_minimum() {
        let mut recovery = new();
        recovery.sample(10, 0, 0);
        for pn in 0..6 {
            recovery.record(packet(pn, 100 + pn * 1000));
        }
        recovery.take(2, 5, 5);
        recovery.acknowledge(2, 5);
        while recovery.take_lost(6000).is_some() {}
        assert_eq!(recovery.window, MINIMUM_WINDOW);
    }

    #[test]
    fn losses_of_one_moment_are_no_persistent_congestion() {
        let mut recovery = new();
        recovery.sample(10, 0, 0);
        // The table has no order: what was sent first may be noted last.
        for pn in (0..6).rev() {
            recovery.record(packet(pn, 100 + pn));
        }
        recovery.take(2, 5, 5);
        recovery.acknowledge(2, 5);
        let mut lost = std::vec::Vec::new();
        while let Some(sent) = recovery.take_lost(6000) {
            lost.push(sent.pn);
        }
        assert_eq!(lost, [0, 1, 2, 3, 4]);
        assert_eq!(recovery.window, INITIAL_WINDOW / 2);
    }

    #[test]
    fn the_clock_may_wrap() {
        let mut recovery = new();
        recovery.record(packet(0, u32::MAX - 5));
        recovery.record(packet(1, 3));
        assert_eq!(recovery.last(2), Some(3));
        recovery.sample(20, u32::MAX - 5, 0);
        assert_eq!(recovery.rtt(), 27);
    }
}
