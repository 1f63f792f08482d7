//! The symmetric primitives of this crate's own: portable, without a path to a
//! panic, and constant in time for everything secret. Known to the providers
//! for microcontrollers only.

pub(crate) mod aes;
pub(crate) mod gcm;
pub(crate) mod sha256;
