//! A certificate authority, a server and a device, made once per test run.

use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use core::net::SocketAddr;

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::{ClientTls, ClientTlsBuilder, DialConfig, ListenerConfig, ServerTls, ServerTlsOptions};

pub(crate) struct Certs {
    pub(crate) ca: String,
    pub(crate) server: (String, String),
    pub(crate) server_der: Vec<u8>,
    pub(crate) server_key_der: Vec<u8>,
    pub(crate) device: (String, String),
    /// An authority that signed nothing here.
    pub(crate) stranger: String,
}

fn ca(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

pub(crate) fn certs() -> &'static Certs {
    static CERTS: OnceLock<Certs> = OnceLock::new();
    CERTS.get_or_init(|| {
        use rcgen::PublicKeyData;
        let (ca_pem, issuer) = ca("Test CA");
        let (stranger, _) = ca("Stranger");
        let signed = |names: &[&str], common_name: &str| {
            let names: Vec<String> = names.iter().map(|n| (*n).into()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            params
                .distinguished_name
                .push(DnType::CommonName, common_name);
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (server, server_key) = signed(&["localhost", "127.0.0.1"], "server");
        let (device, device_key) = signed(&[], "device-7");
        Certs {
            ca: ca_pem,
            server_der: server.der().to_vec(),
            server_key_der: server_key.subject_public_key_info(),
            server: (server.pem(), server_key.serialize_pem()),
            device: (device.pem(), device_key.serialize_pem()),
            stranger,
        }
    })
}

/// What is spoken.
pub(crate) fn protocols() -> Vec<Text> {
    vec![Text::from_static("mqtt")]
}

/// The authority's certificate.
pub(crate) fn ca_der() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(certs().ca.as_bytes()).unwrap()
}

/// The cryptography that peers made by hand use.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub(crate) fn server_options() -> ServerTlsOptions {
    let (cert, key) = &certs().server;
    ServerTlsOptions::new(cert.clone().into(), key.clone().into())
}

/// A listener with the server's certificate.
pub(crate) fn listen_on(transport: Transport) -> ListenerConfig {
    let mut config = ListenerConfig::new(transport, super::loopback());
    config.protocols = protocols();
    config.ws_path = "/mqtt".into();
    config.tls = Some(Arc::new(ServerTls::new(&server_options()).unwrap()));
    config
}

/// A client that trusts the authority.
pub(crate) fn dial_to(transport: Transport, addr: SocketAddr) -> DialConfig {
    let mut config = DialConfig::new(transport, addr, "localhost");
    config.protocols = protocols();
    config.ws_path = "/mqtt".into();
    config.tls = Some(Arc::new(client_builder().build().unwrap()));
    config
}

pub(crate) fn client_builder() -> ClientTlsBuilder {
    ClientTls::builder().ca_pem(certs().ca.as_bytes()).unwrap()
}
