//! The curve P-256: key agreement and verification. Knows no certificate and
//! no handshake.
//!
//! Points are projective, and one complete formula adds any two of them, so
//! that no point is special: Renes, Costello, Batina, "Complete addition
//! formulas for prime order elliptic curves" (2016). It and the doubling of the
//! same article are programs for a small machine with a file of numbers,
//! because a call of each operation is five times as long.

use core::hint::black_box;

use crate::{Digest, POINT_LEN, Point, SIGNATURE_LEN};

use super::field::{FIELD, MINUS, Number, Numbers, ONE, ORDER, Operation, PLUS, TIMES, ZERO};
use super::field::{bit, op, read, write};
use super::wipe;

/// A point in projective coordinates and Montgomery form.
type Projective = [Number; 3];

/// 1 in Montgomery form.
static UNIT: Number = FIELD.constant(ONE);

/// The generator (SEC 2 section 2.4.2).
const GENERATOR: Point = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,
    0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2,
    0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e,
    0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51,
    0xf5,
];

/// The generator times 2^128.
const HIGH: Point = [
    0x04, 0x44, 0x7d, 0x73, 0x9b, 0xee, 0xdb, 0x5e, 0x67, 0xfb, 0x98, 0x2f, 0xd5, 0x88, 0xc6, 0x76,
    0x6e, 0xfc, 0x35, 0xff, 0x7d, 0xc2, 0x97, 0xea, 0xc3, 0x57, 0xc8, 0x4f, 0xc9, 0xd7, 0x89, 0xbd,
    0x85, 0x2d, 0x48, 0x25, 0xab, 0x83, 0x41, 0x31, 0xee, 0xe1, 0x2e, 0x9d, 0x95, 0x3a, 0x4a, 0xaf,
    0xf7, 0x3d, 0x34, 0x9b, 0x95, 0xa7, 0xfa, 0xe5, 0x00, 0x0c, 0x7e, 0x33, 0xc9, 0x72, 0xe2, 0x5b,
    0x32,
];

/// The constant of the curve's equation, in Montgomery form.
static B: Number = FIELD.constant([
    0x27d2_604b,
    0x3bce_3c3e,
    0xcc53_b0f6,
    0x651d_06b0,
    0x7698_86bc,
    0xb3eb_bd55,
    0xaa3a_93e7,
    0x5ac6_35d8,
]);

/// The public key of a private one.
pub(super) fn public(secret: &Number) -> Option<Point> {
    times(secret, &GENERATOR, Some(&HIGH))
}

/// The x coordinate of the product with a point.
pub(super) fn agree(secret: &Number, peer: &Point) -> Option<Digest> {
    let [_, xy @ ..] = times(secret, peer, None)?;
    xy.first_chunk().copied()
}

/// The product of a private key with a point, or nothing if that is not on the
/// curve. `high` is the point times 2^128, if it is known. The product is never
/// infinity: the order is prime and the key below it.
#[inline(never)]
fn times(secret: &Number, point: &Point, high: Option<&Point>) -> Option<Point> {
    let mut machine = Machine::empty();
    machine.start();
    machine.load(point)?;
    machine.keep(1);
    // Both halves of the scalar are worked off at once, the upper one
    // with a point 128 doublings away.
    match high {
        Some(high) => machine.load(high)?,
        None => (0..128).for_each(|_| machine.numbers.run(&DOUBLE)),
    }
    machine.keep(2);
    let [.., a, b, c, d] = *secret;
    let mut upper = [a, b, c, d, 0, 0, 0, 0];
    machine.sum_of_products(secret, &upper, 128);
    wipe(&mut upper);
    Some(machine.store())
}

