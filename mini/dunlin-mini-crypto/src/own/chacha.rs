//! ChaCha20-Poly1305 (RFC 8439). Knows nothing of packets.
//!
//! Nothing here branches on a secret or reads memory at an address that depends
//! on one, as long as the processor multiplies in a constant time.

use core::hint::black_box;

use crate::{NONCE_LEN, SuiteKey, TAG_LEN, equal};

/// `expand 32-byte k`, RFC 8439 section 2.3.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The clamp of RFC 8439 section 2.5.
const CLAMP: [u32; 4] = [0x0fff_ffff, 0x0fff_fffc, 0x0fff_fffc, 0x0fff_fffc];

/// A key of ChaCha20; wiped when dropped. Blocks of an unrolled one are made
/// faster, and by more code.
pub(crate) struct Key<const UNROLLED: bool>([[u32; 4]; 2]);

impl<const UNROLLED: bool> Drop for Key<UNROLLED> {
    fn drop(&mut self) {
        let words = self.0.as_flattened_mut();
        words.fill(0);
        black_box(words);
    }
}

impl<const UNROLLED: bool> Key<UNROLLED> {
    pub(crate) fn new(key: &SuiteKey) -> Self {
        let mut words = [[0; 4]; 2];
        let key = key.as_flattened().as_chunks().0;
        for (word, bytes) in words.as_flattened_mut().iter_mut().zip(key) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// A block of the key stream. The input is the counter and the nonce.
    #[inline(never)]
    fn block(&self, input: &[u32; 4]) -> [u32; 16] {
        let [low, high] = self.0;
        let start = [CONSTANTS, low, high, *input];
        let mut rows = start;
        if UNROLLED {
            unrolled(&mut rows);
        } else {
            rounds(&mut rows);
        }
        let mut out = [0; 16];
        let sums = rows.as_flattened().iter().zip(start.as_flattened());
        for (out, (end, start)) in out.iter_mut().zip(sums) {
            *out = end.wrapping_add(*start);
        }
        out
    }

    /// Encrypts `data` in place and returns the tag.
    pub(crate) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let mut input = input(nonce);
        let once = self.block(&input);
        self.stream(&mut input, data);
        tag(&once, aad, data)
    }

