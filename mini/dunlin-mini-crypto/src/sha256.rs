//! SHA-256 (FIPS 180-4). Knows nothing of its users.

use core::cell::Cell;

use crate::{BLOCK_LEN, Digest, fill};

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

/// A running SHA-256. An unrolled one is faster, and takes more code.
#[derive(Clone)]
pub struct OwnHash<const UNROLLED: bool> {
    state: [u32; 8],
    block: [u8; BLOCK_LEN],
    bytes: u64,
}

impl<const UNROLLED: bool> core::fmt::Debug for OwnHash<UNROLLED> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OwnHash")
    }
}

impl<const UNROLLED: bool> OwnHash<UNROLLED> {
    pub(crate) const fn new() -> Self {
        Self {
            state: START,
            block: [0; BLOCK_LEN],
            bytes: 0,
        }
    }

    #[inline(never)]
    pub(crate) fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let at = self.bytes as usize % BLOCK_LEN;
            if at == 0
                && let Some((block, rest)) = data.split_first_chunk()
            {
                compress::<UNROLLED>(&mut self.state, block);
                self.bytes = self.bytes.wrapping_add(BLOCK_LEN as u64);
                data = rest;
                continue;
            }
            let room = self.block.get_mut(at..).unwrap_or_default();
            let len = fill(room, data);
            data = data.get(len..).unwrap_or_default();
            self.bytes = self.bytes.wrapping_add(len as u64);
            if at + len == BLOCK_LEN {
                compress::<UNROLLED>(&mut self.state, &self.block);
            }
        }
    }

    pub(crate) fn finish(mut self) -> Digest {
        const PADDING: [u8; BLOCK_LEN] = {
            let mut padding = [0; BLOCK_LEN];
            padding[0] = 0x80;
            padding
        };
        let bits = self.bytes.wrapping_shl(3).to_be_bytes();
        // Up to eight bytes below the end of a block.
        let len = (BLOCK_LEN + 55 - self.bytes as usize % BLOCK_LEN) % BLOCK_LEN;
        self.update(PADDING.get(..=len).unwrap_or_default());
        self.update(&bits);
        let mut out = Digest::default();
        for (to, word) in out.as_chunks_mut().0.iter_mut().zip(&self.state) {
            *to = word.to_be_bytes();
        }
        out
    }
}

/// A round of FIPS 180-4 section 6.2.2, step 3, which leaves its new values in
/// `d` and `h`.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident $k:expr, $w:expr) => {
        let t = $h
            .wrapping_add($e.rotate_right(6) ^ $e.rotate_right(11) ^ $e.rotate_right(25))
            .wrapping_add($g ^ ($e & ($f ^ $g)))
            .wrapping_add($k)
            .wrapping_add($w);
        $d = $d.wrapping_add(t);
        $h = t
            .wrapping_add($a.rotate_right(2) ^ $a.rotate_right(13) ^ $a.rotate_right(22))
            .wrapping_add(($a & $b) | ($c & ($a | $b)));
    };
}

/// FIPS 180-4 section 6.2.2.
#[inline(never)]
fn compress<const UNROLLED: bool>(state: &mut [u32; 8], block: &[u8; BLOCK_LEN]) {
    let after = if UNROLLED {
        unrolled(state, block)
    } else {
        let mut words = [0; 64];
        schedule(&mut words, block);
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
        for (k, w) in ROUND.iter().zip(&words) {
            round!(a b c d e f g h *k, *w);
            (a, b, c, d, e, f, g, h) = (h, a, b, c, d, e, f, g);
        }
        [a, b, c, d, e, f, g, h]
    };
    for (to, from) in state.iter_mut().zip(&after) {
        *to = to.wrapping_add(*from);
    }
}

/// All rounds, sixteen at a time, after which the sixteen words are the next.
#[inline(always)]
fn unrolled(state: &[u32; 8], block: &[u8; BLOCK_LEN]) -> [u32; 8] {
    let mut w = [0; 16];
    for (word, bytes) in w.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let mut ks = ROUND.as_chunks::<16>().0.iter();
    while let Some(k) = ks.next() {
        round!(a b c d e f g h k[0], w[0]);
        round!(h a b c d e f g k[1], w[1]);
        round!(g h a b c d e f k[2], w[2]);
        round!(f g h a b c d e k[3], w[3]);
        round!(e f g h a b c d k[4], w[4]);
        round!(d e f g h a b c k[5], w[5]);
        round!(c d e f g h a b k[6], w[6]);
        round!(b c d e f g h a k[7], w[7]);
        round!(a b c d e f g h k[8], w[8]);
        round!(h a b c d e f g k[9], w[9]);
        round!(g h a b c d e f k[10], w[10]);
        round!(f g h a b c d e k[11], w[11]);
        round!(e f g h a b c d k[12], w[12]);
        round!(d e f g h a b c k[13], w[13]);
        round!(c d e f g h a b k[14], w[14]);
        round!(b c d e f g h a k[15], w[15]);
        if ks.len() == 0 {
            break;
        }
        macro_rules! next {
            ($($to:literal $early:literal $middle:literal $late:literal)*) => { $(
                w[$to] = w[$to]
                    .wrapping_add(early(w[$early]))
                    .wrapping_add(w[$middle])
                    .wrapping_add(late(w[$late]));
            )* };
        }
        next!(0 1 9 14  1 2 10 15  2 3 11 0  3 4 12 1  4 5 13 2  5 6 14 3  6 7 15 4  7 8 0 5);
        next!(8 9 1 6  9 10 2 7  10 11 3 8  11 12 4 9  12 13 5 10  13 14 6 11  14 15 7 12  15 0 8 13);
    }
    [a, b, c, d, e, f, g, h]
}

/// The lower sigma functions of FIPS 180-4 section 4.1.2.
#[inline(always)]
const fn early(word: u32) -> u32 {
    word.rotate_right(7) ^ word.rotate_right(18) ^ (word >> 3)
}

#[inline(always)]
const fn late(word: u32) -> u32 {
    word.rotate_right(17) ^ word.rotate_right(19) ^ (word >> 10)
}

/// FIPS 180-4 section 6.2.2, step 1.
#[inline(always)]
fn schedule(words: &mut [u32; 64], block: &[u8; BLOCK_LEN]) {
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let words = Cell::from_mut(&mut words[..]).as_slice_of_cells();
    for words in words.windows(17) {
        let [w0, w1, _, _, _, _, _, _, _, w9, _, _, _, _, w14, _, to] = words else {
            break;
        };
        to.set(
            w0.get()
                .wrapping_add(early(w1.get()))
                .wrapping_add(w9.get())
                .wrapping_add(late(w14.get())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_agree() {
        let data: [u8; 300] = core::array::from_fn(|i| (i * 7) as u8);
        for len in 0..data.len() {
            let (mut small, mut large) = (OwnHash::<false>::new(), OwnHash::<true>::new());
            small.update(&data[..len]);
            large.update(&data[..len]);
            assert_eq!(small.finish(), large.finish());
        }
    }
}
