//! The reference provider: RustCrypto and x25519-dalek, for hosts and as the oracle of tests.
//! Knows nothing of size.

use p256::ecdsa::signature::hazmat::PrehashVerifier;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{PublicKey, SecretKey};
use sha2::{Digest as _, Sha256};
use x25519_dalek::StaticSecret;

use crate::rustcrypto::{RustAead, RustBlock};
use crate::{
    Crypto, CryptoError, Digest, Entropy, Group, NONCE_LEN, Point, SIGNATURE_LEN, Share, Suite,
    SuiteKey, TAG_LEN,
};

/// Attempts to draw a scalar; each fails with a chance of 2^-32.
const DRAWS: usize = 8;

/// RustCrypto with entropy from `E`.
#[derive(Clone, Debug)]
pub struct Host<E> {
    entropy: E,
}

impl<E: Entropy> Host<E> {
    /// A provider that draws from `entropy`.
    pub const fn new(entropy: E) -> Self {
        Self { entropy }
    }
}

/// A private key.
#[derive(Clone)]
pub enum HostSecret {
    /// Of P-256.
    Secp256r1(SecretKey),
    /// Of Curve25519.
    X25519(StaticSecret),
}

impl core::fmt::Debug for HostSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HostSecret")
    }
}

/// The point of a private key of P-256.
fn public(secret: &SecretKey) -> Option<Point> {
    let point = secret.public_key().to_sec1_point(false);
    point.as_bytes().try_into().ok()
}

fn agree_p256(secret: &SecretKey, peer: &[u8]) -> Option<Digest> {
    // RustCrypto takes other forms of a point, too.
    let peer = PublicKey::from_sec1_bytes(peer.try_into().ok().filter(is_whole)?).ok()?;
    let shared = p256::ecdh::diffie_hellman(secret.to_nonzero_scalar(), peer.as_affine());
    Some((*shared.raw_secret_bytes()).into())
}

/// Whether a point says that it is in uncompressed form.
fn is_whole(point: &&Point) -> bool {
    matches!(point, [4, ..])
}

fn agree_x25519(secret: &StaticSecret, peer: &[u8]) -> Option<Digest> {
    let peer: Digest = peer.try_into().ok()?;
    let shared = secret.diffie_hellman(&peer.into());
    shared.was_contributory().then(|| *shared.as_bytes())
}

impl<E: Entropy> Crypto for Host<E> {
    type Hash = Sha256;
    type Secret = HostSecret;
    type Aead = RustAead;
    type Block = RustBlock;

    const GROUPS: &'static [Group] = &[Group::X25519, Group::Secp256r1];

    /// Hosts have instructions for AES.
    const SUITES: &'static [Suite] = &[
        Suite::Aes128Gcm,
        #[cfg(feature = "chacha20-poly1305")]
        Suite::ChaCha20Poly1305,
    ];

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

    fn generate(&mut self, group: Group) -> Result<(HostSecret, Share), CryptoError> {
        let mut scalar = [0; 32];
        for _ in 0..DRAWS {
            self.entropy.fill(&mut scalar)?;
            if group == Group::X25519 {
                let secret = StaticSecret::from(scalar);
                let public = x25519_dalek::PublicKey::from(&secret);
                let share = Share::x25519(public.as_bytes());
                return Ok((HostSecret::X25519(secret), share));
            }
            if let Ok(secret) = SecretKey::from_slice(&scalar) {
                let point = public(&secret).ok_or(CryptoError::Entropy)?;
                return Ok((HostSecret::Secp256r1(secret), Share::point(&point)));
            }
        }
        Err(CryptoError::Entropy)
    }

    fn agree(&mut self, secret: &HostSecret, peer: &[u8]) -> Result<Digest, CryptoError> {
        let shared = match secret {
            HostSecret::Secp256r1(secret) => agree_p256(secret, peer),
            HostSecret::X25519(secret) => agree_x25519(secret, peer),
        };
        shared.ok_or(CryptoError::BadPoint)
    }

    fn verify(
        &mut self,
        key: &Point,
        digest: &Digest,
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), CryptoError> {
        let verified = || {
            let key = VerifyingKey::from_sec1_bytes(key).ok()?;
            let signature = Signature::from_slice(signature).ok()?;
            key.verify_prehash(digest, &signature).ok()
        };
        verified().ok_or(CryptoError::BadSignature)
    }

    fn aead(&mut self, suite: Suite, key: &SuiteKey) -> RustAead {
        RustAead::new(suite, key)
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

    fn block(&mut self, suite: Suite, key: &SuiteKey) -> RustBlock {
        RustBlock::new(suite, key)
    }

    fn mask(&mut self, key: &RustBlock, sample: &mut [u8; 16]) {
        key.mask(sample);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn provider() -> Host<impl Entropy> {
        let mut next = 0_u8;
        Host::new(move |out: &mut [u8]| {
            for byte in out {
                next = next.wrapping_mul(5).wrapping_add(7);
                *byte = next;
            }
            Ok(())
        })
    }

    #[test]
    fn both_sides_agree() {
        let mut crypto = provider();
        for group in [Group::X25519, Group::Secp256r1] {
            let (a, of_a) = crypto.generate(group).unwrap();
            let (b, of_b) = crypto.generate(group).unwrap();
            let shared = crypto.agree(&a, of_b.bytes()).unwrap();
            assert_eq!(crypto.agree(&b, of_a.bytes()).unwrap(), shared);
            let mut off = Vec::from(of_b.bytes());
            match group {
                Group::X25519 => off.fill(0),
                Group::Secp256r1 => off[64] ^= 1,
            }
            assert_eq!(crypto.agree(&a, &off), Err(CryptoError::BadPoint));
            assert_eq!(crypto.agree(&a, &off[1..]), Err(CryptoError::BadPoint));
        }
    }

    #[test]
    fn sealed_opens_and_altered_does_not() {
        let mut crypto = provider();
        let key = crypto.aead(Suite::Aes128Gcm, &Suite::key(&[7; 16]));
        let mut data = *b"a reading";
        let tag = crypto.seal(&key, &[1; 12], b"header", &mut data);
        assert_ne!(&data, b"a reading");
        let mut other = data;
        let refused = crypto.open(&key, &[1; 12], b"Header", &mut other, &tag);
        assert_eq!(refused, Err(CryptoError::BadTag));
        crypto
            .open(&key, &[1; 12], b"header", &mut data, &tag)
            .unwrap();
        assert_eq!(&data, b"a reading");
    }

    #[test]
    fn initial_secret_of_rfc_9001() {
        // RFC 9001 appendix A.1.
        let mut crypto = provider();
        let mut salt = [0; 32];
        let initial = [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
            0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
        ];
        salt[..20].copy_from_slice(&initial);
        let dcid = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let secret = crypto.extract(&salt, &dcid);
        assert_eq!(secret[..4], [0x7d, 0xb5, 0xdf, 0x06]);
        let mut client = [0; 32];
        let info: [&[u8]; 5] = [&[0, 32, 15], b"tls13 ", b"client in", &[0], &[]];
        crypto.expand(&secret, &info, &mut client);
        assert_eq!(client[..4], [0xc0, 0x0c, 0xf1, 0x51]);
    }
}
