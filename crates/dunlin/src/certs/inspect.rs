//! What a certificate says, for `dunlin cert show` and for renewal.

use core::fmt;
use core::net::IpAddr;
use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::{CertError, file_error};

/// What people want to know of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Whom it is for.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// Host names and addresses.
    pub names: Vec<String>,
    /// It may sign others.
    pub is_ca: bool,
    /// Start of validity, seconds since 1970.
    pub not_before: i64,
    /// End of validity, seconds since 1970.
    pub not_after: i64,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// SHA-256 of its public key (SubjectPublicKeyInfo), which survives
    /// renewal with the same key.
    pub key_fingerprint: [u8; 32],
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// The file cannot be read, or has no certificate, or a damaged one.
pub fn inspect(path: &Path) -> Result<Vec<Summary>, CertError> {
    let pem = std::fs::read(path).map_err(file_error("read", path))?;
    let contents = |what| CertError::Contents {
        path: path.into(),
        what,
    };
    let mut found = Vec::new();
    for der in CertificateDer::pem_slice_iter(&pem) {
        let der = der.map_err(|_| contents("valid PEM"))?;
        found.push(summary(&der).ok_or_else(|| contents("a valid certificate"))?);
    }
    if found.is_empty() {
        return Err(contents("a certificate"));
    }
    Ok(found)
}

/// Reads one certificate in DER; `None`: it cannot be read.
#[must_use]
pub fn summary(der: &[u8]) -> Option<Summary> {
    let (_, cert) = X509Certificate::from_der(der).ok()?;
    let names = match cert.subject_alternative_name() {
        Ok(Some(extension)) => extension.value.general_names.iter().map(name).collect(),
        _ => Vec::new(),
    };
    Some(Summary {
        subject: cert.subject().to_string(),
        issuer: cert.issuer().to_string(),
        names,
        is_ca: cert.is_ca(),
        not_before: cert.validity().not_before.timestamp(),
        not_after: cert.validity().not_after.timestamp(),
        fingerprint: Sha256::digest(der).into(),
        key_fingerprint: Sha256::digest(cert.public_key().raw).into(),
    })
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).into(),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => IpAddr::from([*a, *b, *c, *d]).to_string(),
            _ => <[u8; 16]>::try_from(*bytes)
                .map_or_else(|_| "?".into(), |ip| IpAddr::from(ip).to_string()),
        },
        other => other.to_string(),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "subject      {}", self.subject)?;
        writeln!(f, "issuer       {}", self.issuer)?;
        if self.is_ca {
            writeln!(f, "             may sign other certificates")?;
        }
        if !self.names.is_empty() {
            writeln!(f, "names        {}", self.names.join(", "))?;
        }
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let note = match () {
            () if now > self.not_after => ", EXPIRED",
            () if now < self.not_before => ", NOT YET VALID",
            () => "",
        };
        let (from, until) = (date(self.not_before), date(self.not_after));
        writeln!(f, "valid        {from} to {until}{note}")?;
        writeln!(f, "sha256       {}", hex(&self.fingerprint))?;
        write!(f, "key sha256   {}", hex(&self.key_fingerprint))
    }
}

fn date(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(
        |_| "?".into(),
        |at| {
            let (year, month, day) = at.to_calendar_date();
            format!("{year:04}-{:02}-{day:02}", u8::from(month))
        },
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
