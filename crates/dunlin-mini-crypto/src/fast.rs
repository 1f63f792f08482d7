//! The fast provider of a Cortex-M4: the assembly of P256-Cortex-M4 for the
//! curve, RustCrypto for the rest. Exists on that processor only. Knows
//! nothing of the small provider.
//!
//! Its scalar multiplication takes no branch by a secret, but reads a table at
//! an address made from it: constant in time where memory answers in a
//! constant time, as the SRAM of a processor without a data cache does.
//! RustCrypto takes its smallest forms by settings of the image: see
//! `firmware/bench/.cargo/config.toml`.

use aes::Aes128;
use aes::cipher::BlockCipherEncrypt;
use p256_cortex_m4::{PublicKey, SecretKey, Signature};
use sha2::{Digest as _, Sha256};

use crate::rustcrypto::{RustAead, block};
use crate::{
    Crypto, CryptoError, Digest, Entropy, Group, KEY_LEN, NONCE_LEN, Point, SIGNATURE_LEN, Share,
    TAG_LEN,
};

/// Attempts to draw a scalar; each fails with a chance of 2^-32.
const DRAWS: usize = 8;

/// Assembly for the curve and RustCrypto, with entropy from `E`.
#[derive(Clone, Debug)]
pub struct Fast<E> {
    entropy: E,
}

impl<E: Entropy> Fast<E> {
    /// A provider that draws from `entropy`.
    pub const fn new(entropy: E) -> Self {
        Self { entropy }
    }
}

/// A P-256 private key; wiped when dropped.
pub struct FastSecret(SecretKey);

impl Drop for FastSecret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl core::fmt::Debug for FastSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastSecret")
    }
}

/// Reads a point in uncompressed form, if it is on the curve. The library
/// reads the hybrid form too, which TLS does not know.
fn decode(point: &Point) -> Option<PublicKey> {
    let [4, ..] = point else { return None };
    PublicKey::from_sec1_bytes(point).ok()
}

impl<E: Entropy> Crypto for Fast<E> {
    type Hash = Sha256;
    type Secret = FastSecret;
    type Aead = RustAead;
    type Block = Aes128;

    /// No portable code for X25519 is as fast as this assembly for P-256.
    const GROUPS: &'static [Group] = &[Group::Secp256r1];

    fn random(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self.entropy.fill(out)
    }

    fn hash(&mut self) -> Sha256 {
        Sha256::new()
    }

    fn update(&mut self, hash: &mut Sha256, data: &[u8]) {
        hash.update(data);
    }

    fn finish(&mut self, hash: Sha256) -> Digest {
        hash.finalize().into()
    }

    fn generate(&mut self, group: Group) -> Result<(FastSecret, Share), CryptoError> {
        if group != Group::Secp256r1 {
            return Err(CryptoError::Group);
        }
        let mut scalar = [0; 32];
        for _ in 0..DRAWS {
            self.entropy.fill(&mut scalar)?;
            let secret = SecretKey::from_bytes(scalar);
            zeroize::Zeroize::zeroize(&mut scalar);
            if let Ok(secret) = secret.map(FastSecret) {
                let point = secret.0.public_key().to_uncompressed_sec1_bytes();
                return Ok((secret, Share::point(&point)));
            }
        }
        Err(CryptoError::Entropy)
    }

    fn agree(&mut self, secret: &FastSecret, peer: &[u8]) -> Result<Digest, CryptoError> {
        let peer = peer.try_into().ok().and_then(decode);
        let peer = peer.ok_or(CryptoError::BadPoint)?;
        Ok(*secret.0.agree(&peer).as_bytes())
    }

    fn verify(
        &mut self,
        key: &Point,
        digest: &Digest,
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), CryptoError> {
        let verified = || {
            let signature = Signature::from_untagged_bytes(signature).ok()?;
            Some(decode(key)?.verify_prehashed(digest, &signature))
        };
        match verified() {
            Some(true) => Ok(()),
            _ => Err(CryptoError::BadSignature),
        }
    }

    fn aead(&mut self, key: &[u8; KEY_LEN]) -> RustAead {
        RustAead::new(key)
    }

    fn seal(
        &mut self,
        key: &RustAead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        key.seal(nonce, aad, data)
    }

    fn open(
        &mut self,
        key: &RustAead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), CryptoError> {
        key.open(nonce, aad, data, tag)
    }

    fn block(&mut self, key: &[u8; KEY_LEN]) -> Aes128 {
        block(key)
    }

    fn encrypt(&mut self, key: &Aes128, block: &mut [u8; 16]) {
        key.encrypt_block(block.into());
    }
}
