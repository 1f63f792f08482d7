//! Replays the corpus of the fuzz target `providers`: the smallest provider
//! against RustCrypto.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "../../../fuzz/bodies/providers.rs"]
mod body;

use dunlin_mini_crypto::{Crypto, CryptoError, Group, Host, Suite, SuiteKey, Tiny};
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::{Signature, SigningKey};

/// The public key of a private one, and its signature of a digest.
fn sign(scalar: &[u8; 32], digest: &[u8; 32]) -> Option<([u8; 65], [u8; 64])> {
    let key = SigningKey::from_slice(scalar).ok()?;
    let signature: Signature = key.sign_prehash(digest).ok()?;
    let point = key.verifying_key().to_sec1_point(false);
    Some((
        point.as_bytes().try_into().ok()?,
        signature.to_bytes().into(),
    ))
}

#[test]
fn every_input_that_was_kept_gives_the_same_with_both() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/providers");
    let mut ran = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        body::run(&std::fs::read(&path).unwrap());
        ran += 1;
    }
    assert!(ran >= 20, "{ran} inputs");
}
