//! Entry point of the target `providers`.

#![no_main]

#[path = "../bodies/providers.rs"]
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

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
