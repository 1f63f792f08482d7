//! The key derivation of cipher suites, with an eye on one label: the
//! pre-shared key of a session ticket (RFC 8446 section 4.6.1).

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{ActiveKeyExchange, CipherSuiteCommon, CryptoProvider, hmac};
use rustls::{CipherSuite, SupportedCipherSuite, Tls13CipherSuite};

/// Label of the pre-shared key of a ticket.
const LABEL: &[u8] = b"resumption";
/// Where the label is among the parts of `HkdfLabel`: after the length of the
/// output, its own length, and the prefix.
const LABEL_AT: usize = 3;

/// What is noted on this thread while TLS handles one message.
#[derive(Default)]
struct Notes {
    /// Keys of tickets, in the order they came.
    seen: Vec<Vec<u8>>,
    /// The key to give the next ticket instead of its own.
    forced: Option<Vec<u8>>,
}

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::default();
}

/// Runs `f`, and returns the keys of tickets that were derived by it.
pub(super) fn watch<R>(f: impl FnOnce() -> R) -> (R, Vec<Vec<u8>>) {
    NOTES.with_borrow_mut(|notes| notes.seen.clear());
    let result = f();
    let seen = NOTES.with_borrow_mut(|notes| core::mem::take(&mut notes.seen));
    (result, seen)
}

/// Runs `f`, in which the ticket's key is `key`. A panic of `f` leaves no key
/// behind.
pub(super) fn force<R>(key: &[u8], f: impl FnOnce() -> R) -> R {
    struct Forced;
    impl Drop for Forced {
        fn drop(&mut self) {
            NOTES.with_borrow_mut(|notes| {
                notes.forced = None;
                notes.seen.clear();
            });
        }
    }
    let _forced = Forced;
    NOTES.with_borrow_mut(|notes| notes.forced = Some(key.to_vec()));
    f()
}

/// The provider with its TLS 1.3 suites watched.
pub(crate) fn observed(provider: &CryptoProvider) -> Arc<CryptoProvider> {
    let mut provider = provider.clone();
    for suite in &mut provider.cipher_suites {
        if let SupportedCipherSuite::Tls13(inner) = *suite {
            *suite = SupportedCipherSuite::Tls13(observed_suite(inner));
        }
    }
    Arc::new(provider)
}

/// TLS wants suites that live for ever: there is one for each that there is.
fn observed_suite(inner: &'static Tls13CipherSuite) -> &'static Tls13CipherSuite {
    static SUITES: Mutex<BTreeMap<u16, &'static Tls13CipherSuite>> = Mutex::new(BTreeMap::new());
    let mut suites = SUITES.lock().unwrap_or_else(PoisonError::into_inner);
    suites.entry(inner.common.suite.into()).or_insert_with(|| {
        Box::leak(Box::new(Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: inner.common.suite,
                hash_provider: inner.common.hash_provider,
                confidentiality_limit: inner.common.confidentiality_limit,
            },
            hkdf_provider: Box::leak(Box::new(Watched(inner.hkdf_provider))),
            aead_alg: inner.aead_alg,
            quic: inner.quic,
        }))
    })
}

/// Bytes of a suite's hash, and so of its keys.
pub(super) fn hash_len(suite: CipherSuite, provider: &CryptoProvider) -> Option<usize> {
    let found = provider.cipher_suites.iter().find(|s| s.suite() == suite)?;
    Some(found.tls13()?.common.hash_provider.output_len())
}

/// Key derivation that notes the keys of tickets.
struct Watched(&'static dyn Hkdf);

impl Hkdf for Watched {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        Box::new(WatchedExpander(self.0.extract_from_zero_ikm(salt)))
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        Box::new(WatchedExpander(self.0.extract_from_secret(salt, secret)))
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, rustls::Error> {
        let inner = self
            .0
            .extract_from_kx_shared_secret(salt, kx, peer_pub_key)?;
        Ok(Box::new(WatchedExpander(inner)))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(WatchedExpander(self.0.expander_for_okm(okm)))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        self.0.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct WatchedExpander(Box<dyn HkdfExpander>);

impl HkdfExpander for WatchedExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let block = self.0.expand_block(info);
        if info.get(LABEL_AT) != Some(&LABEL) {
            return block;
        }
        NOTES.with_borrow_mut(|notes| match notes.forced.take() {
            Some(key) => OkmBlock::new(&key),
            None => {
                notes.seen.push(block.as_ref().to_vec());
                block
            }
        })
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}