    /// Decrypts `data` in place if `expected` is its tag, and leaves it
    /// otherwise.
    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        expected: &[u8; TAG_LEN],
    ) -> bool {
        let mut input = input(nonce);
        let right = equal(&tag(&self.block(&input), aad, data), expected);
        if right {
            self.stream(&mut input, data);
        }
        right
    }

    /// Makes the mask of a sample (RFC 9001 section 5.4.4) in its place: the
    /// first bytes of the block whose counter and nonce it is.
    pub(crate) fn mask(&self, sample: &mut [u8; 16]) {
        let mut input = [0; 4];
        for (word, bytes) in input.iter_mut().zip(sample.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let block = self.block(&input);
        for (bytes, word) in sample.as_chunks_mut().0.iter_mut().zip(&block) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Adds the key stream from the block after that of `input` on.
    #[inline(never)]
    fn stream(&self, input: &mut [u32; 4], data: &mut [u8]) {
        for chunk in data.chunks_mut(64) {
            let [counter, ..] = input;
            *counter = counter.wrapping_add(1);
            let block = self.block(input);
            let (words, rest) = chunk.as_chunks_mut();
            let mut key = block.iter();
            // In this order: the last one takes one too many.
            for (bytes, key) in words.iter_mut().zip(key.by_ref()) {
                *bytes = (u32::from_le_bytes(*bytes) ^ key).to_le_bytes();
            }
            let last = block.get(words.len()).copied().unwrap_or_default();
            for (byte, key) in rest.iter_mut().zip(last.to_le_bytes()) {
                *byte ^= key;
            }
        }
    }
}

/// The input of the first block.
fn input(nonce: &[u8; NONCE_LEN]) -> [u32; 4] {
    let mut input = [0; 4];
    let [_, words @ ..] = &mut input;
    for (word, bytes) in words.iter_mut().zip(nonce.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    input
}

/// A quarter round, RFC 8439 section 2.1.
macro_rules! quarter {
    ($($a:ident $b:ident $c:ident $d:ident)*) => { $(
        $a = $a.wrapping_add($b);
        $d = ($d ^ $a).rotate_left(16);
        $c = $c.wrapping_add($d);
        $b = ($b ^ $c).rotate_left(12);
        $a = $a.wrapping_add($b);
        $d = ($d ^ $a).rotate_left(8);
        $c = $c.wrapping_add($d);
        $b = ($b ^ $c).rotate_left(7);
    )* };
}

/// Twenty rounds on the four rows of the state. Between two of them, the rows
/// turn, so that diagonals are columns and the other way around.
#[inline(always)]
fn rounds(rows: &mut [[u32; 4]; 4]) {
    let [first, second, third, fourth] = rows;
    for round in 0..20 {
        let pairs = first.iter_mut().zip(second.iter_mut());
        for ((a, b), (c, d)) in pairs.zip(third.iter_mut().zip(fourth.iter_mut())) {
            let (mut w, mut x, mut y, mut z) = (*a, *b, *c, *d);
            quarter!(w x y z);
            (*a, *b, *c, *d) = (w, x, y, z);
        }
        let (left, right) = if round & 1 == 0 {
            (&mut *second, &mut *fourth)
        } else {
            (&mut *fourth, &mut *second)
        };
        let [a, b, c, d] = *left;
        *left = [b, c, d, a];
        let [a, b, c, d] = *third;
        *third = [c, d, a, b];
        let [a, b, c, d] = *right;
        *right = [d, a, b, c];
    }
}

/// The same with the words in variables.
#[inline(always)]
fn unrolled(rows: &mut [[u32; 4]; 4]) {
    let [
        [mut a, mut b, mut c, mut d],
        [mut e, mut f, mut g, mut h],
        [mut i, mut j, mut k, mut l],
        [mut m, mut n, mut o, mut p],
    ] = *rows;
    for _ in 0..10 {
        quarter!(a e i m  b f j n  c g k o  d h l p);
        quarter!(a f k p  b g l m  c h i n  d e j o);
    }
    *rows = [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]];
}

/// Poly1305 of RFC 8439 section 2.8, whose key begins the first block.
#[inline(never)]
fn tag(once: &[u32; 16], aad: &[u8], data: &[u8]) -> [u8; TAG_LEN] {
    let [r0, r1, r2, r3, pad @ ..] = once;
    let mut r = [*r0, *r1, *r2, *r3];
    for (word, clamp) in r.iter_mut().zip(&CLAMP) {
        *word &= clamp;
    }
    let lengths = (aad.len() as u128 | (data.len() as u128) << 64).to_le_bytes();
    let mut sum = [0; 5];
    for part in [aad, data, &lengths] {
        let (whole, rest) = part.as_chunks();
        for block in whole {
            absorb(&mut sum, &r, block);
        }
        if !rest.is_empty() {
            let mut block = [0; 16];
            for (to, from) in block.iter_mut().zip(rest) {
                *to = *from;
            }
            absorb(&mut sum, &r, &block);
        }
    }
    finish(&sum, pad)
}

/// The sum modulo 2^130 - 5, which it has once at most, and the pad.
#[inline(always)]
fn finish(sum: &[u32; 5], pad: &[u32]) -> [u8; TAG_LEN] {
    let [low @ .., top] = sum;
    let carried = low
        .iter()
        .fold(5, |carry, word| (carry + u64::from(*word)) >> 32);
    let mut carry = ((carried + u64::from(*top)) >> 2) * 5;
    let mut out = [0; TAG_LEN];
    let words = low.iter().zip(pad);
    for (to, (word, pad)) in out.as_chunks_mut().0.iter_mut().zip(words) {
        carry += u64::from(*word) + u64::from(*pad);
        *to = (carry as u32).to_le_bytes();
        carry >>= 32;
    }
    out
}

/// Adds a whole block to the sum, and multiplies by `r` modulo 2^130 - 5.
///
/// The sum stays below 2^131, and what is left of it beyond 2^130 in the top
/// word. As clamped words of `r` have their lowest bits clear, but the first
/// one, a product that falls beyond 2^128 comes back times five quarters.
#[inline(never)]
fn absorb(sum: &mut [u32; 5], [r0, r1, r2, r3]: &[u32; 4], block: &[u8; 16]) {
    // With the bit behind the block.
    let [low @ .., top] = &mut *sum;
    let mut carry = 0;
    for (word, bytes) in low.iter_mut().zip(block.as_chunks().0) {
        carry += u64::from(*word) + u64::from(u32::from_le_bytes(*bytes));
        *word = carry as u32;
        carry >>= 32;
    }
    *top += 1 + carry as u32;

    let [h0, h1, h2, h3, h4] = *sum;
    let (s1, s2, s3) = (r1 + (r1 >> 2), r2 + (r2 >> 2), r3 + (r3 >> 2));
    let times = |a: u32, b: u32| u64::from(a) * u64::from(b);
    let column = |a, b, c, d| times(h0, a) + times(h1, b) + times(h2, c) + times(h3, d);
    let x0 = column(*r0, s3, s2, s1) + times(h4, (r0 >> 2) * 5);
    let x1 = column(*r1, *r0, s3, s2) + times(h4, s1);
    let x2 = column(*r2, *r1, *r0, s3) + times(h4, s2);
    let x3 = column(*r3, *r2, *r1, *r0) + times(h4, s3);
    let beyond = h4 * (r0 & 3) + (x3 >> 32) as u32;
    let low = |x: u64| u64::from(x as u32);
    let y0 = u64::from(beyond >> 2) * 5 + low(x0);
    let y1 = (y0 >> 32) + low(x1) + (x0 >> 32);
    let y2 = (y1 >> 32) + low(x2) + (x1 >> 32);
    let y3 = (y2 >> 32) + low(x3) + (x2 >> 32);
    let y4 = (y3 >> 32) as u32 + (beyond & 3);
    *sum = [y0 as u32, y1 as u32, y2 as u32, y3 as u32, y4];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<const UNROLLED: bool>() -> Key<UNROLLED> {
        let bytes: [u8; 32] = core::array::from_fn(|i| i as u8);
        Key::new(&crate::Suite::key(&bytes))
    }

    #[test]
    fn block_of_rfc_8439() {
        // Section 2.3.2.
        let input = [1, 0x0900_0000, 0x4a00_0000, 0];
        let want = [
            0xe4e7_f110,
            0x1559_3bd1,
            0x1fdd_0f50,
            0xc471_20a3,
            0xc7f4_d1c7,
            0x0368_c033,
            0x9aaa_2204,
            0x4e6c_d4c3,
            0x4664_82d2,
            0x09aa_9f07,
            0x05d7_c214,
            0xa202_8bd9,
            0xd19c_12b5,
            0xb94e_16de,
            0xe883_d0cb,
            0x4e3c_50a2,
        ];
        assert_eq!(key::<false>().block(&input), want);
        assert_eq!(key::<true>().block(&input), want);
    }

    /// The tag of whole blocks, given as numbers.
    fn poly1305(r: [u32; 4], pad: [u32; 4], blocks: &[u128]) -> u128 {
        let mut sum = [0; 5];
        for block in blocks {
            absorb(&mut sum, &r, &block.to_le_bytes());
            assert!(sum[4] < 8, "{r:x?} {sum:x?}");
        }
        u128::from_le_bytes(finish(&sum, &pad))
    }

    #[test]
    fn tags_of_rfc_8439() {
        // Appendix A.3, cases 7 to 11: carries that go through all words.
        let (one, two, none) = ([1, 0, 0, 0], [2, 0, 0, 0], [0; 4]);
        let ones = u128::MAX;
        assert_eq!(poly1305(two, none, &[ones]), 3);
        assert_eq!(poly1305(two, [u32::MAX; 4], &[2]), 3);
        assert_eq!(poly1305(one, none, &[ones, ones - 15, 0x11]), 5);
        let ends = u128::from_le_bytes([1; 16]);
        assert_eq!(poly1305(one, none, &[ones, ones - ends - 3, ends]), 0);
        assert_eq!(poly1305(two, none, &[ones - 2]), ones - 5);
        let r = [1, 0, 4, 0];
        let head = [0xb943_5e50_d794_35e3, 1 << 64 | 0xcd79_435e_50d7_9433, 0, 1];
        assert_eq!(poly1305(r, none, &head), 0x55 << 64 | 0x14);
        assert_eq!(poly1305(r, none, &head[..3]), 0x13);
        // The largest multiplier.
        poly1305(CLAMP, none, &[ones; 50]);
    }

    #[test]
    fn both_forms_agree() {
        let (small, large) = (key::<false>(), key::<true>());
        for len in 0..300 {
            let mut a: [u8; 300] = core::array::from_fn(|i| (i * 5) as u8);
            let mut b = a;
            let tag = small.seal(&[7; 12], &b[..len % 40], &mut a[..len]);
            let aad = b;
            assert_eq!(large.seal(&[7; 12], &aad[..len % 40], &mut b[..len]), tag);
            assert_eq!(a, b);
            assert!(large.open(&[7; 12], &aad[..len % 40], &mut a[..len], &tag));
            assert_eq!(a, aad);
        }
    }
}
