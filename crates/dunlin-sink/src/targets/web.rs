//! Targets that take rows in the body of an HTTP request. The answer says what became of
//! them: 2xx stored, most of 4xx refused for good, all else later.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::config::ConfigError;
use crate::target::{Encode, Failure, Rows, Step, Target};
use crate::targets::stream;

/// Longest part of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Where a server listens.
struct Server {
    host: String,
    port: u16,
    /// Time for a connection, of all its addresses together.
    timeout: Duration,
}

/// A server, and what it is sent.
pub(super) struct Web {
    agent: Agent,
    url: String,
    server: Server,
    headers: Vec<(String, String)>,
    encoder: Arc<dyn Encode>,
    /// Makes a body of rows.
    body: fn(Rows) -> bytes::Bytes,
}

impl Web {
    pub(super) fn new(
        url: String,
        ca: Option<&Path>,
        timeout: Duration,
        encoder: Arc<dyn Encode>,
    ) -> Result<Self, ConfigError> {
        let wrong = |why: String| ConfigError::Value { key: "url", why };
        let (tls, port) = match url.split_once("://") {
            Some(("http", _)) => (TlsConfig::default(), 80),
            Some(("https", _)) => {
                let tls = TlsConfig::builder()
                    .root_certs(roots(ca).map_err(wrong)?)
                    .unversioned_rustls_crypto_provider(dunlin_net::crypto_provider())
                    .build();
                (tls, 443)
            }
            _ => return Err(wrong(format!("`{url}` begins with http:// or https://"))),
        };
        let uri: Uri = url
            .parse()
            .map_err(|error| wrong(format!("`{url}`: {error}")))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(wrong(format!("`{url}` names no host")));
        }
        let server = Server {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(port),
            timeout,
        };
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(timeout))
            .max_redirects(0)
            .http_status_as_error(false)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            // Nothing of the environment leads rows elsewhere.
            .proxy(None)
            .user_agent("dunlin-sink")
            .build();
        Ok(Self {
            agent: config.into(),
            url,
            server,
            headers: Vec::new(),
            encoder,
            body: |rows| rows.bytes,
        })
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(super) fn body(mut self, body: fn(Rows) -> bytes::Bytes) -> Self {
        self.body = body;
        self
    }
}

impl Server {
    /// Connects, to know whether it is there. What it says of rows the first request tells.
    async fn reach(&self) -> Result<(), Failure> {
        let (host, port) = (self.host.as_str(), self.port);
        match stream::connect(host, port, self.timeout).await {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::Later(format!("{host}:{port}: {error}"))),
        }
    }
}

impl Target for Web {
    fn open(&mut self) -> Step<'_, Arc<dyn Encode>> {
        let encoder = Arc::clone(&self.encoder);
        Box::pin(async move {
            self.server.reach().await?;
            Ok(encoder)
        })
    }

    fn store(&mut self, rows: Rows) -> Step<'_, ()> {
        let mut request = self.agent.post(&self.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = (self.body)(rows);
        Box::pin(async move {
            let sent = tokio::task::spawn_blocking(move || post(request, &body)).await;
            sent.unwrap_or_else(|error| Err(Failure::Later(error.to_string())))
        })
    }
}

fn post(
    request: ureq::RequestBuilder<ureq::typestate::WithBody>,
    body: &[u8],
) -> Result<(), Failure> {
    let mut response = request
        .send(body)
        .map_err(|error| Failure::Later(error.to_string()))?;
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(());
    }
    let answer = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    // What cannot be read says nothing.
    let answer = answer.read_to_string().unwrap_or_default();
    let why = format!("status {status}: {}", answer.trim());
    Err(match is_refusal(status) {
        true => Failure::Refused(why),
        false => Failure::Later(why),
    })
}

/// Whether a status is about the rows. Others of 4xx are about who asks, where, how often:
/// an operator can change that, and the same rows are stored then.
const fn is_refusal(status: u16) -> bool {
    !matches!(
        status,
        401 | 402 | 403 | 404 | 405 | 407 | 408 | 421 | 423 | 425 | 426 | 429
    ) && status >= 400
        && status < 500
}

fn roots(file: Option<&Path>) -> Result<RootCerts, String> {
    let ders = match file {
        None => dunlin_net::system_roots().map_err(|error| error.to_string())?,
        Some(path) => {
            let wrong = |why: &dyn core::fmt::Display| format!("{}: {why}", path.display());
            let text = std::fs::read(path).map_err(|error| wrong(&error))?;
            let mut ders = Vec::new();
            for certificate in CertificateDer::pem_slice_iter(&text) {
                ders.push(certificate.map_err(|error| wrong(&error))?.to_vec());
            }
            if ders.is_empty() {
                return Err(wrong(&"it has no certificate"));
            }
            ders
        }
    };
    let certificates = ders.iter();
    Ok(RootCerts::from(
        certificates.map(|der| Certificate::from_der(der).to_owned()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_is_there_if_it_takes_a_connection() {
        // Nothing listens at the port, and none but this test has it.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        let any = "127.0.0.1:0".parse().expect("an address");
        socket.bind(any).expect("a port");
        let server = Server {
            host: "127.0.0.1".into(),
            port: socket.local_addr().expect("bound").port(),
            timeout: Duration::from_secs(10),
        };
        let why = server.reach().await.expect_err("nothing listens");
        assert!(matches!(why, Failure::Later(why) if why.starts_with("127.0.0.1:")));
        let _listener = socket.listen(1).expect("it listens");
        assert!(server.reach().await.is_ok());
    }

    #[test]
    fn a_url_names_a_host() {
        struct Nothing;
        impl Encode for Nothing {
            fn encode(
                &self,
                _: &crate::input::Input<'_>,
                _: &mut Vec<u8>,
            ) -> Result<usize, crate::refusal::Refusal> {
                Ok(0)
            }

            fn runs_programs(&self) -> bool {
                false
            }
        }
        let new = |url: &str| Web::new(url.into(), None, Duration::ZERO, Arc::new(Nothing));
        for url in [
            "http://",
            "http:///rows",
            "http://:8080/rows",
            "http://[]/rows",
        ] {
            assert!(new(url).is_err(), "{url}");
        }
        assert!(new("http://[::1]:8080/rows").is_ok());
    }

    #[test]
    fn only_what_is_wrong_with_rows_is_a_refusal() {
        for status in [400, 406, 409, 413, 415, 422] {
            assert!(is_refusal(status), "{status}");
        }
        for status in [301, 401, 403, 404, 408, 429, 500, 502, 503, 504, 507] {
            assert!(!is_refusal(status), "{status}");
        }
    }
}
