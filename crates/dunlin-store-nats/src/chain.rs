//! What a reader makes of the log, record by record: which count, which are of a former
//! owner, and where one is missing. Knows no server.
//!
//! A record counts when its epoch and term are those of the newest claim before it, its
//! number follows, and it carries the hash of the record before. A record of an older
//! epoch or term never counts behind a newer claim. A server refuses a record that does
//! not come at its place, so one that does not follow is only possible where a record of
//! a former owner took that place: then none counts before the next claim. Otherwise the
//! log has a hole, which is an error.

use crate::limits::{PARTS_MAX, RECORD_BYTES_MAX};
use crate::record::{self, BEGIN, END, FIRST, Head, Kind, LAST, RecordError};

/// Where a record that counts stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its sequence number in the stream.
    pub(crate) seq: u64,
    pub(crate) number: u64,
    pub(crate) hash: u64,
}

/// Why a log cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The stream has no message with this sequence number, but later ones.
    #[error("the log is damaged: message {seq} is missing")]
    Missing {
        /// Its sequence number in the stream.
        seq: u64,
    },
    /// A message is not what was written.
    #[error("the log is damaged: message {seq}: {error}")]
    Record {
        /// Its sequence number in the stream.
        seq: u64,
        /// What is wrong.
        error: RecordError,
    },
    /// A record does not follow the one before.
    #[error("the log is damaged: record {found} at message {seq} does not follow record {after}")]
    Hole {
        /// Its sequence number in the stream.
        seq: u64,
        /// Number of the last record that counts.
        after: u64,
        /// Number of the record.
        found: u64,
    },
    /// The log begins in its middle, and nothing there says what is live.
    #[error("the log begins with record {first}, and what was before it is not written again")]
    NoBeginning {
        /// Number of the first record.
        first: u64,
    },
    /// The log begins with an import that has no end.
    #[error("an import into the log was not finished: begin it again, or delete the stream")]
    Unfinished,
    /// The copy knows of records that the log does not have: it was emptied, made again
    /// or rolled back.
    #[error(
        "the log has lost records: the copy here knows record {known}, the log ends with {last}"
    )]
    Lost {
        /// Number of the last record in the copy.
        known: u64,
        /// Number of the last record in the log.
        last: u64,
    },
}

/// What a record turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A claim; who made it.
    Claim(Head),
    /// It does not count.
    Dropped,
    /// It counts, and its body goes on.
    Part,
    /// It counts, and is the last of this body.
    Whole(Body),
}

/// A body whose records all count.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) kind: Kind,
    pub(crate) base: u64,
    pub(crate) begins: bool,
    pub(crate) ends: bool,
    pub(crate) bytes: Vec<u8>,
    /// Number of its first record.
    pub(crate) first: u64,
    /// Its last record.
    pub(crate) place: Place,
}

/// How far a log was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) epoch: u64,
    pub(crate) term: u32,
    /// The last record that counts.
    pub(crate) last: Place,
    /// Sequence number of the next message; 0: any.
    pub(crate) next: u64,
    /// The last record that counts is known.
    begun: bool,
    /// Number of the first record, where the log was read from its first message on and began
    /// with a later one than 1: what was before it is only in what is written again.
    pub(crate) middle: Option<u64>,
    /// A record that does not count took a place since the last one that does.
    disturbed: bool,
    parts: Option<Parts>,
}

