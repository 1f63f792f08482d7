//! Whom the sink trusts on encrypted connections. Opens no file.

use std::path::PathBuf;

use dunlin_client::TlsOptions;
use serde::Deserialize;

/// Whom to trust on encrypted connections, and who the sink is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Tls {
    /// Authorities; those of the system when absent.
    pub ca: Option<PathBuf>,
    /// Certificate of the sink.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl Tls {
    /// As options.
    pub fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        if let Some(ca) = &self.ca {
            options = options.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            options = options.identity_files(cert, key);
        }
        options
    }
}
