//! The reference provider without its curve: one key pair and one shared
//! secret, so that a handshake costs a fuzz target microseconds. Knows no
//! packet.

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Group, Host, Point, Share, Suite, SuiteKey};

type Source = fn(&mut [u8]) -> Result<(), CryptoError>;
type Reference = Host<Source>;

/// The only public key. It is not asked whether it is on the curve.
pub(crate) const PUBLIC: Point = [4; 65];
/// The same for the second group.
pub(crate) const OTHER: Digest = [4; 32];
/// What everybody agrees on with it.
const SHARED: Digest = [9; 32];

/// See the module.
pub(crate) struct Quick {
    reference: Reference,
    /// Whether every signature is right.
    pub(crate) believes: bool,
}

impl Quick {
    pub(crate) const fn new(source: Source) -> Self {
        Self {
            reference: Host::new(source),
            believes: false,
        }
    }
}

impl Crypto for Quick {
    type Hash = <Reference as Crypto>::Hash;
    type Secret = ();
    type Aead = <Reference as Crypto>::Aead;
    type Block = <Reference as Crypto>::Block;

    const GROUPS: &'static [Group] = &[Group::Secp256r1, Group::X25519];
    const SUITES: &'static [Suite] = Reference::SUITES;

    fn random(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self.reference.random(out)
    }
    fn hash(&mut self) -> Self::Hash {
        self.reference.hash()
    }
    fn update(&mut self, hash: &mut Self::Hash, data: &[u8]) {
        self.reference.update(hash, data);
    }
    fn finish(&mut self, hash: Self::Hash) -> Digest {
        self.reference.finish(hash)
    }
    fn generate(&mut self, group: Group) -> Result<((), Share), CryptoError> {
        let share = match group {
            Group::X25519 => Share::x25519(&OTHER),
            Group::Secp256r1 => Share::point(&PUBLIC),
        };
        Ok(((), share))
    }
    fn agree(&mut self, (): &(), peer: &[u8]) -> Result<Digest, CryptoError> {
        (*peer == PUBLIC || *peer == OTHER)
            .then_some(SHARED)
            .ok_or(CryptoError::BadPoint)
    }
    fn verify(&mut self, key: &Point, digest: &Digest, sig: &[u8; 64]) -> Result<(), CryptoError> {
        if self.believes {
            return Ok(());
        }
        self.reference.verify(key, digest, sig)
    }
    fn aead(&mut self, suite: Suite, key: &SuiteKey) -> Self::Aead {
        self.reference.aead(suite, key)
    }
    fn seal(&mut self, key: &Self::Aead, n: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
        self.reference.seal(key, n, aad, data)
    }
    fn open(
        &mut self,
        key: &Self::Aead,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), CryptoError> {
        self.reference.open(key, nonce, aad, data, tag)
    }
    fn block(&mut self, suite: Suite, key: &SuiteKey) -> Self::Block {
        self.reference.block(suite, key)
    }
    fn mask(&mut self, key: &Self::Block, sample: &mut [u8; 16]) {
        self.reference.mask(key, sample);
    }
}
