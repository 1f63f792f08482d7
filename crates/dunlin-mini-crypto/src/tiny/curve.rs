//! The curve P-256: key agreement and verification. Knows no certificate and
//! no handshake.
//!
//! Points are projective, and one complete formula adds any two of them, so
//! that no point is special: Renes, Costello, Batina, "Complete addition
//! formulas for prime order elliptic curves" (2016), algorithm 4. It is a
//! program for a small machine of sixteen registers, because a call of each
//! operation is five times as long.

use core::hint::black_box;

use crate::{Digest, POINT_LEN, Point, SIGNATURE_LEN};

use super::field::{FIELD, Number, ONE, ORDER, ZERO, bit, read, write};
use super::wipe;

/// A point in projective coordinates and Montgomery form.
type Projective = [Number; 3];

/// Everything with Z = 0 is the point at infinity.
const INFINITY: Projective = [ZERO, ONE, ZERO];

/// The generator (SEC 2 section 2.4.2).
const GENERATOR: Point = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,
    0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2,
    0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e,
    0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51,
    0xf5,
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

/// A P-256 private key; wiped when dropped.
pub struct TinySecret(Number);

impl Drop for TinySecret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl core::fmt::Debug for TinySecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinySecret")
    }
}

impl TinySecret {
    /// A private key from its bytes, unless they are 0 or not below the
    /// order.
    pub(super) fn new(bytes: &[u8; 32]) -> Option<Self> {
        scalar(bytes).map(Self)
    }

    /// The public key.
    pub(super) fn public(&self) -> Option<Point> {
        self.times(&GENERATOR)
    }

    /// The x coordinate of the product with a point.
    pub(super) fn agree(&self, peer: &Point) -> Option<Digest> {
        let [_, xy @ ..] = self.times(peer)?;
        xy.first_chunk().copied()
    }

    /// The product with a point, or nothing if it is not on the curve. The
    /// product is never infinity: the order is prime and the key below it.
    fn times(&self, point: &Point) -> Option<Point> {
        let low = decode(point)?;
        // Both halves of the scalar are worked off at once, the upper one
        // with a point 128 doublings away.
        let mut high = low;
        for _ in 0..128 {
            high = add(&high, &high);
        }
        let [.., a, b, c, d] = self.0;
        let mut upper = [a, b, c, d, 0, 0, 0, 0];
        let mut product = sum_of_products(&low, &self.0, &high, &upper, 128);
        let point = encode(&product);
        wipe(&mut upper);
        wipe(product.as_flattened_mut());
        Some(point)
    }
}

/// FIPS 186-5 section 6.4.2.
pub(super) fn verify(key: &Point, digest: &Digest, signature: &[u8; SIGNATURE_LEN]) -> Option<()> {
    let [r, s] = signature.as_chunks().0 else {
        return None;
    };
    let r = scalar(r)?;
    let s = scalar(s)?;
    let key = decode(key)?;
    let base = decode(&GENERATOR)?;
    let inverse = ORDER.invert(&ORDER.enter(&s));
    // One factor in Montgomery form takes the product out of it.
    let u1 = ORDER.mul(&read(digest), &inverse);
    let u2 = ORDER.mul(&r, &inverse);
    // Infinity encodes as x = 0, which no r is.
    let [_, xy @ ..] = encode(&sum_of_products(&base, &u1, &key, &u2, 256));
    let x = read(xy.first_chunk()?);
    (ORDER.leave(&ORDER.enter(&x)) == r).then_some(())
}

/// Reads a number from 1 to below the order.
fn scalar(bytes: &[u8; 32]) -> Option<Number> {
    let number = read(bytes);
    let nothing = number.iter().fold(0, |all, word| all | word) == 0;
    (!nothing & ORDER.above(&number)).then_some(number)
}

/// Reads a point in uncompressed form, if it is on the curve.
fn decode(point: &Point) -> Option<Projective> {
    let [4, xy @ ..] = point else { return None };
    let [x, y] = xy.as_chunks().0 else {
        return None;
    };
    let (x, y) = (read(x), read(y));
    if !(FIELD.above(&x) & FIELD.above(&y)) {
        return None;
    }
    let point = [x, y, ONE].map(|number| FIELD.enter(&number));
    let [.., left, right, _, _] = machine(&ON_CURVE, &point, &INFINITY);
    (left == right).then_some(point)
}

/// Writes a point in uncompressed form; infinity as zeros.
fn encode(point: &Projective) -> Point {
    let [x, y, z] = point;
    let inverse = FIELD.invert(z);
    let mut out = [4; POINT_LEN];
    let [_, xy @ ..] = &mut out;
    for (number, out) in [x, y].into_iter().zip(xy.as_chunks_mut().0) {
        write(&FIELD.leave(&FIELD.mul(number, &inverse)), out);
    }
    out
}

