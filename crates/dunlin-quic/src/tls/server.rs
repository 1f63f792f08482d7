//! TLS of a listener.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::Text;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use sha2::{Digest, Sha256};

use super::{
    ALPN_HTTP, CertName, KeyLog, TlsError, TlsPolicy, alpn, end_point, parse_certs, parse_key,
    parse_lists, read_file,
};

/// What a listener's TLS is made of, as PEM text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerTlsOptions {
    /// Certificate chain, the server's own first.
    pub cert_pem: Vec<u8>,
    /// Private key: PKCS #8, PKCS #1 or SEC 1.
    pub key_pem: Vec<u8>,
    /// Authorities of client certificates; `None`: clients are not asked.
    pub client_ca_pem: Option<Vec<u8>>,
    /// Lists of certificates of clients that were revoked, each with what it is called
    /// in errors. With one, there must be a list of each authority between a client and
    /// those of `client_ca_pem`.
    pub revoked_pem: Vec<(String, Vec<u8>)>,
    /// Refuse clients without a certificate.
    pub require_client_cert: bool,
    /// Ciphers and key exchanges.
    pub policy: TlsPolicy,
    /// Which name in a client's certificate is its name.
    pub cert_name: CertName,
    /// What certificate, key and authority are called in errors.
    names: [String; 3],
}

impl ServerTlsOptions {
    /// A certificate chain and its key; clients are not asked for theirs.
    #[must_use]
    pub fn new(cert_pem: Vec<u8>, key_pem: Vec<u8>) -> Self {
        Self {
            cert_pem,
            key_pem,
            client_ca_pem: None,
            revoked_pem: Vec::new(),
            require_client_cert: false,
            policy: TlsPolicy::default(),
            cert_name: CertName::default(),
            names: ["the certificate", "the private key", "the client authority"].map(Into::into),
        }
    }

    /// Reads the PEM files; errors will name them.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let name = |path: &Path| path.display().to_string();
        let mut options = Self::new(read_file(cert)?, read_file(key)?);
        options.client_ca_pem = client_ca.map(read_file).transpose()?;
        options.names = [
            name(cert),
            name(key),
            client_ca.map(name).unwrap_or_default(),
        ];
        Ok(options)
    }

    /// Reads a PEM file with revocation lists.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_revoked(&mut self, path: &Path) -> Result<(), TlsError> {
        let list = (path.display().to_string(), read_file(path)?);
        self.revoked_pem.push(list);
        Ok(())
    }
}

/// TLS of listeners; one value serves all transports and all shards, which
/// then also share session tickets.
pub struct ServerTls {
    tcp: rustls::ServerConfig,
    /// Without tickets of any kind.
    pub(crate) quic: rustls::ServerConfig,
    /// For QUIC without early data.
    pub(crate) ticketer: Arc<dyn ProducesTickets>,
    /// Tickets are good for listeners that ask the same of clients.
    pub(crate) scope: [u8; 32],
    /// Which name in a client's certificate is its name.
    pub(crate) name: CertName,
    end_point: Option<Bytes>,
}

impl ServerTls {
    /// TLS over TCP for a listener with these application protocols, by
    /// preference.
    #[must_use]
    pub fn over_tcp(&self, protocols: &[Text]) -> Arc<rustls::ServerConfig> {
        let mut config = self.tcp.clone();
        config.alpn_protocols = alpn(protocols);
        Arc::new(config)
    }

    /// TLS for a WebSocket with these subprotocols, which some clients offer
    /// as application protocols.
    #[must_use]
    pub fn over_ws(&self, protocols: &[Text]) -> Arc<rustls::ServerConfig> {
        let mut config = self.tcp.clone();
        config.alpn_protocols = alpn(protocols);
        config.alpn_protocols.insert(0, ALPN_HTTP.to_vec());
        Arc::new(config)
    }

