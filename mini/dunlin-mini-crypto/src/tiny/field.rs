//! Arithmetic modulo the primes of P-256 and Curve25519, in Montgomery form, on
//! a file of numbers. Knows no curve.
//!
//! Numbers are eight words, least significant first. Nothing here branches on
//! a number or reads memory at an address that depends on one; the exponent
//! of [`Numbers::invert`] is public. Operations name numbers by their place in
//! the file and leave the result there: numbers that are passed and returned
//! would be copied more than they are worked on.

use core::cell::Cell;
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

/// The prime of Curve25519's coordinates, 2^255 - 19.
pub(super) const FIELD_25519: &Modulus = &Modulus::new([
    0xffff_ffed,
    0xffff_ffff,
    0xffff_ffff,
    0xffff_ffff,
    0xffff_ffff,
    0xffff_ffff,
    0xffff_ffff,
    0x7fff_ffff,
]);

/// A prime above 2^254, and what Montgomery multiplication wants to know.
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
        let mut borrow = 0;
        for (word, prime) in number.iter().zip(&self.prime) {
            borrow = (borrow + i64::from(*word) - i64::from(*prime)) >> 32;
        }
        borrow != 0
    }
}

/// Places that an operation can name.
const PLACES: usize = 16;
/// The place of 2^512, which is not to be written to.
const AT_SQUARE: usize = 14;
/// The place of 1, which is not to be written to.
const AT_ONE: usize = 15;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// `a * b / 2^256`. One of them may be any number.
    Times,
    /// `a + b`.
    Plus,
    /// `a - b`.
    Minus,
}

pub(super) const TIMES: u16 = 0;
pub(super) const PLUS: u16 = 1;
pub(super) const MINUS: u16 = 2;

/// An operation of a program: what, to, and its two operands.
pub(super) const fn op(to: usize, a: usize, what: u16, b: usize) -> u16 {
    (what << 12) | ((to as u16) << 8) | ((a as u16) << 4) | b as u16
}

/// A number that may be operand and result of one operation.
type Slot = [Cell<u32>; 8];

/// A file of numbers and the prime that they are below; wiped when dropped.
pub(super) struct Numbers {
    file: [Slot; PLACES],
    prime: Slot,
    factor: Cell<u32>,
    product: Slot,
}

impl Drop for Numbers {
    fn drop(&mut self) {
        let words = self.file.as_flattened_mut();
        words.fill(const { Cell::new(0) });
        black_box(words);
    }
}

fn set(slot: &Slot, number: &Number) {
    for (to, from) in slot.iter().zip(number) {
        to.set(*from);
    }
}

impl Numbers {
    /// To be started with a prime. All zero and made where it stays, because
    /// the stack has no room for it to be moved.
    #[inline(always)]
    pub(super) const fn empty() -> Self {
        const {
            Self {
                file: [const { [const { Cell::new(0) }; 8] }; PLACES],
                prime: [const { Cell::new(0) }; 8],
                factor: Cell::new(0),
                product: [const { Cell::new(0) }; 8],
            }
        }
    }

    /// Calculates modulo this prime from now on.
    #[inline(never)]
    pub(super) fn start(&self, modulus: &Modulus) {
        set(&self.prime, &modulus.prime);
        self.factor.set(modulus.factor);
        self.put(AT_SQUARE, &modulus.square);
        self.put(AT_ONE, &ONE);
    }

    /// The number at a place.
    pub(super) fn at(&self, place: usize) -> Number {
        let mut number = ZERO;
        let words = self.file.get(place).into_iter().flatten();
        for (to, from) in number.iter_mut().zip(words) {
            *to = from.get();
        }
        number
    }

    /// Puts a number at a place.
    pub(super) fn put(&self, place: usize, number: &Number) {
        if let Some(to) = self.file.get(place) {
            set(to, number);
        }
    }

    /// The words at three places from `place` on.
    pub(super) fn three(&self, place: usize) -> impl Iterator<Item = &Cell<u32>> {
        self.file.as_flattened().iter().skip(8 * place).take(24)
    }

