//! Bearer tokens of clients: JSON Web Tokens (RFC 7519), verified with the keys of a
//! file. Knows no connection.

use core::fmt;
use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{self, ParsedPublicKey, RsaParameters, VerificationAlgorithm};
use aws_lc_rs::{hmac, rsa};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dunlin_base::Text;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value};

use crate::config::Jwt;

/// Longest token; a longer one is refused unread. So is one that fits into no SASL
/// frame, which is shorter.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Keys of a file; with more it cannot be used.
pub const KEYS_MAX: usize = 64;

/// Shortest secret of HS256 (RFC 7518 section 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Longest name of a user.
const USER_BYTES_MAX: usize = 1024;

/// Why tokens cannot be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the keys of tokens {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It has no key that can be used, or too many.
    #[error("{}: {why}", path.display())]
    Keys {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// How a token is signed.
#[derive(Clone, Copy)]
enum Algorithm {
    Hmac(hmac::Algorithm),
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

/// All algorithms, by their names in RFC 7518 and RFC 8037.
const ALGORITHMS: [(&str, Algorithm); 12] = [
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
    /// Modulus and exponent.
    Rsa(rsa::PublicKeyComponents<Vec<u8>>),
}

/// What checks the signatures of one key and one algorithm.
enum Verifier {
    Secret(Box<hmac::Key>),
    Public(ParsedPublicKey),
    Rsa(rsa::PublicKeyComponents<Vec<u8>>, &'static RsaParameters),
}

impl Verifier {
    /// `None`: the key is not one of the algorithm.
    fn new(material: &Material, algorithm: Algorithm) -> Option<Self> {
        match (material, algorithm) {
            (Material::Secret(secret), Algorithm::Hmac(kind)) => {
                Some(Self::Secret(Box::new(hmac::Key::new(kind, secret))))
            }
            (Material::Public(key), Algorithm::Rsa(kind)) => {
                ParsedPublicKey::new(kind, key).ok().map(Self::Public)
            }
            (Material::Public(key), Algorithm::Curve(kind)) => {
                ParsedPublicKey::new(kind, key).ok().map(Self::Public)
            }
            (Material::Rsa(key), Algorithm::Rsa(kind)) => Some(Self::Rsa(key.clone(), kind)),
            _ => None,
        }
    }

    fn is_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Secret(key) => hmac::verify(key, message, signature).is_ok(),
            Self::Public(key) => key.verify_sig(message, signature).is_ok(),
            Self::Rsa(key, kind) => key.verify(kind, message, signature).is_ok(),
        }
    }
}

/// A key, for one of the algorithms that it is used with.
struct Key {
    id: Option<String>,
    algorithm: &'static str,
    verifier: Verifier,
}

/// Verifies tokens.
pub struct Tokens {
    keys: Vec<Key>,
    audience: Vec<String>,
    issuer: Option<String>,
    user_claim: String,
    leeway: Duration,
}

// Keys must not reach a log.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tokens = f.debug_struct("Tokens");
        tokens
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// A token that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid {
    /// Whose it is.
    pub user: Text,
    /// Time until it expires.
    pub lifetime: Duration,
}

impl Tokens {
    /// Reads the keys.
    ///
    /// # Errors
    /// The file cannot be read, or has no key for the algorithms.
    pub fn load(config: &Jwt) -> Result<Self, TokenError> {
        let path = &config.key_file;
        let text = std::fs::read(path).map_err(|source| TokenError::Read {
            path: path.clone(),
            source,
        })?;
        let found = read_keys(path, &text)?;
        let named = |name: &&str| config.algorithms.iter().any(|it| it == name);
        let mut keys = Vec::new();
        for (id, material) in &found {
            for (algorithm, kind) in ALGORITHMS.iter().filter(|(name, _)| named(name)) {
                keys.extend(Verifier::new(material, *kind).map(|verifier| Key {
                    id: id.clone(),
                    algorithm,
                    verifier,
                }));
            }
        }
        if keys.is_empty() {
            return Err(wrong(path, "no key for any of auth.jwt.algorithms"));
        }
        Ok(Self {
            keys,
            audience: config.audience.clone(),
            issuer: config.issuer.clone(),
            user_claim: config.user_claim.clone(),
            leeway: config.leeway.0,
        })
    }

