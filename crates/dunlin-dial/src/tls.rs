//! Which servers a client trusts, and who it is, as options; files are read
//! when the client connects.

use std::path::PathBuf;
use std::sync::Arc;

use dunlin_net::{Cipher, ClientTls, Group, KeyLog, TlsError, TlsPolicy};

/// TLS options of every transport that is encrypted. Nothing set means: what the
/// operating system trusts.
///
/// # Examples
/// ```
/// use dunlin_dial::TlsOptions;
///
/// let tls = TlsOptions::new().ca_file("dunlin-data/ca.pem");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct TlsOptions {
    ca_files: Vec<PathBuf>,
    ca_pem: Vec<Vec<u8>>,
    key_pins: Vec<[u8; 32]>,
    certificate_pins: Vec<[u8; 32]>,
    system_roots: bool,
    identity: Option<Identity>,
    accept_any: bool,
    tls12_at_most: bool,
    secrets: Option<PathBuf>,
    policy: TlsPolicy,
}

#[derive(Clone)]
enum Identity {
    Files(PathBuf, PathBuf),
    Pem(Vec<u8>, Vec<u8>),
}

impl core::fmt::Debug for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Identity(..)")
    }
}

impl TlsOptions {
    /// What the operating system trusts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in a PEM file, instead of the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_files.push(path.into());
        self
    }

    /// Trusts the authorities in PEM text, instead of the system's.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_pem.push(pem.into());
        self
    }

    /// Trusts the system's authorities besides those given.
    pub fn and_system_roots(mut self) -> Self {
        self.system_roots = true;
        self
    }

    /// Requires the server's public key (its SubjectPublicKeyInfo) to have this
    /// SHA-256. Without authorities, that alone decides.
    pub fn pin_key_sha256(mut self, hash: [u8; 32]) -> Self {
        self.key_pins.push(hash);
        self
    }

    /// Requires the server's certificate to have this SHA-256. Without
    /// authorities, that alone decides.
    pub fn pin_certificate_sha256(mut self, hash: [u8; 32]) -> Self {
        self.certificate_pins.push(hash);
        self
    }

    /// Presents a certificate from PEM files.
    pub fn identity_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some(Identity::Files(cert.into(), key.into()));
        self
    }

    /// Presents a certificate from PEM text.
    pub fn identity_pem(mut self, cert: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Identity::Pem(cert.into(), key.into()));
        self
    }

    /// Trusts every server. Anyone on the way can then read and change
    /// everything, the password included.
    pub fn dangerous_no_verification(mut self) -> Self {
        self.accept_any = true;
        self
    }

    /// Offers these ciphers, best first, instead of all.
    pub fn ciphers(mut self, ciphers: impl Into<Vec<Cipher>>) -> Self {
        self.policy.ciphers = ciphers.into();
        self
    }

    /// Offers these key exchanges, best first, instead of all. A key for the
    /// first is sent at once.
    pub fn groups(mut self, groups: impl Into<Vec<Group>>) -> Self {
        self.policy.groups = groups.into();
        self
    }

    /// Offers no version of TLS after 1.2 over TCP and WebSocket; QUIC has 1.3
    /// always.
    pub fn tls12_at_most(mut self) -> Self {
        self.tls12_at_most = true;
        self
    }

    /// Appends the secrets of connections to this file, in the format of
    /// `SSLKEYLOGFILE`. It lets anyone read everything; only for looking at
    /// one's own traffic.
    pub fn log_secrets_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.secrets = Some(path.into());
        self
    }

    /// Reads the files, for a program that drives connections by itself.
    ///
    /// # Errors
    /// A file cannot be read or used, or nothing is trusted.
    pub fn build(&self) -> Result<Arc<ClientTls>, TlsError> {
        let mut builder = ClientTls::builder().policy(self.policy.clone());
        for path in &self.ca_files {
            builder = builder.ca_pem_file(path)?;
        }
        for pem in &self.ca_pem {
            builder = builder.ca_pem(pem)?;
        }
        for hash in &self.key_pins {
            builder = builder.pin_public_key_sha256(*hash);
        }
        for hash in &self.certificate_pins {
            builder = builder.pin_certificate_sha256(*hash);
        }
        let named = !(self.ca_files.is_empty()
            && self.ca_pem.is_empty()
            && self.key_pins.is_empty()
            && self.certificate_pins.is_empty());
        if self.system_roots || !(named || self.accept_any) {
            builder = builder.system_roots()?;
        }
        match &self.identity {
            Some(Identity::Files(cert, key)) => builder = builder.client_cert_files(cert, key)?,
            Some(Identity::Pem(cert, key)) => builder = builder.client_cert_pem(cert, key)?,
            None => {}
        }
        if let Some(path) = &self.secrets {
            builder = builder.log_secrets(KeyLog::append(path)?);
        }
        if self.accept_any {
            builder = builder.dangerous_accept_any_certificate();
        }
        if self.tls12_at_most {
            builder = builder.tls12_at_most();
        }
        builder.build().map(Arc::new)
    }
}
