//! Datagrams of QUIC that came to a node whose connection they are not for, and what the
//! right node answers through it.
//!
//! ```text
//! entry = 1 (1), from (2), to (2), bytes (4), a datagram of a client
//!       | 2 (1), from (2), to (2), bytes (4), what `to` is to send to a client
//! ```
//!
//! They may be lost as any datagram: they have bounds of their own, and nothing waits for
//! them.

use core::sync::atomic::{AtomicU64, Ordering};

use dunlin_base::{Instant, ShardId};
use dunlin_bus::limits::LINK_BYTES_HARD;
use dunlin_net::{Answer, ForeignDatagram};

use super::SPARE_BYTES_MAX;
use super::frame::begin_relay;
use crate::config::cluster::{CROSSING_BYTES_MAX, SHARDS_MAX};

/// Bytes that one turn of a shard has for a node in this way; beyond it they are dropped.
const RELAY_BYTES_MAX: usize = 256 << 10;

/// Datagrams of one turn of a shard for a node.
const RELAY_ENTRIES_MAX: usize = 1024;

/// Datagrams a second of a shard for a node: what the threads of links have to do is bounded.
const RELAY_RATE_MAX: u64 = 20_000;

/// Datagrams that may come at once, where there were fewer before.
const RELAY_BURST_MAX: u64 = 1024;

/// All shards may have as much at once, and then their largest packets.
const _: () = {
    let relayed = SPARE_BYTES_MAX + SHARDS_MAX as usize * RELAY_BYTES_MAX;
    assert!(relayed + CROSSING_BYTES_MAX as usize + (1 << 20) < LINK_BYTES_HARD);
};

const DATAGRAM: u8 = 1;
const ANSWER: u8 = 2;

/// What of this a node counts.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    passed: AtomicU64,
    dropped: AtomicU64,
    gone: AtomicU64,
}

/// At one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelayedTotals {
    /// Given to other nodes.
    pub(crate) passed: u64,
    /// For a node that had too much already, or no link.
    pub(crate) dropped: u64,
    /// For connections of a node that is no member.
    pub(crate) gone: u64,
}

impl Relayed {
    pub(super) fn totals(&self) -> RelayedTotals {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RelayedTotals {
            passed: of(&self.passed),
            dropped: of(&self.dropped),
            gone: of(&self.gone),
        }
    }

    pub(super) fn note(&self, is_passed: bool, entries: u64) {
        let count = if is_passed {
            &self.passed
        } else {
            &self.dropped
        };
        count.fetch_add(entries, Ordering::Relaxed);
    }

    pub(super) fn note_gone(&self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many more datagrams a shard may have for a node at a moment.
#[derive(Debug)]
struct Allowance {
    left: u64,
    /// Until when what came back is in it.
    at: Instant,
}

impl Allowance {
    const EACH_MICROS: u64 = 1_000_000 / RELAY_RATE_MAX;

    const fn new() -> Self {
        Self {
            left: RELAY_BURST_MAX,
            at: Instant::ZERO,
        }
    }

    /// Takes one; whether there was one.
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.as_micros().saturating_sub(self.at.as_micros());
        let back = passed / Self::EACH_MICROS;
        if back >= RELAY_BURST_MAX - self.left {
            (self.left, self.at) = (RELAY_BURST_MAX, now);
        } else {
            self.left += back;
            let at = self.at.as_micros() + back * Self::EACH_MICROS;
            self.at = Instant::from_micros(at);
        }
        let is_there = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_there
    }
}

/// What a turn of a shard has for a run of a node.
#[derive(Debug)]
pub(super) struct Gathered {
    run: u64,
    bytes: Vec<u8>,
    entries: usize,
    allowance: Allowance,
}

impl Gathered {
    pub(super) const fn new(run: u64) -> Self {
        Self {
            run,
            bytes: Vec::new(),
            entries: 0,
            allowance: Allowance::new(),
        }
    }

    /// Adds a client's datagram; whether there was room.
    pub(super) fn push_datagram(
        &mut self,
        way: (ShardId, ShardId),
        datagram: &ForeignDatagram,
        now: Instant,
    ) -> bool {
        let len = datagram.len();
        self.push(DATAGRAM, way, len, now, |out| datagram.encode(out))
    }

    /// Adds what the other node is to send; whether there was room.
    pub(super) fn push_answer(
        &mut self,
        way: (ShardId, ShardId),
        answer: &Answer,
        now: Instant,
    ) -> bool {
        let len = answer.len();
        self.push(ANSWER, way, len, now, |out| answer.encode(out))
    }

    fn push(
        &mut self,
        kind: u8,
        (from, to): (ShardId, ShardId),
        len: usize,
        now: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let is_full = self.entries >= RELAY_ENTRIES_MAX || self.bytes.len() + len > RELAY_BYTES_MAX;
        if is_full || !self.allowance.take(now) {
            return false;
        }
        if self.bytes.is_empty() {
            begin_relay(self.run, &mut self.bytes);
        }
        self.entries += 1;
        self.bytes.push(kind);
        self.bytes.extend(from.0.to_le_bytes());
        self.bytes.extend(to.0.to_le_bytes());
        let at = self.bytes.len();
        self.bytes.extend([0; 4]);
        encode(&mut self.bytes);
        let len = self.bytes.len() - at - 4;
        if let (Some(place), Ok(len)) = (self.bytes.get_mut(at..at + 4), u32::try_from(len)) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        true
    }

