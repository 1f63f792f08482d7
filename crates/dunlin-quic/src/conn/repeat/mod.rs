//! Sends small packets a second time, a little later, so that a single loss
//! holds up nothing. The copy is the same bytes, as if the network had
//! duplicated the datagram; a peer drops the second that comes (RFC 9000
//! section 12.3), and our own loss recovery knows nothing of it.
//!
//! It is meant for few small messages that must not be late: originals and
//! copies together stay within what congestion control allows, or within what
//! a connection may send that knows nothing of its path (RFC 9002 section 7.2).
//! What goes beyond is sent once, and so is everything while packets wait on the
//! way, where copies would only make them wait longer. Either always, or only for
//! a while after a packet was lost, or only what is alone on its way where packets
//! are lost: then a path without loss carries nothing twice.

mod lone;

use core::time::Duration;
use std::collections::VecDeque;

use dunlin_base::{Instant, Repeat};
use quinn_proto::{Connection, ConnectionStats};

use lone::Lone;

use crate::Counters;
use crate::datagram::{DatagramSender, Transmit};

/// Bytes of copies that wait for their time.
const WAITING_BYTES_MAX: usize = 16 << 10;

/// Bytes per round trip, originals included, that are sent even when
/// the congestion window is smaller: the initial window of RFC 9002.
const UNKNOWN_PATH_BYTES: u64 = 12_000;

/// How long after the original a copy leaves: losses come in bursts. A longer
/// time would have the original taken for lost, because later ones arrive
/// before the copy (RFC 9002 section 6.1.1).
const ROUND_TRIPS_PER_SPACING: u32 = 16;
const SPACING: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(5);

/// How long packets are sent twice after one was lost, if only then. Copies hide
/// most losses of a path, so this must outlast them; where nothing is lost any
/// more it bounds what they cost.
const AFTER_LOSS: Duration = Duration::from_secs(10);

/// Round-trip times above this share of the shortest one, and this much above it,
/// are those of a queue.
const QUEUE_RATIO: f64 = 1.5;
const QUEUE_MIN: Duration = Duration::from_millis(10);

/// The shortest round trip is looked for again after this time: the path may have
/// become another one.
const SHORTEST_FOR: Duration = Duration::from_secs(60);

/// When packets are sent twice, and what is needed for it.
#[derive(Debug)]
pub(super) struct Repeats {
    when: Repeat,
    /// Copies are due that the socket does not take: it is waited for, not a deadline.
    blocked: bool,
    /// When losses were looked for last, while no copies are to be made.
    looked: Instant,
    /// Packets lost until then, and [`Lone::packets_before`].
    lost: u64,
    packets: u64,
    /// With [`Repeat::Lone`] there is none until a packet was lost, and after a time
    /// without a loss.
    kept: Option<Box<Kept>>,
}

/// Copies that wait, and what was sent in this round trip.
#[derive(Debug)]
struct Kept {
    /// The shortest round trip, and until when that counts.
    shortest: Duration,
    shortest_until: Instant,
    /// Packets lost so far, and until when packets are repeated for the last.
    lost: u64,
    until: Instant,
    lone: Lone,
    waiting: VecDeque<Copied>,
    waiting_bytes: usize,
    /// STREAM and DATAGRAM frames sent so far: packets without are not
    /// repeated.
    frames: u64,
    since: Instant,
    sent: u64,
}

/// A datagram to send again.
#[derive(Debug)]
struct Copied {
    at: Instant,
    transmit: Transmit,
    contents: Vec<u8>,
}

impl Repeats {
    pub(super) const fn new(when: Repeat) -> Self {
        Self {
            when,
            blocked: false,
            looked: Instant::ZERO,
            lost: 0,
            packets: 0,
            kept: None,
        }
    }

