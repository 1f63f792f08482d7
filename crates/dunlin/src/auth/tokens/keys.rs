//! The keys that tokens are verified with, as their file has them: a key set
//! (RFC 7517), public keys in PEM, or a secret.

use std::path::Path;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rsa::{PublicEncryptingKey, PublicKeyComponents};
use aws_lc_rs::signature::{self, ParsedPublicKey, RsaParameters, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use super::{TokenError, wrong};

/// Keys of a file; with more it cannot be used.
pub const KEYS_MAX: usize = 64;

/// What a file in PEM begins with, and a secret never has.
const PEM: &[u8] = b"-----BEGIN";

/// What some programs write before text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How a token is signed.
#[derive(Clone, Copy)]
pub(super) enum Algorithm {
    Hmac(hmac::Algorithm),
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

/// All algorithms, by their names in RFC 7518 and RFC 8037.
pub(super) const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("HS256", Algorithm::Hmac(hmac::HMAC_SHA256)),
    ("HS384", Algorithm::Hmac(hmac::HMAC_SHA384)),
    ("HS512", Algorithm::Hmac(hmac::HMAC_SHA512)),
    (
        "RS256",
        Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
    ),
    (
        "RS384",
        Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
    ),
    (
        "RS512",
        Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
    ),
    (
        "PS256",
        Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
    ),
    (
        "PS384",
        Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
    ),
    (
        "PS512",
        Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
    ),
    (
        "ES256",
        Algorithm::Curve(&signature::ECDSA_P256_SHA256_FIXED),
    ),
    (
        "ES384",
        Algorithm::Curve(&signature::ECDSA_P384_SHA384_FIXED),
    ),
    ("EdDSA", Algorithm::Curve(&signature::ED25519)),
];

/// A key as its file has it.
enum Material {
    Secret(Vec<u8>),
    /// A SubjectPublicKeyInfo, or a point.
    Public(Vec<u8>),
}

/// A key of a file, with what that says of its use.
struct Found {
    id: Option<String>,
    /// The only algorithm that it is for, if it names one.
    algorithm: Option<String>,
    material: Material,
}

impl From<Material> for Found {
    fn from(material: Material) -> Self {
        Self {
            id: None,
            algorithm: None,
            material,
        }
    }
}

/// What checks the signatures of one key and one algorithm.
enum Verifier {
    Secret(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

impl Verifier {
    /// `None`: the key is not one of the algorithm.
    fn new(material: &Material, algorithm: Algorithm) -> Option<Self> {
        let public = |kind, key: &[u8]| ParsedPublicKey::new(kind, key).ok().map(Self::Public);
        match (material, algorithm) {
            (Material::Secret(secret), Algorithm::Hmac(kind)) => {
                let key = || Self::Secret(Box::new(hmac::Key::new(kind, secret)));
                (secret.len() >= secret_bytes_min(kind)).then(key)
            }
            (Material::Public(key), Algorithm::Rsa(kind)) => public(kind, key),
            (Material::Public(key), Algorithm::Curve(kind)) => public(kind, key),
            _ => None,
        }
    }
}

/// Shortest secret: as long as what the hash gives (RFC 7518 section 3.2).
fn secret_bytes_min(kind: hmac::Algorithm) -> usize {
    kind.digest_algorithm().output_len()
}

/// A key, for one of the algorithms that it is used with.
pub(super) struct Key {
    pub(super) id: Option<String>,
    pub(super) algorithm: &'static str,
    verifier: Verifier,
}

impl Key {
    /// Whether a check of its signatures costs much more than a hash.
    pub(super) const fn is_public(&self) -> bool {
        matches!(self.verifier, Verifier::Public(_))
    }

    pub(super) fn is_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.verifier {
            Verifier::Secret(key) => hmac::verify(key, message, signature).is_ok(),
            Verifier::Public(key) => key.verify_sig(message, signature).is_ok(),
        }
    }
}

/// The keys of a file, for each of these algorithms that they fit.
///
/// # Errors
/// The file is no file of keys, one of them is weak, or none fits.
pub(super) fn read(path: &Path, text: &[u8], names: &[String]) -> Result<Vec<Key>, TokenError> {
    let wanted = ALGORITHMS.iter().copied();
    let wanted = wanted.filter(|(known, _)| names.iter().any(|name| name == known));
    let wanted: Vec<(&'static str, Algorithm)> = wanted.collect();
    let mut keys = Vec::new();
    for key in find(path, text, &wanted)? {
        let of_key = |it: &&(&str, Algorithm)| key.algorithm.as_ref().is_none_or(|its| its == it.0);
        for (algorithm, kind) in wanted.iter().filter(of_key) {
            keys.extend(Verifier::new(&key.material, *kind).map(|verifier| Key {
                id: key.id.clone(),
                algorithm,
                verifier,
            }));
        }
    }
    if keys.is_empty() {
        let why = "no key for any of auth.jwt.algorithms; RSA keys have 2048 to 8192 bits";
        return Err(wrong(path, why));
    }
    Ok(keys)
}

fn find(
    path: &Path,
    text: &[u8],
    wanted: &[(&'static str, Algorithm)],
) -> Result<Vec<Found>, TokenError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let trimmed = text.trim_ascii();
    if trimmed.starts_with(b"{") {
        read_set(path, trimmed)
    } else if trimmed.starts_with(PEM) {
        read_pem(path, trimmed)
    } else if trimmed.windows(PEM.len()).any(|part| part == PEM) {
        // As a secret it would be one that all know who have the public key.
        Err(wrong(path, "text before a key in PEM"))
    } else {
        check_secret(path, trimmed, wanted)?;
        Ok(vec![Material::Secret(trimmed.to_vec()).into()])
    }
}

/// A file that is a secret is one for all algorithms: what looks like a secret may be
/// a public key that was written in another way.
fn check_secret(
    path: &Path,
    secret: &[u8],
    wanted: &[(&'static str, Algorithm)],
) -> Result<(), TokenError> {
    for (name, kind) in wanted {
        let Algorithm::Hmac(kind) = kind else {
            return Err(wrong(path, format!("a secret is no key for {name}")));
        };
        let min = secret_bytes_min(*kind);
        if secret.len() < min {
            let why = format!("a secret of less than {min} bytes for {name}");
            return Err(wrong(path, why));
        }
    }
    Ok(())
}

/// All public keys of a file, of one kind or several.
fn read_pem(path: &Path, text: &[u8]) -> Result<Vec<Found>, TokenError> {
    let mut found = Vec::new();
    for key in SubjectPublicKeyInfoDer::pem_slice_iter(text) {
        let key = key.map_err(|_| wrong(path, "no public key"))?;
        let is_rsa = ParsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, &key).is_ok();
        if is_rsa && PublicEncryptingKey::from_der(&key).is_err() {
            let why = "an RSA key of less than 2048 or more than 8192 bits";
            return Err(wrong(path, why));
        }
        found.push(Material::Public(key.to_vec()).into());
    }
    match found.len() {
        0 => Err(wrong(path, "no public key")),
        1..=KEYS_MAX => Ok(found),
        _ => Err(wrong(path, format!("more than {KEYS_MAX} keys"))),
    }
}

fn read_set(path: &Path, text: &[u8]) -> Result<Vec<Found>, TokenError> {
    let set: Value =
        serde_json::from_slice(text).map_err(|error| wrong(path, error.to_string()))?;
    let keys = set.get("keys").and_then(Value::as_array);
    let keys = keys.ok_or_else(|| wrong(path, "no key set: `keys` is missing"))?;
    if keys.len() > KEYS_MAX {
        return Err(wrong(path, format!("more than {KEYS_MAX} keys")));
    }
    // Keys of other kinds are for others.
    Ok(keys.iter().filter_map(read_key).collect())
}

fn member<'a>(jwk: &'a Value, name: &str) -> Option<&'a str> {
    jwk.get(name).and_then(Value::as_str)
}

/// The type of a key of a set, if it may verify signatures.
fn kind_of(jwk: &Value) -> Option<&str> {
    let is_to_sign = member(jwk, "use").is_none_or(|it| it == "sig");
    let operations = jwk.get("key_ops").map(|it| it.as_array());
    let verifies = |all: &Vec<Value>| all.iter().any(|it| it == "verify");
    let may_verify = operations.is_none_or(|all| all.is_some_and(verifies));
    member(jwk, "kty").filter(|_| is_to_sign && may_verify)
}

/// A key of a set; `None` if it is none that verifies signatures here, or is weak.
fn read_key(jwk: &Value) -> Option<Found> {
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(member(jwk, name)?).ok();
    // A coordinate, or a key, of this length (RFC 7518 section 6.2.1.2, RFC 8037).
    let exactly = |name, len| bytes(name).filter(|it| it.len() == len);
    // Uncompressed (SEC 1 section 2.3.3).
    let point = |len| Some([vec![4], exactly("x", len)?, exactly("y", len)?].concat());
    let material = match (kind_of(jwk)?, member(jwk, "crv")) {
        ("RSA", _) => {
            let (n, e) = (bytes("n")?, bytes("e")?);
            let key: Result<PublicEncryptingKey, _> = PublicKeyComponents { n, e }.try_into();
            Material::Public(key.ok()?.as_der().ok()?.as_ref().to_vec())
        }
        ("EC", Some("P-256")) => Material::Public(point(32)?),
        ("EC", Some("P-384")) => Material::Public(point(48)?),
        ("OKP", Some("Ed25519")) => Material::Public(exactly("x", 32)?),
        ("oct", _) => Material::Secret(bytes("k")?),
        _ => return None,
    };
    let text = |name| member(jwk, name).map(str::to_owned);
    Some(Found {
        id: text("kid"),
        algorithm: text("alg"),
        material,
    })
}
