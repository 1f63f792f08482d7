//! From a stored ticket to what the TLS library resumes with: a handshake in
//! memory, between a client as configured and a server made up for it.
//!
//! The made-up server presents the certificates of the true one and cannot have
//! their key. So it signs with a key that is made for this one handshake and
//! destroyed with it, and the client's verifier ([`OneTime`]) accepts that
//! signature, and nothing else, beside what the configured verifier accepts.
//! Nothing is switched off at any time, for this connection or another:
//! certificates are verified in memory too, and a peer would need the destroyed
//! key.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::quic::{ClientConnection, ServerConnection, Version};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, DigitallySignedStruct, NamedGroup, NoKeyLog, ServerConfig, SignatureScheme,
};

use super::hkdf;
use super::record::Record;

/// Flights of the handshake in memory; it needs three.
const FLIGHTS_MAX: usize = 8;
/// NewSessionTicket (RFC 8446 section 4).
const NEW_SESSION_TICKET: u8 = 4;
/// How the handshake in memory is signed.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

/// What a connection resumes with.
pub(super) struct Restored {
    pub(super) session: Tls13ClientSessionValue,
    /// The TLS library resumes a session only with the very verifier that it
    /// began with.
    pub(super) verifier: Arc<dyn ServerCertVerifier>,
}

/// What the library resumes with; `None` when the record is not good for a
/// connection with these settings to this server, now.
pub(super) fn restore(
    config: &ClientConfig,
    verifier: &Arc<dyn ServerCertVerifier>,
    server: &ServerName<'static>,
    record: &Record,
) -> Option<Restored> {
    let now = UnixTime::now();
    if !record.is_fresh(now.as_secs()) || !config.alpn_protocols.contains(&record.alpn) {
        return None;
    }
    // Trust may have changed since the ticket came.
    let (end_entity, intermediates) = record.chain.split_first()?;
    verifier
        .verify_server_cert(end_entity, intermediates, server, &[], now)
        .ok()?;
    let result = one_time(verifier).and_then(|(verifier, key)| {
        let session = handshake(config, &verifier, key, server, record)?;
        Ok(session.map(|session| Restored { session, verifier }))
    });
    if let Err(error) = &result {
        tracing::debug!(%error, "a stored session ticket cannot be used");
    }
    result.ok().flatten()
}

/// Verifies as another, and accepts the signature of one key besides.
#[derive(Debug)]
struct OneTime {
    configured: Arc<dyn ServerCertVerifier>,
    /// Of the key that signs the handshake in memory.
    public_key: Vec<u8>,
}

/// A verifier and a key.
type Signed = (Arc<dyn ServerCertVerifier>, Arc<dyn SigningKey>);

/// A verifier, and the key whose signature it accepts besides: once the
/// key is dropped, the verifier accepts what the configured one does.
fn one_time(configured: &Arc<dyn ServerCertVerifier>) -> Result<Signed, rustls::Error> {
    let failed = || rustls::Error::General("no key for a handshake in memory".into());
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).map_err(|_| failed())?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref()).map_err(|_| failed())?;
    let der = PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec());
    let key = default_provider()
        .key_provider
        .load_private_key(der.into())?;
    let verifier = OneTime {
        configured: Arc::clone(configured),
        public_key: pair.public_key().as_ref().to_vec(),
    };
    Ok((Arc::new(verifier), key))
}

impl ServerCertVerifier for OneTime {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.configured.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.configured.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.public_key);
        if dss.scheme == SCHEME && key.verify(message, dss.signature()).is_ok() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        self.configured.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.configured.supported_verify_schemes()
    }
}

/// A handshake that is signed with `key`, and the session that it ends with.
fn handshake(
    config: &ClientConfig,
    verifier: &Arc<dyn ServerCertVerifier>,
    key: Arc<dyn SigningKey>,
    name: &ServerName<'static>,
    record: &Record,
) -> Result<Option<Tls13ClientSessionValue>, rustls::Error> {
    let server_config = server_config(record, key)?;
    if hkdf::hash_len(record.suite.into(), &default_provider()) != Some(record.key.len()) {
        return Ok(None);
    }
    let caught = Arc::new(Caught::default());
    let mut config = config.clone();
    let verifier = Arc::clone(verifier);
    config.dangerous().set_certificate_verifier(verifier);
    config.resumption = Resumption::store(Arc::clone(&caught) as _);
    config.time_provider = Arc::new(At(record.issued));
    config.enable_early_data = false;
    config.key_log = Arc::new(NoKeyLog {});
    let mut client =
        ClientConnection::new(Arc::new(config), Version::V1, name.clone(), Vec::new())?;
    let mut server =
        ServerConnection::new(Arc::new(server_config), Version::V1, record.params.clone())?;
    let mut buf = Vec::new();
    for _ in 0..FLIGHTS_MAX {
        // One encryption level at a time, as QUIC would carry it.
        while client.write_hs(&mut buf).is_some() || !buf.is_empty() {
            server.read_hs(&core::mem::take(&mut buf))?;
        }
        while server.write_hs(&mut buf).is_some() || !buf.is_empty() {
            client.read_hs(&core::mem::take(&mut buf))?;
        }
        if !client.is_handshaking() {
            break;
        }
    }
    let mut message = vec![NEW_SESSION_TICKET];
    let len = u32::try_from(record.message.len()).unwrap_or(u32::MAX);
    message.extend_from_slice(len.to_be_bytes().get(1..).unwrap_or_default());
    message.extend_from_slice(&record.message);
    hkdf::force(&record.key, || client.read_hs(&message))?;
    Ok(caught.take())
}