    /// Says when small packets are sent twice from now on.
    pub(super) fn set(&mut self, when: Repeat, proto: &Connection, now: Instant) {
        self.when = when;
        match when {
            Repeat::Never => self.kept = None,
            Repeat::Lone => {}
            _ if self.kept.is_some() => {}
            _ => {
                let stats = proto.stats();
                let frames = delivering(&stats);
                let kept = Kept::new(stats.path.lost_packets, frames, proto, now);
                self.kept = Some(Box::new(kept));
            }
        }
    }

    /// quinn-proto sent this on an open connection: keeps a copy, if it is one
    /// packet with something to deliver and there is room for it.
    pub(super) fn note(
        &mut self,
        transmit: &Transmit,
        buf: &[u8],
        proto: &Connection,
        now: Instant,
    ) {
        if self.when == Repeat::Lone && !self.has_copies(proto, now) {
            return;
        }
        let contents = buf.get(..transmit.size).unwrap_or_default();
        if let Some(kept) = &mut self.kept
            && kept.is_wanted(self.when, transmit, proto, now)
            && !contents.is_empty()
        {
            kept.keep(transmit, contents, proto.rtt(), now);
        }
    }

    /// With [`Repeat::Lone`]: whether copies are to be made. If not, this looks for a
    /// loss, once a round trip, and frees what is not needed any more.
    fn has_copies(&mut self, proto: &Connection, now: Instant) -> bool {
        if self.kept.as_ref().is_some_and(|k| k.lone.has_copies(now)) {
            return true;
        }
        if now < self.looked + proto.rtt() {
            return false;
        }
        self.looked = now;
        if let Some(kept) = self.kept.take_if(|kept| kept.is_over(now)) {
            self.lost = kept.lost;
            self.packets = kept.lone.packets_before();
        }
        let path = proto.stats().path;
        let kept = self.kept.as_mut();
        let lost = kept.map_or(&mut self.lost, |kept| &mut kept.lost);
        if path.lost_packets <= *lost {
            // Less than before: the statistics of another path.
            *lost = path.lost_packets;
            return false;
        }
        if self.kept.is_none() {
            let mut kept = Kept::new(self.lost, 0, proto, now);
            // What is sent just now may have any frames.
            let is_same_path = self.packets <= path.sent_packets;
            kept.lone = Lone::new(if is_same_path { self.packets } else { 0 }, now);
            self.kept = Some(Box::new(kept));
        }
        true
    }

    /// Sends the copies whose time has come.
    pub(super) fn send(
        &mut self,
        now: Instant,
        port: &mut dyn DatagramSender,
        counters: &mut Counters,
    ) {
        self.blocked = false;
        let Some(kept) = &mut self.kept else {
            return;
        };
        while kept.waiting.front().is_some_and(|copied| copied.at <= now) {
            if port.is_blocked() {
                self.blocked = true;
                return;
            }
            let Some(copied) = kept.waiting.pop_front() else {
                return;
            };
            kept.waiting_bytes -= copied.contents.len();
            counters.quic_packets_repeated += 1;
            port.send(copied.transmit, &copied.contents, counters);
        }
    }

    /// When the next copy leaves; `None`: there is none, or the socket is blocked.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.blocked {
            return None;
        }
        let first = self.kept.as_ref()?.waiting.front()?;
        Some(first.at)
    }
}

impl Kept {
    fn new(lost: u64, frames: u64, proto: &Connection, now: Instant) -> Self {
        Self {
            shortest: proto.rtt(),
            shortest_until: now + SHORTEST_FOR,
            lost,
            until: now,
            lone: Lone::new(0, now),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            frames,
            since: now,
            sent: 0,
        }
    }

    /// Whether it is of no use until the next loss.
    fn is_over(&self, now: Instant) -> bool {
        self.waiting.is_empty() && self.lone.is_over(now)
    }

