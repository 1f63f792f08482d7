//! Certificates for development and small installations: an authority of
//! one's own, and what it signs for servers and devices. ECDSA P-256, because
//! microcontrollers verify it.
//!
//! A directory holds `ca.pem` and `ca.key`, and for each name `NAME.pem` and
//! `NAME.key`. It is not a public key infrastructure: it makes no lists of
//! what was revoked.

mod inspect;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::files::{self, Access};

pub use inspect::{Summary, inspect, summary};

/// Name of the authority's files.
const CA: &str = "ca";

/// Name of the server's files.
pub const SERVER: &str = "server";

/// Days that an authority is valid when nothing else is said: ten years.
pub const CA_DAYS: u32 = 3650;

/// Days that what it signs is valid; operating systems refuse server
/// certificates that are valid for longer.
pub const LEAF_DAYS: u32 = 825;

/// Most days that can be asked for: a century.
pub const DAYS_MAX: u32 = 36_500;

/// Development certificates with less life than this are renewed.
const RENEW_BEFORE: Duration = Duration::days(1);

/// Certificates are valid from this long before now, for clocks that are slow.
const BACKDATE: Duration = Duration::hours(1);

/// Longest name of a certificate, which is also a file name and a common name
/// (RFC 5280 appendix A.1, `ub-common-name`).
const NAME_BYTES_MAX: usize = 64;

/// Why certificates cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// "read", "write" or "create".
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something would be overwritten.
    #[error("{} exists already; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// A file is not what it should be.
    #[error("{} does not contain {what}", path.display())]
    Contents {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// There is no authority to sign with.
    #[error("there is no authority in {dir}; `dunlin cert init {dir}` makes one", dir = .0.display())]
    NoAuthority(PathBuf),
    /// A name cannot be used.
    #[error(
        "`{0}` is not usable as a name: letters, digits, dots, hyphens and underscores, at most 64, not beginning with a dot"
    )]
    Name(String),
    /// Validity is out of range.
    #[error("a certificate can be valid for 1 to {DAYS_MAX} days, not {0}")]
    Days(u32),
    /// The certificate cannot be made.
    #[error("cannot make the certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A server, verified by its subject alternative names.
    Server,
    /// A device, whose common name becomes its user name.
    Device,
}

/// What is asked of [`init`] and [`issue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Host names and addresses, besides those that are always there.
    pub sans: Vec<String>,
    /// Days that it is valid.
    pub days: u32,
    /// Replace what exists.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sans: Vec::new(),
            days: LEAF_DAYS,
            force: false,
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Files {
    /// Certificate.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

impl Files {
    fn new(dir: &Path, name: &str) -> Self {
        Self {
            cert: dir.join(format!("{name}.pem")),
            key: dir.join(format!("{name}.key")),
        }
    }

    fn refuse_existing(&self, force: bool) -> Result<(), CertError> {
        for path in [&self.cert, &self.key] {
            if !force && path.exists() {
                return Err(CertError::Exists(path.clone()));
            }
        }
        Ok(())
    }

    fn write(&self, cert: &str, key: &KeyPair) -> Result<(), CertError> {
        let parts = [
            (&self.key, key.serialize_pem(), Access::Private),
            (&self.cert, cert.into(), Access::Public),
        ];
        for (path, pem, access) in parts {
            files::replace(path, pem.as_bytes(), access).map_err(file_error("write", path))?;
        }
        Ok(())
    }
}

/// What [`ensure_development`] found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DevCerts {
    /// Certificate of the authority, for clients.
    pub ca: PathBuf,
    /// Certificate of the server.
    pub cert: PathBuf,
    /// Key of the server.
    pub key: PathBuf,
    /// What was done.
    pub state: DevState,
}

/// What [`ensure_development`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevState {
    /// Everything was there.
    Reused,
    /// There was nothing, and now there is.
    Created,
    /// The server's certificate had expired or was lost; the authority is the
    /// one that clients know.
    Renewed,
    /// The authority had expired, too: clients need the new one.
    Replaced,
}

/// Makes sure that there are certificates to begin with: made once, reused,
/// renewed when they expire.
///
/// # Errors
/// They cannot be made or written, or what is there is not a certificate.
pub fn ensure_development(dir: &Path) -> Result<DevCerts, CertError> {
    let (ca, server) = (Files::new(dir, CA), Files::new(dir, SERVER));
    let found = |state| DevCerts {
        ca: ca.cert.clone(),
        cert: server.cert.clone(),
        key: server.key.clone(),
        state,
    };
    let force = Options {
        force: true,
        ..Options::default()
    };
    if !ca.cert.exists() || !ca.key.exists() {
        // A half of something that a person may have put there is not ours to
        // overwrite.
        for part in [&ca, &server] {
            part.refuse_existing(false)?;
        }
        init(dir, CA_DAYS, &Options::default())?;
        return Ok(found(DevState::Created));
    }
    if !lives_on(&ca.cert)? {
        init(dir, CA_DAYS, &force)?;
        return Ok(found(DevState::Replaced));
    }
    if !server.cert.exists() || !server.key.exists() || !lives_on(&server.cert)? {
        issue(dir, SERVER, Purpose::Server, &force)?;
        return Ok(found(DevState::Renewed));
    }
    Ok(found(DevState::Reused))
}

