//! AES-128-GCM (NIST SP 800-38D). Knows nothing of packets.
//!
//! Nothing here branches on a secret or reads memory at an address that depends
//! on one, as long as the processor multiplies in a constant time.

use core::cell::Cell;
use core::hint::black_box;

use crate::{NONCE_LEN, TAG_LEN, add, equal};

use super::aes::Schedule;

/// The key of GHASH divided by x, as a number that begins with its first byte.
/// An unrolled one is faster, and takes more code.
// As aligned as on a microcontroller, also on hosts that want 16 bytes.
#[repr(Rust, packed(8))]
pub(crate) struct HashKey<const UNROLLED: bool>(u128);

impl<const UNROLLED: bool> Drop for HashKey<UNROLLED> {
    fn drop(&mut self) {
        self.0 = 0;
        black_box(self);
    }
}

impl<const UNROLLED: bool> HashKey<UNROLLED> {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let mut block = [0; 16];
        schedule.encrypt_one(&mut block);
        Self(divided(u128::from_be_bytes(block)))
    }
}

/// Divides by x. Bits are in reverse: the highest is the coefficient of 1. It
/// makes good that the product of numbers in reverse is a bit too low.
const fn divided(number: u128) -> u128 {
    let mask = (number >> 127).wrapping_neg();
    number << 1 ^ mask & 0xc200_0000_0000_0000_0000_0000_0000_0001
}

/// Encrypts `data` in place and returns the tag.
pub(crate) fn seal<const UNROLLED: bool>(
    (schedule, hash): (&Schedule, &HashKey<UNROLLED>),
    nonce: &[u8; NONCE_LEN],
    aad: &[u8],
    data: &mut [u8],
) -> [u8; TAG_LEN] {
    let [mask, first] = counters(schedule, nonce, 1);
    stream(schedule, nonce, &first, data);
    tag(hash, &mask, aad, data)
}

/// Decrypts `data` in place if `tag` is its tag, and leaves it otherwise.
pub(crate) fn open<const UNROLLED: bool>(
    (schedule, hash): (&Schedule, &HashKey<UNROLLED>),
    nonce: &[u8; NONCE_LEN],
    aad: &[u8],
    data: &mut [u8],
    expected: &[u8; TAG_LEN],
) -> bool {
    let [mask, first] = counters(schedule, nonce, 1);
    let right = equal(&tag(hash, &mask, aad, data), expected);
    if right {
        stream(schedule, nonce, &first, data);
    }
    right
}

/// The key stream of a counter and of the next one.
#[inline(never)]
fn counters(schedule: &Schedule, nonce: &[u8; NONCE_LEN], counter: u32) -> [[u8; 16]; 2] {
    let mut blocks = [[0; 16]; 2];
    for (block, counter) in blocks.iter_mut().zip(counter..) {
        if let Some(to) = block.first_chunk_mut() {
            *to = *nonce;
        }
        if let Some(to) = block.last_chunk_mut() {
            *to = counter.to_be_bytes();
        }
    }
    schedule.encrypt(&mut blocks);
    blocks
}

/// Adds the key stream, whose first block is there already.
#[inline(never)]
fn stream(schedule: &Schedule, nonce: &[u8; NONCE_LEN], first: &[u8; 16], data: &mut [u8]) {
    let (head, rest) = data.split_at_mut(data.len().min(16));
    add(head, first);
    // Counter 1 is the tag's, counter 2 was the first block.
    let mut counter = 3;
    for pair in rest.chunks_mut(32) {
        add(pair, counters(schedule, nonce, counter).as_flattened());
        counter += 2;
    }
}

#[inline(never)]
fn tag<const UNROLLED: bool>(
    hash: &HashKey<UNROLLED>,
    mask: &[u8; 16],
    aad: &[u8],
    data: &[u8],
) -> [u8; TAG_LEN] {
    let bits = (aad.len() as u128) << 67 | (data.len() as u128) << 3;
    let mut sum = 0;
    for part in [aad, data, &bits.to_be_bytes()] {
        for chunk in part.chunks(16) {
            let block = match chunk.first_chunk() {
                Some(whole) => *whole,
                None => {
                    let mut block = [0; 16];
                    add(&mut block, chunk);
                    block
                }
            };
            let block = sum ^ u128::from_be_bytes(block);
            sum = match UNROLLED {
                true => unrolled(block, hash.0),
                false => multiply(block, hash.0),
            };
        }
    }
    (sum ^ u128::from_be_bytes(*mask)).to_be_bytes()
}

