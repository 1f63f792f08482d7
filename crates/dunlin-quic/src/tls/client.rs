//! TLS of a dialled connection.

use std::path::Path;
use std::sync::Arc;

use dunlin_base::Text;
use quinn_proto::{NoneTokenStore, TokenMemoryCache, TokenStore};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, SupportedProtocolVersion};
use sha2::{Digest, Sha256};

use super::verify::{Pin, Verifier};
use super::{
    ALPN_HTTP, KeyLog, TlsError, TlsPolicy, alpn, parse_certs, parse_key, quic_client, read_file,
};
use crate::AddressTokens;
use crate::ack_request::LongDelay;
use crate::resume::{Counted, Dialled, NO_CLIENT, observed};
use crate::tokens::Store;

/// TLS of dialled connections; share one value among them, so that they also
/// share session tickets.
pub struct ClientTls {
    tcp: rustls::ClientConfig,
    ws: Arc<rustls::ClientConfig>,
    quic: rustls::ClientConfig,
    /// Address tokens of QUIC servers.
    tokens: Arc<dyn TokenStore>,
    /// TLS of QUIC for connections whose tickets are stored elsewhere.
    watched: rustls::ClientConfig,
    verifier: Arc<Verifier>,
    /// Hash of our certificate.
    client: [u8; 32],
}

impl ClientTls {
    /// Starts with nothing trusted.
    #[must_use]
    pub fn builder() -> ClientTlsBuilder {
        ClientTlsBuilder {
            roots: RootCertStore::empty(),
            pins: Vec::new(),
            identity: None,
            accept_any: false,
            tokens: None,
            policy: TlsPolicy::default(),
            resumption: true,
            tls13_over_tcp: true,
            secrets: None,
        }
    }

    /// Trusts what the operating system trusts.
    ///
    /// # Errors
    /// The system has no usable authority.
    pub fn system() -> Result<Self, TlsError> {
        Self::builder().system_roots()?.build()
    }
}

impl ClientTls {
    /// TLS over TCP that offers these application protocols, by preference.
    #[must_use]
    pub fn over_tcp(&self, protocols: &[Text]) -> Arc<rustls::ClientConfig> {
        let mut config = self.tcp.clone();
        config.alpn_protocols = alpn(protocols);
        Arc::new(config)
    }

    /// TLS for a WebSocket.
    #[must_use]
    pub const fn over_ws(&self) -> &Arc<rustls::ClientConfig> {
        &self.ws
    }

    /// TLS of one connection over QUIC.
    pub(crate) fn quic(
        &self,
        protocols: &[Text],
        early_data: bool,
        tokens: Option<&Arc<dyn AddressTokens>>,
        tickets: Option<&Arc<Counted>>,
        ack_delay: Option<LongDelay>,
    ) -> Result<quinn_proto::ClientConfig, TlsError> {
        let prepared = |config: &rustls::ClientConfig| {
            let mut config = config.clone();
            config.alpn_protocols = alpn(protocols);
            config.enable_early_data = early_data;
            config
        };
        let crypto: Arc<dyn quinn_proto::crypto::ClientConfig> = match (tickets, ack_delay) {
            (None, None) => Arc::new(quic_client(prepared(&self.quic))?),
            _ => Arc::new(Dialled {
                config: prepared(match tickets {
                    Some(_) => &self.watched,
                    None => &self.quic,
                }),
                verifier: Arc::clone(&self.verifier) as _,
                client: self.client,
                tickets: tickets.cloned(),
                ack_delay,
            }),
        };
        let mut config = quinn_proto::ClientConfig::new(crypto);
        config.token_store(match tokens {
            Some(tokens) => Arc::new(Store(Arc::clone(tokens))),
            None => Arc::clone(&self.tokens),
        });
        Ok(config)
    }
}

dunlin_base::opaque_debug!(ClientTls);

/// Collects what a client trusts and who it is.
///
/// With authorities and pins both must hold. With pins alone, the pinned
/// certificate or key is trusted with any issuer, name and age.
pub struct ClientTlsBuilder {
    roots: RootCertStore,
    pins: Vec<Pin>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    accept_any: bool,
    tokens: Option<Arc<dyn AddressTokens>>,
    policy: TlsPolicy,
    resumption: bool,
    tls13_over_tcp: bool,
    secrets: Option<KeyLog>,
}

