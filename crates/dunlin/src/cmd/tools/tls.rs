//! Options of clients that say whom to trust.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_client::TlsOptions;

/// Whom to trust.
#[derive(Debug, Args)]
pub(super) struct Tls {
    /// File with trusted authorities.
    #[arg(long, alias = "ca", value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// Directory with trusted authorities (.pem and .crt).
    #[arg(long, value_name = "DIR")]
    capath: Option<PathBuf>,
    /// Client certificate.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// SHA-256 of the server's public key, in hexadecimal.
    #[arg(long, value_name = "SHA256", value_parser = parse_pin)]
    pin: Option<[u8; 32]>,
    /// Trust any server. Only for experiments.
    #[arg(long)]
    insecure: bool,
    /// Use TLS and trust what the system trusts.
    #[arg(long)]
    tls_use_os_certs: bool,
    /// Accepted for mosquitto's sake: 1.2 is the lowest version that is spoken.
    #[arg(long, hide = true, value_parser = ["tlsv1.2"])]
    tls_version: Option<String>,
    /// Offer no version of TLS after this one; QUIC has 1.3 always.
    #[arg(long, value_name = "VERSION", value_parser = ["1.2"])]
    tls_max: Option<String>,
}

impl Tls {
    pub(super) fn is_wanted(&self) -> bool {
        self.cafile.is_some()
            || self.capath.is_some()
            || self.cert.is_some()
            || self.pin.is_some()
            || self.insecure
            || self.tls_use_os_certs
            || self.tls_max.is_some()
    }

    pub(super) fn options(&self) -> Result<TlsOptions> {
        let mut options = TlsOptions::new();
        if let Some(file) = &self.cafile {
            options = options.ca_file(file);
        }
        if let Some(dir) = &self.capath {
            for file in certificates_in(dir)? {
                options = options.ca_file(file);
            }
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            options = options.identity_files(cert, key);
        }
        if let Some(pin) = self.pin {
            options = options.pin_key_sha256(pin);
        }
        if self.tls_use_os_certs {
            options = options.and_system_roots();
        }
        if self.tls_max.is_some() {
            options = options.tls12_at_most();
        }
        // As curl and browsers do. Only commands look at the environment; the
        // library and the broker need the setting.
        if let Some(path) = std::env::var_os("SSLKEYLOGFILE").filter(|path| !path.is_empty()) {
            options = options.log_secrets_to(path);
        }
        if self.insecure {
            options = options.dangerous_no_verification();
        }
        Ok(options)
    }
}

fn certificates_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = || format!("cannot read --capath {}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(read)? {
        let path = entry.with_context(read)?.path();
        if path.extension().is_some_and(|e| e == "pem" || e == "crt") {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("--capath {} has no .pem or .crt file", dir.display());
    }
    files.sort();
    Ok(files)
}

/// 64 hexadecimal digits, with colons or without.
pub(super) fn parse_pin(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "it is 64 hexadecimal digits".to_owned();
    let mut pin = [0; 32];
    let digits: Vec<u32> = text
        .chars()
        .filter(|char| *char != ':')
        .map(|char| char.to_digit(16).ok_or_else(wrong))
        .collect::<Result<_, _>>()?;
    if digits.len() != 2 * pin.len() {
        return Err(wrong());
    }
    for (byte, pair) in pin.iter_mut().zip(digits.chunks_exact(2)) {
        if let [high, low] = pair {
            *byte = u8::try_from(high << 4 | low).map_err(|_| wrong())?;
        }
    }
    Ok(pin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_hexadecimal() {
        let text = "00ff".repeat(16);
        let pin = parse_pin(&text).expect("a pin");
        assert_eq!(&pin[..4], &[0, 255, 0, 255]);
        let colons: Vec<&str> = ["0a"; 32].to_vec();
        assert!(parse_pin(&colons.join(":")).is_ok());
        assert!(parse_pin("00").is_err());
        assert!(parse_pin(&"g".repeat(64)).is_err());
    }
}
