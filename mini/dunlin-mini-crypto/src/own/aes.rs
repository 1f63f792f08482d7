//! AES-128 (FIPS 197), encryption of two blocks at once. Knows no mode.
//!
//! No table is read and no branch taken by a secret. All rounds work on planes
//! of bits: eight words, of which the n-th has bit n of every byte. That leaves
//! room for two blocks, the S-box is a circuit, and a row is a byte of each
//! word.

use core::hint::black_box;

use crate::KEY_LEN;

/// Two blocks. Each byte of a word is a row of their states; its lower four bits
/// are the columns of the first block, the others those of the second.
type Planes = [u32; 8];

/// A pair of blocks.
pub(crate) type Blocks = [[u8; 16]; 2];

/// The round keys, for both blocks of a pair; wiped when dropped.
#[derive(Clone)]
pub(crate) struct Schedule([Planes; 11]);

impl Drop for Schedule {
    fn drop(&mut self) {
        let words = self.0.as_flattened_mut();
        words.fill(0);
        black_box(words);
    }
}

impl Schedule {
    #[inline(never)]
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        let mut schedule = Self([[0; 8]; 11]);
        let mut words = load(key);
        let mut constant = 1;
        for (i, planes) in schedule.0.iter_mut().enumerate() {
            if i != 0 {
                let [_, _, _, last] = words;
                // One word is substituted as a state that is nothing else: the
                // others are zeros so far.
                let [first, ..] = planes;
                *first = last.rotate_right(8);
                transpose(planes);
                substitute(planes);
                transpose(planes);
                let [mixed, ..] = *planes;
                let mut feed = mixed ^ constant;
                for word in &mut words {
                    *word ^= feed;
                    feed = *word;
                }
                // Doubles in GF(2^8): only the last two constants overflow.
                constant = (constant << 1) ^ (0x11b & (constant >> 7).wrapping_neg());
            }
            for half in planes.as_chunks_mut().0 {
                *half = words;
            }
            transpose(planes);
        }
        words.fill(0);
        black_box(&mut words);
        schedule
    }

    /// Encrypts one block in place.
    pub(crate) fn encrypt_one(&self, block: &mut [u8; 16]) {
        let mut blocks = [*block; 2];
        self.encrypt(&mut blocks);
        [*block, _] = blocks;
    }

    /// Encrypts both blocks in place.
    #[inline(never)]
    pub(crate) fn encrypt(&self, blocks: &mut Blocks) {
        let mut planes = [0; 8];
        let bytes = blocks.as_flattened_mut().as_chunks_mut().0;
        for (plane, bytes) in planes.iter_mut().zip(bytes.iter()) {
            *plane = u32::from_le_bytes(*bytes);
        }
        transpose(&mut planes);
        let [first, middle @ .., last] = &self.0;
        add_key(&mut planes, first);
        for key in middle {
            substitute(&mut planes);
            mix(&mut planes, key);
        }
        substitute(&mut planes);
        for plane in &mut planes {
            *plane = shifted(*plane);
        }
        add_key(&mut planes, last);
        transpose(&mut planes);
        for (plane, bytes) in planes.iter().zip(bytes) {
            *bytes = plane.to_le_bytes();
        }
    }
}

