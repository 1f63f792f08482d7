//! SHA-256 (FIPS 180-4), one byte at a time. Knows nothing of its users.

use crate::{BLOCK_LEN, Digest};

/// FIPS 180-4 section 4.2.2.
const ROUND: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// FIPS 180-4 section 5.3.3.
const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// A running SHA-256.
#[derive(Clone)]
pub struct TinyHash {
    state: [u32; 8],
    block: [u8; BLOCK_LEN],
    bytes: u64,
}

impl core::fmt::Debug for TinyHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinyHash")
    }
}

impl TinyHash {
    pub(super) const fn new() -> Self {
        Self {
            state: START,
            block: [0; BLOCK_LEN],
            bytes: 0,
        }
    }

    #[inline(never)]
    pub(super) fn update(&mut self, data: &[u8]) {
        for &byte in data {
            let at = self.bytes as usize % BLOCK_LEN;
            if let Some(to) = self.block.get_mut(at) {
                *to = byte;
            }
            self.bytes = self.bytes.wrapping_add(1);
            if at == BLOCK_LEN - 1 {
                compress(&mut self.state, &self.block);
            }
        }
    }

    pub(super) fn finish(mut self) -> Digest {
        let bits = self.bytes.wrapping_shl(3).to_be_bytes();
        let mut pad = 0x80;
        loop {
            self.update(&[pad]);
            pad = 0;
            if self.bytes as usize % BLOCK_LEN == BLOCK_LEN - 8 {
                break;
            }
        }
        self.update(&bits);
        let mut out = Digest::default();
        for (to, word) in out.as_chunks_mut().0.iter_mut().zip(self.state) {
            *to = word.to_be_bytes();
        }
        out
    }
}

/// FIPS 180-4 section 6.2.2, with the schedule in a ring of sixteen words.
#[inline(never)]
fn compress(state: &mut [u32; 8], block: &[u8; BLOCK_LEN]) {
    let mut ring = [0_u32; 16];
    for (word, bytes) in ring.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (i, k) in ROUND.into_iter().enumerate() {
        let word = at(&ring, i);
        let t1 = h
            .wrapping_add(e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25))
            .wrapping_add(g ^ (e & (f ^ g)))
            .wrapping_add(k)
            .wrapping_add(word);
        let t2 = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22))
            .wrapping_add((a & b) | (c & (a | b)));
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(t2));
        let (early, late) = (at(&ring, i + 1), at(&ring, i + 14));
        let next = word
            .wrapping_add(early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3))
            .wrapping_add(at(&ring, i + 9))
            .wrapping_add(late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10));
        if let Some(to) = ring.get_mut(i % 16) {
            *to = next;
        }
    }
    for (to, from) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *to = to.wrapping_add(from);
    }
}

/// A word of the ring.
fn at(ring: &[u32; 16], i: usize) -> u32 {
    ring.get(i % 16).copied().unwrap_or_default()
}
