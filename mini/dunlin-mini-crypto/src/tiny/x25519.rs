//! Key agreement on Curve25519 (RFC 7748). Knows no handshake.
//!
//! The ladder is a program for the same machine that the other curve runs on,
//! with another prime: a dedicated multiplication would be twice as fast and
//! three times as long.

use core::hint::black_box;

use crate::Digest;

use super::field::{FIELD_25519, Number, Numbers, ONE, Operation, bit, op, read, write};
use super::field::{MINUS, PLUS, TIMES};

/// The base point's u coordinate.
pub(super) const BASE: Digest = {
    let mut base = [0; 32];
    base[0] = 9;
    base
};

/// 1 in Montgomery form.
static UNIT: Number = FIELD_25519.constant(ONE);
/// `(486662 - 2) / 4` in Montgomery form.
static A24: Number = FIELD_25519.constant([121_665, 0, 0, 0, 0, 0, 0, 0]);

/// Where the numbers of the ladder are. The first two and the next two are
/// what is swapped.
const X2: usize = 0;
const Z2: usize = 1;
const X3: usize = 2;
const Z3: usize = 3;
const X1: usize = 4;
const RA: usize = 5;
const A: usize = 6;
const B: usize = 7;
const AA: usize = 8;
const BB: usize = 9;
const C: usize = 10;
const D: usize = 11;

/// A step of the ladder of RFC 7748 section 5, with its names; E is in the
/// place of B.
static STEP: [u16; 18] = [
    op(A, X2, PLUS, Z2),
    op(B, X2, MINUS, Z2),
    op(C, X3, PLUS, Z3),
    op(D, X3, MINUS, Z3),
    op(D, D, TIMES, A),
    op(C, C, TIMES, B),
    op(AA, A, TIMES, A),
    op(BB, B, TIMES, B),
    op(X3, D, PLUS, C),
    op(X3, X3, TIMES, X3),
    op(Z3, D, MINUS, C),
    op(Z3, Z3, TIMES, Z3),
    op(Z3, Z3, TIMES, X1),
    op(X2, AA, TIMES, BB),
    op(B, AA, MINUS, BB),
    op(Z2, RA, TIMES, B),
    op(Z2, Z2, PLUS, AA),
    op(Z2, Z2, TIMES, B),
];

/// The scalar that 32 random bytes are (section 5).
pub(super) fn scalar(bytes: &Digest) -> Number {
    let mut number = little_endian(bytes);
    let [low, .., high] = &mut number;
    *low &= !7;
    *high = *high & 0x7fff_ffff | 0x4000_0000;
    number
}

/// Reads a number.
#[inline(never)]
fn little_endian(bytes: &Digest) -> Number {
    let mut bytes = *bytes;
    bytes.reverse();
    let number = read(&bytes);
    bytes.fill(0);
    black_box(&mut bytes);
    number
}

/// The function X25519, or nothing if the result is zero: a peer with a point
/// of small order (section 6.1, and RFC 8446 section 7.4.2).
#[inline(never)]
pub(super) fn times(scalar: &Number, point: &Digest) -> Option<Digest> {
    let numbers = Numbers::empty();
    numbers.start(FIELD_25519);
    let mut point = little_endian(point);
    let [.., high] = &mut point;
    *high &= 0x7fff_ffff;
    for place in [X1, X3] {
        // A coordinate above the prime is reduced on the way.
        numbers.put(place, &point);
        numbers.enter(place);
    }
    numbers.put(X2, &UNIT);
    numbers.put(Z3, &UNIT);
    numbers.put(RA, &A24);
    let mut swapped = 0;
    for i in (0..255).rev() {
        let bit = bit(scalar, i);
        numbers.swap(X2, X3, swapped ^ bit);
        swapped = bit;
        numbers.run(&STEP);
    }
    // The lowest bit of a scalar is 0, so that nothing is swapped now.
    numbers.invert(A, Z2);
    numbers.calculate(X2, X2, Operation::Times, A);
    numbers.leave(X2);
    let mut out = [0; 32];
    write(&numbers.at(X2), &mut out);
    out.reverse();
    let some = out.iter().fold(0, |all, byte| all | byte);
    (some != 0).then_some(out)
}