    /// Calculates with numbers below the prime; so is the result.
    #[inline(never)]
    pub(super) fn calculate(&self, to: usize, a: usize, operation: Operation, b: usize) {
        let file = &self.file;
        let (Some(to), Some(a), Some(b)) = (file.get(to), file.get(a), file.get(b)) else {
            return;
        };
        let below = match operation {
            Operation::Minus => !combine(to, a, b, u32::MAX, u32::MAX),
            Operation::Plus => {
                let top = combine(to, a, b, u32::MAX, 0);
                !(top | combine(to, to, &self.prime, u32::MAX, u32::MAX))
            }
            Operation::Times => {
                let top = self.multiply(a, b);
                !(top | combine(to, &self.product, &self.prime, u32::MAX, u32::MAX))
            }
        };
        // Below zero by less than the prime: one addition puts it right, and
        // as an addition of nothing it cannot be skipped.
        let mask = black_box((below & 1).wrapping_neg());
        combine(to, to, &self.prime, mask, 0);
    }

    /// Runs a program.
    #[inline(never)]
    pub(super) fn run(&self, program: &[u16]) {
        for operation in program {
            let at = |shift: u32| usize::from(operation >> shift) & 15;
            let what = match operation >> 12 {
                TIMES => Operation::Times,
                PLUS => Operation::Plus,
                _ => Operation::Minus,
            };
            self.calculate(at(8), at(4), what, at(0));
        }
    }

    /// Swaps the two numbers from `a` on with those from `b` on if `bit` is 1,
    /// and writes them as they are if it is 0.
    #[inline(never)]
    pub(super) fn swap(&self, a: usize, b: usize, bit: u32) {
        let mask = black_box(bit.wrapping_neg());
        let words = |place| self.file.as_flattened().iter().skip(8 * place).take(16);
        for (a, b) in words(a).zip(words(b)) {
            let change = (a.get() ^ b.get()) & mask;
            a.set(a.get() ^ change);
            b.set(b.get() ^ change);
        }
    }

    /// Into Montgomery form; reduces on the way.
    pub(super) fn enter(&self, place: usize) {
        self.calculate(place, place, Operation::Times, AT_SQUARE);
    }

    /// Out of Montgomery form.
    pub(super) fn leave(&self, place: usize) {
        self.calculate(place, place, Operation::Times, AT_ONE);
    }

    /// The inverse in Montgomery form, or 0 of 0: Fermat's little theorem.
    #[inline(never)]
    pub(super) fn invert(&self, to: usize, from: usize) {
        self.calculate(to, AT_ONE, Operation::Times, AT_SQUARE);
        for i in (0..256).rev() {
            self.calculate(to, to, Operation::Times, to);
            let word = self.prime.get(i / 32).map_or(0, Cell::get);
            // All primes end in at least 2, so only the lowest word changes.
            let word = word.wrapping_sub(if i < 32 { 2 } else { 0 });
            if (word >> (i % 32)) & 1 == 1 {
                self.calculate(to, to, Operation::Times, from);
            }
        }
    }

    /// `a * b / 2^256` below twice the prime into the product; returns what
    /// is above its words. Written out without a loop over the words, because
    /// most of the time is spent here and in [`combine`].
    #[inline(never)]
    fn multiply(&self, a: &Slot, b: &Slot) -> u32 {
        let (to, prime) = (&self.product, &self.prime);
        // A zero that the compiler cannot see, which would call a function for
        // eight of them.
        let zero = black_box(0);
        macro_rules! clear {
            ($($i:literal)*) => { $( to[$i].set(zero); )* };
        }
        clear!(0 1 2 3 4 5 6 7);
        let mut top = 0_u64;
        for word in a {
            let word = word.get();
            let low = wide(word, b[0].get(), to[0].get(), 0);
            let factor = (low as u32).wrapping_mul(self.factor.get());
            let mut carry = (low >> 32) as u32;
            // The lowest word is 0 and falls out.
            let mut carried = (wide(factor, prime[0].get(), low as u32, 0) >> 32) as u32;
            // Adds both products and shifts by a word on the way.
            macro_rules! words {
                ($($i:literal)*) => { $({
                    let product = wide(word, b[$i].get(), to[$i].get(), carry);
                    carry = (product >> 32) as u32;
                    let reduced = wide(factor, prime[$i].get(), product as u32, carried);
                    carried = (reduced >> 32) as u32;
                    to[$i - 1].set(reduced as u32);
                })* };
            }
            words!(1 2 3 4 5 6 7);
            top += u64::from(carry) + u64::from(carried);
            to[7].set(top as u32);
            top >>= 32;
        }
        top as u32
    }
}

