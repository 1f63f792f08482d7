//! The symmetric half of the provider that stands on RustCrypto. Knows no
//! curve.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::AeadInOut;
#[cfg(feature = "chacha20-poly1305")]
use chacha20::cipher::{KeyIvInit as _, StreamCipherCore as _};
#[cfg(feature = "chacha20-poly1305")]
use chacha20::{ChaChaCore, R20, variants::Ietf};
#[cfg(feature = "chacha20-poly1305")]
use chacha20poly1305::ChaCha20Poly1305;

use crate::{CryptoError, NONCE_LEN, Suite, SuiteKey, TAG_LEN};

/// A prepared key of an AEAD of RustCrypto.
#[derive(Clone)]
pub struct RustAead(Aead);

#[derive(Clone)]
#[cfg_attr(
    feature = "chacha20-poly1305",
    allow(clippy::large_enum_variant, reason = "hosts have the memory")
)]
enum Aead {
    Aes(Aes128Gcm),
    #[cfg(feature = "chacha20-poly1305")]
    ChaCha(ChaCha20Poly1305),
}

impl core::fmt::Debug for RustAead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RustAead")
    }
}

/// One of the AEADs, as the function that is called with it.
macro_rules! with {
    ($aead:expr, $key:ident => $call:expr) => {
        match $aead {
            Aead::Aes($key) => $call,
            #[cfg(feature = "chacha20-poly1305")]
            Aead::ChaCha($key) => $call,
        }
    };
}

impl RustAead {
    pub(crate) fn new(suite: Suite, key: &SuiteKey) -> Self {
        Self(match suite {
            Suite::Aes128Gcm => {
                let [key, ..] = key;
                Aead::Aes(Aes128Gcm::new(key.into()))
            }
            #[cfg(feature = "chacha20-poly1305")]
            Suite::ChaCha20Poly1305 => Aead::ChaCha(ChaCha20Poly1305::new(&whole(key).into())),
        })
    }

    pub(crate) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        // Refuses only more than 64 GB.
        with!(&self.0, key => key
            .encrypt_inout_detached(nonce.into(), aad, data.into())
            .map_or([0; TAG_LEN], Into::into))
    }

    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), CryptoError> {
        with!(&self.0, key => key
            .decrypt_inout_detached(nonce.into(), aad, data.into(), tag.into())
            .map_err(|_| CryptoError::BadTag))
    }
}

/// A prepared key of header protection.
#[derive(Clone)]
pub struct RustBlock(Block);

#[derive(Clone)]
#[cfg_attr(
    feature = "chacha20-poly1305",
    allow(clippy::large_enum_variant, reason = "hosts have the memory")
)]
enum Block {
    Aes(Aes128),
    #[cfg(feature = "chacha20-poly1305")]
    ChaCha([u8; 32]),
}

impl core::fmt::Debug for RustBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RustBlock")
    }
}

impl RustBlock {
    pub(crate) fn new(suite: Suite, key: &SuiteKey) -> Self {
        Self(match suite {
            Suite::Aes128Gcm => {
                let [key, ..] = key;
                Block::Aes(Aes128::new(key.into()))
            }
            #[cfg(feature = "chacha20-poly1305")]
            Suite::ChaCha20Poly1305 => Block::ChaCha(whole(key)),
        })
    }

    pub(crate) fn mask(&self, sample: &mut [u8; 16]) {
        match &self.0 {
            Block::Aes(key) => key.encrypt_block(sample.into()),
            #[cfg(feature = "chacha20-poly1305")]
            Block::ChaCha(key) => {
                let [a, b, c, d, nonce @ ..] = *sample;
                let counter = u32::from_le_bytes([a, b, c, d]);
                // Its stream would not go on from the last block, which a
                // sample may ask for: blocks are what does.
                let mut core = ChaChaCore::<R20, Ietf>::new(key.into(), (&nonce).into());
                core.set_block_pos(counter);
                let mut block = Default::default();
                core.write_keystream_block(&mut block);
                for (to, from) in sample.iter_mut().zip(&block) {
                    *to = *from;
                }
            }
        }
    }
}

/// All bytes of a key.
#[cfg(feature = "chacha20-poly1305")]
fn whole(key: &SuiteKey) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (to, from) in bytes.iter_mut().zip(key.as_flattened()) {
        *to = *from;
    }
    bytes
}
