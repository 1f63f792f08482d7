//! The operations of a handshake, to weigh them and to see whether they tell
//! anything of their secrets.

use core::fmt::Write as _;
use core::hint::black_box;

use dunlin_mini_crypto::{Crypto, Digest, Group, Point, Suite};

use crate::host::File;
use crate::measure::{begin, end, stack_of};
use crate::provider;

/// A packet of this many bytes is what a reading needs.
const PACKET: usize = 128;
/// Bytes of a packet's header.
const HEADER: usize = 32;
/// Secrets of each operation: the special ones and as many random ones.
const SECRETS: usize = 32;

/// RFC 6979 appendix A.2.5, SHA-256, message "sample".
const KEY: Point = [
    0x04, 0x60, 0xfe, 0xd4, 0xba, 0x25, 0x5a, 0x9d, 0x31, 0xc9, 0x61, 0xeb, 0x74, 0xc6, 0x35, 0x6d,
    0x68, 0xc0, 0x49, 0xb8, 0x92, 0x3b, 0x61, 0xfa, 0x6c, 0xe6, 0x69, 0x62, 0x2e, 0x60, 0xf2, 0x9f,
    0xb6, 0x79, 0x03, 0xfe, 0x10, 0x08, 0xb8, 0xbc, 0x99, 0xa4, 0x1a, 0xe9, 0xe9, 0x56, 0x28, 0xbc,
    0x64, 0xf2, 0xf1, 0xb2, 0x0c, 0x2d, 0x7e, 0x9f, 0x51, 0x77, 0xa3, 0xc2, 0x94, 0xd4, 0x46, 0x22,
    0x99,
];
const SIGNATURE: [u8; 64] = [
    0xef, 0xd4, 0x8b, 0x2a, 0xac, 0xb6, 0xa8, 0xfd, 0x11, 0x40, 0xdd, 0x9c, 0xd4, 0x5e, 0x81, 0xd6,
    0x9d, 0x2c, 0x87, 0x7b, 0x56, 0xaa, 0xf9, 0x91, 0xc3, 0x4d, 0x0e, 0xa8, 0x4e, 0xaf, 0x37, 0x16,
    0xf7, 0xcb, 0x1c, 0x94, 0x2d, 0x65, 0x7c, 0x41, 0xd4, 0x36, 0xc7, 0xa1, 0xb6, 0xe2, 0x9f, 0x65,
    0xf3, 0xe9, 0x00, 0xdb, 0xb9, 0xaf, 0xf4, 0x06, 0x4d, 0xc4, 0xab, 0x2f, 0x84, 0x3a, 0xcd, 0xa8,
];

/// What groups are called, and a share of a peer in each: of P-256 the key
/// above, of Curve25519 the one of Alice in RFC 7748 section 6.1.
fn groups<C: Crypto>(_: &C) -> impl Iterator<Item = Exchange> + use<C> {
    C::GROUPS.iter().map(|group| match group {
        Group::Secp256r1 => (*group, ["generate", "agree"], &KEY[..]),
        Group::X25519 => (*group, ["x25519-generate", "x25519-agree"], &ALICE[..]),
    })
}
type Exchange = (Group, [&'static str; 2], &'static [u8]);
const ALICE: [u8; 32] = [
    0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d, 0xdc, 0xb4, 0x3e, 0xf7, 0x5a,
    0x0d, 0xbf, 0x3a, 0x0d, 0x26, 0x38, 0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e, 0xaa, 0x9b, 0x4e, 0x6a,
];

/// The digest of that message.
fn sample(crypto: &mut impl Crypto) -> Digest {
    let mut hash = crypto.hash();
    crypto.update(&mut hash, b"sample");
    crypto.finish(hash)
}

fn report<T>(console: &mut File, name: &str, (result, stack): (T, usize)) -> T {
    let _ = writeln!(console, "{name} {stack}");
    result
}

/// Every operation once: its name and the stack that it used.
pub fn bench(console: &mut File) -> bool {
    let mut crypto = provider(&[0x5a; 32]);
    for (group, [generate, agree], share) in groups(&crypto) {
        let pair = report(console, generate, stack_of(|| crypto.generate(group)));
        let Ok((secret, _)) = pair else { return false };
        let agreed = report(console, agree, stack_of(|| crypto.agree(&secret, share)));
        if agreed.is_err() {
            return false;
        }
    }
    let digest = sample(&mut crypto);
    let verify = || crypto.verify(&KEY, &digest, &SIGNATURE);
    let verified = report(console, "verify", stack_of(verify));
    for (suite, names) in SUITES {
        if !protect(console, &mut crypto, suite, names) {
            return false;
        }
    }
    let datagram = [0x35; 1200];
    let hash = || {
        let mut hash = crypto.hash();
        crypto.update(&mut hash, &datagram);
        crypto.finish(hash)
    };
    let digest = report(console, "hash-1200", stack_of(hash));
    let secret = report(
        console,
        "extract",
        stack_of(|| crypto.extract(&digest, &digest)),
    );
    let mut out = [0; 32];
    let info: [&[u8]; 5] = [&[0, 32, 15], b"tls13 ", b"client in", &[0], &[]];
    report(
        console,
        "expand",
        stack_of(|| crypto.expand(&secret, &info, &mut out)),
    );
    black_box(out);
    verified.is_ok()
}

/// What the operations of a suite are called: to prepare a key, to seal a
/// short and to open it, to seal a long one, to prepare a key of header
/// protection, and a mask.
type Names = [&'static str; 6];
const SUITES: [(Suite, Names); 2] = [
    (
        Suite::Aes128Gcm,
        [
            "aead-key",
            "seal-128",
            "open-128",
            "seal-1200",
            "block-key",
            "mask",
        ],
    ),
    (
        Suite::ChaCha20Poly1305,
        [
            "chacha-key",
            "chacha-seal-128",
            "chacha-open-128",
            "chacha-seal-1200",
            "chacha-block-key",
            "chacha-mask",
        ],
    ),
];

/// The operations of a suite, once each.
#[inline(never)]
fn protect(console: &mut File, crypto: &mut impl Crypto, suite: Suite, names: Names) -> bool {
    let [aead, short, open, long, block, mask] = names;
    let raw = Suite::key(&[7; 32]);
    let key = report(console, aead, stack_of(|| crypto.aead(suite, &raw)));
    let mut packet = [0; PACKET];
    let seal = || crypto.seal(&key, &[1; 12], &[2; HEADER], &mut packet);
    let tag = report(console, short, stack_of(seal));
    let opening = || crypto.open(&key, &[1; 12], &[2; HEADER], &mut packet, &tag);
    let opened = report(console, open, stack_of(opening));
    let mut datagram = [0; 1200];
    let seal = || crypto.seal(&key, &[1; 12], &[2; HEADER], &mut datagram);
    let _ = report(console, long, stack_of(seal));
    let block = report(console, block, stack_of(|| crypto.block(suite, &raw)));
    let mut sample = [3; 16];
    let masking = || crypto.mask(&block, &mut sample);
    report(console, mask, stack_of(masking));
    black_box(sample);
    opened.is_ok() && packet == [0; PACKET]
}

/// A generator of numbers that are not secret.
struct Random(u32);

impl Random {
    fn fill<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 17;
            self.0 ^= self.0 << 5;
            *byte = self.0 as u8;
        }
        bytes
    }
}

