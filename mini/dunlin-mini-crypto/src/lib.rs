//! The cryptography of a QUIC v1 client: TLS_AES_128_GCM_SHA256, and with the
//! feature `chacha20-poly1305` TLS_CHACHA20_POLY1305_SHA256, X25519 or
//! secp256r1, and ECDSA P-256.
//!
//! [`Crypto`] is everything such a client asks for. Providers differ in size
//! and speed only; a chip's accelerator or PSA takes over by implementing the
//! trait. Calls take `&mut self`, because an accelerator is one device, and
//! keys are types of the provider, because a key may live in the device.
//!
//! Layer 1: knows no packet, no handshake and no clock.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

// Its assembly is for one processor.
#[cfg(all(feature = "fast", target_arch = "arm"))]
mod fast;
#[cfg(feature = "host")]
mod host;
#[cfg(any(feature = "tiny", all(feature = "fast", target_arch = "arm")))]
mod own;
#[cfg(feature = "host")]
mod rustcrypto;
#[cfg(any(feature = "tiny", all(feature = "fast", target_arch = "arm")))]
mod sha256;
#[cfg(feature = "sign")]
mod sign;
#[cfg(feature = "tiny")]
mod tiny;

#[cfg(all(feature = "fast", target_arch = "arm"))]
pub use fast::{Fast, FastAead, FastHash, FastKey, FastSecret};
#[cfg(feature = "host")]
pub use host::{Host, HostSecret};
#[cfg(feature = "host")]
pub use rustcrypto::{RustAead, RustBlock};
#[cfg(any(feature = "tiny", all(feature = "fast", target_arch = "arm")))]
pub use sha256::OwnHash;
#[cfg(feature = "sign")]
pub use sign::sign;
#[cfg(feature = "tiny")]
pub use tiny::{Tiny, TinyAead, TinyHash, TinyKey, TinySecret};

/// Bytes of a SHA-256 digest, and of every secret of the key schedule.
pub const HASH_LEN: usize = 32;
/// Bytes of an AES-128 key.
pub const KEY_LEN: usize = 16;
/// Parts of that length in the longest key of a suite.
const KEY_PARTS: usize = if cfg!(feature = "chacha20-poly1305") {
    2
} else {
    1
};
/// Bytes of an AEAD nonce.
pub const NONCE_LEN: usize = 12;
/// Bytes of an AEAD authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of a P-256 point in uncompressed form: `04 || x || y`.
pub const POINT_LEN: usize = 65;
/// Bytes of an ECDSA P-256 signature as `r || s`.
pub const SIGNATURE_LEN: usize = 64;
/// SHA-256 works on blocks of this many bytes; HMAC pads its key to it.
const BLOCK_LEN: usize = 64;

/// A SHA-256 digest or a secret of the same length.
pub type Digest = [u8; HASH_LEN];
/// A P-256 point in uncompressed form.
pub type Point = [u8; POINT_LEN];

/// A key of a suite, in parts of 16 bytes: the first is all of an AES-128 key.
pub type SuiteKey = [[u8; KEY_LEN]; KEY_PARTS];

/// A cipher suite with its number in TLS (RFC 8446 appendix B.4). The hash of
/// all is SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256, which is there always.
    Aes128Gcm = 0x1301,
    /// TLS_CHACHA20_POLY1305_SHA256.
    #[cfg(feature = "chacha20-poly1305")]
    ChaCha20Poly1305 = 0x1303,
}

impl Suite {
    /// The number in TLS.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Bytes of a key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => KEY_LEN,
            #[cfg(feature = "chacha20-poly1305")]
            Self::ChaCha20Poly1305 => 2 * KEY_LEN,
        }
    }

    /// A key from its bytes. Those that are missing are zeros, and those too
    /// many are left out.
    #[must_use]
    pub fn key(bytes: &[u8]) -> SuiteKey {
        let mut key = SuiteKey::default();
        for (to, from) in key.as_flattened_mut().iter_mut().zip(bytes) {
            *to = *from;
        }
        key
    }
}

/// A group that keys are exchanged in, with its number in TLS (RFC 8446
/// section 4.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Group {
    /// The curve P-256.
    Secp256r1 = 0x17,
    /// Curve25519, RFC 7748.
    X25519 = 0x1d,
}

impl Group {
    /// The number in TLS.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// The public value of a key exchange, as TLS sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    bytes: Point,
    len: u8,
}

