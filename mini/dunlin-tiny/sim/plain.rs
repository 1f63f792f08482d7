//! A provider without its optional suite, so that a client offers what the
//! default image does. Knows no server.

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Group, Point, Share, Suite, SuiteKey};

/// A provider with [`Suite::Aes128Gcm`] alone.
pub(crate) struct Plain<C>(pub(crate) C);

impl<C: Crypto> Crypto for Plain<C> {
    type Hash = C::Hash;
    type Secret = C::Secret;
    type Aead = C::Aead;
    type Block = C::Block;

    const GROUPS: &'static [Group] = C::GROUPS;

    fn random(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self.0.random(out)
    }
    fn hash(&mut self) -> C::Hash {
        self.0.hash()
    }
    fn update(&mut self, hash: &mut C::Hash, data: &[u8]) {
        self.0.update(hash, data);
    }
    fn finish(&mut self, hash: C::Hash) -> Digest {
        self.0.finish(hash)
    }
    fn generate(&mut self, group: Group) -> Result<(C::Secret, Share), CryptoError> {
        self.0.generate(group)
    }
    fn agree(&mut self, secret: &C::Secret, peer: &[u8]) -> Result<Digest, CryptoError> {
        self.0.agree(secret, peer)
    }
    fn verify(&mut self, key: &Point, digest: &Digest, sig: &[u8; 64]) -> Result<(), CryptoError> {
        self.0.verify(key, digest, sig)
    }
    fn aead(&mut self, suite: Suite, key: &SuiteKey) -> C::Aead {
        self.0.aead(suite, key)
    }
    fn seal(&mut self, key: &C::Aead, n: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
        self.0.seal(key, n, aad, data)
    }
    fn open(
        &mut self,
        key: &C::Aead,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), CryptoError> {
        self.0.open(key, nonce, aad, data, tag)
    }
    fn block(&mut self, suite: Suite, key: &SuiteKey) -> C::Block {
        self.0.block(suite, key)
    }
    fn mask(&mut self, key: &C::Block, sample: &mut [u8; 16]) {
        self.0.mask(key, sample);
    }
}