    /// All of it, as a frame, and how many entries that is.
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, u64)> {
        let entries = core::mem::take(&mut self.entries);
        let bytes = core::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then_some((bytes, entries as u64))
    }
}

/// One entry.
#[derive(Debug)]
pub(super) enum Entry {
    Datagram(ForeignDatagram),
    Answer(Answer),
}

/// What a node has for shards of this one: from whom, to whom. `None`: it is not that.
pub(super) fn read(mut rest: &[u8]) -> impl Iterator<Item = Option<(ShardId, ShardId, Entry)>> {
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = next(&mut rest);
        if entry.is_none() {
            rest = &[];
        }
        Some(entry)
    })
}

fn next(rest: &mut &[u8]) -> Option<(ShardId, ShardId, Entry)> {
    let ([kind], left) = rest.split_first_chunk::<1>()?;
    let (from, left) = left.split_first_chunk::<2>()?;
    let (to, left) = left.split_first_chunk::<2>()?;
    let (len, left) = left.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (bytes, left) = left.split_at_checked(len)?;
    *rest = left;
    let entry = match *kind {
        DATAGRAM => Entry::Datagram(ForeignDatagram::decode(bytes)?),
        ANSWER => Entry::Answer(Answer::decode(bytes)?),
        _ => return None,
    };
    let number = |bytes: &[u8; 2]| ShardId(u16::from_le_bytes(*bytes));
    Some((number(from), number(to), entry))
}

#[cfg(test)]
mod tests {
    use super::super::frame::Frame;
    use super::*;

    /// As one crosses: of listener 1, from 10.0.0.9:4000, unmarked.
    fn datagram(bytes: usize) -> ForeignDatagram {
        let mut encoded = vec![1, 0, 4, 10, 0, 0, 9, 0xa0, 0x0f, 0, 0xff];
        encoded.extend(vec![7; bytes]);
        ForeignDatagram::decode(&encoded).expect("a datagram")
    }

    #[test]
    fn what_is_relayed_is_read_as_it_is_written() {
        let mut gathered = Gathered::new(9);
        let way = (ShardId(64), ShardId(129));
        let now = Instant::from_micros(1);
        assert!(gathered.push_datagram(way, &datagram(1200), now));
        let mut answer = vec![1, 0, 4, 10, 0, 0, 9, 0xa0, 0x0f, 0, 2, 0, 0, 0, 0];
        answer.extend(b"answer");
        let answer = Answer::decode(&answer).expect("an answer");
        assert!(gathered.push_answer(way, &answer, now));
        let (bytes, entries) = gathered.take().expect("both");
        assert_eq!(entries, 2);
        assert_eq!(gathered.take(), None);
        let Some(Frame::Relay { run: 9, bytes }) = Frame::decode(&bytes.into()) else {
            panic!("no frame");
        };
        let all: Option<Vec<_>> = read(&bytes).collect();
        let all = all.expect("readable");
        let [(a, b, Entry::Datagram(one)), (c, d, Entry::Answer(two))] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(((*a, *b), (*c, *d)), (way, way));
        assert_eq!((one.len(), two), (1200, &answer));
        for cut in 1..bytes.len() {
            let read: Vec<_> = read(&bytes[..cut]).collect();
            let whole = cut == 9 + 11 + 1200;
            assert_eq!(read.last().is_some_and(Option::is_some), whole, "{cut}");
        }
    }

    #[test]
    fn a_flood_for_one_node_is_bounded() {
        let mut gathered = Gathered::new(9);
        let way = (ShardId(64), ShardId(129));
        let count = |gathered: &mut Gathered, bytes, seconds: u64| {
            let now = Instant::from_micros(seconds * 1_000_000);
            let pushed = (0..4 * RELAY_ENTRIES_MAX)
                .filter(|_| gathered.push_datagram(way, &datagram(bytes), now));
            pushed.count()
        };
        assert_eq!(count(&mut gathered, 1, 10), RELAY_ENTRIES_MAX);
        assert!(gathered.take().is_some());
        let most = count(&mut gathered, 1400, 20);
        assert!(most < RELAY_ENTRIES_MAX);
        let (bytes, entries) = gathered.take().expect("some");
        assert!(bytes.len() < RELAY_BYTES_MAX + 4096, "{}", bytes.len());
        assert_eq!(entries, most as u64);
    }

    #[test]
    fn datagrams_a_second_for_one_node_are_bounded() {
        let mut gathered = Gathered::new(9);
        let way = (ShardId(64), ShardId(129));
        let (mut passed, begin) = (0, 5_000_000);
        // 100 in each millisecond of two seconds.
        for millis in 0..2000 {
            let now = Instant::from_micros(begin + millis * 1000);
            for _ in 0..100 {
                passed += u64::from(gathered.push_datagram(way, &datagram(20), now));
            }
            let _ = gathered.take();
        }
        let most = 2 * RELAY_RATE_MAX + RELAY_BURST_MAX;
        assert!(passed <= most && passed + 40 > most, "{passed}");
    }
}
