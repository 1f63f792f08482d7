//! AES-128 (FIPS 197), encryption only, and AES-128-GCM (NIST SP 800-38D).
//! Knows nothing of packets.
//!
//! No table is read and no branch taken by a secret. The S-box is a circuit
//! over bit planes; because its planes have room for more than one block, the
//! key schedule's substitution rides along, and no round key is ever stored.

use core::hint::black_box;

use crate::{KEY_LEN, NONCE_LEN, TAG_LEN, equal};

use super::wipe;

/// Four columns, byte 0 of each in the lowest bits.
type Columns = [u32; 4];

/// An AES-128 key.
pub struct TinyKey(Columns);

/// An AES-128-GCM key and its GHASH key.
pub struct TinyAead {
    key: TinyKey,
    /// The words of the hash key, most significant first.
    hash: Columns,
}

impl Drop for TinyKey {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl Drop for TinyAead {
    fn drop(&mut self) {
        wipe(&mut self.hash);
    }
}

impl core::fmt::Debug for TinyKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinyKey")
    }
}

impl core::fmt::Debug for TinyAead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinyAead")
    }
}

impl TinyKey {
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Self {
        Self(load(key))
    }

    /// Encrypts one block in place.
    #[inline(never)]
    pub(super) fn encrypt(&self, block: &mut [u8; 16]) {
        let mut key = self.0;
        let mut state = load(block);
        let mut constant = 1;
        let mut round = 0;
        loop {
            for (word, key) in state.iter_mut().zip(&key) {
                *word ^= key;
            }
            if round == 10 {
                break;
            }
            round += 1;
            let [_, _, _, last] = key;
            let mixed = substitute(&mut state, last.rotate_right(8));
            shift_rows(&mut state);
            if round != 10 {
                for column in &mut state {
                    *column = mix_column(*column);
                }
            }
            let mut feed = mixed ^ constant;
            for word in &mut key {
                *word ^= feed;
                feed = *word;
            }
            constant = double(constant);
        }
        for (to, word) in block.as_chunks_mut().0.iter_mut().zip(&state) {
            *to = word.to_le_bytes();
        }
        wipe(&mut key);
    }
}

impl TinyAead {
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Self {
        let key = TinyKey::new(key);
        let mut block = [0; 16];
        key.encrypt(&mut block);
        let hash = load(&block).map(u32::swap_bytes);
        Self { key, hash }
    }

    /// Encrypts `data` in place and returns the tag.
    pub(super) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        self.stream(nonce, data);
        self.tag(nonce, aad, data)
    }

    /// Decrypts `data` in place if `tag` is its tag, and leaves it otherwise.
    pub(super) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let right = equal(&self.tag(nonce, aad, data), tag);
        if right {
            self.stream(nonce, data);
        }
        right
    }

    /// The key stream of one counter value.
    fn counter(&self, nonce: &[u8; NONCE_LEN], counter: u32) -> [u8; 16] {
        let mut block = [0; 16];
        let counter = counter.to_be_bytes();
        for (to, from) in block.iter_mut().zip(nonce.iter().chain(&counter)) {
            *to = *from;
        }
        self.key.encrypt(&mut block);
        block
    }

    #[inline(never)]
    fn stream(&self, nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
        // Counter 1 is the tag's.
        for (chunk, counter) in data.chunks_mut(16).zip(2_u32..) {
            for (to, key) in chunk.iter_mut().zip(self.counter(nonce, counter)) {
                *to ^= key;
            }
        }
    }

    #[inline(never)]
    fn tag(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &[u8]) -> [u8; TAG_LEN] {
        let mut sum = [0; 4];
        self.absorb(&mut sum, aad);
        self.absorb(&mut sum, data);
        let mut lengths = [0; 16];
        let [aad_bits, data_bits] = [aad, data].map(|part| (part.len() as u64) << 3);
        let lengths_in = aad_bits
            .to_be_bytes()
            .into_iter()
            .chain(data_bits.to_be_bytes());
        for (to, from) in lengths.iter_mut().zip(lengths_in) {
            *to = from;
        }
        self.absorb(&mut sum, &lengths);
        let mut tag = self.counter(nonce, 1);
        for (to, word) in tag.as_chunks_mut::<4>().0.iter_mut().zip(sum) {
            *to = (u32::from_be_bytes(*to) ^ word).to_be_bytes();
        }
        tag
    }

    /// GHASH of `data`, padded with zeros, onto `sum`.
    #[inline(never)]
    fn absorb(&self, sum: &mut Columns, data: &[u8]) {
        for chunk in data.chunks(16) {
            let mut block = [0; 16];
            for (to, from) in block.iter_mut().zip(chunk) {
                *to = *from;
            }
            for (word, add) in sum.iter_mut().zip(load(&block)) {
                *word ^= add.swap_bytes();
            }
            multiply(sum, &self.hash);
        }
    }
}

