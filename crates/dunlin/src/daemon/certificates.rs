//! The certificates of the listeners, and the log of secrets.

use std::io;
use std::sync::Arc;

use dunlin_net::{KeyLog, ServerTls, ServerTlsOptions, TlsError};

use super::StartError;
use crate::certs::{self, DevCerts, DevState};
use crate::config::Config;
use crate::config::listener;

/// What a certificate in PEM begins with.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Certificates to begin with, if a listener has none of its own.
pub(super) fn development(config: &Config) -> Result<Option<DevCerts>, StartError> {
    if !config.needs_development_certs() {
        return Ok(None);
    }
    let dir = config.certs_dir();
    let found = certs::ensure_development(&dir).map_err(StartError::Certificates)?;
    match found.state {
        DevState::Reused => {}
        DevState::Created => tracing::info!(dir = %dir.display(), "made development certificates"),
        DevState::Renewed => {
            tracing::warn!(dir = %dir.display(), "renewed the development certificate of the server");
        }
        DevState::Replaced => tracing::warn!(
            ca = %found.ca.display(),
            "the development authority had expired and was replaced; clients need the new one"
        ),
    }
    Ok(Some(found))
}

pub(super) type LoadedTls = Vec<Option<Arc<ServerTls>>>;

/// Certificates of every listener; those that need `development` have none
/// without it.
pub(super) fn load(
    config: &Config,
    development: Option<&DevCerts>,
    secrets: Option<&KeyLog>,
) -> Result<LoadedTls, StartError> {
    let mut loaded = Vec::new();
    for (index, listener) in config.listener.iter().enumerate() {
        let wrong = |source| StartError::Tls { index, source };
        let tls = match (&listener.tls, development) {
            _ if !listener.transport.transport().is_encrypted() => None,
            (Some(tls), _) => Some(server_tls(config, tls)),
            (None, Some(dev)) => {
                let files = listener::Tls::new(dev.cert.clone(), dev.key.clone());
                Some(server_tls(config, &files))
            }
            (None, None) => None,
        };
        let mut tls = tls.transpose().map_err(wrong)?;
        if let (Some(tls), Some(log)) = (&mut tls, secrets) {
            tls.log_secrets(log);
        }
        loaded.push(tls.map(Arc::new));
    }
    Ok(loaded)
}

/// The certificate of the HTTP door, if it has one.
pub(super) fn http(config: &Config) -> Result<Option<ServerTls>, StartError> {
    let files = config.control.http.tls.as_ref();
    let files = files.map(|it| listener::Tls::new(it.cert.clone(), it.key.clone()));
    let tls = files.map(|files| server_tls(config, &files));
    tls.transpose().map_err(StartError::HttpTls)
}

/// Whether there are certificates of who signs those of NATS, if a file is named.
pub(super) fn log(config: &Config) -> Result<(), StartError> {
    let nats = &config.store.nats;
    let Some(path) = nats.ca.as_ref().filter(|_| nats.is_used()) else {
        return Ok(());
    };
    let read = std::fs::read(path).and_then(|text| {
        let found = text.windows(BEGIN.len()).any(|part| part == BEGIN);
        let none = || io::Error::new(io::ErrorKind::InvalidData, "it has no certificate in PEM");
        found.then_some(()).ok_or_else(none)
    });
    read.map_err(|source| StartError::LogCa {
        path: path.clone(),
        source,
    })
}

fn server_tls(config: &Config, tls: &listener::Tls) -> Result<ServerTls, TlsError> {
    let mut options = ServerTlsOptions::read(&tls.cert, &tls.key, tls.client_ca.as_deref())?;
    for path in &tls.crl_files {
        options.read_revoked(path)?;
    }
    options.require_client_cert = tls.require_client_cert;
    options.policy = config.tls.policy();
    options.cert_name = tls.identity.unwrap_or_default().0;
    ServerTls::new(&options)
}

/// Where secrets of connections are written, if they are.
pub(super) fn log_secrets(config: &Config) -> Result<Option<KeyLog>, StartError> {
    let Some(path) = &config.tls.key_log else {
        return Ok(None);
    };
    let path_shown = path.display();
    tracing::warn!(path = %path_shown, "SECRETS OF ALL CONNECTIONS ARE LOGGED: who has the file reads everything");
    KeyLog::append(path).map(Some).map_err(StartError::KeyLog)
}
