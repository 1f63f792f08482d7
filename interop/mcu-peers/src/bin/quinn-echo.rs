//! Echoes streams with quinn and rustls.

use std::error::Error;
use std::sync::Arc;

use mcu_peers::{ALPN, Arguments, tell};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig};
use rustls::CipherSuite;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read();
    let chain = CertificateDer::pem_file_iter(&arguments.certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&arguments.key)?;
    let mut provider = rustls::crypto::ring::default_provider();
    if arguments.group {
        provider.kx_groups = vec![rustls::crypto::ring::kx_group::SECP256R1];
    }
    if arguments.chacha {
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    }
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.max_early_data_size = u32::MAX;
    // Initial packets have their suite, apart from what is allowed.
    let initial = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let initial = initial
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .ok_or("no suite")?;
    let crypto = QuicServerConfig::with_initial(Arc::new(tls), initial)?;
    let config = ServerConfig::with_crypto(Arc::new(crypto));
    let endpoint = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    tell(endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        if arguments.retry && !incoming.remote_address_validated() {
            let _ = incoming.retry();
        } else {
            tokio::spawn(serve(incoming));
        }
    }
    Ok(())
}

async fn serve(incoming: Incoming) -> Result<(), Box<dyn Error + Send + Sync>> {
    // Early data is there before the handshake is over.
    let connection = match incoming.accept()?.into_0rtt() {
        Ok((connection, _)) => connection,
        Err(connecting) => connecting.await?,
    };
    loop {
        let (mut send, mut receive) = connection.accept_bi().await?;
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok(Some(n)) = receive.read(&mut buffer).await {
                if send.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
            let _ = send.finish();
        });
    }
}