impl Share {
    /// A u coordinate of X25519.
    #[must_use]
    pub fn x25519(u: &Digest) -> Self {
        let mut bytes = [0; POINT_LEN];
        for (to, from) in bytes.iter_mut().zip(u) {
            *to = *from;
        }
        Self { bytes, len: 32 }
    }

    /// A point of P-256.
    #[must_use]
    pub const fn point(point: &Point) -> Self {
        let (bytes, len) = (*point, 65);
        Self { bytes, len }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Why a provider refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum CryptoError {
    /// The entropy source failed; no key may be made.
    Entropy = 1,
    /// The peer's point is not on the curve, or the result is the identity: all
    /// zeros with X25519.
    BadPoint = 2,
    /// The signature does not verify, or the key is no point of the curve.
    BadSignature = 3,
    /// The authentication tag does not match.
    BadTag = 4,
    /// The provider does not have the group.
    Group = 5,
}

/// Where random bytes come from. A device without a source of entropy must be
/// given a seed by its caller.
pub trait Entropy {
    /// Fills `out` with bytes that cannot be predicted.
    ///
    /// # Errors
    ///
    /// [`CryptoError::Entropy`] if the source has failed; `out` is then not
    /// to be used.
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError>;
}

/// Any function that fills a buffer is a source.
impl<F: FnMut(&mut [u8]) -> Result<(), CryptoError>> Entropy for F {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self(out)
    }
}

/// What a QUIC client on a microcontroller asks of its cryptography.
///
/// HMAC and HKDF have default implementations over the hash. Secrets that a
/// call leaves behind in its own stack frame are the provider's to wipe.
pub trait Crypto {
    /// A running SHA-256. Cloned to read the transcript and go on.
    type Hash: Clone;
    /// A private key that is used once, of any group of the provider.
    type Secret;
    /// A prepared key of an AEAD.
    type Aead;
    /// A prepared key of header protection.
    type Block;

    /// The cipher suites that packets can be protected with, with the one to
    /// begin with in front: where there is no hardware for any, the cheapest.
    /// [`Suite::Aes128Gcm`] is one of them.
    const SUITES: &'static [Suite] = &[Suite::Aes128Gcm];

    /// The groups that keys are exchanged in, with the one to begin with in
    /// front. There is at least one.
    const GROUPS: &'static [Group];

    /// Fills `out` with random bytes.
    ///
    /// # Errors
    ///
    /// [`CryptoError::Entropy`] if the source has failed.
    fn random(&mut self, out: &mut [u8]) -> Result<(), CryptoError>;

    /// Starts a SHA-256.
    fn hash(&mut self) -> Self::Hash;
    /// Adds bytes to a SHA-256.
    fn update(&mut self, hash: &mut Self::Hash, data: &[u8]);
    /// Ends a SHA-256.
    fn finish(&mut self, hash: Self::Hash) -> Digest;

    /// Makes a key pair.
    ///
    /// # Errors
    ///
    /// [`CryptoError::Entropy`] if the source has failed, and
    /// [`CryptoError::Group`] if the group is none of [`GROUPS`](Self::GROUPS).
    fn generate(&mut self, group: Group) -> Result<(Self::Secret, Share), CryptoError>;
    /// What both sides of a key exchange know then: the x coordinate of
    /// `secret * peer`, or the result of X25519. Refuses what is no value of
    /// the group, and points of small order.
    ///
    /// # Errors
    ///
    /// [`CryptoError::BadPoint`].
    fn agree(&mut self, secret: &Self::Secret, peer: &[u8]) -> Result<Digest, CryptoError>;
    /// Verifies an ECDSA P-256 signature `r || s` over a SHA-256 digest.
    ///
    /// # Errors
    ///
    /// [`CryptoError::BadSignature`].
    fn verify(
        &mut self,
        key: &Point,
        digest: &Digest,
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), CryptoError>;

    /// Prepares a key of an AEAD. The suite is one of [`SUITES`](Self::SUITES).
    fn aead(&mut self, suite: Suite, key: &SuiteKey) -> Self::Aead;
    /// Encrypts `data` in place and returns the tag.
    fn seal(
        &mut self,
        key: &Self::Aead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN];
    /// Decrypts `data` in place if the tag matches. Whether `data` is changed
    /// on failure is the provider's choice; it holds no plaintext then.
    ///
    /// # Errors
    ///
    /// [`CryptoError::BadTag`].
    fn open(
        &mut self,
        key: &Self::Aead,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), CryptoError>;

