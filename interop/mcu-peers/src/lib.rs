//! What the servers have in common: their arguments, and the line that tells
//! the port. Knows no QUIC.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The protocol that all servers speak: what arrives on a stream goes back.
pub const ALPN: &[u8] = b"echo";

/// `CERTIFICATE KEY [--retry] [--group] [--chacha]`, both in PEM.
pub struct Arguments {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub retry: bool,
    /// Exchanges keys with P-256 only.
    pub group: bool,
    /// Protects packets with ChaCha20-Poly1305 only, if that can be set.
    pub chacha: bool,
}

impl Arguments {
    pub fn read() -> Self {
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        let mut flag = |name: &str| {
            let at = words.iter().position(|word| word == name);
            at.map(|at| words.remove(at)).is_some()
        };
        let (retry, group, chacha) = (flag("--retry"), flag("--group"), flag("--chacha"));
        let [certificate, key] = words.as_slice() else {
            eprintln!("usage: ...-echo CERTIFICATE KEY [--retry] [--group] [--chacha]");
            std::process::exit(2);
        };
        Self {
            certificate: certificate.into(),
            key: key.into(),
            retry,
            group,
            chacha,
        }
    }
}

/// Tells where the server listens, which is what its starter waits for.
pub fn tell(address: SocketAddr) {
    println!("port {}", address.port());
    let _ = std::io::stdout().flush();
}
