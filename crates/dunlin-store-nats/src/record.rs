//! One record of the log as bytes. Knows no server and no store.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | `DnLR` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | kind: 1 claim, 2 operations, 3 live operations written again |
//! | 6 | 1 | flags: 1 first part, 2 last part, 4 first of what is live, 8 last of it |
//! | 7 | 1 | 0 |
//! | 8 | 8 | epoch |
//! | 16 | 4 | term: how often the owner asked what became of its records |
//! | 20 | 4 | length of the body |
//! | 24 | 8 | number; 0 in a claim |
//! | 32 | 8 | hash of the record before; 0 in a claim |
//! | 40 | 8 | kind 3: the number up to which it says what is live; claim: who |
//! | 48 | – | body |
//! | end | 8 | hash of all before: XXH3, 64 bits |

use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 4] = *b"DnLR";

/// Version that this release writes.
pub const VERSION: u8 = 1;

/// Bytes before the body.
const HEAD_BYTES: usize = 48;

/// Bytes that a record has besides its body.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + 8;

/// It is the first, or only, record of its body.
pub(crate) const FIRST: u8 = 1;
/// It is the last, or only, record of its body.
pub(crate) const LAST: u8 = 2;
/// It is the first of what is live.
pub(crate) const BEGIN: u8 = 4;
/// It is the last of what is live.
pub(crate) const END: u8 = 8;

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What is older, in epoch and term, counts no more from here on.
    Claim,
    /// Operations.
    Ops,
    /// Operations that say what is live at a number, so that the log before it can go.
    Live,
}

/// Everything before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) epoch: u64,
    pub(crate) term: u32,
    pub(crate) number: u64,
    /// Hash of the record before.
    pub(crate) before: u64,
    pub(crate) base: u64,
}

/// A record as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head,
    pub(crate) body: &'a [u8],
    pub(crate) hash: u64,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It does not begin as records do.
    #[error("it is no record of Dunlin")]
    Foreign,
    /// A newer release wrote it.
    #[error("it has version {0}, which this release does not know")]
    Version(u8),
    /// Its length is not what it says.
    #[error("its length is wrong")]
    Length,
    /// A byte of it is not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// Its checksum is right and its content stands for nothing.
    #[error("it stands for nothing")]
    Content,
}

/// The bytes of a record, and its hash.
pub(crate) fn encode(head: &Head, body: &[u8]) -> (Vec<u8>, u64) {
    let mut out = Vec::with_capacity(OVERHEAD_BYTES + body.len());
    out.extend_from_slice(&MAGIC);
    let kind = match head.kind {
        Kind::Claim => 1,
        Kind::Ops => 2,
        Kind::Live => 3,
    };
    out.extend_from_slice(&[VERSION, kind, head.flags, 0]);
    out.extend_from_slice(&head.epoch.to_le_bytes());
    out.extend_from_slice(&head.term.to_le_bytes());
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&head.number.to_le_bytes());
    out.extend_from_slice(&head.before.to_le_bytes());
    out.extend_from_slice(&head.base.to_le_bytes());
    out.extend_from_slice(body);
    let hash = xxh3_64(&out);
    out.extend_from_slice(&hash.to_le_bytes());
    (out, hash)
}

/// Reads a record.
pub(crate) fn decode(bytes: &[u8]) -> Result<Record<'_>, RecordError> {
    let (head, rest) = bytes
        .split_first_chunk::<HEAD_BYTES>()
        .ok_or(RecordError::Length)?;
    let [a, b, c, d, version, kind, flags, _, numbers @ ..] = *head;
    if [a, b, c, d] != MAGIC {
        return Err(RecordError::Foreign);
    }
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    let (body, hash) = rest.split_last_chunk::<8>().ok_or(RecordError::Length)?;
    let hash = u64::from_le_bytes(*hash);
    let sealed = bytes.len().saturating_sub(8);
    if bytes.get(..sealed).map(xxh3_64) != Some(hash) {
        return Err(RecordError::Checksum);
    }
    let u64_at = |at: usize| {
        let bytes = numbers.get(at..at + 8).and_then(|b| b.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(RecordError::Length)
    };
    let both = u64_at(8)?;
    if (both >> 32) as usize != body.len() {
        return Err(RecordError::Length);
    }
    let head = Head {
        kind: match kind {
            1 => Kind::Claim,
            2 => Kind::Ops,
            3 => Kind::Live,
            _ => return Err(RecordError::Content),
        },
        flags,
        epoch: u64_at(0)?,
        term: both as u32,
        number: u64_at(16)?,
        before: u64_at(24)?,
        base: u64_at(32)?,
    };
    Ok(Record { head, body, hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            kind: Kind::Ops,
            flags: FIRST | LAST,
            epoch: 0x0102,
            term: 0x0304,
            number: 0x0506,
            before: u64::MAX,
            base: 7,
        }
    }

    #[test]
    fn records_come_back() {
        for kind in [Kind::Claim, Kind::Ops, Kind::Live] {
            let head = Head { kind, ..head() };
            for body in [&b""[..], b"x", &[9; 1000]] {
                let (bytes, hash) = encode(&head, body);
                assert_eq!(bytes.len(), OVERHEAD_BYTES + body.len());
                assert_eq!(decode(&bytes), Ok(Record { head, body, hash }));
            }
        }
    }

    /// Every changed bit and every beginning is refused.
    #[test]
    fn what_is_altered_is_no_record() {
        let (bytes, _) = encode(&head(), b"body");
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&altered).is_err(), "bit {bit}");
        }
        let mut newer = bytes;
        newer[4] = VERSION + 1;
        assert_eq!(decode(&newer), Err(RecordError::Version(VERSION + 1)));
    }
}
