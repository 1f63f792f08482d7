//! The smallest provider: portable, without an allocator, without a path to a
//! panic, and constant in time for everything secret. Knows nothing of RustCrypto.
//!
//! Constant time means that no branch is taken and no address is made from a
//! secret, on any processor whose multiplication takes a constant time (a
//! Cortex-M3's long multiplication does not). Verification works on public
//! data only.
//!
//! Keys and the state of a point multiplication are wiped; a digest's state
//! and words that the compiler keeps on the stack are not.

pub(crate) mod curve;
mod field;
mod x25519;

use crate::own::Cipher;
use crate::own::aes::Schedule;
#[cfg(feature = "chacha20-poly1305")]
use crate::own::chacha::Key;
use crate::own::gcm::{self, HashKey};
use crate::sha256::OwnHash;
use crate::{
    Crypto, CryptoError, Digest, Entropy, Group, KEY_LEN, NONCE_LEN, Point, SIGNATURE_LEN, Share,
    Suite, SuiteKey, TAG_LEN,
};
use field::Number;

/// A running SHA-256.
pub type TinyHash = OwnHash<false>;

/// Attempts to draw a scalar; each fails with a chance of 2^-32.
const DRAWS: usize = 8;

/// The smallest provider, with entropy from `E`.
#[derive(Clone, Debug)]
pub struct Tiny<E> {
    entropy: E,
}

impl<E: Entropy> Tiny<E> {
    /// A provider that draws from `entropy`.
    pub const fn new(entropy: E) -> Self {
        Self { entropy }
    }
}

/// Forgets words; the barrier keeps the optimiser from seeing that the
/// zeros are not read.
pub(crate) fn wipe(words: &mut [u32]) {
    words.fill(0);
    core::hint::black_box(words);
}

/// An AES-128 key; wiped when dropped. Its round keys are made for each packet
/// again, because they are twenty times as long.
struct AesKey([u8; KEY_LEN]);

impl Drop for AesKey {
    fn drop(&mut self) {
        self.0.fill(0);
        core::hint::black_box(&mut self.0);
    }
}

/// A key of header protection.
pub struct TinyKey(Cipher<AesKey, false>);

impl core::fmt::Debug for TinyKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinyKey")
    }
}

/// An AES-128-GCM key.
struct Gcm {
    key: AesKey,
    hash: HashKey<false>,
}

/// A key of an AEAD.
pub struct TinyAead(Cipher<Gcm, false>);

impl core::fmt::Debug for TinyAead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinyAead")
    }
}

/// A private key for one exchange; wiped when dropped.
pub struct TinySecret {
    scalar: Number,
    group: Group,
}

impl Drop for TinySecret {
    fn drop(&mut self) {
        wipe(&mut self.scalar);
    }
}

impl core::fmt::Debug for TinySecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TinySecret")
    }
}

impl TinySecret {
    /// A private key from its bytes, unless they are none of the group.
    fn new(group: Group, bytes: &Digest) -> Option<Self> {
        let scalar = match group {
            Group::X25519 => x25519::scalar(bytes),
            Group::Secp256r1 => curve::scalar(bytes)?,
        };
        Some(Self { scalar, group })
    }

    /// The public value.
    fn public(&self) -> Option<Share> {
        Some(match self.group {
            Group::X25519 => Share::x25519(&x25519::times(&self.scalar, &x25519::BASE)?),
            Group::Secp256r1 => Share::point(&curve::public(&self.scalar)?),
        })
    }

    fn agree(&self, peer: &[u8]) -> Option<Digest> {
        match self.group {
            Group::X25519 => x25519::times(&self.scalar, peer.try_into().ok()?),
            Group::Secp256r1 => curve::agree(&self.scalar, peer.try_into().ok()?),
        }
    }
}

impl<E: Entropy> Crypto for Tiny<E> {
    type Hash = TinyHash;
    type Secret = TinySecret;
    type Aead = TinyAead;
    type Block = TinyKey;

    const GROUPS: &'static [Group] = &[Group::X25519, Group::Secp256r1];

    const SUITES: &'static [Suite] = &[
        #[cfg(feature = "chacha20-poly1305")]
        Suite::ChaCha20Poly1305,
        Suite::Aes128Gcm,
    ];

    fn random(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self.entropy.fill(out)
    }

    fn hash(&mut self) -> TinyHash {
        TinyHash::new()
    }

    fn update(&mut self, hash: &mut TinyHash, data: &[u8]) {
        hash.update(data);
    }

    fn finish(&mut self, hash: TinyHash) -> Digest {
        hash.finish()
    }

    fn generate(&mut self, group: Group) -> Result<(TinySecret, Share), CryptoError> {
        let mut bytes = [0; 32];
        for _ in 0..DRAWS {
            self.entropy.fill(&mut bytes)?;
            let secret = TinySecret::new(group, &bytes);
            bytes.fill(0);
            core::hint::black_box(&mut bytes);
            if let Some(secret) = secret
                && let Some(share) = secret.public()
            {
                return Ok((secret, share));
            }
        }
        Err(CryptoError::Entropy)
    }

    fn agree(&mut self, secret: &TinySecret, peer: &[u8]) -> Result<Digest, CryptoError> {
        secret.agree(peer).ok_or(CryptoError::BadPoint)
    }

    fn verify(
        &mut self,
        key: &Point,
        digest: &Digest,
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), CryptoError> {
        curve::verify(key, digest, signature).ok_or(CryptoError::BadSignature)
    }

    fn aead(&mut self, suite: Suite, key: &SuiteKey) -> TinyAead {
        TinyAead(match suite {
            Suite::Aes128Gcm => {
                let [key, ..] = key;
                let hash = HashKey::new(&Schedule::new(key));
                let key = AesKey(*key);
                Cipher::Aes(Gcm { key, hash })
            }
            #[cfg(feature = "chacha20-poly1305")]
            Suite::ChaCha20Poly1305 => Cipher::ChaCha(Key::new(key)),
        })
    }

    fn seal(
        &mut self,
        key: &TinyAead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        match &key.0 {
            Cipher::Aes(key) => {
                let schedule = Schedule::new(&key.key.0);
                gcm::seal((&schedule, &key.hash), nonce, aad, data)
            }
            #[cfg(feature = "chacha20-poly1305")]
            Cipher::ChaCha(key) => key.seal(nonce, aad, data),
        }
    }

    fn open(
        &mut self,
        key: &TinyAead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), CryptoError> {
        let right = match &key.0 {
            Cipher::Aes(key) => {
                let schedule = Schedule::new(&key.key.0);
                gcm::open((&schedule, &key.hash), nonce, aad, data, tag)
            }
            #[cfg(feature = "chacha20-poly1305")]
            Cipher::ChaCha(key) => key.open(nonce, aad, data, tag),
        };
        right.then_some(()).ok_or(CryptoError::BadTag)
    }

    fn block(&mut self, suite: Suite, key: &SuiteKey) -> TinyKey {
        TinyKey(match suite {
            Suite::Aes128Gcm => {
                let [key, ..] = key;
                Cipher::Aes(AesKey(*key))
            }
            #[cfg(feature = "chacha20-poly1305")]
            Suite::ChaCha20Poly1305 => Cipher::ChaCha(Key::new(key)),
        })
    }

    fn mask(&mut self, key: &TinyKey, sample: &mut [u8; 16]) {
        match &key.0 {
            Cipher::Aes(key) => Schedule::new(&key.0).encrypt_one(sample),
            #[cfg(feature = "chacha20-poly1305")]
            Cipher::ChaCha(key) => key.mask(sample),
        }
    }
}