    /// Whether what was sent just now is to be sent again.
    fn is_wanted(
        &mut self,
        when: Repeat,
        transmit: &Transmit,
        proto: &Connection,
        now: Instant,
    ) -> bool {
        let stats = proto.stats();
        let frames = delivering(&stats);
        let rtt = proto.rtt();
        let window = proto.congestion_state().window();
        let lost = stats.path.lost_packets;
        let lost = lost.saturating_sub(core::mem::replace(&mut self.lost, lost));
        if lost > 0 {
            self.until = now + AFTER_LOSS;
            self.lone.on_loss(lost, stats.path.sent_packets, now);
        }
        if now >= self.shortest_until {
            self.shortest = rtt;
            self.shortest_until = now + SHORTEST_FOR;
        }
        self.shortest = self.shortest.min(rtt);
        if now >= self.since + rtt {
            self.since = now;
            self.sent = 0;
        }
        let size = transmit.size as u64;
        self.sent += size;
        if core::mem::replace(&mut self.frames, frames) >= frames {
            return false;
        }
        let is_lone = self.lone.note(size, rtt, now);
        let is_due = match when {
            Repeat::Always => true,
            Repeat::OnLoss => now < self.until || is_lone,
            Repeat::Lone => is_lone,
            _ => false,
        };
        let single = transmit.segment_size.is_none_or(|s| s >= transmit.size);
        let fits = self.sent + size <= window.max(UNKNOWN_PATH_BYTES)
            && self.waiting_bytes + transmit.size <= WAITING_BYTES_MAX;
        let wanted = is_due && single && fits && !is_queueing(rtt, self.shortest);
        if wanted {
            self.lone.repeat();
        }
        wanted
    }

    fn keep(&mut self, transmit: &Transmit, contents: &[u8], rtt: Duration, now: Instant) {
        self.sent += transmit.size as u64;
        self.waiting_bytes += contents.len();
        let spacing = (rtt / ROUND_TRIPS_PER_SPACING).clamp(*SPACING.start(), *SPACING.end());
        self.waiting.push_back(Copied {
            at: now + spacing,
            transmit: Transmit {
                segment_size: None,
                ..transmit.clone()
            },
            contents: contents.to_vec(),
        });
    }
}

/// Frames sent so far that have something to deliver.
const fn delivering(stats: &ConnectionStats) -> u64 {
    stats.frame_tx.stream + stats.frame_tx.datagram
}