#[derive(Clone, Debug)]
struct Parts {
    kind: Kind,
    flags: u8,
    base: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl Chain {
    /// A log from its first message on.
    pub(crate) fn from_first(seq: u64) -> Self {
        Self {
            next: seq,
            ..Self::default()
        }
    }

    /// A log after a place that is known.
    pub(crate) fn after(place: Place, epoch: u64, term: u32) -> Self {
        Self {
            epoch,
            term,
            last: place,
            next: place.seq + 1,
            begun: true,
            middle: None,
            disturbed: false,
            parts: None,
        }
    }

    /// Reads the next message.
    pub(crate) fn take(&mut self, seq: u64, bytes: &[u8]) -> Result<Found, LogError> {
        if self.next != 0 && seq != self.next {
            return Err(LogError::Missing { seq: self.next });
        }
        let record = record::decode(bytes).map_err(|error| LogError::Record { seq, error })?;
        self.next = seq + 1;
        let head = record.head;
        let age = (head.epoch, head.term).cmp(&(self.epoch, self.term));
        if head.kind == Kind::Claim {
            if age.is_lt() {
                self.disturbed = true;
                return Ok(Found::Dropped);
            }
            (self.epoch, self.term) = (head.epoch, head.term);
            self.disturbed = false;
            self.parts = None;
            return Ok(Found::Claim(head));
        }
        if age.is_lt() {
            self.disturbed = true;
            return Ok(Found::Dropped);
        }
        if !self.begun {
            // Nothing before it is there to say otherwise.
            (self.epoch, self.term) = (head.epoch, head.term);
            self.last.number = head.number.saturating_sub(1);
            self.last.hash = head.before;
            self.middle = (head.number > 1).then_some(head.number);
            self.begun = true;
        }
        let follows = head.number == self.last.number + 1 && head.before == self.last.hash;
        let same = (head.epoch, head.term) == (self.epoch, self.term);
        if !follows && same && self.disturbed {
            return Ok(Found::Dropped);
        }
        if !follows || !same {
            return Err(LogError::Hole {
                seq,
                after: self.last.number,
                found: head.number,
            });
        }
        self.disturbed = false;
        self.last = Place {
            seq,
            number: head.number,
            hash: record.hash,
        };
        self.add(seq, &head, record.body)
    }

    fn add(&mut self, seq: u64, head: &Head, body: &[u8]) -> Result<Found, LogError> {
        let wrong = |error| LogError::Record { seq, error };
        if head.flags & FIRST != 0 {
            self.parts = Some(Parts {
                kind: head.kind,
                flags: head.flags,
                base: head.base,
                first: head.number,
                bytes: Vec::new(),
            });
        }
        let mut parts = self
            .parts
            .take()
            .filter(|parts| parts.kind == head.kind)
            .ok_or_else(|| wrong(RecordError::Content))?;
        if parts.bytes.len() + body.len() > PARTS_MAX * RECORD_BYTES_MAX {
            return Err(wrong(RecordError::Length));
        }
        parts.bytes.extend_from_slice(body);
        parts.flags |= head.flags;
        if head.flags & LAST == 0 {
            self.parts = Some(parts);
            return Ok(Found::Part);
        }
        Ok(Found::Whole(Body {
            kind: parts.kind,
            base: parts.base,
            begins: parts.flags & BEGIN != 0,
            ends: parts.flags & END != 0,
            bytes: parts.bytes,
            first: parts.first,
            place: self.last,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner that writes into a list.
    struct Owner {
        epoch: u64,
        term: u32,
        number: u64,
        hash: u64,
    }

    impl Owner {
        fn claim(&self) -> Vec<u8> {
            record::encode(&self.head(Kind::Claim, 0), b"").0
        }

        fn head(&self, kind: Kind, flags: u8) -> Head {
            Head {
                kind,
                flags,
                epoch: self.epoch,
                term: self.term,
                number: self.number,
                before: self.hash,
                base: 0,
            }
        }

        fn write(&mut self, flags: u8, body: &[u8]) -> Vec<u8> {
            let mut head = self.head(Kind::Ops, flags);
            head.number += 1;
            let (bytes, hash) = record::encode(&head, body);
            (self.number, self.hash) = (head.number, hash);
            bytes
        }

        fn ops(&mut self, body: &[u8]) -> Vec<u8> {
            self.write(FIRST | LAST, body)
        }

        const fn next(&self, epoch: u64, term: u32) -> Self {
            Self {
                epoch,
                term,
                ..*self
            }
        }
    }

    const OWNER: Owner = Owner {
        epoch: 1,
        term: 0,
        number: 0,
        hash: 0,
    };

    /// What counts of these messages, or why they cannot be read.
    fn read(messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, LogError> {
        let mut chain = Chain::from_first(1);
        let mut bodies = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            if let Found::Whole(body) = chain.take(at as u64 + 1, message)? {
                bodies.push(body.bytes);
            }
        }
        Ok(bodies)
    }

    #[test]
    fn records_of_one_owner_count() {
        let mut a = OWNER;
        let log = [a.claim(), a.ops(b"1"), a.ops(b"2")];
        assert_eq!(read(&log), Ok(vec![b"1".to_vec(), b"2".to_vec()]));
    }

    #[test]
    fn what_a_former_owner_writes_behind_a_claim_does_not_count() {
        let mut a = OWNER;
        let mut log = vec![a.claim(), a.ops(b"1")];
        let mut b = a.next(2, 0);
        log.extend([b.claim(), a.ops(b"late"), a.claim()]);
        log.extend([b.ops(b"2"), a.ops(b"later"), b.ops(b"3")]);
        let want = [b"1", b"2", b"3"].map(|body| body.to_vec());
        assert_eq!(read(&log), Ok(want.to_vec()));
    }

    /// A record took the place of one, which the server refused; those behind it stand
    /// at their places, and are written again under the next term.
    #[test]
    fn nothing_counts_behind_a_record_that_lost_its_place() {
        let mut a = OWNER;
        let mut log = vec![a.claim(), a.ops(b"1")];
        let mut b = a.next(1, 1);
        log.extend([b.claim(), a.ops(b"late")]);
        let mut c = b.next(1, 2);
        b.ops(b"refused");
        log.extend([b.ops(b"not counted"), b.ops(b"nor this")]);
        log.extend([c.claim(), c.ops(b"refused"), c.ops(b"not counted")]);
        let want = [&b"1"[..], b"refused", b"not counted"].map(<[u8]>::to_vec);
        assert_eq!(read(&log), Ok(want.to_vec()));
    }

    #[test]
    fn what_is_missing_or_altered_is_seen() {
        let mut a = OWNER;
        let log: Vec<_> = (0..10).map(|n| a.ops(&[n])).collect();
        assert_eq!(read(&log).map(|bodies| bodies.len()), Ok(10));
        for at in 1..9 {
            let mut without = log.clone();
            without.remove(at);
            let hole = LogError::Hole {
                seq: at as u64 + 1,
                after: at as u64,
                found: at as u64 + 2,
            };
            assert_eq!(read(&without), Err(hole));
            let mut altered = log.clone();
            altered[at][50] ^= 4;
            let error = RecordError::Checksum;
            let seq = at as u64 + 1;
            assert_eq!(read(&altered), Err(LogError::Record { seq, error }));
            let mut chain = Chain::from_first(1);
            for (seq, message) in (1..=at as u64).zip(&log) {
                assert!(chain.take(seq, message).is_ok());
            }
            let next = chain.take(at as u64 + 2, &log[at + 1]);
            assert_eq!(next, Err(LogError::Missing { seq }));
        }
    }

    #[test]
    fn parts_count_together_or_not_at_all() {
        let mut a = OWNER;
        let mut log = vec![a.write(FIRST, b"a"), a.write(0, b"b"), a.write(LAST, b"c")];
        assert_eq!(read(&log), Ok(vec![b"abc".to_vec()]));
        log.extend([a.write(FIRST, b"x"), a.write(0, b"y")]);
        let mut b = a.next(2, 0);
        log.extend([b.claim(), a.write(LAST, b"z"), b.ops(b"d")]);
        assert_eq!(read(&log), Ok(vec![b"abc".to_vec(), b"d".to_vec()]));
        // The middle of a body without its beginning.
        let wrong = LogError::Record {
            seq: 9,
            error: RecordError::Content,
        };
        log.push(b.write(LAST, b"?"));
        assert_eq!(read(&log), Err(wrong));
    }
}