    /// Whose token this is and how long, if it is valid now.
    #[must_use]
    pub fn verify(&self, token: &str) -> Option<Valid> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = object(header)?;
        // An extension that must be understood is none that this knows (RFC 7515
        // section 4.1.11).
        if header.contains_key("crit") {
            return None;
        }
        let algorithm = header.get("alg")?.as_str()?;
        let id = header.get("kid").and_then(Value::as_str);
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut keys = self.keys.iter().filter(|key| {
            let names = id.zip(key.id.as_deref());
            key.algorithm == algorithm && names.is_none_or(|(wanted, id)| wanted == id)
        });
        let signed = signed.as_bytes();
        keys.find(|key| key.verifier.is_signed(signed, &signature))?;
        self.check(&object(claims)?)
    }

    /// What the claims of a token say that is signed.
    fn check(&self, claims: &Map<String, Value>) -> Option<Valid> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let expires = seconds(claims.get("exp")?)?.checked_add(self.leeway)?;
        let lifetime = expires.checked_sub(now).filter(|left| !left.is_zero())?;
        if let Some(begins) = claims.get("nbf")
            && seconds(begins)? > now + self.leeway
        {
            return None;
        }
        let of_us = |name: &Value| self.audience.iter().any(|it| Some(&**it) == name.as_str());
        let is_for_us = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(of_us),
            Some(one) => of_us(one),
            None => false,
        };
        let issuer = claims.get("iss").and_then(Value::as_str);
        let is_of_issuer = self.issuer.is_none() || self.issuer.as_deref() == issuer;
        if !is_of_issuer || !(is_for_us || self.audience.is_empty()) {
            return None;
        }
        let user = claims.get(&self.user_claim)?.as_str()?;
        let fits = !user.is_empty() && user.len() <= USER_BYTES_MAX;
        fits.then(|| Valid {
            user: Text::from(user),
            lifetime,
        })
    }
}

/// A part of a token that is an object.
fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A NumericDate (RFC 7519 section 2).
fn seconds(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok()
}

fn wrong(path: &Path, why: impl Into<String>) -> TokenError {
    TokenError::Keys {
        path: path.into(),
        why: why.into(),
    }
}

type Named = (Option<String>, Material);

/// The keys of a file: a key set (RFC 7517), a public key in PEM, or else a secret.
fn read_keys(path: &Path, text: &[u8]) -> Result<Vec<Named>, TokenError> {
    let trimmed = text.trim_ascii();
    if trimmed.starts_with(b"{") {
        let set: Value =
            serde_json::from_slice(trimmed).map_err(|error| wrong(path, error.to_string()))?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or_else(|| wrong(path, "no key set: `keys` is missing"))?;
        if keys.len() > KEYS_MAX {
            return Err(wrong(path, format!("more than {KEYS_MAX} keys")));
        }
        // Keys of other kinds are for others.
        return Ok(keys.iter().filter_map(read_jwk).collect());
    }
    if trimmed.starts_with(b"-----BEGIN") {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(trimmed);
        let key = key.map_err(|_| wrong(path, "no public key"))?;
        return Ok(vec![(None, Material::Public(key.to_vec()))]);
    }
    if trimmed.len() < SECRET_BYTES_MIN {
        let why = format!("a secret of less than {SECRET_BYTES_MIN} bytes");
        return Err(wrong(path, why));
    }
    Ok(vec![(None, Material::Secret(trimmed.to_vec()))])
}