/// The four columns, byte 0 of each in the lowest bits.
fn load(bytes: &[u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

#[inline(never)]
fn add_key(planes: &mut Planes, key: &Planes) {
    for (plane, key) in planes.iter_mut().zip(key) {
        *plane ^= key;
    }
}

/// ShiftRows: both halves of the n-th byte turn by n columns.
#[inline(always)]
const fn shifted(plane: u32) -> u32 {
    (plane & 0xff)
        | (plane >> 1 & 0x7700)
        | (plane << 3 & 0x8800)
        | (plane >> 2 & 0x0033_0000)
        | (plane << 2 & 0x00cc_0000)
        | (plane >> 3 & 0x1100_0000)
        | (plane << 1 & 0xee00_0000)
}

/// ShiftRows, MixColumns and AddRoundKey.
#[inline(never)]
fn mix(planes: &mut Planes, key: &Planes) {
    let [.., top] = *planes;
    let top = shifted(top);
    // Doubling moves every bit up by a plane; what falls out of the top one
    // comes back in four planes.
    let top = top ^ top.rotate_right(8);
    let mut below = 0;
    let mut back = 0x1b_u32;
    for (plane, key) in planes.iter_mut().zip(key) {
        let this = shifted(*plane);
        let next = this.rotate_right(8);
        let both = this ^ next;
        let doubled = below ^ (top & (back & 1).wrapping_neg());
        *plane = doubled ^ next ^ both.rotate_right(16) ^ key;
        below = both;
        back >>= 1;
    }
}

/// Between eight words of bytes and eight planes of bits; its own inverse.
/// Written out, so that its words stay in registers.
#[inline(never)]
fn transpose(words: &mut Planes) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *words;
    macro_rules! swap {
        ($distance:literal $mask:literal $($x:ident $y:ident)*) => { $(
            let change = (($x >> $distance) ^ $y) & $mask;
            $x ^= change << $distance;
            $y ^= change;
        )* };
    }
    swap!(1 0x5555_5555 a b c d e f g h);
    swap!(2 0x3333_3333 a c b d e g f h);
    swap!(4 0x0f0f_0f0f a e b f c g d h);
    *words = [a, b, c, d, e, f, g, h];
}

/// The S-box over the planes, lowest bit first: the circuit of Boyar and
/// Peralta, "A depth-16 circuit for the AES S-box" (2011), with their names.
#[inline(never)]
fn substitute(planes: &mut Planes) {
    let [x7, x6, x5, x4, x3, x2, x1, x0] = *planes;
    let y14 = x3 ^ x5;
    let y13 = x0 ^ x6;
    let y9 = x0 ^ x3;
    let y8 = x0 ^ x5;
    let t0 = x1 ^ x2;
    let y1 = t0 ^ x7;
    let y4 = y1 ^ x3;
    let y12 = y13 ^ y14;
    let y2 = y1 ^ x0;
    let y5 = y1 ^ x6;
    let y3 = y5 ^ y8;
    let t1 = x4 ^ y12;
    let y15 = t1 ^ x5;
    let y20 = t1 ^ x1;
    let y6 = y15 ^ x7;
    let y10 = y15 ^ t0;
    let y11 = y20 ^ y9;
    let y7 = x7 ^ y11;
    let y17 = y10 ^ y11;
    let y19 = y10 ^ y8;
    let y16 = t0 ^ y11;
    let y21 = y13 ^ y16;
    let y18 = x0 ^ y16;

    let t2 = y12 & y15;
    let t4 = (y3 & y6) ^ t2;
    let t6 = (y4 & x7) ^ t2;
    let t7 = y13 & y16;
    let t9 = (y5 & y1) ^ t7;
    let t11 = (y2 & y7) ^ t7;
    let t12 = y9 & y11;
    let t14 = (y14 & y17) ^ t12;
    let t16 = (y8 & y10) ^ t12;
    let t21 = t4 ^ t14 ^ y20;
    let t22 = t6 ^ t16 ^ y19;
    let t23 = t9 ^ t14 ^ y21;
    let t24 = t11 ^ t16 ^ y18;
    let [t29, t33, t37, t40, t41, t42, t43, t44, t45] = invert(t21, t22, t23, t24);

    *planes = spread([
        t44 & y15,
        t37 & y6,
        t33 & x7,
        t43 & y16,
        t40 & y1,
        t29 & y7,
        t42 & y11,
        t45 & y17,
        t41 & y10,
        t44 & y12,
        t37 & y3,
        t33 & y4,
        t43 & y13,
        t40 & y5,
        t29 & y2,
        t42 & y9,
        t45 & y14,
        t41 & y8,
    ]);
}

/// The middle of the circuit, where it is not linear: an inversion in GF(2^4).
#[inline(always)]
fn invert(t21: u32, t22: u32, t23: u32, t24: u32) -> [u32; 9] {
    let t25 = t21 ^ t22;
    let t26 = t21 & t23;
    let t27 = t24 ^ t26;
    let t29 = (t25 & t27) ^ t22;
    let t30 = t23 ^ t24;
    let t31 = t22 ^ t26;
    let t33 = (t31 & t30) ^ t24;
    let t34 = t23 ^ t33;
    let t35 = t27 ^ t33;
    let t36 = t24 & t35;
    let t37 = t36 ^ t34;
    let t38 = t27 ^ t36;
    let t40 = t25 ^ (t29 & t38);
    let t41 = t40 ^ t37;
    let t42 = t29 ^ t33;
    let t43 = t29 ^ t40;
    let t44 = t33 ^ t37;
    let t45 = t42 ^ t41;
    [t29, t33, t37, t40, t41, t42, t43, t44, t45]
}

/// The end of the circuit, which is linear.
#[inline(always)]
fn spread(z: [u32; 18]) -> [u32; 8] {
    let [
        z0,
        z1,
        z2,
        z3,
        z4,
        z5,
        z6,
        z7,
        z8,
        z9,
        z10,
        z11,
        z12,
        z13,
        z14,
        z15,
        z16,
        z17,
    ] = z;
    let t46 = z15 ^ z16;
    let t47 = z10 ^ z11;
    let t48 = z5 ^ z13;
    let t49 = z9 ^ z10;
    let t50 = z2 ^ z12;
    let t51 = z2 ^ z5;
    let t52 = z7 ^ z8;
    let t53 = z0 ^ z3;
    let t54 = z6 ^ z7;
    let t55 = z16 ^ z17;
    let t56 = z12 ^ t48;
    let t57 = t50 ^ t53;
    let t58 = z4 ^ t46;
    let t59 = z3 ^ t54;
    let t60 = t46 ^ t57;
    let t61 = z14 ^ t57;
    let t62 = t52 ^ t58;
    let t63 = t49 ^ t58;
    let t64 = z4 ^ t59;
    let t65 = t61 ^ t62;
    let t66 = z1 ^ t63;
    let t67 = t64 ^ t65;
    let s3 = t53 ^ t66;
    [
        t48 ^ !t60,
        t56 ^ !t62,
        t47 ^ t65,
        t51 ^ t66,
        s3,
        t55 ^ !t67,
        t64 ^ !s3,
        t59 ^ t63,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197 section 5.1.1 from its definition.
    fn sub_byte(byte: u8) -> u8 {
        let times = |mut a: u8, mut b: u8| {
            let mut sum = 0;
            while b != 0 {
                sum ^= a * (b & 1);
                a = (a << 1) ^ (0x1b * (a >> 7));
                b >>= 1;
            }
            sum
        };
        let inverse = (0..254).fold(1, |power, _| times(power, byte));
        (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
    }

    #[test]
    fn every_byte_is_substituted() {
        for byte in 0..=255_u8 {
            let mut planes = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| u32::from(byte ^ n) * 0x0101_0101);
            transpose(&mut planes);
            substitute(&mut planes);
            transpose(&mut planes);
            for (n, word) in (0..).zip(planes) {
                assert_eq!(word, u32::from(sub_byte(byte ^ n)) * 0x0101_0101);
            }
        }
    }

    #[test]
    fn blocks_of_a_pair_are_independent() {
        // FIPS 197 appendix B and C.1.
        let key = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f_u128.to_be_bytes();
        let plain = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
        let sealed = 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128.to_be_bytes();
        let schedule = Schedule::new(&key);
        let (mut blocks, mut others) = ([plain, [0; 16]], [[7; 16], plain]);
        schedule.encrypt(&mut blocks);
        schedule.encrypt(&mut others);
        assert_eq!((blocks[0], others[1]), (sealed, sealed));
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let plain = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes();
        let sealed = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_be_bytes();
        let mut blocks = [plain; 2];
        Schedule::new(&key).encrypt(&mut blocks);
        assert_eq!(blocks, [sealed; 2]);
    }
}