/// `a * p + b * q` with the lowest `bits` of both scalars: a doubling and an
/// addition for each bit, whatever it is.
#[inline(never)]
fn sum_of_products(
    p: &Projective,
    a: &Number,
    q: &Projective,
    b: &Number,
    bits: usize,
) -> Projective {
    let table = [INFINITY, *p, *q, add(p, q)];
    let mut sum = INFINITY;
    for i in (0..bits).rev() {
        sum = add(&sum, &sum);
        let index = bit(a, i) | (bit(b, i) << 1);
        let mut chosen = [ZERO; 3];
        for (i, entry) in (0_u32..).zip(&table) {
            // All ones for the one entry that is meant.
            let mask = black_box(((i ^ index).wrapping_sub(1) as i32 >> 31) as u32);
            let from = entry.as_flattened();
            for (to, from) in chosen.as_flattened_mut().iter_mut().zip(from) {
                *to |= from & mask;
            }
        }
        sum = add(&sum, &chosen);
    }
    sum
}

#[inline(never)]
fn add(p: &Projective, q: &Projective) -> Projective {
    let mut registers = machine(&ADD, p, q);
    let [_, _, _, _, _, _, x, y, z, ..] = registers;
    wipe(registers.as_flattened_mut());
    [x, y, z]
}

/// Runs a program on two points.
#[inline(never)]
fn machine(program: &[u16], p: &Projective, q: &Projective) -> [Number; 16] {
    let ([x1, y1, z1], [x2, y2, z2], o) = (*p, *q, ZERO);
    let mut registers = [x1, y1, z1, x2, y2, z2, o, o, o, o, o, o, o, o, B, o];
    for operation in program {
        let at = |shift: u32| usize::from(operation >> shift) & 15;
        let (Some(a), Some(b)) = (registers.get(at(4)), registers.get(at(0))) else {
            continue;
        };
        let result = match operation >> 12 {
            MUL => FIELD.mul(a, b),
            PLUS => FIELD.add(a, b),
            _ => FIELD.sub(a, b),
        };
        if let Some(to) = registers.get_mut(at(8)) {
            *to = result;
        }
    }
    registers
}

const MUL: u16 = 0;
const PLUS: u16 = 1;
const MINUS: u16 = 2;

/// The registers: two points, the result, five temporary ones and b.
const X1: u16 = 0;
const Y1: u16 = 1;
const Z1: u16 = 2;
const X2: u16 = 3;
const Y2: u16 = 4;
const Z2: u16 = 5;
const X3: u16 = 6;
const Y3: u16 = 7;
const Z3: u16 = 8;
const T0: u16 = 9;
const T1: u16 = 10;
const T2: u16 = 11;
const T3: u16 = 12;
const T4: u16 = 13;
const RB: u16 = 14;

/// An operation: what, to, and its two operands.
const fn op(to: u16, a: u16, what: u16, b: u16) -> u16 {
    (what << 12) | (to << 8) | (a << 4) | b
}

/// The sides of the curve's equation into T3 and T4.
static ON_CURVE: [u16; 7] = [
    op(T3, X1, MUL, X1),
    op(T3, T3, MUL, X1),
    op(T3, T3, MINUS, X1),
    op(T3, T3, MINUS, X1),
    op(T3, T3, MINUS, X1),
    op(T3, T3, PLUS, RB),
    op(T4, Y1, MUL, Y1),
];

static ADD: [u16; 43] = [
    op(T0, X1, MUL, X2),
    op(T1, Y1, MUL, Y2),
    op(T2, Z1, MUL, Z2),
    op(T3, X1, PLUS, Y1),
    op(T4, X2, PLUS, Y2),
    op(T3, T3, MUL, T4),
    op(T4, T0, PLUS, T1),
    op(T3, T3, MINUS, T4),
    op(T4, Y1, PLUS, Z1),
    op(X3, Y2, PLUS, Z2),
    op(T4, T4, MUL, X3),
    op(X3, T1, PLUS, T2),
    op(T4, T4, MINUS, X3),
    op(X3, X1, PLUS, Z1),
    op(Y3, X2, PLUS, Z2),
    op(X3, X3, MUL, Y3),
    op(Y3, T0, PLUS, T2),
    op(Y3, X3, MINUS, Y3),
    op(Z3, RB, MUL, T2),
    op(X3, Y3, MINUS, Z3),
    op(Z3, X3, PLUS, X3),
    op(X3, X3, PLUS, Z3),
    op(Z3, T1, MINUS, X3),
    op(X3, T1, PLUS, X3),
    op(Y3, RB, MUL, Y3),
    op(T1, T2, PLUS, T2),
    op(T2, T1, PLUS, T2),
    op(Y3, Y3, MINUS, T2),
    op(Y3, Y3, MINUS, T0),
    op(T1, Y3, PLUS, Y3),
    op(Y3, T1, PLUS, Y3),
    op(T1, T0, PLUS, T0),
    op(T0, T1, PLUS, T0),
    op(T0, T0, MINUS, T2),
    op(T1, T4, MUL, Y3),
    op(T2, T0, MUL, Y3),
    op(Y3, X3, MUL, Z3),
    op(Y3, Y3, PLUS, T2),
    op(X3, T3, MUL, X3),
    op(X3, X3, MINUS, T1),
    op(Z3, T4, MUL, Z3),
    op(T1, T3, MUL, T0),
    op(Z3, Z3, PLUS, T1),
];