/// Whether packets wait on the way.
fn is_queueing(rtt: Duration, shortest: Duration) -> bool {
    rtt > shortest.mul_f64(QUEUE_RATIO) + QUEUE_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{World, addr};

    const DELAY: Duration = Duration::from_millis(5);

    /// A server that sends everything twice, and has sent something.
    fn repeating() -> World {
        let mut world = World::connected(DELAY, 1);
        let conn = world.server.conn.as_mut().unwrap();
        conn.set_repeat(Repeat::Always, world.now);
        world.server.send(b"something");
        world.touch_server();
        world
    }

    fn repeats(world: &mut World) -> &mut Repeats {
        &mut world.server.conn.as_mut().unwrap().repeats
    }

    #[test]
    fn what_goes_to_an_address_that_is_not_proved_goes_once() {
        let mut world = repeating();
        world.pass(DELAY * 20);
        let kept = repeats(&mut world).kept.as_mut().unwrap();
        // The next packet seems to have something to deliver.
        kept.frames = 0;
        let copies = world.server.counters.quic_packets_repeated;
        assert_eq!(copies, 1, "to the address that is proved");
        // What is known of the path is kept for another port.
        let forged = addr(2, 2000);
        world.client.send(b".");
        for packet in world.intercept() {
            world.inject(forged, &packet);
        }
        let waiting = &repeats(&mut world).kept.as_ref().unwrap().waiting;
        assert!(waiting.iter().all(|c| c.transmit.destination != forged));
        world.pass(DELAY * 200);
        let (sent, got) = (world.sent_to[&forged], world.got_from[&forged]);
        assert!(sent > 0 && sent <= 3 * got, "{sent} bytes for {got}");
    }

    /// The client sends, once or in vain; whether it keeps anything then.
    fn message(world: &mut World, loss: u64) -> bool {
        world.loss = loss;
        world.client.send(b"message");
        world.touch_client();
        world.loss = 0;
        world.pass(Duration::from_secs(30));
        let conn = world.client.conn.as_ref().unwrap();
        conn.repeats.kept.is_some()
    }

    #[test]
    fn some_time_after_a_loss_nothing_is_kept_for_it() {
        let mut world = World::connected(DELAY, 1);
        let conn = world.client.conn.as_mut().unwrap();
        conn.set_repeat(Repeat::Lone, world.now);
        assert!(!message(&mut world, 0), "no loss");
        for round in 1..=3 {
            let copies = world.client.counters.quic_packets_repeated;
            let _ = message(&mut world, 1000);
            assert!(message(&mut world, 0), "a loss: {round}");
            for _ in 0..20 {
                let _ = message(&mut world, 0);
            }
            assert!(!message(&mut world, 0), "no loss since then: {round}");
            assert!(world.client.counters.quic_packets_repeated > copies);
            assert!(!message(&mut world, 0));
            let conn = world.client.conn.as_ref().unwrap();
            assert_eq!(conn.repeats.lost, conn.proto.stats().path.lost_packets);
        }
    }

    #[test]
    fn without_copies_to_make_losses_are_looked_for_once_a_round_trip() {
        let mut world = World::connected(DELAY, 1);
        let conn = world.client.conn.as_mut().unwrap();
        conn.set_repeat(Repeat::Lone, world.now);
        let _ = message(&mut world, 1000);
        assert!(message(&mut world, 0), "a loss");
        let conn = world.client.conn.as_mut().unwrap();
        let kept = conn.repeats.kept.as_mut().unwrap();
        kept.lone.end_copies();
        let mut looks = 0;
        for _ in 0..100 {
            let before = world.client.conn.as_ref().unwrap().repeats.looked;
            world.client.send(b".");
            world.touch_client();
            world.pass(DELAY / 10);
            let conn = world.client.conn.as_ref().unwrap();
            looks += usize::from(conn.repeats.looked != before);
        }
        // 100 messages in five round trips.
        assert!((1..=6).contains(&looks), "{looks}");
        assert!(world.client.conn.as_ref().unwrap().repeats.kept.is_some());
    }

    /// A socket that takes nothing, or anything.
    struct Port {
        blocked: bool,
        sent: usize,
    }

    impl DatagramSender for Port {
        fn is_blocked(&mut self) -> bool {
            self.blocked
        }

        fn max_segments(&self) -> usize {
            1
        }

        fn marks_ecn(&self) -> bool {
            false
        }

        fn send(&mut self, _: Transmit, _: &[u8], _: &mut Counters) {
            self.sent += 1;
        }
    }

    #[test]
    fn a_copy_waits_for_a_blocked_socket_without_a_deadline() {
        let mut world = repeating();
        let repeats = repeats(&mut world);
        let mut counters = Counters::default();
        let at = repeats.next().unwrap();
        let mut port = Port {
            blocked: true,
            sent: 0,
        };
        repeats.send(at, &mut port, &mut counters);
        assert_eq!((repeats.next(), port.sent), (None, 0));
        port.blocked = false;
        repeats.send(at, &mut port, &mut counters);
        assert_eq!((repeats.next(), port.sent), (None, 1));
        // One that is not due yet has a deadline again.
        world.server.send(b"more");
        world.touch_server();
        assert!(self::repeats(&mut world).next().is_some());
    }

    #[test]
    fn round_trips_that_grow_are_those_of_a_queue() {
        for (rtt, shortest, queueing) in [
            (50, 50, false),
            (85, 50, false),
            (86, 50, true),
            (10, 0, false),
            (11, 0, true),
            (590, 20, true),
        ] {
            let [rtt, shortest] = [rtt, shortest].map(Duration::from_millis);
            assert_eq!(is_queueing(rtt, shortest), queueing, "{rtt:?}");
        }
    }
}
