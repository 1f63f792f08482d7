//! Arithmetic modulo the two 256-bit primes of P-256, in Montgomery form.
//! Knows no curve.
//!
//! Numbers are eight words, least significant first. Nothing here branches on
//! a number or reads memory at an address that depends on one; the exponent
//! of [`Modulus::invert`] is public.

use core::hint::black_box;

/// A number below 2^256.
pub(super) type Number = [u32; 8];

/// 0.
pub(super) const ZERO: Number = [0; 8];
/// 1.
pub(super) const ONE: Number = [1, 0, 0, 0, 0, 0, 0, 0];

/// The prime of the coordinates.
pub(super) const FIELD: &Modulus = &Modulus::new([
    0xffff_ffff,
    0xffff_ffff,
    0xffff_ffff,
    0,
    0,
    0,
    1,
    0xffff_ffff,
]);

/// The number of points of the curve.
pub(super) const ORDER: &Modulus = &Modulus::new([
    0xfc63_2551,
    0xf3b9_cac2,
    0xa717_9e84,
    0xbce6_faad,
    0xffff_ffff,
    0xffff_ffff,
    0,
    0xffff_ffff,
]);

/// A prime above 2^255, and what Montgomery multiplication wants to know.
pub(super) struct Modulus {
    prime: Number,
    /// 2^512 modulo the prime.
    square: Number,
    /// What makes the lowest word of a multiple vanish: -1/prime mod 2^32.
    factor: u32,
}

impl Modulus {
    const fn new(prime: Number) -> Self {
        // Newton's iteration doubles the number of right bits each time.
        let mut factor = 1_u32;
        let mut i = 0;
        while i < 5 {
            factor = factor.wrapping_mul(2_u32.wrapping_add(prime[0].wrapping_mul(factor)));
            i += 1;
        }
        Self {
            prime,
            square: doubled(ONE, &prime, 512),
            factor,
        }
    }

    /// A constant in Montgomery form, at compile time.
    pub(super) const fn constant(&self, number: Number) -> Number {
        doubled(number, &self.prime, 256)
    }

    /// Whether `number` is below the prime.
    pub(super) fn above(&self, number: &Number) -> bool {
        less(number, &self.prime).1 != 0
    }

    /// The sum of two numbers below the prime.
    #[inline(never)]
    pub(super) fn add(&self, a: &Number, b: &Number) -> Number {
        let mut sum = ZERO;
        let mut carry = 0_u64;
        for ((to, a), b) in sum.iter_mut().zip(a).zip(b) {
            carry += u64::from(*a) + u64::from(*b);
            *to = carry as u32;
            carry >>= 32;
        }
        self.reduce(&sum, carry as u32)
    }

    /// The difference of two numbers below the prime.
    #[inline(never)]
    pub(super) fn sub(&self, a: &Number, b: &Number) -> Number {
        let (difference, borrow) = less(a, b);
        // Below zero by less than the prime: one addition puts it right, and
        // as a subtraction of its negative it cannot be skipped.
        let mask = black_box(borrow.wrapping_neg());
        let mut sum = ZERO;
        let mut carry = 0_u64;
        for ((to, a), b) in sum.iter_mut().zip(&difference).zip(&self.prime) {
            carry += u64::from(*a) + u64::from(*b & mask);
            *to = carry as u32;
            carry >>= 32;
        }
        sum
    }

    /// `a * b / 2^256`. One of them may be any number, the other is below
    /// the prime; the product is below it.
    #[inline(never)]
    pub(super) fn mul(&self, a: &Number, b: &Number) -> Number {
        let mut sum = ZERO;
        let mut top = 0_u64;
        for &word in a {
            let [sum0, ..] = sum;
            let [b0, ..] = *b;
            let [m0, ..] = self.prime;
            let first = wide(word, b0, sum0, 0);
            let factor = (first as u32).wrapping_mul(self.factor);
            let mut carry = first >> 32;
            let mut carried = wide(factor, m0, first as u32, 0) >> 32;
            // Adds both products and shifts by a word on the way.
            let mut shifted = ZERO;
            let rest = sum.iter().zip(b).zip(&self.prime).skip(1);
            for (((sum, b), m), to) in rest.zip(&mut shifted) {
                let product = wide(word, *b, *sum, carry as u32);
                carry = product >> 32;
                let reduced = wide(factor, *m, product as u32, carried as u32);
                carried = reduced >> 32;
                *to = reduced as u32;
            }
            top += carry + carried;
            let [.., last] = &mut shifted;
            *last = top as u32;
            top >>= 32;
            sum = shifted;
        }
        self.reduce(&sum, top as u32)
    }

