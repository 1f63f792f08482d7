//! Servers that are asked by HTTP: one address, small questions and answers, a time
//! limit for each, and nothing that leads elsewhere.

use core::time::Duration;
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Why a server cannot be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The file of authorities cannot be used.
    #[error("cannot use the authorities {}: {why}", path.display())]
    Authorities {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The authorities of the system cannot be used.
    #[error(transparent)]
    Tls(#[from] dunlin_net::TlsError),
    /// There was no answer, or none in time, or too long a one.
    #[error(transparent)]
    Failed(#[from] ureq::Error),
    /// It answered with something else than was asked for.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// The answer is not what it should be.
    #[error("{0}")]
    Answer(String),
}

/// A server.
pub(super) struct Web {
    agent: Agent,
    url: String,
    /// Longest answer.
    bytes_max: u64,
    /// Value of the header `Authorization`.
    authorization: Option<String>,
}

/// How a server is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner<'a> {
    /// Authorities in PEM; absent: those of the system.
    pub(super) ca_file: Option<&'a Path>,
    /// Time for a question and its answer.
    pub(super) timeout: Duration,
    /// Connections that are kept.
    pub(super) connections: usize,
    /// Longest answer.
    pub(super) bytes_max: u64,
}

impl Web {
    pub(super) fn new(url: &str, manner: &Manner<'_>) -> Result<Self, WebError> {
        let tls = match url.starts_with("https:") {
            true => TlsConfig::builder()
                .root_certs(roots(manner.ca_file)?)
                .unversioned_rustls_crypto_provider(dunlin_net::crypto_provider())
                .build(),
            false => TlsConfig::default(),
        };
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(manner.timeout))
            .max_redirects(0)
            .http_status_as_error(false)
            .max_idle_connections(manner.connections)
            .max_idle_connections_per_host(manner.connections)
            // Nothing of the environment leads questions elsewhere.
            .proxy(None)
            .user_agent("dunlin")
            .accept("application/json")
            .build();
        Ok(Self {
            agent: config.into(),
            url: url.into(),
            bytes_max: manner.bytes_max,
            authorization: None,
        })
    }

    /// Sends this with each question.
    pub(super) fn set_authorization(&mut self, value: String) {
        self.authorization = Some(value);
    }

    /// What is there.
    pub(super) fn get(&self) -> Result<Vec<u8>, WebError> {
        let request = self.agent.get(&self.url);
        match self.read(request.call()?)? {
            Some(body) => Ok(body),
            None => Err(WebError::Status(StatusCode::NO_CONTENT.as_u16())),
        }
    }

    /// The answer to a question; `None`: one without content.
    pub(super) fn post(&self, question: &Value) -> Result<Option<Vec<u8>>, WebError> {
        let mut request = self.agent.post(&self.url).content_type("application/json");
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        self.read(request.send(question.to_string())?)
    }

    fn read(&self, mut response: Response<ureq::Body>) -> Result<Option<Vec<u8>>, WebError> {
        match response.status() {
            StatusCode::OK => {
                let body = response.body_mut().with_config().limit(self.bytes_max);
                Ok(Some(body.read_to_vec()?))
            }
            StatusCode::NO_CONTENT => Ok(None),
            other => Err(WebError::Status(other.as_u16())),
        }
    }
}

fn roots(file: Option<&Path>) -> Result<RootCerts, WebError> {
    let certificates = match file {
        None => dunlin_net::system_roots()?,
        Some(path) => read(path).map_err(|why| WebError::Authorities {
            path: path.into(),
            why,
        })?,
    };
    let certificates = certificates.iter();
    Ok(RootCerts::from(
        certificates.map(|der| Certificate::from_der(der).to_owned()),
    ))
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        found.push(certificate.to_vec());
    }
    match found.is_empty() {
        true => Err("it has no certificate".into()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{self, CA_DAYS, Options};
    use crate::config::Config;
    use crate::daemon::Daemon;

    #[test]
    fn a_server_is_known_by_its_certificate() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "[[listener]]\ntransport = \"wss\"\naddress = \"127.0.0.1:0\"\n";
        let mut config = Config::parse(Path::new("f"), text).expect("valid");
        config.data_dir = dir.path().join("data");
        let daemon = Daemon::start(config).expect("started");
        let ours = daemon.development_ca().expect("made").to_owned();
        let others = dir.path().join("others");
        certs::init(&others, CA_DAYS, &Options::default()).expect("an authority");
        let port = daemon.bound()[0].addr.port();
        let ask = |ca: &Path| {
            let manner = Manner {
                ca_file: Some(ca),
                timeout: Duration::from_secs(30),
                connections: 1,
                bytes_max: 1000,
            };
            let web = Web::new(&format!("https://localhost:{port}/"), &manner);
            web.expect("an agent").get()
        };
        // It speaks HTTP, but only for a WebSocket.
        let known = ask(&ours).expect_err("no page");
        assert!(matches!(known, WebError::Status(400..500)), "{known}");
        let unknown = ask(&others.join("ca.pem")).expect_err("a stranger");
        assert!(matches!(unknown, WebError::Failed(_)), "{unknown}");
        daemon.shut_down();
    }
}
