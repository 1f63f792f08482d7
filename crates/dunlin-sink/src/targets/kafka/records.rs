//! Records: rows on their way to them, their partition, and batches as the protocol has
//! them (version 2). Knows no server.

use std::sync::Arc;

use super::wire::length;
use crate::expression::{Expression, Scope};
use crate::input::Input;
use crate::refusal::{Cause, Refusal};
use crate::shape::Shape;
use crate::target::Encode;

/// Header with the topic of a message whose payload is stored as it came.
const TOPIC_HEADER: &str = "mqtt-topic";

/// Marks a part that is not there.
const NONE: u32 = u32::MAX;

/// Writes records.
pub(super) struct Records {
    pub(super) shape: Arc<Shape>,
    pub(super) key: Option<Expression>,
}

impl Encode for Records {
    fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let header = self.shape.is_plain().then_some(input.topic);
        let mut body = Vec::new();
        self.shape.rows(input, |scope| {
            body.clear();
            self.shape.write_body(scope, &mut body)?;
            let key = self.key(scope)?;
            let record = Record {
                at: 0,
                millis: input.time.div_euclid(1_000),
                key: key.as_deref().map(str::as_bytes),
                topic: header.map(str::as_bytes),
                value: &body,
            };
            record
                .write(out)
                .ok_or_else(|| Refusal::new(Cause::Value, "it is too long"))
        })
    }

    fn runs_programs(&self) -> bool {
        self.shape.runs_programs() || self.key.as_ref().is_some_and(Expression::is_program)
    }
}

impl Records {
    /// The key of a record; none where the expression gives null.
    fn key(&self, scope: &Scope<'_>) -> Result<Option<String>, Refusal> {
        let Some(key) = &self.key else {
            return Ok(Some(scope.input.topic.to_owned()));
        };
        let value = key.eval(scope)?;
        match (value.to_text(), &*value) {
            (Some(text), _) => Ok(Some(text.into_owned())),
            (None, crate::value::Value::Null) => Ok(None),
            (None, other) => {
                let why = format!("`kafka.key` gives {}, and no text", other.kind());
                Err(Refusal::new(Cause::Value, why))
            }
        }
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Where it stands in the rows.
    pub(super) at: usize,
    millis: i64,
    pub(super) key: Option<&'a [u8]>,
    topic: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
}

/// Bytes of a batch in front of its records.
pub(super) const BATCH_HEAD_BYTES: usize = 61;

impl Record<'_> {
    /// How long it is in a batch that begins with this one, after so many others.
    pub(super) fn bytes_after(&self, first: &Record<'_>, others: usize) -> usize {
        let part = |part: Option<&[u8]>| {
            let bytes = part.map_or(-1, |part| length(part.len()).into());
            varint_bytes(bytes) + part.map_or(0, <[u8]>::len)
        };
        let header = self.topic.map_or(0, |topic| {
            part(Some(TOPIC_HEADER.as_bytes())) + part(Some(topic))
        });
        // Two bytes: what it is, and how many headers it has.
        let bytes = 2
            + varint_bytes(self.millis.wrapping_sub(first.millis))
            + varint_bytes(length(others).into())
            + part(self.key)
            + part(Some(self.value))
            + header;
        varint_bytes(length(bytes).into()) + bytes
    }

    /// Appends it as a row: time, three lengths, then the parts.
    fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        let parts = [self.key, self.topic, Some(self.value)];
        let mut lengths = [NONE; 3];
        for (length, part) in lengths.iter_mut().zip(parts) {
            if let Some(part) = part {
                *length = u32::try_from(part.len()).ok().filter(|it| *it != NONE)?;
            }
        }
        out.extend(self.millis.to_be_bytes());
        out.extend(lengths.into_iter().flat_map(u32::to_be_bytes));
        for part in parts.into_iter().flatten() {
            out.extend_from_slice(part);
        }
        Some(())
    }
}

/// Records as they were appended.
pub(super) fn records(all: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = all;
    core::iter::from_fn(move || {
        let at = all.len() - rest.len();
        let (millis, after) = rest.split_first_chunk()?;
        let mut after = after;
        let mut lengths = [None; 3];
        for length in &mut lengths {
            let (bytes, next) = after.split_first_chunk()?;
            let number = u32::from_be_bytes(*bytes);
            *length = match number {
                NONE => None,
                some => Some(usize::try_from(some).ok()?),
            };
            after = next;
        }
        let mut parts = [None; 3];
        for (part, length) in parts.iter_mut().zip(lengths) {
            if let Some(length) = length {
                let (bytes, next) = after.split_at_checked(length)?;
                *part = Some(bytes);
                after = next;
            }
        }
        rest = after;
        let [key, topic, value] = parts;
        Some(Record {
            at,
            millis: i64::from_be_bytes(*millis),
            key,
            topic,
            value: value?,
        })
    })
}

/// The partition of a key, of some: the same as the producers of Kafka itself choose.
pub(super) fn partition(key: &[u8], partitions: usize) -> usize {
    let positive = murmur2(key) & 0x7fff_ffff;
    positive as usize % partitions.max(1)
}

fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // Of keys that are longer than the hash can say only their length is cut.
    let mut hash = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let word = word
            .iter()
            .rev()
            .fold(0, |all, byte| (all << 8) | u32::from(*byte));
        let mut k = word.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest
            .iter()
            .rev()
            .fold(0, |all, byte| (all << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Who sends a batch, and which of its records is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) producer: i64,
    pub(super) epoch: i16,
    /// Number of the first record, of all that the producer sent to the partition.
    pub(super) sequence: i32,
}

