//! Echoes streams with s2n-quic.

use std::error::Error;

use mcu_peers::{ALPN, Arguments, tell};
use s2n_quic::provider::{endpoint_limits, tls};
use s2n_quic::{Connection, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments = Arguments::read();
    let tls = tls::rustls::Server::builder()
        .with_certificate(arguments.certificate.as_path(), arguments.key.as_path())?
        .with_application_protocols([ALPN].iter())?
        .build()?;
    // Retry is what a server does that has too many handshakes already.
    let most = if arguments.retry { 0 } else { 100 };
    let limits = endpoint_limits::Default::builder()
        .with_inflight_handshake_limit(most)?
        .build()?;
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_io("127.0.0.1:0")?
        .with_endpoint_limits(limits)?
        .start()?;
    tell(server.local_addr()?);
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve(connection));
    }
    Ok(())
}

async fn serve(mut connection: Connection) {
    while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
        tokio::spawn(async move {
            let (mut receive, mut send) = stream.split();
            while let Ok(Some(data)) = receive.receive().await {
                if send.send(data).await.is_err() {
                    return;
                }
            }
            let _ = send.finish();
        });
    }
}
