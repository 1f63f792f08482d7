//! Which packets are alone on their way, and how many of those are to be sent twice
//! after a loss. A packet that nothing follows is missed only after a probe timeout
//! (RFC 9002 section 6.2), which is longer than a round trip; where many are lost,
//! that is most of the delay of small messages that come now and then.
//!
//! A copy hides the loss that it makes up for. So packets are sent once again after a
//! number of copies, until the next is lost: how many of those sent once it took is what
//! is known of the path. The more of them, the fewer are the copies after a loss:
//! with one loss in ten packets 180 copies follow it, with one in 30 twenty, with one in
//! 100 one: then losses are a small part of the mean delay. This knows sizes, numbers
//! and times and no packet.

use core::time::Duration;

use dunlin_base::Instant;

/// Bytes of a round trip, and of the one before, up to which a packet is alone. It is
/// also what copies add to a round trip.
const BYTES_MAX: u64 = 600;

/// Copies after a loss, times the square of the packets for each that is lost.
const COPIES: u64 = 18_000;

/// Copies after a loss at most.
const COPIES_MAX: u64 = 200;

/// After this time without a loss the path may be another one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// What is known of the path.
#[derive(Debug)]
pub(super) struct Lone {
    /// Packets for each that is lost, smoothed; 0: none was lost.
    per_loss: u64,
    /// Packets sent until the last loss, and those since then that were sent twice.
    packets: u64,
    twice: u64,
    /// Copies that are still to be made, and until when.
    copies: u64,
    until: Instant,
    /// Bytes in this round trip and in the one before.
    since: Instant,
    bytes: u64,
    bytes_before: u64,
}

impl Lone {
    /// `packets`: sent until the last loss.
    pub(super) const fn new(packets: u64, now: Instant) -> Self {
        Self {
            per_loss: 0,
            packets,
            twice: 0,
            copies: 0,
            until: now,
            since: now,
            bytes: 0,
            bytes_before: 0,
        }
    }

    /// Packets are known to be lost, of so many sent altogether.
    pub(super) fn on_loss(&mut self, lost: u64, packets: u64, now: Instant) {
        let sent = packets.saturating_sub(core::mem::replace(&mut self.packets, packets));
        let once = sent.saturating_sub(core::mem::take(&mut self.twice));
        if once > 0 {
            let packets = once.div_ceil(lost.max(1));
            self.per_loss = match self.per_loss {
                0 => packets,
                before => (before * 3 + packets).div_ceil(4),
            };
        }
        let square = self.per_loss.saturating_mul(self.per_loss);
        self.copies = (COPIES / square.max(1)).min(COPIES_MAX);
        self.until = now + FORGOTTEN_AFTER;
    }

    /// A packet with something to deliver was sent; whether it is alone, and to be sent
    /// twice.
    pub(super) fn note(&mut self, bytes: u64, rtt: Duration, now: Instant) -> bool {
        if now >= self.since + rtt {
            self.bytes_before = match now >= self.since + rtt * 2 {
                true => 0,
                false => self.bytes,
            };
            self.since = now;
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.has_copies(now) && self.bytes_before + self.bytes <= BYTES_MAX
    }

    /// Whether copies are still to be made.
    pub(super) fn has_copies(&self, now: Instant) -> bool {
        self.copies > 0 && !self.is_over(now)
    }

    /// Whether what is known of the path counts no more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Packets sent until the last loss, and those since then that were sent twice: the
    /// others are the packets sent once until the next loss.
    pub(super) const fn packets_before(&self) -> u64 {
        self.packets + self.twice
    }

    #[cfg(test)]
    pub(super) const fn end_copies(&mut self) {
        self.copies = 0;
    }

    /// The packet is sent twice.
    pub(super) fn repeat(&mut self) {
        self.copies = self.copies.saturating_sub(1);
        self.twice += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// The next packet, so long after the last.
    fn packet(lone: &mut Lone, now: &mut Instant, after: Duration, bytes: u64) -> bool {
        *now += after;
        let twice = lone.note(bytes, RTT, *now);
        if twice {
            lone.repeat();
        }
        twice
    }

    /// Packets of 100 bytes, one each second; how many are sent twice.
    fn copies(lone: &mut Lone, now: &mut Instant, packets: u64) -> usize {
        let second = Duration::from_secs(1);
        let made = (0..packets).filter(|_| packet(lone, now, second, 100));
        made.count()
    }

    #[test]
    fn the_rarer_losses_are_the_fewer_copies_follow() {
        for (packets, expected) in [(1, 200), (10, 180), (30, 20), (100, 1), (200, 0)] {
            let mut now = Instant::ZERO;
            let mut lone = Lone::new(0, now);
            assert_eq!(copies(&mut lone, &mut now, 500), 0, "none was lost");
            let mut lone = Lone::new(0, now);
            lone.on_loss(1, packets, now);
            assert_eq!(copies(&mut lone, &mut now, 500), expected, "{packets}");
        }
    }

    #[test]
    fn what_is_known_of_the_path_follows_it() {
        let mut now = Instant::ZERO;
        let mut lone = Lone::new(0, now);
        lone.on_loss(1, 10, now);
        // A loss in spite of copies says nothing of how many are lost.
        assert_eq!(copies(&mut lone, &mut now, 10), 10);
        lone.on_loss(1, 20, now);
        assert_eq!((lone.per_loss, lone.copies), (10, 180));
        // The path loses less: 180 copies, then 820 packets once until the next loss.
        assert_eq!(copies(&mut lone, &mut now, 1000), 180);
        lone.on_loss(1, 1020, now);
        assert_eq!((lone.per_loss, lone.copies), (213, 0));
        // And more again; packets that deliver nothing count, too.
        for packets in (1030..1200).step_by(10) {
            lone.on_loss(1, packets, now);
        }
        assert!((10..16).contains(&lone.per_loss), "{lone:?}");
        // Many at once are one path that was gone for a moment.
        let mut lone = Lone::new(0, now);
        lone.on_loss(10, 1000, now);
        assert_eq!((lone.per_loss, lone.copies), (100, 1));
    }

    #[test]
    fn only_what_is_alone_is_sent_twice() {
        let ms = Duration::from_millis(1);
        let mut now = Instant::ZERO;
        let mut lone = Lone::new(0, now);
        lone.on_loss(1, 12, now);
        let second = Duration::from_secs(1);
        assert!(!packet(&mut lone, &mut now, second, BYTES_MAX + 1), "large");
        // The last of a few small ones is as alone as the first.
        assert!(packet(&mut lone, &mut now, second, 200));
        assert!(packet(&mut lone, &mut now, ms, 200));
        assert!(packet(&mut lone, &mut now, ms, 200));
        assert!(
            !packet(&mut lone, &mut now, ms, 200),
            "three are on the way"
        );
        assert!(!packet(&mut lone, &mut now, RTT, 200), "and still are");
        assert!(packet(&mut lone, &mut now, RTT * 2, 200));
        // More bytes than copies may have, in any pieces.
        for _ in 0..100 {
            let _ = packet(&mut lone, &mut now, RTT / 10, 100);
        }
        let copies = lone.copies;
        for _ in 0..100 {
            assert!(!packet(&mut lone, &mut now, RTT / 10, 100));
        }
        assert_eq!(lone.copies, copies);
        now += FORGOTTEN_AFTER;
        assert!(!packet(&mut lone, &mut now, RTT, 100), "long ago");
    }
}