/// `a + ((b & mask) ^ flip) + (flip & 1)`; returns the carry. With a flip of
/// all ones it is a subtraction that borrows if nothing is carried.
#[inline(never)]
fn combine(to: &Slot, a: &Slot, b: &Slot, mask: u32, flip: u32) -> u32 {
    let mut carry = flip & 1 == 1;
    macro_rules! words {
        ($($i:literal)*) => { $({
            let other = (b[$i].get() & mask) ^ flip;
            let (sum, first) = a[$i].get().overflowing_add(other);
            let (sum, second) = sum.overflowing_add(u32::from(carry));
            to[$i].set(sum);
            carry = first | second;
        })* };
    }
    words!(0 1 2 3 4 5 6 7);
    u32::from(carry)
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
    use super::Operation::{Minus, Plus, Times};
    use super::*;

    fn calculated(
        modulus: &'static Modulus,
        a: &Number,
        operation: Operation,
        b: &Number,
    ) -> Number {
        let numbers = Numbers::empty();
        numbers.start(modulus);
        numbers.put(0, a);
        numbers.put(1, b);
        numbers.calculate(2, 0, operation, 1);
        // The same where the result replaces an operand.
        numbers.calculate(1, 0, operation, 1);
        assert_eq!(numbers.at(1), numbers.at(2));
        numbers.at(2)
    }

    /// The number as it is after a way into Montgomery form and back.
    fn there_and_back(modulus: &'static Modulus, number: &Number) -> Number {
        let numbers = Numbers::empty();
        numbers.start(modulus);
        numbers.put(0, number);
        numbers.enter(0);
        numbers.leave(0);
        numbers.at(0)
    }

    #[test]
    fn edges_of_all_primes() {
        for modulus in [FIELD, ORDER, FIELD_25519] {
            let mut last = modulus.prime;
            last[0] -= 1;
            assert!(modulus.above(&last) && !modulus.above(&modulus.prime));
            assert_eq!(calculated(modulus, &last, Plus, &ONE), ZERO);
            assert_eq!(calculated(modulus, &ZERO, Minus, &ONE), last);
            assert_eq!(calculated(modulus, &last, Minus, &last), ZERO);
            let twice = calculated(modulus, &last, Plus, &last);
            assert_eq!(calculated(modulus, &last, Minus, &ONE), twice);
            // (-1) * (-1) = 1, and -1 is its own inverse.
            let numbers = Numbers::empty();
            numbers.start(modulus);
            numbers.put(0, &last);
            numbers.enter(0);
            numbers.calculate(1, 0, Times, 0);
            numbers.leave(1);
            assert_eq!(numbers.at(1), ONE);
            numbers.invert(2, 0);
            assert_eq!(numbers.at(2), numbers.at(0));
            numbers.put(0, &ZERO);
            numbers.invert(2, 0);
            assert_eq!(numbers.at(2), ZERO);
            // Numbers above the prime are reduced.
            assert_eq!(there_and_back(modulus, &modulus.prime), ZERO);
            let (mut above, mut rest) = (modulus.prime, ZERO);
            let word = if above[7] == u32::MAX { 3 } else { 7 };
            above[word] += 7;
            rest[word] = 7;
            assert_eq!(there_and_back(modulus, &above), rest);
            let all = there_and_back(modulus, &[u32::MAX; 8]);
            let rest = calculated(modulus, &all, Plus, &ONE);
            // 2^256 modulo the prime, less 1.
            assert_eq!(rest, modulus.constant(ONE));
        }
    }
}
