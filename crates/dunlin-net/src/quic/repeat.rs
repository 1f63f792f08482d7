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
//! a while after a packet was lost: then a path without loss carries nothing
//! twice.

use core::time::Duration;
use std::collections::VecDeque;

use dunlin_base::{Instant, Repeat};
use quinn_proto::Transmit;

use super::conn::{Phase, QuicConn};
use super::port::UdpPort;
use crate::Counters;

/// Bytes of copies that wait for their time.
const WAITING_BYTES_MAX: usize = 16 << 10;

/// Bytes per round trip, originals included, that are sent whatever the
/// congestion window is: the initial window of RFC 9002.
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

/// The shortest round trip is looked for anew after this time: the path may have
/// become another one.
const SHORTEST_FOR: Duration = Duration::from_secs(60);

/// Copies that wait, and what was sent in this round trip.
#[derive(Debug)]
pub(super) struct Repeats {
    when: Repeat,
    /// The shortest round trip, and until when that counts.
    shortest: Duration,
    shortest_until: Instant,
    /// Packets lost so far, and until when packets are repeated for the last.
    lost: u64,
    until: Instant,
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

impl QuicConn {
    /// Says when small packets are sent twice from now on.
    pub(crate) fn set_repeat(&mut self, when: Repeat, now: Instant) {
        if when == Repeat::Never {
            self.repeats = None;
        } else if let Some(repeats) = &mut self.repeats {
            repeats.when = when;
        } else {
            self.repeats = Some(Box::new(Repeats {
                when,
                shortest: self.proto.rtt(),
                shortest_until: now + SHORTEST_FOR,
                lost: self.proto.stats().path.lost_packets,
                until: now,
                waiting: VecDeque::new(),
                waiting_bytes: 0,
                frames: self.frames_sent(),
                since: now,
                sent: 0,
            }));
        }
    }

    /// quinn-proto sent this: keeps a copy, if it is one packet with something
    /// to deliver and there is room for it.
    pub(super) fn note_for_repeat(&mut self, transmit: &Transmit, buf: &[u8], now: Instant) {
        if self.repeats.is_none() {
            return;
        }
        let stats = self.proto.stats();
        let frames = stats.frame_tx.stream + stats.frame_tx.datagram;
        let rtt = self.proto.rtt();
        let window = self.proto.congestion_state().window();
        let open = self.phase == Phase::Open;
        let Some(repeats) = &mut self.repeats else {
            return;
        };
        if core::mem::replace(&mut repeats.lost, stats.path.lost_packets) < stats.path.lost_packets
        {
            repeats.until = now + AFTER_LOSS;
        }
        if now >= repeats.shortest_until {
            repeats.shortest = rtt;
            repeats.shortest_until = now + SHORTEST_FOR;
        }
        repeats.shortest = repeats.shortest.min(rtt);
        let wanted = (repeats.when == Repeat::Always || now < repeats.until)
            && !is_queueing(rtt, repeats.shortest);
        if now >= repeats.since + rtt {
            repeats.since = now;
            repeats.sent = 0;
        }
        let size = transmit.size as u64;
        repeats.sent += size;
        let delivers = core::mem::replace(&mut repeats.frames, frames) < frames;
        let single = transmit.segment_size.is_none_or(|s| s >= transmit.size);
        let fits = repeats.sent + size <= window.max(UNKNOWN_PATH_BYTES)
            && repeats.waiting_bytes + transmit.size <= WAITING_BYTES_MAX;
        let contents = buf.get(..transmit.size).unwrap_or_default();
        if !(wanted && delivers && single && fits && open) || contents.is_empty() {
            return;
        }
        repeats.sent += size;
        repeats.waiting_bytes += contents.len();
        let spacing = (rtt / ROUND_TRIPS_PER_SPACING).clamp(*SPACING.start(), *SPACING.end());
        repeats.waiting.push_back(Copied {
            at: now + spacing,
            transmit: Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn,
                size: transmit.size,
                segment_size: None,
                src_ip: transmit.src_ip,
            },
            contents: contents.to_vec(),
        });
    }

    /// Sends the copies whose time has come.
    pub(crate) fn send_copies(&mut self, now: Instant, port: &mut UdpPort, count: &mut Counters) {
        let Some(repeats) = &mut self.repeats else {
            return;
        };
        while !port.is_held()
            && repeats
                .waiting
                .front()
                .is_some_and(|copied| copied.at <= now)
            && let Some(copied) = repeats.waiting.pop_front()
        {
            repeats.waiting_bytes -= copied.contents.len();
            count.quic_packets_repeated += 1;
            port.transmit(copied.transmit, &copied.contents, count);
        }
    }

    /// When the next copy leaves.
    pub(super) fn next_repeat(&self) -> Instant {
        let front = self.repeats.as_ref().and_then(|r| r.waiting.front());
        front.map_or(Instant::FAR_FUTURE, |copied| copied.at)
    }

    fn frames_sent(&self) -> u64 {
        let sent = self.proto.stats().frame_tx;
        sent.stream + sent.datagram
    }
}

/// Whether packets wait on the way.
fn is_queueing(rtt: Duration, shortest: Duration) -> bool {
    rtt > shortest.mul_f64(QUEUE_RATIO) + QUEUE_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

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
