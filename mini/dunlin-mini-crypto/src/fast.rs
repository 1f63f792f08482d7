//! The fast provider of a Cortex-M4: the assembly of P256-Cortex-M4 for the
//! curve, and this crate's own code for the rest, with round keys that are kept
//! and a hash that is unrolled. Exists on that processor only. Knows nothing of
//! the small provider.
//!
//! Its scalar multiplication takes no branch by a secret, but reads a table at
//! an address made from it: constant in time where memory answers in a
//! constant time, as the SRAM of a processor without a data cache does. The rest
//! reads no table.

use p256_cortex_m4::{PublicKey, SecretKey, Signature};

use crate::own::Cipher;
use crate::own::aes::Schedule;
#[cfg(feature = "chacha20-poly1305")]
use crate::own::chacha::Key;
use crate::own::gcm::{self, HashKey};
use crate::sha256::OwnHash;
use crate::{
    Crypto, CryptoError, Digest, Entropy, Group, NONCE_LEN, Point, SIGNATURE_LEN, Share, Suite,
    SuiteKey, TAG_LEN,
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

/// A running SHA-256.
pub type FastHash = OwnHash<true>;

/// A key of header protection; wiped when dropped.
pub struct FastKey(Cipher<Schedule, true>);

impl core::fmt::Debug for FastKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastKey")
    }
}

/// An AES-128-GCM key.
struct Gcm {
    schedule: Schedule,
    hash: HashKey<true>,
}

/// A key of an AEAD.
pub struct FastAead(Cipher<Gcm, true>);

impl core::fmt::Debug for FastAead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastAead")
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
    type Hash = FastHash;
    type Secret = FastSecret;
    type Aead = FastAead;
    type Block = FastKey;

    /// No portable code for X25519 is as fast as this assembly for P-256.
    const GROUPS: &'static [Group] = &[Group::Secp256r1];

    const SUITES: &'static [Suite] = &[
        #[cfg(feature = "chacha20-poly1305")]
        Suite::ChaCha20Poly1305,
        Suite::Aes128Gcm,
    ];

    fn random(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self.entropy.fill(out)
    }

    fn hash(&mut self) -> FastHash {
        FastHash::new()
    }

    fn update(&mut self, hash: &mut FastHash, data: &[u8]) {
        hash.update(data);
    }

    fn finish(&mut self, hash: FastHash) -> Digest {
        hash.finish()
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

    fn aead(&mut self, suite: Suite, key: &SuiteKey) -> FastAead {
        FastAead(match suite {
            Suite::Aes128Gcm => {
                let [key, ..] = key;
                let schedule = Schedule::new(key);
                let hash = HashKey::new(&schedule);
                Cipher::Aes(Gcm { schedule, hash })
            }
            #[cfg(feature = "chacha20-poly1305")]
            Suite::ChaCha20Poly1305 => Cipher::ChaCha(Key::new(key)),
        })
    }

    fn seal(
        &mut self,
        key: &FastAead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        match &key.0 {
            Cipher::Aes(key) => gcm::seal((&key.schedule, &key.hash), nonce, aad, data),
            #[cfg(feature = "chacha20-poly1305")]
            Cipher::ChaCha(key) => key.seal(nonce, aad, data),
        }
    }

    fn open(
        &mut self,
        key: &FastAead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), CryptoError> {
        let right = match &key.0 {
            Cipher::Aes(key) => gcm::open((&key.schedule, &key.hash), nonce, aad, data, tag),
            #[cfg(feature = "chacha20-poly1305")]
            Cipher::ChaCha(key) => key.open(nonce, aad, data, tag),
        };
        right.then_some(()).ok_or(CryptoError::BadTag)
    }

    fn block(&mut self, suite: Suite, key: &SuiteKey) -> FastKey {
        FastKey(match suite {
            Suite::Aes128Gcm => {
                let [key, ..] = key;
                Cipher::Aes(Schedule::new(key))
            }
            #[cfg(feature = "chacha20-poly1305")]
            Suite::ChaCha20Poly1305 => Cipher::ChaCha(Key::new(key)),
        })
    }

    fn mask(&mut self, key: &FastKey, sample: &mut [u8; 16]) {
        match &key.0 {
            Cipher::Aes(key) => key.encrypt_one(sample),
            #[cfg(feature = "chacha20-poly1305")]
            Cipher::ChaCha(key) => key.mask(sample),
        }
    }
}