/// A batch of records.
pub(super) fn batch(records: &[Record<'_>], sender: Sender) -> Vec<u8> {
    const MAGIC: u8 = 2;
    let first = records.first().map_or(0, |record| record.millis);
    let last = records.iter().map(|record| record.millis).max();
    let mut body = Vec::new();
    // Not compressed, time of the sink, no transaction.
    body.extend(0_i16.to_be_bytes());
    body.extend(length(records.len().saturating_sub(1)).to_be_bytes());
    body.extend(first.to_be_bytes());
    body.extend(last.unwrap_or(first).to_be_bytes());
    body.extend(sender.producer.to_be_bytes());
    body.extend(sender.epoch.to_be_bytes());
    body.extend(sender.sequence.to_be_bytes());
    body.extend(length(records.len()).to_be_bytes());
    let mut one = Vec::new();
    for (offset, record) in (0..).zip(records) {
        one.clear();
        one.push(0);
        put_varint(record.millis.wrapping_sub(first), &mut one);
        put_varint(offset, &mut one);
        put_part(record.key, &mut one);
        put_part(Some(record.value), &mut one);
        put_varint(record.topic.is_some().into(), &mut one);
        if let Some(topic) = record.topic {
            put_part(Some(TOPIC_HEADER.as_bytes()), &mut one);
            put_part(Some(topic), &mut one);
        }
        put_varint(length(one.len()).into(), &mut body);
        body.extend_from_slice(&one);
    }
    let mut out = Vec::with_capacity(body.len() + 21);
    out.extend(0_i64.to_be_bytes());
    // What follows: epoch of the leader, version, checksum, the rest.
    out.extend(length(body.len() + 9).to_be_bytes());
    out.extend((-1_i32).to_be_bytes());
    out.push(MAGIC);
    out.extend(crc32c::crc32c(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

fn put_part(part: Option<&[u8]>, out: &mut Vec<u8>) {
    match part {
        None => put_varint(-1, out),
        Some(part) => {
            put_varint(length(part.len()).into(), out);
            out.extend_from_slice(part);
        }
    }
}

/// How long such a number is.
const fn varint_bytes(number: i64) -> usize {
    let bits = u64::BITS - (zigzag(number) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Numbers with a sign, so that those near 0 are small without one.
const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// A number with a sign in as few groups of 7 bits as it needs.
fn put_varint(number: i64, out: &mut Vec<u8>) {
    let mut rest = zigzag(number);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: Sender = Sender {
        producer: 7,
        epoch: 1,
        sequence: 5,
    };

    #[test]
    fn keys_have_the_partition_that_others_give_them() {
        // Of the tests of Kafka's own client.
        for (key, want) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, want, "{key}");
        }
        assert_eq!(partition(b"abc", 10), 7);
        assert_eq!(partition(b"21", 1), 0);
    }

    #[test]
    fn numbers_are_short() {
        for (number, want) in [
            (0, &[0][..]),
            (-1, &[1]),
            (63, &[126]),
            (-64, &[127]),
            (64, &[128, 1]),
            (300, &[216, 4]),
        ] {
            let mut out = Vec::new();
            put_varint(number, &mut out);
            assert_eq!(out, want, "{number}");
            assert_eq!(varint_bytes(number), want.len(), "{number}");
        }
    }

    #[test]
    fn records_that_are_cut_end() {
        let record = Record {
            at: 0,
            millis: 1,
            key: None,
            topic: Some(b"a/b"),
            value: b"body",
        };
        let mut rows = Vec::new();
        record.write(&mut rows).expect("short");
        let bytes = rows.len();
        record.write(&mut rows).expect("short");
        let found: Vec<_> = records(&rows).collect();
        assert_eq!(
            found,
            [
                record,
                Record {
                    at: bytes,
                    ..record
                }
            ]
        );
        assert_eq!(records(&rows[..rows.len() - 1]).count(), 1);
    }

    #[test]
    fn a_batch_says_who_sent_it_and_has_a_checksum() {
        let record = Record {
            at: 0,
            millis: 1_000,
            key: Some(b"k"),
            topic: None,
            value: b"v",
        };
        let later = Record {
            millis: 1_003,
            ..record
        };
        let out = batch(&[record, later], SENDER);
        let (head, body) = out.split_at(21);
        assert_eq!(head[8..12], (body.len() as u32 + 9).to_be_bytes());
        assert_eq!(head[16], 2);
        assert_eq!(head[17..], crc32c::crc32c(body).to_be_bytes());
        let want = [
            &[0, 0, 0, 0, 0, 1][..],
            &1_000_i64.to_be_bytes(),
            &1_003_i64.to_be_bytes(),
            &7_i64.to_be_bytes(),
            &[0, 1, 0, 0, 0, 5, 0, 0, 0, 2],
            &[16, 0, 0, 0, 2, b'k', 2, b'v', 0],
            &[16, 0, 6, 2, 2, b'k', 2, b'v', 0],
        ];
        assert_eq!(body, want.concat());
    }

    #[test]
    fn it_is_known_how_long_a_batch_gets() {
        let long = [b'x'; 9_000];
        let parts = [
            None,
            Some(&b""[..]),
            Some(b"k"),
            Some(&long[..64]),
            Some(&long),
        ];
        let mut all = Vec::new();
        let mut bytes = BATCH_HEAD_BYTES;
        for (at, millis) in [0, 1, -63, -65, 1 << 40, i64::MIN].into_iter().enumerate() {
            for key in parts {
                for topic in parts {
                    let value = key.or(topic).unwrap_or_default();
                    all.push(Record {
                        at,
                        millis,
                        key,
                        topic,
                        value,
                    });
                    let (first, last) = (&all[0], &all[all.len() - 1]);
                    bytes += last.bytes_after(first, all.len() - 1);
                    assert_eq!(batch(&all, SENDER).len(), bytes, "{}", all.len());
                }
            }
        }
    }
}
