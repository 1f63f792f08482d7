//! The symmetric half of the provider that stands on RustCrypto. Knows no
//! curve.

use aes::Aes128;
use aes::cipher::KeyInit;
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::AeadInOut;

use crate::{CryptoError, KEY_LEN, NONCE_LEN, TAG_LEN};

/// A prepared AES-128-GCM key of RustCrypto.
#[derive(Clone)]
pub struct RustAead(Aes128Gcm);

impl core::fmt::Debug for RustAead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RustAead")
    }
}

impl RustAead {
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        Self(Aes128Gcm::new(key.into()))
    }

    pub(crate) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        // Refuses only more than 64 GB.
        self.0
            .encrypt_inout_detached(nonce.into(), aad, data.into())
            .map_or([0; TAG_LEN], Into::into)
    }

    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), CryptoError> {
        self.0
            .decrypt_inout_detached(nonce.into(), aad, data.into(), tag.into())
            .map_err(|_| CryptoError::BadTag)
    }
}

/// Prepares an AES-128 key for single blocks.
pub(crate) fn block(key: &[u8; KEY_LEN]) -> Aes128 {
    Aes128::new(key.into())
}