/// A server with the certificates and parameters of the true one, and another
/// key.
fn server_config(record: &Record, key: Arc<dyn SigningKey>) -> Result<ServerConfig, rustls::Error> {
    let mut provider = default_provider();
    provider
        .cipher_suites
        .retain(|suite| u16::from(suite.suite()) == record.suite);
    let key = CertifiedKey::new(record.chain.clone(), key);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(key))));
    config.alpn_protocols = vec![record.alpn.clone()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The time at which a ticket came.
#[derive(Debug)]
struct At(u64);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

/// Keeps the one session that comes.
#[derive(Debug, Default)]
struct Caught(Mutex<Option<Tls13ClientSessionValue>>);

impl Caught {
    fn take(&self) -> Option<Tls13ClientSessionValue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientSessionStore for Caught {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut caught = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *caught = Some(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

#[cfg(test)]
mod tests {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;
    use std::thread;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;

    use super::*;

    const NAME: &str = "broker.test";

    /// The verifier that a client is configured with, which can be made to
    /// panic.
    #[derive(Debug)]
    struct Configured {
        inner: Arc<WebPkiServerVerifier>,
        panics: bool,
    }

    impl ServerCertVerifier for Configured {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            intermediates: &[CertificateDer<'_>],
            name: &ServerName<'_>,
            ocsp: &[u8],
            now: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            self.inner
                .verify_server_cert(end_entity, intermediates, name, ocsp, now)
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.inner.verify_tls12_signature(message, cert, dss)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.inner.verify_tls13_signature(message, cert, dss)
        }

        /// Asked within the handshake in memory.
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            assert!(!self.panics, "as wanted");
            self.inner.supported_verify_schemes()
        }
    }

    struct Rig {
        config: ClientConfig,
        verifier: Arc<dyn ServerCertVerifier>,
        record: Record,
    }

    fn rig(panics: bool) -> Rig {
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, &ca_key);
        let leaf = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let leaf = leaf
            .signed_by(&KeyPair::generate().unwrap(), &issuer)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca_cert.der().clone()).unwrap();
        let provider = Arc::new(default_provider());
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let inner = inner.build().unwrap();
        let verifier: Arc<dyn ServerCertVerifier> = Arc::new(Configured { inner, panics });
        let mut config = ClientConfig::builder_with_provider(hkdf::observed(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"p".to_vec()];
        // Lifetime, age_add, nonce, ticket, extensions (RFC 8446 section 4.6.1).
        let message = [&[0, 0, 14, 16, 0, 0, 0, 0, 1, 0, 0, 2, 7, 7, 0, 0][..]].concat();
        let record = Record {
            suite: 0x1301,
            issued: UnixTime::now().as_secs(),
            client: super::super::NO_CLIENT,
            key: vec![1; 32],
            alpn: b"p".to_vec(),
            message,
            params: Vec::new(),
            chain: vec![leaf.der().clone()],
        };
        Rig {
            config,
            verifier,
            record,
        }
    }

    fn name() -> ServerName<'static> {
        ServerName::try_from(NAME).unwrap()
    }

    /// A server that has the certificate and not its key, against a client with
    /// this verifier.
    fn is_forger_refused(rig: &Rig, verifier: &Arc<dyn ServerCertVerifier>) -> bool {
        let (_, forged) = one_time(&rig.verifier).unwrap();
        handshake(&rig.config, verifier, forged, &name(), &rig.record).is_err()
    }

    #[test]
    fn a_ticket_is_restored_and_no_other_key_is_accepted_afterwards() {
        let rig = rig(false);
        let restored = restore(&rig.config, &rig.verifier, &name(), &rig.record).unwrap();
        assert!(is_forger_refused(&rig, &restored.verifier));
        assert!(is_forger_refused(&rig, &rig.verifier));
    }

    #[test]
    fn certificates_are_verified_in_memory_too() {
        let (ours, theirs) = (rig(false), rig(false));
        let (verifier, key) = one_time(&ours.verifier).unwrap();
        let shaken = handshake(&ours.config, &verifier, key, &name(), &theirs.record);
        assert!(shaken.is_err(), "signed by another authority");
    }

    #[test]
    fn a_panic_leaves_verification_on_here_and_on_other_threads() {
        let (broken, sound) = (rig(true), rig(false));
        let result = catch_unwind(AssertUnwindSafe(|| {
            restore(&broken.config, &broken.verifier, &name(), &broken.record)
        }));
        assert!(result.is_err(), "it panics within the handshake");
        assert!(is_forger_refused(&sound, &sound.verifier));
        thread::scope(|scope| {
            scope.spawn(|| assert!(is_forger_refused(&sound, &sound.verifier)));
            // While this one restores.
            assert!(restore(&sound.config, &sound.verifier, &name(), &sound.record).is_some());
        });
    }
}
