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

use dunlin_base::ShardId;
use dunlin_net::{Answer, ForeignDatagram};

use super::frame::begin_relay;

/// Bytes that one turn of a shard has for a node in this way; beyond it they are dropped.
const RELAY_BYTES_MAX: usize = 512 << 10;

/// Datagrams of one turn of a shard for a node.
const RELAY_ENTRIES_MAX: usize = 1024;

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

    pub(super) fn note(&self, is_passed: bool) {
        let count = if is_passed {
            &self.passed
        } else {
            &self.dropped
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_gone(&self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a turn of a shard has for a run of a node.
#[derive(Debug)]
pub(super) struct Gathered {
    run: u64,
    bytes: Vec<u8>,
    entries: usize,
}

impl Gathered {
    pub(super) const fn new(run: u64) -> Self {
        Self {
            run,
            bytes: Vec::new(),
            entries: 0,
        }
    }

    /// Adds a client's datagram; whether there was room.
    pub(super) fn push_datagram(
        &mut self,
        way: (ShardId, ShardId),
        datagram: &ForeignDatagram,
    ) -> bool {
        self.push(DATAGRAM, way, datagram.len(), |out| datagram.encode(out))
    }

    /// Adds what the other node is to send; whether there was room.
    pub(super) fn push_answer(&mut self, way: (ShardId, ShardId), answer: &Answer) -> bool {
        self.push(ANSWER, way, answer.len(), |out| answer.encode(out))
    }

    fn push(
        &mut self,
        kind: u8,
        (from, to): (ShardId, ShardId),
        len: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let is_full = self.entries >= RELAY_ENTRIES_MAX || self.bytes.len() + len > RELAY_BYTES_MAX;
        if is_full {
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

    /// All of it, as a frame.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.entries = 0;
        let bytes = core::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then_some(bytes)
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
        assert!(gathered.push_datagram(way, &datagram(1200)));
        let mut answer = vec![1, 0, 4, 10, 0, 0, 9, 0xa0, 0x0f, 0, 2, 0, 0, 0, 0];
        answer.extend(b"answer");
        let answer = Answer::decode(&answer).expect("an answer");
        assert!(gathered.push_answer(way, &answer));
        let bytes = gathered.take().expect("both");
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
        let count = |gathered: &mut Gathered, bytes| {
            let pushed = (0..4 * RELAY_ENTRIES_MAX)
                .filter(|_| gathered.push_datagram(way, &datagram(bytes)));
            pushed.count()
        };
        assert_eq!(count(&mut gathered, 1), RELAY_ENTRIES_MAX);
        assert!(gathered.take().is_some());
        let most = count(&mut gathered, 1400);
        assert!(most < RELAY_ENTRIES_MAX);
        let bytes = gathered.take().expect("some").len();
        assert!(bytes < RELAY_BYTES_MAX + 4096, "{bytes}");
    }
}
