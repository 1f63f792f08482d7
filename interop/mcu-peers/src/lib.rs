//! What the servers have in common: their arguments, and the line that tells
//! the port. Knows no QUIC.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The protocol that all servers speak: whatever arrives on a stream goes back.
pub const ALPN: &[u8] = b"echo";

/// `CERTIFICATE KEY [--retry]`, both in PEM.
pub struct Arguments {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub retry: bool,
}

impl Arguments {
    pub fn read() -> Self {
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        let retry = words.iter().position(|word| word == "--retry");
        if let Some(at) = retry {
            words.remove(at);
        }
        let [certificate, key] = words.as_slice() else {
            eprintln!("usage: ...-echo CERTIFICATE KEY [--retry]");
            std::process::exit(2);
        };
        Self {
            certificate: certificate.into(),
            key: key.into(),
            retry: retry.is_some(),
        }
    }
}

/// Tells where the server listens, which is what its starter waits for.
pub fn tell(address: SocketAddr) {
    println!("port {}", address.port());
    let _ = std::io::stdout().flush();
}
