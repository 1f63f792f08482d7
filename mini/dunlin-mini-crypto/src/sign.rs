//! Signatures of ECDSA P-256, whichever provider does the hashing: what a client
//! needs that shows a certificate. The nonce comes from key and digest (RFC 6979), so
//! that a bad source of entropy gives no key away. Constant in time for the key, as
//! the tiny provider is, whose curve it uses.

use crate::tiny::{curve, wipe};
use crate::{Crypto, Digest, HASH_LEN, SIGNATURE_LEN};

/// Attempts to draw a nonce; each fails with a chance of 2^-32.
const DRAWS: usize = 8;

/// An ECDSA P-256 signature `r || s` over a SHA-256 digest, or nothing if the key is
/// none of P-256.
pub fn sign<C: Crypto>(
    crypto: &mut C,
    key: &Digest,
    digest: &Digest,
) -> Option<[u8; SIGNATURE_LEN]> {
    let mut secret = curve::scalar(key)?;
    let mut nonces = Nonces::new(crypto, key, &curve::reduced(digest));
    let signature = (0..DRAWS).find_map(|_| {
        let mut nonce = curve::scalar(nonces.next(crypto))?;
        let signature = curve::sign(&secret, &nonce, digest);
        wipe(&mut nonce);
        signature
    });
    wipe(&mut secret);
    signature
}

/// RFC 6979 section 3.2; wiped when dropped.
struct Nonces {
    key: Digest,
    value: Digest,
    used: bool,
}

impl Nonces {
    fn new<C: Crypto>(crypto: &mut C, secret: &Digest, digest: &Digest) -> Self {
        let mut nonces = Self {
            key: [0; HASH_LEN],
            value: [1; HASH_LEN],
            used: false,
        };
        for step in [0, 1] {
            nonces.turn(crypto, &[&[step], secret, digest]);
        }
        nonces
    }

    fn turn<C: Crypto>(&mut self, crypto: &mut C, [a, b, c]: &[&[u8]; 3]) {
        self.key = crypto.hmac(&self.key, &[&self.value, a, b, c]);
        self.value = crypto.hmac(&self.key, &[&self.value]);
    }

    fn next<C: Crypto>(&mut self, crypto: &mut C) -> &Digest {
        if core::mem::replace(&mut self.used, true) {
            self.turn(crypto, &[&[0], &[], &[]]);
        }
        self.value = crypto.hmac(&self.key, &[&self.value]);
        &self.value
    }
}

impl Drop for Nonces {
    fn drop(&mut self) {
        for secret in [&mut self.key, &mut self.value] {
            secret.fill(0);
            // The zeros are not read, but the optimiser must not see that.
            core::hint::black_box(secret);
        }
    }
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::SigningKey;
    use p256::ecdsa::signature::hazmat::PrehashSigner;

    use super::*;
    use crate::{CryptoError, Host, Point, Tiny};

    fn nothing(_: &mut [u8]) -> Result<(), CryptoError> {
        Err(CryptoError::Entropy)
    }

    fn hex(text: &str) -> [u8; 32] {
        core::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
    }

    #[test]
    fn the_signature_of_rfc_6979() {
        // Appendix A.2.5, with SHA-256 of "sample".
        let key = hex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721");
        let mut crypto = Tiny::new(nothing);
        let mut hash = crypto.hash();
        crypto.update(&mut hash, b"sample");
        let digest = crypto.finish(hash);
        let signature = sign(&mut crypto, &key, &digest).unwrap();
        let r = hex("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716");
        let s = hex("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8");
        assert_eq!((signature[..32] == r, signature[32..] == s), (true, true));
    }

    #[test]
    fn signatures_are_those_of_another_and_verify() {
        let mut crypto = Host::new(nothing);
        let mut tiny = Tiny::new(nothing);
        let mut digest = [0xff; 32];
        let mut key = hex("519b423d715f8b581f4fa8ee59f4771a5b44c8130b4e3eacca54a56dda72b464");
        for round in 0..20 {
            let other = SigningKey::from_slice(&key).unwrap();
            let point = other.verifying_key().to_sec1_point(false);
            let point: Point = point.as_bytes().try_into().unwrap();
            let signature = sign(&mut crypto, &key, &digest).unwrap();
            assert_eq!(sign(&mut tiny, &key, &digest), Some(signature));
            // A digest above the order first, which the other takes as it is.
            let theirs: p256::ecdsa::Signature = other.sign_prehash(&digest).unwrap();
            assert_eq!(theirs.to_bytes()[..], signature, "round {round}");
            assert_eq!(tiny.verify(&point, &digest, &signature), Ok(()));
            let mut changed = digest;
            changed[31] ^= 1;
            let refused = tiny.verify(&point, &changed, &signature);
            assert_eq!(refused, Err(CryptoError::BadSignature));
            digest = crypto.hmac(&key, &[&digest]);
            key = crypto.hmac(&digest, &[&key]);
        }
    }

    #[test]
    fn keys_of_no_curve_sign_nothing() {
        let mut tiny = Tiny::new(nothing);
        for key in [[0; 32], [0xff; 32]] {
            assert_eq!(sign(&mut tiny, &key, &[7; 32]), None);
        }
    }
}