impl ClientTlsBuilder {
    /// Trusts the authorities of the operating system.
    ///
    /// # Errors
    /// None could be loaded.
    pub fn system_roots(mut self) -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = self.roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map(ToString::to_string);
            return Err(TlsError::Roots(
                why.unwrap_or_else(|| "the system has none".into()),
            ));
        }
        Ok(self)
    }

    /// Trusts the authorities in a PEM file.
    ///
    /// # Errors
    /// The file cannot be read or used.
    pub fn ca_pem_file(self, path: &Path) -> Result<Self, TlsError> {
        self.add_roots(&read_file(path)?, &path.display().to_string())
    }

    /// Trusts the authorities in PEM text.
    ///
    /// # Errors
    /// The text cannot be used.
    pub fn ca_pem(self, pem: &[u8]) -> Result<Self, TlsError> {
        self.add_roots(pem, "the authority")
    }

    fn add_roots(mut self, pem: &[u8], what: &str) -> Result<Self, TlsError> {
        for cert in parse_certs(pem, what)? {
            self.roots
                .add(cert)
                .map_err(|e| TlsError::Roots(format!("{what}: {e}")))?;
        }
        Ok(self)
    }

    /// Requires the server's certificate to have this SHA-256.
    #[must_use]
    pub fn pin_certificate_sha256(mut self, hash: [u8; 32]) -> Self {
        self.pins.push(Pin::Certificate(hash));
        self
    }

    /// Requires the server's public key (SubjectPublicKeyInfo) to have this
    /// SHA-256.
    #[must_use]
    pub fn pin_public_key_sha256(mut self, hash: [u8; 32]) -> Self {
        self.pins.push(Pin::PublicKey(hash));
        self
    }

    /// Presents a certificate from PEM files when the server asks.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub fn client_cert_files(mut self, cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = parse_certs(&read_file(cert)?, &cert.display().to_string())?;
        let key = parse_key(&read_file(key)?, &key.display().to_string())?;
        self.identity = Some((chain, key));
        Ok(self)
    }

    /// Presents a certificate from PEM text when the server asks.
    ///
    /// # Errors
    /// The text cannot be used.
    pub fn client_cert_pem(mut self, cert: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = parse_certs(cert, "the client certificate")?;
        self.identity = Some((chain, parse_key(key, "the client key")?));
        Ok(self)
    }

    /// Ciphers and key exchanges to offer.
    #[must_use]
    pub fn policy(mut self, policy: TlsPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether to keep session tickets and address tokens, and come back with
    /// them. Default true; false makes each connection one of a stranger.
    #[must_use]
    pub const fn resumption(mut self, resumption: bool) -> Self {
        self.resumption = resumption;
        self
    }

    /// Offers no version of TLS after 1.2 over TCP and WebSocket; QUIC has 1.3
    /// always.
    #[must_use]
    pub const fn tls12_at_most(mut self) -> Self {
        self.tls13_over_tcp = false;
        self
    }

    /// Keeps the address tokens of QUIC servers here instead of in memory.
    #[must_use]
    pub fn address_tokens(mut self, tokens: Arc<dyn AddressTokens>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Trusts every server. An attacker on the path reads and changes
    /// everything; only for experiments.
    #[must_use]
    pub fn dangerous_accept_any_certificate(mut self) -> Self {
        self.accept_any = true;
        self
    }

    /// Logs the secrets of every connection. Who has the log reads
    /// everything; only for looking at one's own traffic.
    #[must_use]
    pub fn log_secrets(mut self, log: KeyLog) -> Self {
        self.secrets = Some(log);
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// Nothing is trusted, or the parts do not fit.
    pub fn build(self) -> Result<ClientTls, TlsError> {
        let provider = self.policy.provider()?;
        let verifier = Arc::new(verifier(self.roots, self.pins, self.accept_any, &provider)?);
        let client = match &self.identity {
            Some((chain, _)) => chain
                .iter()
                .fold(Sha256::new(), Digest::chain_update)
                .finalize()
                .into(),
            None => NO_CLIENT,
        };
        let watched = observed(&provider);
        let base = |provider: &Arc<CryptoProvider>,
                    versions: &[&'static SupportedProtocolVersion]| {
            let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(provider))
                .with_protocol_versions(versions)
                .map_err(|e| TlsError::Setup(e.to_string()))?
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&verifier) as _);
            let mut config = match &self.identity {
                Some((chain, key)) => builder
                    .with_client_auth_cert(chain.clone(), key.clone_key())
                    .map_err(TlsError::KeyMismatch)?,
                None => builder.with_no_client_auth(),
            };
            if !self.resumption {
                config.resumption = Resumption::disabled();
            }
            if let Some(log) = &self.secrets {
                config.key_log = Arc::new(log.clone());
            }
            Ok::<_, TlsError>(config)
        };
        let versions: &[&'static SupportedProtocolVersion] = match self.tls13_over_tcp {
            true => &[&rustls::version::TLS13, &rustls::version::TLS12],
            false => &[&rustls::version::TLS12],
        };
        let tcp = base(&provider, versions)?;
        let mut ws = tcp.clone();
        ws.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        let watched = base(&watched, &[&rustls::version::TLS13])?;
        let quic = base(&provider, &[&rustls::version::TLS13])?;
        // What is good for QUIC once is good for every connection.
        quic_client(quic.clone())?;
        let tokens: Arc<dyn TokenStore> = match self.tokens {
            Some(tokens) => Arc::new(Store(tokens)),
            None if self.resumption => Arc::new(TokenMemoryCache::default()),
            None => Arc::new(NoneTokenStore),
        };
        Ok(ClientTls {
            tcp,
            ws: Arc::new(ws),
            quic,
            tokens,
            watched,
            verifier,
            client,
        })
    }
}

fn verifier(
    roots: RootCertStore,
    pins: Vec<Pin>,
    accept_any: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Verifier, TlsError> {
    let chain: Option<Arc<dyn ServerCertVerifier>> = if accept_any || roots.is_empty() {
        None
    } else {
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        Some(
            builder
                .build()
                .map_err(|e| TlsError::Roots(e.to_string()))?,
        )
    };
    if chain.is_none() && pins.is_empty() && !accept_any {
        return Err(TlsError::NothingTrusted);
    }
    Ok(Verifier {
        chain,
        pins,
        provider: Arc::clone(provider),
    })
}

dunlin_base::opaque_debug!(ClientTlsBuilder);