    /// Into Montgomery form; reduces on the way.
    pub(super) fn enter(&self, a: &Number) -> Number {
        self.mul(a, &self.square)
    }

    /// Out of Montgomery form.
    pub(super) fn leave(&self, a: &Number) -> Number {
        self.mul(a, &ONE)
    }

    /// The inverse in Montgomery form, or 0 of 0: Fermat's little theorem.
    pub(super) fn invert(&self, a: &Number) -> Number {
        // Both primes end in at least 2, so only the lowest word changes.
        let mut exponent = self.prime;
        let [low, ..] = &mut exponent;
        *low = low.wrapping_sub(2);
        let mut power = self.enter(&ONE);
        for i in (0..256).rev() {
            power = self.mul(&power, &power);
            if bit(&exponent, i) == 1 {
                power = self.mul(&power, a);
            }
        }
        power
    }

    /// Takes the prime away once if the number, with `top` above it, is not
    /// below the prime.
    fn reduce(&self, number: &Number, top: u32) -> Number {
        let (difference, borrow) = less(number, &self.prime);
        // Keeps the number only if the subtraction borrows and `top` is 0.
        let keep = black_box((borrow & !top & 1).wrapping_neg());
        let mut out = ZERO;
        for ((to, number), difference) in out.iter_mut().zip(number).zip(&difference) {
            *to = (number & keep) | (difference & !keep);
        }
        out
    }
}

/// Doubles a number modulo `prime`, at compile time.
#[expect(
    clippy::indexing_slicing,
    reason = "runs at compile time, where a bad index is a compile error"
)]
const fn doubled(mut number: Number, prime: &Number, times: u32) -> Number {
    let mut i = 0;
    while i < times {
        let mut less = ZERO;
        let mut top = 0;
        let mut borrow = false;
        let mut j = 0;
        while j < 8 {
            let word = (number[j] << 1) | top;
            top = number[j] >> 31;
            let (rest, first) = word.overflowing_sub(prime[j]);
            let (rest, second) = rest.overflowing_sub(borrow as u32);
            borrow = first | second;
            number[j] = word;
            less[j] = rest;
            j += 1;
        }
        if top == 1 || !borrow {
            number = less;
        }
        i += 1;
    }
    number
}

/// `a * b + c + d`, which cannot overflow.
fn wide(a: u32, b: u32, c: u32, d: u32) -> u64 {
    u64::from(a) * u64::from(b) + u64::from(c) + u64::from(d)
}

/// `a - b`, and 1 if that is below zero.
#[inline(never)]
fn less(a: &Number, b: &Number) -> (Number, u32) {
    let mut difference = ZERO;
    let mut borrow = 0_u64;
    for ((to, a), b) in difference.iter_mut().zip(a).zip(b) {
        let word = u64::from(*a)
            .wrapping_sub(u64::from(*b))
            .wrapping_sub(borrow);
        *to = word as u32;
        borrow = (word >> 32) & 1;
    }
    (difference, borrow as u32)
}

/// One bit of a number; bits above it are 0.
pub(super) fn bit(number: &Number, i: usize) -> u32 {
    (number.get(i / 32).copied().unwrap_or_default() >> (i % 32)) & 1
}

/// Reads a big-endian number.
pub(super) fn read(bytes: &[u8; 32]) -> Number {
    let mut number = ZERO;
    for (word, bytes) in number.iter_mut().rev().zip(bytes.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    number
}

/// Writes a big-endian number.
pub(super) fn write(number: &Number, out: &mut [u8; 32]) {
    for (word, bytes) in number.iter().rev().zip(out.as_chunks_mut().0) {
        *bytes = word.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_both_primes() {
        for modulus in [FIELD, ORDER] {
            let last = less(&modulus.prime, &ONE).0;
            assert!(modulus.above(&last) && !modulus.above(&modulus.prime));
            assert_eq!(modulus.add(&last, &ONE), ZERO);
            assert_eq!(modulus.sub(&ZERO, &ONE), last);
            assert_eq!(modulus.add(&last, &last), modulus.sub(&last, &ONE));
            // (-1) * (-1) = 1, and -1 is its own inverse.
            let minus = modulus.enter(&last);
            assert_eq!(modulus.leave(&modulus.mul(&minus, &minus)), ONE);
            assert_eq!(modulus.invert(&minus), minus);
            assert_eq!(modulus.invert(&ZERO), ZERO);
            // Numbers above the prime are reduced.
            assert_eq!(modulus.leave(&modulus.enter(&modulus.prime)), ZERO);
            let all = [u32::MAX; 8];
            let rest = less(&all, &modulus.prime).0;
            assert_eq!(modulus.leave(&modulus.enter(&all)), rest);
        }
    }
}