/// Secrets that are likely to be special, then random ones.
fn secret<const N: usize>(random: &mut Random, index: usize) -> [u8; N] {
    let mut bytes = [0; N];
    match index {
        // The lowest and the highest of what may be a private key: for
        // symmetric keys they are as good as others.
        0 => bytes.iter_mut().rev().take(1).for_each(|byte| *byte = 1),
        1 => bytes.iter_mut().skip(1).for_each(|byte| *byte = 0xff),
        2 => bytes.iter_mut().take(1).for_each(|byte| *byte = 0x80),
        3 => bytes.fill(0x55),
        _ => bytes = random.fill(),
    }
    bytes
}

/// Every operation on a secret with many secrets, each between marks: a line
/// with its name for each.
pub fn steady(console: &mut File) -> bool {
    let mut random = Random(0x2545_f491);
    let mut fine = true;
    for index in 0..SECRETS {
        let mut crypto = provider(&secret(&mut random, index));
        for (group, [generate, agree], share) in groups(&crypto) {
            let _ = writeln!(console, "{generate}");
            begin();
            let pair = crypto.generate(group);
            end();
            let Ok((key, _)) = pair else { return false };
            let _ = writeln!(console, "{agree}");
            begin();
            let agreed = crypto.agree(black_box(&key), share);
            end();
            fine &= agreed.is_ok();
        }
    }
    for index in 0..SECRETS {
        let mut crypto = provider(&[0; 32]);
        let suites = [
            (Suite::Aes128Gcm, ["seal", "open", "mask"]),
            (
                Suite::ChaCha20Poly1305,
                ["chacha-seal", "chacha-open", "chacha-mask"],
            ),
        ];
        for (suite, names) in suites {
            let (raw, packet) = (secret(&mut random, index), secret(&mut random, index));
            fine &= packet_of(console, &mut crypto, (suite, names), (raw, packet));
        }
        let raw: Digest = secret(&mut random, index);
        let _ = writeln!(console, "extract");
        begin();
        let derived = crypto.extract(black_box(&raw), &raw);
        end();
        let _ = writeln!(console, "expand");
        let mut out = [0; 32];
        begin();
        crypto.expand(
            black_box(&derived),
            &[b"label", &[], &[], &[], &[]],
            &mut out,
        );
        end();
        black_box(out);
    }
    fine
}

/// A packet sealed and opened and a mask, with a secret key.
fn packet_of(
    console: &mut File,
    crypto: &mut impl Crypto,
    (suite, [seal, open, mask]): (Suite, [&str; 3]),
    (raw, mut packet): (Digest, [u8; PACKET]),
) -> bool {
    let raw = Suite::key(&raw);
    let _ = writeln!(console, "{seal}");
    begin();
    let key = crypto.aead(suite, black_box(&raw));
    let tag = crypto.seal(
        &key,
        &[1; 12],
        &[2; HEADER],
        black_box::<&mut [u8; PACKET]>(&mut packet),
    );
    end();
    let _ = writeln!(console, "{open}");
    begin();
    let opened = crypto.open(&key, &[1; 12], &[2; HEADER], &mut packet, &tag);
    end();
    let _ = writeln!(console, "{mask}");
    begin();
    let block = crypto.block(suite, black_box(&raw));
    let mut sample = [9; 16];
    crypto.mask(&block, &mut sample);
    end();
    black_box(sample);
    opened.is_ok()
}