/// A key of a set; `None` if it is none that verifies signatures here.
fn read_jwk(jwk: &Value) -> Option<Named> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    if text("use").is_some_and(|it| it != "sig") {
        return None;
    }
    let material = match text("kty")? {
        "RSA" => Material::Rsa(rsa::PublicKeyComponents {
            n: bytes("n")?,
            e: bytes("e")?,
        }),
        // An uncompressed point (SEC 1 section 2.3.3).
        "EC" => Material::Public([vec![4], bytes("x")?, bytes("y")?].concat()),
        "OKP" => Material::Public(bytes("x")?),
        "oct" => {
            let secret = bytes("k")?;
            Material::Secret((secret.len() >= SECRET_BYTES_MIN).then_some(secret)?)
        }
        _ => return None,
    };
    Some((text("kid").map(str::to_owned), material))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair,
    };
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
    use serde_json::json;

    use super::*;
    use crate::config::Config;

    const SECRET: &str = "a secret that is thirty-two bytes";

    fn now() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    }

    /// Verifies with these keys, and the rest of the inline table.
    fn load(keys: &str, rest: &str) -> Result<Tokens, TokenError> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("keys");
        std::fs::write(&path, keys).expect("written");
        let text = format!(
            "[auth]\njwt = {{ key_file = \"{}\", {rest} }}\n",
            path.display()
        );
        let config = Config::parse(Path::new("f"), &text).expect("valid");
        Tokens::load(&config.auth.jwt.expect("given"))
    }

    fn sign(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn hmac_of(secret: &str, message: &[u8]) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        hmac::sign(&key, message).as_ref().to_vec()
    }

    /// A key pair of P-256: its public key in PEM and as a point, and what it signs.
    struct Pair(KeyPair, EcdsaKeyPair);

    impl Pair {
        fn new() -> Self {
            let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
            let der = pair.serialize_der();
            let signs = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der);
            Self(pair, signs.expect("PKCS #8"))
        }

        fn sign(&self, message: &[u8]) -> Vec<u8> {
            let signature = self.1.sign(&SystemRandom::new(), message);
            signature.expect("signed").as_ref().to_vec()
        }

        fn token(&self, claims: &Value) -> String {
            sign(&json!({"alg": "ES256"}), claims, |it| self.sign(it))
        }

        fn jwk(&self, id: &str) -> Value {
            let point = self.1.public_key().as_ref();
            let (x, y) = point[1..].split_at(32);
            let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            json!({"kty": "EC", "crv": "P-256", "kid": id, "x": part(x), "y": part(y)})
        }
    }

    /// Claims that are valid for `a_token...`, with one changed or without it.
    fn claims(name: &str, value: Value) -> Value {
        let mut claims = json!({
            "sub": "alice", "aud": ["other", "dunlin"], "iss": "me", "exp": now() + 100,
        });
        let map = claims.as_object_mut().expect("a map");
        match value {
            Value::Null => drop(map.remove(name)),
            value => drop(map.insert(name.into(), value)),
        }
        claims
    }

    #[test]
    fn a_token_is_what_its_claims_say_and_no_other_is_valid() {
        let pair = Pair::new();
        let rest =
            "algorithms = [\"ES256\"], audience = [\"dunlin\"], issuer = \"me\", leeway = \"1s\"";
        let tokens = load(&pair.0.public_key_pem(), rest).expect("a public key");
        let whole = claims("x", json!(1));
        let valid = tokens.verify(&pair.token(&whole)).expect("valid");
        assert_eq!(valid.user, "alice");
        let secs = valid.lifetime.as_secs();
        assert!((99..=101).contains(&secs), "{secs}");
        for (name, value) in [
            ("exp", json!(now() - 10)),
            ("exp", json!("tomorrow")),
            ("exp", Value::Null),
            ("nbf", json!(now() + 60)),
            ("aud", json!("other")),
            ("aud", json!(["other"])),
            ("aud", Value::Null),
            ("iss", json!("you")),
            ("iss", Value::Null),
            ("sub", Value::Null),
            ("sub", json!("")),
            ("sub", json!(7)),
            ("sub", json!("x".repeat(USER_BYTES_MAX + 1))),
            ("x", json!("x".repeat(TOKEN_BYTES_MAX))),
        ] {
            let token = pair.token(&claims(name, value.clone()));
            assert_eq!(tokens.verify(&token), None, "{name} {value}");
        }
        // Signed by another, with the public key as a secret, not at all, changed.
        assert_eq!(tokens.verify(&Pair::new().token(&whole)), None);
        let pem = pair.0.public_key_pem();
        for algorithm in ["HS256", "ES256", "none", "None", ""] {
            let header = json!({ "alg": algorithm });
            let confused = sign(&header, &whole, |it| hmac_of(&pem, it));
            assert_eq!(tokens.verify(&confused), None, "{algorithm}");
            assert_eq!(tokens.verify(&sign(&header, &whole, |_| vec![])), None);
        }
        let critical = json!({"alg": "ES256", "crit": ["exp"]});
        let critical = sign(&critical, &whole, |it| pair.sign(it));
        assert_eq!(tokens.verify(&critical), None);
        let token = pair.token(&whole);
        let (signed, _) = token.rsplit_once('.').expect("three parts");
        for text in [
            signed,
            &format!("{signed}."),
            "",
            ".",
            "..",
            "a.b.c",
            &token[1..],
        ] {
            assert_eq!(tokens.verify(text), None, "{text}");
        }
    }

    #[test]
    fn the_key_of_a_set_is_chosen_by_its_id() {
        let (first, second) = (Pair::new(), Pair::new());
        let encrypts = json!({"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"});
        let set = json!({ "keys": [first.jwk("1"), encrypts, second.jwk("2"), {"kty": "?"}] });
        let rest = "algorithms = [\"ES256\", \"RS256\"], user_claim = \"name\"";
        let tokens = load(&set.to_string(), rest).expect("a key set");
        let claims = json!({ "name": "bob", "exp": now() + 5, "aud": "any" });
        for (id, is_valid) in [("", true), ("2", true), ("1", false), ("3", false)] {
            let header = match id {
                "" => json!({"alg": "ES256"}),
                id => json!({"alg": "ES256", "kid": id}),
            };
            let verified = tokens.verify(&sign(&header, &claims, |it| second.sign(it)));
            let user = verified.map(|valid| valid.user);
            assert_eq!(user, is_valid.then(|| Text::from("bob")), "{id:?}");
        }
    }

    #[test]
    fn the_configuration_knows_the_same_algorithms() {
        let names = ALGORITHMS.map(|(name, _)| name);
        assert_eq!(names, crate::config::JWT_ALGORITHMS);
    }

    #[test]
    fn keys_of_every_kind_verify() {
        let claims = json!({ "sub": "carol", "exp": now() + 5 });
        let valid = |keys: &str, algorithm: &str, token: &str| {
            let rest = format!("algorithms = [\"{algorithm}\"]");
            let tokens = load(keys, &rest).expect("keys");
            let user = tokens.verify(token).map(|valid| valid.user);
            assert_eq!(user, Some(Text::from("carol")), "{algorithm}");
        };
        let header = |algorithm: &str| json!({ "alg": algorithm });
        let secret = sign(&header("HS256"), &claims, |it| hmac_of(SECRET, it));
        valid(SECRET, "HS256", &secret);
        let oct = json!({"keys": [{"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)}]});
        valid(&oct.to_string(), "HS256", &secret);
        let ed = Ed25519KeyPair::generate().expect("a key");
        let token = sign(&header("EdDSA"), &claims, |it| {
            ed.sign(it).as_ref().to_vec()
        });
        let x = URL_SAFE_NO_PAD.encode(ed.public_key().as_ref());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]});
        valid(&set.to_string(), "EdDSA", &token);
        let key = RsaKeyPair::generate(rsa::KeySize::Rsa2048).expect("a key");
        let public = key.public_key();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let n = part(public.modulus().big_endian_without_leading_zero());
        let e = part(public.exponent().big_endian_without_leading_zero());
        let set = json!({"keys": [{"kty": "RSA", "n": n, "e": e}]});
        for (algorithm, how) in [
            ("RS256", &signature::RSA_PKCS1_SHA256),
            ("PS512", &signature::RSA_PSS_SHA512),
        ] {
            let token = sign(&header(algorithm), &claims, |it| {
                let mut signature = vec![0; key.public_modulus_len()];
                let signed = key.sign(how, &SystemRandom::new(), it, &mut signature);
                signed.expect("signed");
                signature
            });
            valid(&set.to_string(), algorithm, &token);
        }
    }

    #[test]
    fn keys_that_cannot_be_used_are_said() {
        for (keys, rest, why) in [
            ("short", "[\"HS256\"]", "a secret of less than 32 bytes"),
            (SECRET, "[\"RS256\"]", "no key for any of"),
            (
                "-----BEGIN PUBLIC KEY-----\nx\n",
                "[\"RS256\"]",
                "no public key",
            ),
            ("{\"keys\": 7}", "[\"RS256\"]", "`keys` is missing"),
            ("{\"keys\": []}", "[\"RS256\"]", "no key for any of"),
        ] {
            let rest = format!("algorithms = {rest}");
            let error = load(keys, &rest).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
