//! The symmetric primitives of this crate's own: portable, without a path to a
//! panic, and constant in time for everything secret. Known to the providers
//! for microcontrollers only.

pub(crate) mod aes;
#[cfg(feature = "chacha20-poly1305")]
pub(crate) mod chacha;
pub(crate) mod gcm;

/// A key of a suite, whose AES is of the provider's form. With one suite, it is
/// nothing but that.
pub(crate) enum Cipher<A, const UNROLLED: bool> {
    Aes(A),
    #[cfg(feature = "chacha20-poly1305")]
    ChaCha(chacha::Key<UNROLLED>),
}
