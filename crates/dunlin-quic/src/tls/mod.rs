//! TLS settings of servers and clients, for TCP, WebSocket and QUIC alike:
//! who is trusted, who we are, which application protocols are spoken.

mod client;
mod compact;
mod end_point;
mod keylog;
mod names;
mod policy;
mod server;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use client::{ClientTls, ClientTlsBuilder};
pub use compact::release_keys;
use dunlin_base::Text;
pub use end_point::end_point;
pub use keylog::KeyLog;
pub use policy::{CertName, Cipher, Group, TlsPolicy, UnknownName};
pub(crate) use policy::{quic_client, quic_server};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
pub use server::{ServerTls, ServerTlsOptions};

/// What a browser offers for a WebSocket.
const ALPN_HTTP: &[u8] = b"http/1.1";

/// Application protocols as TLS wants them.
pub(crate) fn alpn(protocols: &[Text]) -> Vec<Vec<u8>> {
    protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect()
}

/// TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file for secrets cannot be opened.
    #[error("cannot log secrets to {}: {source}", .path.display())]
    KeyLog {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The text is not PEM, or a section of it is damaged.
    #[error("{what} is not valid PEM: {detail}")]
    Pem {
        /// What was read.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// There is no certificate in it.
    #[error("{0} contains no certificate")]
    NoCertificate(String),
    /// There is no revocation list in it.
    #[error("{0} contains no certificate revocation list")]
    NoList(String),
    /// There is no private key in it.
    #[error("{0} contains no private key")]
    NoKey(String),
    /// The key is of a kind that is not supported, or does not belong to the
    /// certificate.
    #[error("the certificate and key cannot be used together: {0}")]
    KeyMismatch(rustls::Error),
    /// The authorities cannot be used.
    #[error("the trusted authorities cannot be used: {0}")]
    Roots(String),
    /// Nothing says which servers to trust.
    #[error("no trusted authority, pin or system root is configured")]
    NothingTrusted,
    /// The TLS library refused the settings.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.into(),
        source,
    })
}

pub(crate) fn parse_certs(
    pem: &[u8],
    what: &str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certs = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::Pem {
            what: what.into(),
            detail: e.to_string(),
        })?;
    if certs.is_empty() {
        return Err(TlsError::NoCertificate(what.into()));
    }
    Ok(certs)
}

pub(crate) fn parse_lists(
    pem: &[u8],
    what: &str,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists = CertificateRevocationListDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::Pem {
            what: what.into(),
            detail: e.to_string(),
        })?;
    if lists.is_empty() {
        return Err(TlsError::NoList(what.into()));
    }
    Ok(lists)
}

/// The cryptography of all connections, for a client of another protocol.
#[must_use]
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The authorities that the operating system trusts, in DER.
///
/// # Errors
/// There is none.
pub fn system_roots() -> Result<Vec<Vec<u8>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        return Err(TlsError::Roots(
            why.unwrap_or_else(|| "the system has none".into()),
        ));
    }
    let certs = found.certs.into_iter();
    Ok(certs.map(|cert| cert.to_vec()).collect())
}

pub(crate) fn parse_key(pem: &[u8], what: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    use rustls::pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(pem).map_err(|e| match e {
        Error::NoItemsFound => TlsError::NoKey(what.into()),
        e => TlsError::Pem {
            what: what.into(),
            detail: e.to_string(),
        },
    })
}

/// Name of the holder of a verified certificate.
#[must_use]
pub fn identity(chain: &[CertificateDer<'_>], name: CertName) -> Option<Text> {
    names::identity(chain.first()?, name)
}

/// The sentence for people when a handshake failed.
#[must_use]
pub fn describe(error: &rustls::Error) -> String {
    use rustls::{CertificateError, Error};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "TLS: the certificate is not signed by a trusted authority (UnknownIssuer)".into()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "TLS: the certificate is for another name (NotValidForName)".into(),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "TLS: the certificate has expired".into(),
        Error::NoApplicationProtocol => "TLS: no application protocol (ALPN) in common".into(),
        Error::NoCertificatesPresented => "TLS: the client presented no certificate".into(),
        Error::AlertReceived(alert) => format!("TLS: the peer refused: {alert:?}"),
        other => format!("TLS: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_protocol_is_named() {
        assert!(describe(&rustls::Error::NoApplicationProtocol).contains("ALPN"));
    }
}