/// FIPS 186-5 section 6.4.2.
#[inline(never)]
pub(super) fn verify(key: &Point, digest: &Digest, signature: &[u8; SIGNATURE_LEN]) -> Option<()> {
    let [r, s] = signature.as_chunks().0 else {
        return None;
    };
    let r = scalar(r)?;
    let mut machine = Machine::empty();
    let numbers = &machine.numbers;
    numbers.start(ORDER);
    numbers.put(X1, &scalar(s)?);
    numbers.enter(X1);
    numbers.invert(Y1, X1);
    // One factor in Montgomery form takes the product out of it.
    numbers.put(X1, &read(digest));
    numbers.put(X2, &r);
    numbers.calculate(X1, X1, Operation::Times, Y1);
    numbers.calculate(X2, X2, Operation::Times, Y1);
    let (u1, u2) = (numbers.at(X1), numbers.at(X2));

    machine.start();
    machine.load(&GENERATOR)?;
    machine.keep(1);
    machine.load(key)?;
    machine.keep(2);
    machine.sum_of_products(&u1, &u2, 256);
    // Infinity is stored as x = 0, which no r is.
    let [_, xy @ ..] = machine.store();

    let numbers = &machine.numbers;
    numbers.start(ORDER);
    numbers.put(X1, &read(xy.first_chunk()?));
    numbers.enter(X1);
    numbers.leave(X1);
    (numbers.at(X1) == r).then_some(())
}

/// FIPS 186-5 section 6.4.1, with a nonce that must be a number from 1 to below the
/// order, and is of use for one digest only.
#[cfg(feature = "sign")]
#[inline(never)]
pub(crate) fn sign(
    secret: &Number,
    nonce: &Number,
    digest: &Digest,
) -> Option<[u8; SIGNATURE_LEN]> {
    let [_, xy @ ..] = public(nonce)?;
    let numbers = Numbers::empty();
    numbers.start(ORDER);
    numbers.put(X1, &read(xy.first_chunk()?));
    numbers.put(X2, &read(digest));
    for place in [X1, X2] {
        numbers.enter(place);
        numbers.leave(place);
    }
    // One factor in Montgomery form takes the product out of it.
    numbers.put(Y1, secret);
    numbers.enter(Y1);
    numbers.calculate(Y1, X1, Operation::Times, Y1);
    numbers.calculate(Y1, X2, Operation::Plus, Y1);
    numbers.put(Y2, nonce);
    numbers.enter(Y2);
    numbers.invert(T0, Y2);
    numbers.calculate(Y1, Y1, Operation::Times, T0);
    let mut signature = [0; SIGNATURE_LEN];
    for (half, place) in signature.as_chunks_mut().0.iter_mut().zip([X1, Y1]) {
        let number = numbers.at(place);
        if number == ZERO {
            return None;
        }
        write(&number, half);
    }
    Some(signature)
}

/// A digest as a number below the order.
#[cfg(feature = "sign")]
pub(crate) fn reduced(digest: &Digest) -> Digest {
    let numbers = Numbers::empty();
    numbers.start(ORDER);
    numbers.put(X1, &read(digest));
    numbers.enter(X1);
    numbers.leave(X1);
    let mut out = [0; 32];
    write(&numbers.at(X1), &mut out);
    out
}

/// Reads a number from 1 to below the order: what may be a private key.
pub(crate) fn scalar(bytes: &[u8; 32]) -> Option<Number> {
    let number = read(bytes);
    let nothing = number.iter().fold(0, |all, word| all | word) == 0;
    (!nothing & ORDER.above(&number)).then_some(number)
}

/// Where the numbers of the machine are: two points, temporary ones and the
/// constant of the curve.
const X1: usize = 0;
const Y1: usize = 1;
const Z1: usize = 2;
const X2: usize = 3;
const Y2: usize = 4;
const Z2: usize = 5;
const T0: usize = 6;
const T1: usize = 7;
const T2: usize = 8;
const T3: usize = 9;
const T4: usize = 10;
const T5: usize = 11;
const T6: usize = 12;
const RB: usize = 13;

/// Numbers, and the multiples that are added to them; wiped when dropped.
struct Machine {
    numbers: Numbers,
    /// Infinity, two points and their sum.
    table: [Projective; 4],
}