/// NIST SP 800-38D section 6.3, bit by bit with masks. Written out for the
/// four words, because they stay in registers then.
#[inline(never)]
fn multiply(x: &mut Columns, hash: &Columns) {
    let [mut h0, mut h1, mut h2, mut h3] = *hash;
    let (mut p0, mut p1, mut p2, mut p3) = (0, 0, 0, 0);
    for word in &*x {
        for bit in (0..32).rev() {
            let mask = black_box(((word >> bit) & 1).wrapping_neg());
            p0 ^= h0 & mask;
            p1 ^= h1 & mask;
            p2 ^= h2 & mask;
            p3 ^= h3 & mask;
            // What falls out is 0 or all ones; the polynomial is 0xe1 on top.
            let out = (h3 & 1).wrapping_neg();
            h3 = (h3 >> 1) | (h2 << 31);
            h2 = (h2 >> 1) | (h1 << 31);
            h1 = (h1 >> 1) | (h0 << 31);
            h0 = (h0 >> 1) ^ (out & 0xe100_0000);
        }
    }
    *x = [p0, p1, p2, p3];
}

fn load(bytes: &[u8; 16]) -> Columns {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Multiplies four bytes by x.
fn double(bytes: u32) -> u32 {
    ((bytes & 0x7f7f_7f7f) << 1) ^ (((bytes >> 7) & 0x0101_0101).wrapping_mul(0x1b))
}

fn mix_column(column: u32) -> u32 {
    let next = column.rotate_right(8);
    let both = column ^ next;
    double(both) ^ next ^ both.rotate_right(16)
}

fn shift_rows(state: &mut Columns) {
    let [a, b, c, d] = *state;
    let row = |w: u32, x: u32, y: u32, z: u32| {
        (w & 0xff) | (x & 0xff00) | (y & 0xff_0000) | (z & 0xff00_0000)
    };
    *state = [
        row(a, b, c, d),
        row(b, c, d, a),
        row(c, d, a, b),
        row(d, a, b, c),
    ];
}

/// SubBytes of the state; returns the substitution of the four bytes of
/// `extra`.
#[inline(never)]
fn substitute(state: &mut Columns, extra: u32) -> u32 {
    let [a, b, c, d] = *state;
    let mut planes = [a, extra, b, 0, c, 0, d, 0];
    transpose(&mut planes);
    sub_planes(&mut planes);
    transpose(&mut planes);
    let [a, extra, b, _, c, _, d, _] = planes;
    *state = [a, b, c, d];
    extra
}

/// Between eight words of bytes and eight planes of bits; its own inverse.
/// Written out, because it is half of the work.
#[inline(never)]
fn transpose(words: &mut [u32; 8]) {
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

/// The S-box over bit planes, lowest bit first: the circuit of Boyar and
/// Peralta, "A depth-16 circuit for the AES S-box" (2011), with their names.
#[inline(never)]
fn sub_planes(planes: &mut [u32; 8]) {
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
            let mut state = [0, 1, 2, 3].map(|n| u32::from(byte ^ n) * 0x0101_0101);
            let extra = substitute(&mut state, u32::from(byte) << 8 | 0x5300_0053);
            for (n, word) in (0..).zip(state) {
                assert_eq!(word, u32::from(sub_byte(byte ^ n)) * 0x0101_0101);
            }
            assert_eq!(extra, u32::from(sub_byte(byte)) << 8 | 0xed63_00ed);
        }
    }
}
