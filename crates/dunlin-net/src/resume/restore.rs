//! From a stored ticket to what the TLS library resumes with: a handshake in
//! memory, between a client as configured and a server made up for it.

use core::cell::Cell;
use core::time::Duration;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::quic::{ClientConnection, ServerConnection, Version};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, NamedGroup, NoKeyLog, ServerConfig};

use super::hkdf;
use super::record::Record;

/// Flights of the handshake in memory; it needs three.
const FLIGHTS_MAX: usize = 8;
/// NewSessionTicket (RFC 8446 section 4).
const NEW_SESSION_TICKET: u8 = 4;

thread_local! {
    static RESTORING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is within a handshake in memory, whose certificates
/// have been verified and whose server cannot have their key.
pub(crate) fn is_restoring() -> bool {
    RESTORING.get()
}

/// What the library resumes with; `None` when the record is not good for a
/// connection with these settings to this server, now.
pub(super) fn restore(
    config: &ClientConfig,
    verifier: &dyn ServerCertVerifier,
    server: &ServerName<'static>,
    record: &Record,
) -> Option<Tls13ClientSessionValue> {
    let now = UnixTime::now();
    if !record.is_fresh(now.as_secs()) || !config.alpn_protocols.contains(&record.alpn) {
        return None;
    }
    // Trust may have changed since the ticket came.
    let (end_entity, intermediates) = record.chain.split_first()?;
    verifier
        .verify_server_cert(end_entity, intermediates, server, &[], now)
        .ok()?;
    let result = with_restoring(|| handshake(config, server, record));
    if let Err(error) = &result {
        tracing::debug!(%error, "a stored session ticket cannot be used");
    }
    result.ok().flatten()
}

fn with_restoring<R>(f: impl FnOnce() -> R) -> R {
    RESTORING.set(true);
    let result = f();
    RESTORING.set(false);
    result
}

fn handshake(
    config: &ClientConfig,
    name: &ServerName<'static>,
    record: &Record,
) -> Result<Option<Tls13ClientSessionValue>, rustls::Error> {
    let server_config = server_config(record)?;
    if hkdf::hash_len(record.suite.into(), &default_provider()) != Some(record.key.len()) {
        return Ok(None);
    }
    let caught = Arc::new(Caught::default());
    let mut config = config.clone();
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

/// A server with the certificates and parameters of the true one, and a key of
/// its own.
fn server_config(record: &Record) -> Result<ServerConfig, rustls::Error> {
    let mut provider = default_provider();
    provider
        .cipher_suites
        .retain(|suite| u16::from(suite.suite()) == record.suite);
    let key = CertifiedKey::new(record.chain.clone(), signing_key()?);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(key))));
    config.alpn_protocols = vec![record.alpn.clone()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Signs handshakes in memory; nobody verifies it.
fn signing_key() -> Result<Arc<dyn SigningKey>, rustls::Error> {
    static KEY: OnceLock<Arc<dyn SigningKey>> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(Arc::clone(key));
    }
    let failed = |_| rustls::Error::General("no key for a handshake in memory".into());
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).map_err(failed)?;
    let der = PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec());
    let key = default_provider()
        .key_provider
        .load_private_key(der.into())?;
    Ok(Arc::clone(KEY.get_or_init(|| key)))
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
