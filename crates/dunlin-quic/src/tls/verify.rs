//! How a client decides whether a server is the right one.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest, Sha256};

use super::names;

/// SHA-256 of something that the server must present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pin {
    Certificate([u8; 32]),
    PublicKey([u8; 32]),
}

impl Pin {
    fn matches(&self, cert: &CertificateDer<'_>) -> bool {
        let is = |want: &[u8; 32], bytes: &[u8]| Sha256::digest(bytes).as_slice() == want;
        match self {
            Self::Certificate(want) => is(want, cert),
            Self::PublicKey(want) => names::public_key(cert).is_some_and(|key| is(want, key)),
        }
    }
}

/// Chain and name by `chain`, and one of `pins` where there are any.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `None`: the pin alone decides, or nothing at all.
    pub(super) chain: Option<Arc<dyn ServerCertVerifier>>,
    pub(super) pins: Vec<Pin>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.pins.is_empty() && !self.pins.iter().any(|pin| pin.matches(end_entity)) {
            return Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ));
        }
        match &self.chain {
            Some(chain) => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
