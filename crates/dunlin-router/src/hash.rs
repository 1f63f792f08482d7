//! The keyed hash of an edge of the subscription tree: parent node and level.
//!
//! Folded multiplication with secret words (the construction of wyhash and
//! foldhash): two multiplications for a level of up to 16 bytes. It resists a
//! peer that chooses levels without seeing hash values, which is all that the
//! edge table needs; it is no cryptographic hash.

use dunlin_base::Random;

/// Secret words derived from one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey {
    start: u64,
    left: u64,
    right: u64,
}

impl HashKey {
    pub(crate) const fn new(seed: u64) -> Self {
        let mut words = Random::new(seed);
        Self {
            start: words.next(),
            left: words.next(),
            right: words.next(),
        }
    }

    /// Hash of the edge from node `parent` with the literal `level`.
    #[inline]
    pub(crate) fn edge(&self, parent: u32, level: &[u8]) -> u32 {
        let head = (u64::from(parent) << 32) ^ level.len() as u64;
        let mut state = fold(head ^ self.start, self.left);
        let mut rest = level;
        while let Some((chunk, tail)) = rest.split_first_chunk::<16>() {
            if tail.is_empty() {
                break;
            }
            let (a, b) = pair(chunk);
            state = fold(a ^ state, b ^ self.right);
            rest = tail;
        }
        let (a, b) = last_words(rest);
        state = fold(a ^ state, b ^ self.right);
        // The top half, because the table takes its index from the top bits.
        (state >> 32) as u32
    }
}

/// The last 1 to 16 bytes as two words; the reads overlap for odd lengths, the
/// length itself is part of the state.
#[inline]
fn last_words(bytes: &[u8]) -> (u64, u64) {
    if let (Some(a), Some(b)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (u64::from_le_bytes(*a), u64::from_le_bytes(*b))
    } else if let (Some(a), Some(b)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (
            u64::from(u32::from_le_bytes(*a)),
            u64::from(u32::from_le_bytes(*b)),
        )
    } else if let (Some(a), Some(b)) = (bytes.first(), bytes.last()) {
        let middle = bytes.get(bytes.len() / 2).copied().unwrap_or_default();
        (u64::from(*a), u64::from(*b) | u64::from(middle) << 8)
    } else {
        (0, 0)
    }
}

#[inline]
fn pair(chunk: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*chunk);
    (both as u64, (both >> 64) as u64)
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let full = (a as u128).wrapping_mul(b as u128);
    (full as u64) ^ ((full >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    #[test]
    fn every_byte_length_parent_and_seed_counts() {
        let key = HashKey::new(7);
        let mut seen = BTreeSet::new();
        for len in 0..70 {
            let level = vec![b'x'; len];
            assert!(seen.insert(key.edge(1, &level)), "length {len}");
            assert!(seen.insert(key.edge(2, &level)), "parent, length {len}");
            for at in 0..len {
                let mut other = level.clone();
                other[at] = b'y';
                assert!(seen.insert(key.edge(1, &other)), "byte {at} of {len}");
            }
        }
        assert_eq!(key.edge(1, b"a"), HashKey::new(7).edge(1, b"a"));
        assert_ne!(key.edge(1, b"a"), HashKey::new(8).edge(1, b"a"));
    }
}