    /// Prepares a key of header protection. The suite is one of
    /// [`SUITES`](Self::SUITES).
    fn block(&mut self, suite: Suite, key: &SuiteKey) -> Self::Block;
    /// Makes the mask of a sample in its place (RFC 9001 sections 5.4.3 and
    /// 5.4.4). With AES, it is the sample as a block, encrypted.
    fn mask(&mut self, key: &Self::Block, sample: &mut [u8; 16]);

    /// Prepares a key of HMAC-SHA-256, which is half of the work of a short
    /// message.
    #[inline(never)]
    fn hmac_key(&mut self, key: &Digest) -> HmacKey<Self::Hash> {
        HmacKey {
            inner: self.padded(key, 0x36),
            outer: self.padded(key, 0x5c),
        }
    }

    /// HMAC-SHA-256 over `parts` in order, with a prepared key.
    fn hmac_with(&mut self, key: &HmacKey<Self::Hash>, parts: &[&[u8]]) -> Digest {
        let inner = self.continued(&key.inner, parts);
        self.continued(&key.outer, &[&inner])
    }

    /// HMAC-SHA-256 over `parts` in order.
    fn hmac(&mut self, key: &Digest, parts: &[&[u8]]) -> Digest {
        let key = self.hmac_key(key);
        self.hmac_with(&key, parts)
    }

    /// The hash of a padded key.
    #[doc(hidden)]
    #[inline(never)]
    fn padded(&mut self, key: &Digest, pad: u8) -> Self::Hash {
        let mut block = [pad; BLOCK_LEN];
        add(&mut block, key);
        let mut hash = self.hash();
        self.update(&mut hash, &block);
        hash
    }

    /// A hash after `parts` more.
    #[doc(hidden)]
    #[inline(never)]
    fn continued(&mut self, hash: &Self::Hash, parts: &[&[u8]]) -> Digest {
        let mut hash = hash.clone();
        for part in parts {
            self.update(&mut hash, part);
        }
        self.finish(hash)
    }

    /// HKDF-Extract. A salt of 32 zeros is the same as no salt.
    fn extract(&mut self, salt: &Digest, secret: &[u8]) -> Digest {
        self.hmac(salt, &[secret])
    }

    /// HKDF-Expand of `info` (in parts) into `out`, at most 32 bytes: TLS 1.3
    /// with SHA-256 never asks for more. Bytes of `out` beyond them stay.
    fn expand(&mut self, secret: &Digest, info: &[&[u8]; 5], out: &mut [u8]) {
        let key = self.hmac_key(secret);
        self.expand_with(&key, info, out);
    }

    /// The same with a prepared secret.
    fn expand_with(&mut self, key: &HmacKey<Self::Hash>, info: &[&[u8]; 5], out: &mut [u8]) {
        let [a, b, c, d, e] = *info;
        let block = self.hmac_with(key, &[a, b, c, d, e, &[1]]);
        fill(out, &block);
    }
}

/// A prepared key of HMAC: where its two hashes go on from. It is as secret as
/// the key.
#[derive(Clone, Debug)]
pub struct HmacKey<H> {
    inner: H,
    outer: H,
}

/// Copies as much of `from` as fits and tells how much that is.
///
/// All copies go through it: as long as it is the only one who asks the language
/// for a copy, the compiler sees that the lengths are the same, and leaves no path
/// to a panic.
#[doc(hidden)]
#[inline(never)]
pub fn fill(to: &mut [u8], from: &[u8]) -> usize {
    let n = to.len().min(from.len());
    if let Some((to, from)) = to.get_mut(..n).zip(from.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}

/// Adds bits without carries, as far as both go.
#[inline(never)]
fn add(to: &mut [u8], from: &[u8]) {
    let n = to.len().min(from.len());
    let (to, from) = (to.get_mut(..n), from.get(..n));
    let (words, bytes) = to.unwrap_or_default().as_chunks_mut();
    let (from_words, from_bytes) = from.unwrap_or_default().as_chunks();
    for (to, from) in words.iter_mut().zip(from_words) {
        *to = (u32::from_ne_bytes(*to) ^ u32::from_ne_bytes(*from)).to_ne_bytes();
    }
    for (to, from) in bytes.iter_mut().zip(from_bytes) {
        *to ^= from;
    }
}

/// Compares without telling by its duration where the difference is.
#[inline(never)]
#[must_use]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut difference = u8::from(a.len() != b.len());
    for (x, y) in a.iter().zip(b) {
        // The barrier keeps the optimiser from leaving the loop early.
        difference |= core::hint::black_box(x ^ y);
    }
    difference == 0
}
