//! Rows of the file as bytes: which table, the name of a key for people, and
//! the checksum that ends every value. Knows nothing of pages and transactions.
//!
//! The checksum covers table, key and value, so that a value is not accepted at
//! another place than its own.

use core::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use dunlin_store::Seq;

use crate::codec::{self, DecodeError};
use crate::pages::DESCRIBED_MAX;

/// Bytes of the checksum at the end of every value.
pub(crate) const CHECKSUM_BYTES: usize = 8;

/// A table whose values end with a checksum. The numbers are part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Table {
    Log = 1,
    Marks = 2,
    Sessions = 3,
    Subscriptions = 4,
    Inflight = 5,
    Inbound = 6,
    Retained = 7,
    Meta = 8,
}

impl Table {
    /// All, each after those that its rows need when they are read one by one.
    pub(crate) const ALL: [Self; 8] = [
        Self::Sessions,
        Self::Subscriptions,
        Self::Inflight,
        Self::Inbound,
        Self::Marks,
        Self::Log,
        Self::Retained,
        Self::Meta,
    ];

    /// Its name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Marks => "marks",
            Self::Sessions => "sessions",
            Self::Subscriptions => "subscriptions",
            Self::Inflight => "inflight",
            Self::Inbound => "inbound",
            Self::Retained => "retained",
            Self::Meta => "meta",
        }
    }

    fn checksum(self, key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
        let place = xxh3_64_with_seed(key, self as u64);
        xxh3_64_with_seed(value, place).to_le_bytes()
    }

    /// Ends `value`, which belongs to `key`, with its checksum.
    pub(crate) fn seal(self, key: &[u8], value: &mut Vec<u8>) {
        let checksum = self.checksum(key, value);
        value.extend_from_slice(&checksum);
    }

    /// The value without its checksum, which must be right.
    pub(crate) fn unseal<'a>(self, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], BadRow> {
        let parts = sealed.split_last_chunk::<CHECKSUM_BYTES>();
        match parts {
            Some((value, checksum)) if self.checksum(key, value) == *checksum => Ok(value),
            _ => Err(self.bad(key, DecodeError::Checksum)),
        }
    }

    /// That this row cannot be read.
    pub(crate) fn bad(self, key: &[u8], error: DecodeError) -> BadRow {
        BadRow {
            table: self,
            key: key.to_vec(),
            error,
        }
    }

    /// The key as people name it.
    fn key_name(self, key: &[u8]) -> String {
        let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes);
        let name = match self {
            Self::Log => number(key).ok().map(message_name),
            Self::Sessions => number(key).ok().map(|key| format!("session {key}")),
            Self::Marks => <[u8; 16]>::try_from(key).ok().map(|key| {
                let (seq, session) = codec::split_mark_key(key);
                format!("{} for session {session}", message_name(seq))
            }),
            Self::Inflight | Self::Inbound => <[u8; 10]>::try_from(key).ok().map(|key| {
                let (session, packet_id) = codec::split_packet_key(key);
                format!("session {session}, packet identifier {packet_id}")
            }),
            Self::Subscriptions => codec::split_subscription_key(key)
                .ok()
                .map(|(session, filter)| format!("session {session}, filter {filter:?}")),
            Self::Retained | Self::Meta => core::str::from_utf8(key)
                .ok()
                .map(|name| format!("{name:?}")),
        };
        name.unwrap_or_else(|| format!("bytes {key:02x?}"))
    }
}

fn message_name(seq: u64) -> String {
    let (counter, shard) = (Seq(seq).counter(), Seq(seq).shard().0);
    format!("message {seq} (number {counter} of shard {shard})")
}

/// A row that cannot be read: which, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadRow {
    pub(crate) table: Table,
    key: Vec<u8>,
    error: DecodeError,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, key) = (self.table.name(), self.table.key_name(&self.key));
        write!(f, "table {table}, {key}: {}", self.error)
    }
}

/// Rows that cannot be read: some in words, all counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadRows {
    pub(crate) described: Vec<String>,
    pub(crate) count: u64,
}

impl BadRows {
    pub(crate) fn push(&mut self, row: &BadRow) {
        self.count += 1;
        if self.described.len() < DESCRIBED_MAX {
            self.described.push(row.to_string());
        }
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.count += more.count;
        let room = DESCRIBED_MAX.saturating_sub(self.described.len());
        self.described.extend(more.described.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_accepted_at_its_place_only() {
        let mut sealed = b"value".to_vec();
        Table::Log.seal(&7_u64.to_le_bytes(), &mut sealed);
        let key = 7_u64.to_le_bytes();
        assert_eq!(Table::Log.unseal(&key, &sealed), Ok(b"value".as_slice()));
        assert!(Table::Sessions.unseal(&key, &sealed).is_err());
        let elsewhere = Table::Log.unseal(&8_u64.to_le_bytes(), &sealed);
        let error = elsewhere.expect_err("another key").to_string();
        assert_eq!(
            error,
            "table log, message 8 (number 0 of shard 8): the checksum is wrong"
        );
        for bit in 0..8 * sealed.len() {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Table::Log.unseal(&key, &damaged).is_err());
        }
        for len in 0..sealed.len() {
            assert!(Table::Log.unseal(&key, &sealed[..len]).is_err());
        }
    }
}