impl Drop for Machine {
    fn drop(&mut self) {
        wipe(self.table.as_flattened_mut().as_flattened_mut());
    }
}

impl Machine {
    #[inline(always)]
    const fn empty() -> Self {
        const {
            Self {
                numbers: Numbers::empty(),
                table: [[ZERO; 3]; 4],
            }
        }
    }

    fn start(&mut self) {
        self.numbers.start(FIELD);
        self.numbers.put(RB, &B);
        // Everything with Z = 0 is the point at infinity.
        let [[_, y, _], ..] = &mut self.table;
        *y = ONE;
    }

    /// Reads a point in uncompressed form, if it is on the curve, into the
    /// first place.
    #[inline(never)]
    fn load(&self, point: &Point) -> Option<()> {
        let [4, xy @ ..] = point else { return None };
        for (place, bytes) in xy.as_chunks().0.iter().enumerate() {
            let number = read(bytes);
            if !FIELD.above(&number) {
                return None;
            }
            self.numbers.put(place, &number);
            self.numbers.enter(place);
        }
        self.numbers.put(Z1, &UNIT);
        self.numbers.run(&ON_CURVE);
        (self.numbers.at(T3) == self.numbers.at(T4)).then_some(())
    }

    /// Writes the first point in uncompressed form; infinity as zeros.
    #[inline(never)]
    fn store(&self) -> Point {
        self.numbers.invert(T0, Z1);
        let mut out = [4; POINT_LEN];
        let [_, xy @ ..] = &mut out;
        for (place, out) in xy.as_chunks_mut().0.iter_mut().enumerate() {
            self.numbers.calculate(place, place, Operation::Times, T0);
            self.numbers.leave(place);
            write(&self.numbers.at(place), out);
        }
        out
    }

    /// Keeps the first point in the table.
    #[inline(never)]
    fn keep(&mut self, index: usize) {
        if let Some(to) = self.table.get_mut(index) {
            let from = self.numbers.three(X1);
            for (to, from) in to.as_flattened_mut().iter_mut().zip(from) {
                *to = from.get();
            }
        }
    }

    /// Puts the entry of the table at three places, reading all entries.
    #[inline(never)]
    fn choose(&self, place: usize, index: u32) {
        for (word, to) in self.numbers.three(place).enumerate() {
            let mut chosen = 0;
            for (i, entry) in (0_u32..).zip(&self.table) {
                // All ones for the one entry that is meant.
                let mask = black_box(((i ^ index).wrapping_sub(1) as i32 >> 31) as u32);
                chosen |= entry.as_flattened().get(word).unwrap_or(&0) & mask;
            }
            to.set(chosen);
        }
    }

    /// `a * p + b * q` with the points of the table and the lowest `bits` of
    /// both scalars: a doubling and an addition for each bit, set or not.
    /// The second of the points is the first operand already.
    #[inline(never)]
    fn sum_of_products(&mut self, a: &Number, b: &Number, bits: usize) {
        self.choose(X2, 1);
        self.numbers.run(&ADD);
        self.keep(3);
        self.choose(X1, 0);
        for i in (0..bits).rev() {
            self.numbers.run(&DOUBLE);
            self.choose(X2, bit(a, i) | (bit(b, i) << 1));
            self.numbers.run(&ADD);
        }
    }
}

/// The sides of the curve's equation into T3 and T4.
static ON_CURVE: [u16; 7] = [
    op(T3, X1, TIMES, X1),
    op(T3, T3, TIMES, X1),
    op(T3, T3, MINUS, X1),
    op(T3, T3, MINUS, X1),
    op(T3, T3, MINUS, X1),
    op(T3, T3, PLUS, RB),
    op(T4, Y1, TIMES, Y1),
];