fn lives_on(cert: &Path) -> Result<bool, CertError> {
    let summary = inspect(cert)?;
    let expires = summary.iter().map(|cert| cert.not_after).min();
    let soon = (OffsetDateTime::now_utc() + RENEW_BEFORE).unix_timestamp();
    Ok(expires.is_some_and(|expires| expires > soon))
}

/// Makes an authority, and with it a server's certificate for this machine.
///
/// # Errors
/// They cannot be made or written; something exists already.
pub fn init(dir: &Path, ca_days: u32, options: &Options) -> Result<[Files; 2], CertError> {
    let (ca, server) = (Files::new(dir, CA), Files::new(dir, SERVER));
    for part in [&ca, &server] {
        part.refuse_existing(options.force)?;
    }
    create_directory(dir)?;
    let mut params = params(&format!("Dunlin CA {}", random_label()?), ca_days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?;
    ca.write(&cert.pem(), &key)?;
    let options = Options {
        force: true,
        ..options.clone()
    };
    let server = issue(dir, SERVER, Purpose::Server, &options)?;
    Ok([ca, server])
}

/// Makes a certificate signed by the authority in the same directory.
///
/// # Errors
/// There is no authority; it cannot be made or written; it exists already.
pub fn issue(
    dir: &Path,
    name: &str,
    purpose: Purpose,
    options: &Options,
) -> Result<Files, CertError> {
    check_name(name)?;
    let files = Files::new(dir, name);
    files.refuse_existing(options.force)?;
    let issuer = authority(dir)?;
    let mut params = params(name, options.days)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match purpose {
        Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Purpose::Device => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.subject_alt_names = match purpose {
        Purpose::Server => server_sans(name, &options.sans)?,
        Purpose::Device => sans(options.sans.iter().map(String::as_str))?,
    };
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, &issuer)?;
    files.write(&cert.pem(), &key)?;
    Ok(files)
}

fn authority(dir: &Path) -> Result<Issuer<'static, KeyPair>, CertError> {
    let ca = Files::new(dir, CA);
    let read = |path: &Path| match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(CertError::NoAuthority(dir.into()))
        }
        result => result.map_err(file_error("read", path)),
    };
    let (cert, key) = (read(&ca.cert)?, read(&ca.key)?);
    let contents = |path: &Path, what| CertError::Contents {
        path: path.into(),
        what,
    };
    let key = KeyPair::from_pem(&key).map_err(|_| contents(&ca.key, "a private key"))?;
    Issuer::from_ca_cert_pem(&cert, key).map_err(|_| contents(&ca.cert, "a certificate"))
}

fn params(common_name: &str, days: u32) -> Result<CertificateParams, CertError> {
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(CertError::Days(days));
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BACKDATE;
    params.not_after = now + Duration::days(i64::from(days));
    Ok(params)
}

/// Tells authorities of different machines apart where several are trusted.
fn random_label() -> Result<String, CertError> {
    // Four bytes of a fresh public key are as good as a random source.
    let key = KeyPair::generate()?;
    let bytes = key.public_key_raw().iter().skip(1).take(4);
    Ok(bytes.map(|byte| format!("{byte:02x}")).collect())
}

/// The names of this machine, the name of the certificate where it is one of a
/// host, and what was asked for.
fn server_sans(name: &str, extra: &[String]) -> Result<Vec<SanType>, CertError> {
    let host = host_name();
    let mut names = vec!["localhost"];
    names.extend(host.as_deref());
    if name != SERVER && !name.contains('_') {
        names.push(name);
    }
    names.extend(extra.iter().map(String::as_str));
    let mut all = sans(names.into_iter())?;
    for ip in [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        if !all.contains(&SanType::IpAddress(ip)) {
            all.push(SanType::IpAddress(ip));
        }
    }
    Ok(all)
}

fn sans<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<SanType>, CertError> {
    let mut all = Vec::new();
    for name in names {
        let san = match name.parse() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => {
                let bare = name.strip_prefix("*.").unwrap_or(name);
                check_name(bare)?;
                SanType::DnsName(rcgen::string::Ia5String::try_from(name)?)
            }
        };
        if !all.contains(&san) {
            all.push(san);
        }
    }
    Ok(all)
}

/// The machine's name, if it is one that a certificate can carry.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())?;
    let name = name.trim();
    (check_name(name).is_ok() && !name.contains('_')).then(|| name.into())
}

fn check_name(name: &str) -> Result<(), CertError> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let length = (1..=NAME_BYTES_MAX).contains(&name.len());
    if length && name.chars().all(usable) && !name.starts_with('.') {
        Ok(())
    } else {
        Err(CertError::Name(name.into()))
    }
}

fn create_directory(dir: &Path) -> Result<(), CertError> {
    fs::create_dir_all(dir).map_err(file_error("create", dir))
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CertError {
    move |source| CertError::File {
        action,
        path: path.into(),
        source,
    }
}