/// The product in the field of GHASH (NIST SP 800-38D section 6.3) with a number
/// that was [`divided`].
#[inline(never)]
fn multiply(a: u128, b: u128) -> u128 {
    let (a, b) = (words(a), words(b));
    let product = [const { Cell::new(0) }; 8];
    for (a, product) in a.iter().zip(product.windows(5)) {
        for (b, product) in b.iter().zip(product.windows(2)) {
            let [low, high] = product else { break };
            let part = carryless(*a, *b);
            low.set(low.get() ^ part as u32);
            high.set(high.get() ^ (part >> 32) as u32);
        }
    }
    // The lower half are the powers from x^128 = 1 + x + x^2 + x^7 on.
    for words in product.windows(5) {
        let [low, .., high, top] = words else { break };
        let low = low.get();
        top.set(top.get() ^ low ^ low >> 1 ^ low >> 2 ^ low >> 7);
        high.set(high.get() ^ low << 31 ^ low << 30 ^ low << 25);
    }
    let [.., a, b, c, d] = &product;
    let whole = |low: &Cell<u32>, high: &Cell<u32>| {
        u128::from(u64::from(high.get()) << 32 | u64::from(low.get()))
    };
    whole(c, d) << 64 | whole(a, b)
}

/// The same with nine products of words instead of sixteen.
#[inline(never)]
fn unrolled(a: u128, b: u128) -> u128 {
    let [a0, a1, a2, a3] = words(a);
    let [b0, b1, b2, b3] = words(b);
    let (p0, p1) = (carryless(a0, b0), carryless(a1, b1));
    let (p2, p3) = (carryless(a2, b2), carryless(a3, b3));
    let p01 = carryless(a0 ^ a1, b0 ^ b1);
    let p23 = carryless(a2 ^ a3, b2 ^ b3);
    let (a0, a1, b0, b1) = (a0 ^ a2, a1 ^ a3, b0 ^ b2, b1 ^ b3);
    let (p02, p13) = (carryless(a0, b0), carryless(a1, b1));
    let all = carryless(a0 ^ a1, b0 ^ b1);
    // Karatsuba, twice.
    let whole = |low: u64, high: u64, both: u64| {
        u128::from(low) ^ u128::from(low ^ high ^ both) << 32 ^ u128::from(high) << 64
    };
    let low = whole(p0, p1, p01);
    let high = whole(p2, p3, p23);
    let middle = whole(p02, p13, all) ^ low ^ high;
    let (low, high) = (low ^ middle << 64, high ^ middle >> 64);
    let low = low ^ low << 127 ^ low << 126 ^ low << 121;
    high ^ low ^ low >> 1 ^ low >> 2 ^ low >> 7
}

/// The words of a number, the lowest first.
#[inline(always)]
const fn words(number: u128) -> [u32; 4] {
    let (low, high) = (number as u64, (number >> 64) as u64);
    [
        low as u32,
        (low >> 32) as u32,
        high as u32,
        (high >> 32) as u32,
    ]
}

/// The product without carries. Only every fourth bit of a factor is set, so
/// that what is carried goes where nothing else is: at most eight products
/// meet in a bit.
#[inline(never)]
fn carryless(a: u32, b: u32) -> u64 {
    const BITS: [u32; 4] = [0x1111_1111, 0x2222_2222, 0x4444_4444, 0x8888_8888];
    let [m0, m1, m2, m3] = BITS;
    let [a0, a1, a2, a3] = [a & m0, a & m1, a & m2, a & m3];
    let [b0, b1, b2, b3] = [b & m0, b & m1, b & m2, b & m3];
    let times = |a: u32, b: u32| u64::from(a) * u64::from(b);
    let sums = [
        times(a0, b0) ^ times(a1, b3) ^ times(a2, b2) ^ times(a3, b1),
        times(a0, b1) ^ times(a1, b0) ^ times(a2, b3) ^ times(a3, b2),
        times(a0, b2) ^ times(a1, b1) ^ times(a2, b0) ^ times(a3, b3),
        times(a0, b3) ^ times(a1, b2) ^ times(a2, b1) ^ times(a3, b0),
    ];
    let [s0, s1, s2, s3] = sums;
    const MASK: u64 = 0x1111_1111_1111_1111;
    s0 & MASK | s1 & MASK << 1 | s2 & MASK << 2 | s3 & MASK << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit.
    fn slow(x: u128, mut v: u128) -> u128 {
        let mut z = 0;
        for bit in (0..128).rev() {
            if x >> bit & 1 == 1 {
                z ^= v;
            }
            v = v >> 1 ^ if v & 1 == 1 { 0xe1 << 120 } else { 0 };
        }
        z
    }

    #[test]
    fn products_are_what_the_definition_says() {
        let edges = [0, 1, 1 << 127, u128::MAX, 0xe1 << 120, u128::MAX >> 64];
        for a in edges {
            for b in edges {
                assert_eq!(multiply(a, divided(b)), slow(a, b), "{a:x} {b:x}");
                assert_eq!(unrolled(a, divided(b)), slow(a, b), "{a:x} {b:x}");
            }
        }
        let mut random = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128;
        for _ in 0..2000 {
            let a = random;
            random = random.wrapping_mul(0xda94_2042_e4dd_58b5).rotate_left(41) ^ a;
            assert_eq!(multiply(a, divided(random)), slow(a, random));
            assert_eq!(unrolled(a, divided(random)), slow(a, random));
        }
    }
}