    /// Which name in a client's certificate is its name.
    #[must_use]
    pub const fn cert_name(&self) -> CertName {
        self.name
    }

    /// What is bound to the certificate (RFC 5929 section 4), if anything can.
    #[must_use]
    pub const fn end_point(&self) -> Option<&Bytes> {
        self.end_point.as_ref()
    }

    /// Reads the PEM files.
    ///
    /// # Errors
    /// A file cannot be read or used; the error names it.
    pub fn from_pem_files(
        cert: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        require_client_cert: bool,
    ) -> Result<Self, TlsError> {
        let mut options = ServerTlsOptions::read(cert, key, client_ca)?;
        options.require_client_cert = require_client_cert;
        Self::new(&options)
    }

    /// Logs the secrets of every connection from now on. Who has the log reads
    /// everything; only for looking at one's own traffic.
    pub fn log_secrets(&mut self, log: &KeyLog) {
        let log: Arc<dyn rustls::KeyLog> = Arc::new(log.clone());
        self.tcp.key_log = Arc::clone(&log);
        self.quic.key_log = log;
    }

    /// Uses PEM text that is in memory.
    ///
    /// # Errors
    /// A part cannot be used.
    pub fn new(options: &ServerTlsOptions) -> Result<Self, TlsError> {
        let [cert_name, key_name, ca_name] = &options.names;
        let provider = options.policy.provider()?;
        let chain = parse_certs(&options.cert_pem, cert_name)?;
        let key = parse_key(&options.key_pem, key_name)?;
        let verifier = client_verifier(options, ca_name, &provider)?;
        let setup = |e: rustls::Error| TlsError::Setup(e.to_string());
        let base = |versions: &[&'static rustls::SupportedProtocolVersion]| {
            let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(versions)
                .map_err(setup)?;
            let mut config = builder
                .with_client_cert_verifier(Arc::clone(&verifier))
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(TlsError::KeyMismatch)?;
            config.ignore_client_order = options.policy.server_order;
            Ok(config)
        };
        let ticketer = Ticketer::new().map_err(setup)?;
        let mut tcp = base(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        tcp.ticketer = Arc::clone(&ticketer);
        // One ticket per connection is enough for a client that reconnects.
        tcp.send_tls13_tickets = 1;
        let quic = base(&[&rustls::version::TLS13])?;
        Ok(Self {
            tcp,
            quic,
            ticketer,
            scope: scope(options),
            name: options.cert_name,
            end_point: chain.first().and_then(|cert| end_point(cert)),
        })
    }
}

/// What a session rests on besides the certificate, which may be renewed.
fn scope(options: &ServerTlsOptions) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut put = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    put(options.client_ca_pem.as_deref().unwrap_or_default());
    put(&[u8::from(options.require_client_cert)]);
    // What was revoked meanwhile resumes nothing.
    for (_, list) in &options.revoked_pem {
        put(list);
    }
    hash.finalize().into()
}

dunlin_base::opaque_debug!(ServerTls);

fn client_verifier(
    options: &ServerTlsOptions,
    name: &str,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let Some(pem) = &options.client_ca_pem else {
        if options.require_client_cert {
            return Err(TlsError::Roots(
                "client certificates are required, but no authority for them is given".into(),
            ));
        }
        if !options.revoked_pem.is_empty() {
            return Err(TlsError::Roots(
                "certificates are revoked, but no authority for them is given".into(),
            ));
        }
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for cert in parse_certs(pem, name)? {
        roots
            .add(cert)
            .map_err(|e| TlsError::Roots(format!("{name}: {e}")))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let mut lists = Vec::new();
    for (name, pem) in &options.revoked_pem {
        lists.extend(parse_lists(pem, name)?);
    }
    let builder = builder.with_crls(lists);
    let builder = if options.require_client_cert {
        builder
    } else {
        builder.allow_unauthenticated()
    };
    builder.build().map_err(|e| TlsError::Roots(e.to_string()))
}