/// The double of the first point in its place (algorithm 6).
static DOUBLE: [u16; 34] = [
    op(T0, X1, TIMES, X1),
    op(T1, Y1, TIMES, Y1),
    op(T2, Z1, TIMES, Z1),
    op(T3, X1, TIMES, Y1),
    op(T3, T3, PLUS, T3),
    op(T6, X1, TIMES, Z1),
    op(T6, T6, PLUS, T6),
    op(T5, RB, TIMES, T2),
    op(T5, T5, MINUS, T6),
    op(X1, T5, PLUS, T5),
    op(T5, X1, PLUS, T5),
    op(X1, T1, MINUS, T5),
    op(T5, T1, PLUS, T5),
    op(T5, X1, TIMES, T5),
    op(X1, X1, TIMES, T3),
    op(T3, T2, PLUS, T2),
    op(T2, T2, PLUS, T3),
    op(T6, RB, TIMES, T6),
    op(T6, T6, MINUS, T2),
    op(T6, T6, MINUS, T0),
    op(T3, T6, PLUS, T6),
    op(T6, T6, PLUS, T3),
    op(T3, T0, PLUS, T0),
    op(T0, T3, PLUS, T0),
    op(T0, T0, MINUS, T2),
    op(T0, T0, TIMES, T6),
    op(T3, Y1, TIMES, Z1),
    op(Y1, T5, PLUS, T0),
    op(T3, T3, PLUS, T3),
    op(T6, T3, TIMES, T6),
    op(X1, X1, MINUS, T6),
    op(Z1, T3, TIMES, T1),
    op(Z1, Z1, PLUS, Z1),
    op(Z1, Z1, PLUS, Z1),
];

/// The sum of both points in the place of the first (algorithm 4).
static ADD: [u16; 43] = [
    op(T0, X1, TIMES, X2),
    op(T1, Y1, TIMES, Y2),
    op(T2, Z1, TIMES, Z2),
    op(T3, X1, PLUS, Y1),
    op(T4, X2, PLUS, Y2),
    op(T3, T3, TIMES, T4),
    op(T4, T0, PLUS, T1),
    op(T3, T3, MINUS, T4),
    op(T4, Y1, PLUS, Z1),
    op(T5, Y2, PLUS, Z2),
    op(T4, T4, TIMES, T5),
    op(T5, T1, PLUS, T2),
    op(T4, T4, MINUS, T5),
    op(T5, X1, PLUS, Z1),
    op(T6, X2, PLUS, Z2),
    op(X1, T5, TIMES, T6),
    op(Y1, T0, PLUS, T2),
    op(Y1, X1, MINUS, Y1),
    op(Z1, RB, TIMES, T2),
    op(X1, Y1, MINUS, Z1),
    op(Z1, X1, PLUS, X1),
    op(X1, X1, PLUS, Z1),
    op(Z1, T1, MINUS, X1),
    op(X1, T1, PLUS, X1),
    op(Y1, RB, TIMES, Y1),
    op(T1, T2, PLUS, T2),
    op(T2, T1, PLUS, T2),
    op(Y1, Y1, MINUS, T2),
    op(Y1, Y1, MINUS, T0),
    op(T1, Y1, PLUS, Y1),
    op(Y1, T1, PLUS, Y1),
    op(T1, T0, PLUS, T0),
    op(T0, T1, PLUS, T0),
    op(T0, T0, MINUS, T2),
    op(T1, T4, TIMES, Y1),
    op(T2, T0, TIMES, Y1),
    op(Y1, X1, TIMES, Z1),
    op(Y1, Y1, PLUS, T2),
    op(X1, T3, TIMES, X1),
    op(X1, X1, MINUS, T1),
    op(Z1, T4, TIMES, Z1),
    op(T1, T3, TIMES, T0),
    op(Z1, Z1, PLUS, T1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_point_is_the_generator_doubled() {
        let mut machine = Machine::empty();
        machine.start();
        machine.load(&GENERATOR).unwrap();
        (0..128).for_each(|_| machine.numbers.run(&DOUBLE));
        assert_eq!(machine.store(), HIGH);
    }
}
