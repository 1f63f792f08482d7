//! Which ciphers and key exchanges TLS may use, on TCP and QUIC alike, and
//! which name in a client's certificate is its name.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::crypto::aws_lc_rs::{cipher_suite as suites, default_provider, kx_group as groups};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{SupportedCipherSuite, quic::Suite};

use super::TlsError;
use super::compact::compact;
use crate::ack_request::LongDelay;
use crate::session::ListenerTls;

/// An authenticated cipher, with TLS 1.3 and, where TLS 1.2 is spoken, with
/// ephemeral key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cipher {
    /// AES-128-GCM: fastest where the processor knows AES.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305: fastest where the processor does not.
    ChaCha20Poly1305,
}

impl Cipher {
    /// All, in the order of preference that holds when nothing is said.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Its name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    const fn suites(self) -> [SupportedCipherSuite; 3] {
        match self {
            Self::Aes128Gcm => [
                suites::TLS13_AES_128_GCM_SHA256,
                suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ],
            Self::Aes256Gcm => [
                suites::TLS13_AES_256_GCM_SHA384,
                suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ],
            Self::ChaCha20Poly1305 => [
                suites::TLS13_CHACHA20_POLY1305_SHA256,
                suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
        }
    }
}

/// A way to agree on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// X25519.
    X25519,
    /// P-256.
    Secp256r1,
    /// P-384.
    Secp384r1,
    /// X25519 and ML-KEM-768 together, safe from quantum computers to come; 1.2
    /// KB more each way.
    X25519MlKem768,
}

impl Group {
    /// All, in the order of preference that holds when nothing is said.
    pub const ALL: [Self; 4] = [
        Self::X25519,
        Self::Secp256r1,
        Self::Secp384r1,
        Self::X25519MlKem768,
    ];

    /// Its name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::Secp256r1 => "secp256r1",
            Self::Secp384r1 => "secp384r1",
            Self::X25519MlKem768 => "x25519mlkem768",
        }
    }

    fn group(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519 => groups::X25519,
            Self::Secp256r1 => groups::SECP256R1,
            Self::Secp384r1 => groups::SECP384R1,
            Self::X25519MlKem768 => groups::X25519MLKEM768,
        }
    }
}

/// Which name in a client's certificate is its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertName {
    /// Its common name, or else its first subject alternative name that is
    /// text.
    #[default]
    Any,
    /// Its common name.
    CommonName,
    /// Its first DNS name.
    DnsName,
    /// Its first e-mail address.
    Email,
    /// Its first URI, as in SPIFFE.
    Uri,
    /// SHA-256 of the certificate, in lower case hexadecimal.
    Sha256,
}

impl CertName {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Any,
        Self::CommonName,
        Self::DnsName,
        Self::Email,
        Self::Uri,
        Self::Sha256,
    ];

    /// Its name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::CommonName => "cn",
            Self::DnsName => "san-dns",
            Self::Email => "san-email",
            Self::Uri => "san-uri",
            Self::Sha256 => "sha256",
        }
    }
}

/// No cipher, group or kind of name is called that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown name")]
#[non_exhaustive]
pub struct UnknownName;

macro_rules! named {
    ($($kind:ty),*) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $kind {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                let found = Self::ALL.into_iter().find(|one| one.name() == text);
                found.ok_or(UnknownName)
            }
        }
    )*};
}
named!(Cipher, Group, CertName);

/// Which ciphers and key exchanges may be used, by preference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsPolicy {
    /// Ciphers, best first. A client's own order counts more at a server,
    /// unless `server_order` is set: it knows which of them its processor is
    /// good at.
    pub ciphers: Vec<Cipher>,
    /// Key exchanges, best first. A client sends a key for the first at once;
    /// a server takes what its client likes best.
    pub groups: Vec<Group>,
    /// The server's order of ciphers counts. Default false.
    pub server_order: bool,
}

impl Default for TlsPolicy {
    fn default() -> Self {
        Self {
            ciphers: Cipher::ALL.into(),
            groups: Group::ALL.into(),
            server_order: false,
        }
    }
}

impl TlsPolicy {
    /// What rustls needs to know.
    ///
    /// # Errors
    /// Nothing is allowed.
    pub(crate) fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        if self.ciphers.is_empty() || self.groups.is_empty() {
            let why = "at least one cipher and one key exchange must be allowed";
            return Err(TlsError::Setup(why.into()));
        }
        let mut provider = default_provider();
        // All of TLS 1.3 come before those of TLS 1.2, as rustls has them.
        let mut chosen = Vec::new();
        for version in 0..3 {
            let of = |cipher: &Cipher| cipher.suites().get(version).copied().map(compact);
            chosen.extend(self.ciphers.iter().filter_map(of));
        }
        provider.cipher_suites = chosen;
        provider.kx_groups = self.groups.iter().map(|group| group.group()).collect();
        Ok(Arc::new(provider))
    }
}

/// QUIC protects its first packets with AES-128-GCM, before a cipher is negotiated
/// (RFC 9001 section 5.2).
fn initial_suite() -> Result<Suite, TlsError> {
    let suite = compact(suites::TLS13_AES_128_GCM_SHA256);
    suite
        .tls13()
        .and_then(rustls::Tls13CipherSuite::quic_suite)
        .ok_or_else(|| TlsError::Setup("QUIC is not available".into()))
}

/// TLS of a QUIC server, with any set of ciphers.
pub(crate) fn quic_server(
    config: rustls::ServerConfig,
    ack_delay: Option<LongDelay>,
) -> Result<ListenerTls, TlsError> {
    let (config, initial) = (Arc::new(config), initial_suite()?);
    let stateless = QuicServerConfig::with_initial(Arc::clone(&config), initial)
        .map_err(|e| TlsError::Setup(e.to_string()))?;
    Ok(ListenerTls::new(config, stateless, initial, ack_delay))
}

/// TLS of a QUIC client, with any set of ciphers.
pub(crate) fn quic_client(config: rustls::ClientConfig) -> Result<QuicClientConfig, TlsError> {
    QuicClientConfig::with_initial(Arc::new(config), initial_suite()?)
        .map_err(|e| TlsError::Setup(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for cipher in Cipher::ALL {
            assert_eq!(cipher.to_string().parse(), Ok(cipher));
        }
        for group in Group::ALL {
            assert_eq!(group.to_string().parse(), Ok(group));
        }
        for name in CertName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!("rc4".parse::<Cipher>(), Err(UnknownName));
    }

    #[test]
    fn what_is_allowed_is_offered_in_order() {
        let mut policy = TlsPolicy {
            ciphers: vec![Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm],
            groups: vec![Group::X25519MlKem768, Group::Secp256r1],
            server_order: false,
        };
        let provider = policy.provider().unwrap();
        assert_eq!(provider.cipher_suites.len(), 6);
        let first = |n: usize| provider.cipher_suites[n].suite();
        assert_eq!(
            first(0),
            rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        );
        assert_eq!(first(1), rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(
            provider.kx_groups[0].name(),
            rustls::NamedGroup::X25519MLKEM768
        );
        policy.groups.clear();
        assert!(policy.provider().is_err());
    }
}
