//! Bearer tokens of clients: JSON Web Tokens (RFC 7519), verified with the keys of a
//! file or of another server. Knows no connection.

use core::fmt;
use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dunlin_base::Text;
use dunlin_broker::access::OwnRules;
use fetch::{KeySet, Source};
use keys::Key;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};
use verified::{Fingerprint, Verified, fingerprint};

#[cfg(test)]
use super::fake;
use super::rules::Given;
use super::web::{Manner, Web, WebError};
use crate::config::{Jwt, UserName};

mod fetch;
mod keys;
#[cfg(test)]
pub(super) mod tests;
mod verified;

pub(super) use fetch::{Fetched, start};
pub use keys::KEYS_MAX;
pub use verified::VERIFIED_MAX;

/// Longest token; a longer one is refused unread. So is one that fits into no SASL
/// frame, which is shorter.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Keys that a token is tried with: one that names its key has that and those without
/// a name, another one the first of its algorithm.
pub const KEYS_TRIED_MAX: usize = 4;

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
    /// The server that has them cannot be asked.
    #[error("auth.jwt: {0}")]
    Web(#[from] WebError),
}

/// Why a token lets no client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not valid; why, for the log.
    Invalid(&'static str),
    /// No key is known that it may be signed with.
    NoKey,
}

/// Verifies tokens.
pub struct Tokens {
    keys: Vec<Key>,
    /// The key set that they came with, if they were fetched.
    set: Option<Fingerprint>,
    /// Tokens that these have signed.
    verified: Verified,
    /// Where keys are fetched, if they are.
    source: Option<Arc<Source>>,
    audience: Vec<String>,
    issuer: Option<String>,
    claims: Claims,
    leeway: Duration,
    max_lifetime: Duration,
    unencrypted: bool,
    /// Algorithms that tokens may be signed with.
    algorithms: Vec<String>,
}

/// What claims say of a client.
struct Claims {
    user: String,
    /// It must be the user name of a client that sends the token as its password.
    is_user_name: bool,
    client_id: Option<String>,
    rules: Option<String>,
    groups: Option<String>,
    limits: Option<String>,
}

/// What a client says of itself beside its token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said<'a> {
    /// User name that came with the token as password.
    pub user_name: Option<&'a str>,
    /// Client identifier, where it is known.
    pub client_id: Option<&'a str>,
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
    /// Time until it expires, or is to be set again.
    pub lifetime: Duration,
    /// What it says its user may do.
    pub rules: Option<Arc<OwnRules>>,
}

impl Tokens {
    /// Reads the keys of a file. Those of a server are yet to come.
    ///
    /// # Errors
    /// The file cannot be read, or has no key for the algorithms; or another file,
    /// with authorities.
    pub fn load(config: &Jwt) -> Result<Self, TokenError> {
        let keys = config.key_file.as_deref();
        let keys = keys
            .map(|path| read(path, &config.algorithms))
            .transpose()?;
        let source = Source::of(config)?;
        Ok(Self {
            keys: keys.unwrap_or_default(),
            set: None,
            verified: Verified::default(),
            source: source.map(Arc::new),
            audience: config.audience.clone(),
            issuer: config.issuer.clone(),
            claims: Claims {
                user: config.user_claim.clone(),
                is_user_name: config.user_name == UserName::Same,
                client_id: config.client_id_claim.clone(),
                rules: config.rules_claim.clone(),
                groups: config.groups_claim.clone(),
                limits: config.limits_claim.clone(),
            },
            leeway: config.leeway.0,
            max_lifetime: config.max_lifetime.0,
            unencrypted: config.unencrypted,
            algorithms: config.algorithms.clone(),
        })
    }

    /// Whether a token may come over a connection that others read.
    pub(super) const fn may_be_read(&self) -> bool {
        self.unencrypted
    }

    /// Where keys are fetched, if they are.
    pub(super) fn source(&self) -> Option<Arc<Source>> {
        self.source.clone()
    }

    /// Goes on with keys that were fetched before.
    pub(super) fn adopt(&mut self, before: Self) {
        if self.source.is_some() {
            self.keys = before.keys;
            self.set = before.set;
            self.verified.clear();
        }
    }

    /// Keys have come, or are too old. The same ones again leave what is known.
    pub(super) fn set_keys(&mut self, fetched: Fetched) {
        let Some(KeySet { keys, text }) = fetched.keys() else {
            return;
        };
        if text.is_none() || text != self.set {
            self.verified.clear();
        }
        self.keys = keys;
        self.set = text;
    }

    /// Whether there are keys: those of a server may not have come, or be too old.
    pub(super) const fn have_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whose token this is and how long, if it is valid now.
    ///
    /// # Errors
    /// It is not.
    pub fn verify(&mut self, token: &str, said: Said<'_>) -> Result<Valid, Refused> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_err(|_| Refused::Invalid("the clock of this machine is wrong"))?;
        self.verify_at(token, said, now)
    }

    /// As [`Tokens::verify`], so long after 1970.
    fn verify_at(&mut self, token: &str, said: Said<'_>, now: Duration) -> Result<Valid, Refused> {
        let claims = self.signed(token)?;
        self.check(&claims, said, now).map_err(Refused::Invalid)
    }

    /// The claims of a token that is signed with a known key.
    fn signed(&mut self, token: &str) -> Result<Map<String, Value>, Refused> {
        const NO_TOKEN: Refused = Refused::Invalid("it is no JSON Web Token");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Invalid("it is too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(NO_TOKEN)?;
        let (header, claims) = signed.split_once('.').ok_or(NO_TOKEN)?;
        let Unique(header) = object(header).ok_or(NO_TOKEN)?;
        // An extension that must be understood is none that this knows (RFC 7515
        // section 4.1.11).
        if header.contains_key("crit") || !is_for_access(header.get("typ")) {
            let why = "it is of another type (typ), or has an extension (crit)";
            return Err(Refused::Invalid(why));
        }
        let algorithm = header.get("alg").and_then(Value::as_str);
        // No key that may come is for another one.
        let algorithm = algorithm
            .filter(|it| self.algorithms.iter().any(|known| known == it))
            .ok_or(Refused::Invalid(
                "auth.jwt.algorithms does not have the one that signed it (alg)",
            ))?;
        let id = match header.get("kid") {
            Some(id) => Some(id.as_str().ok_or(NO_TOKEN)?),
            None => None,
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NO_TOKEN)?;
        let keys = likely(&self.keys, algorithm, id);
        let mut keys = keys.take(KEYS_TRIED_MAX).peekable();
        // Keys of one algorithm are of one kind.
        let first = keys.peek().ok_or(Refused::NoKey)?;
        let known = first.is_public().then_some(token.as_bytes());
        let known = known.and_then(fingerprint);
        if !known.is_some_and(|it| self.verified.has(&it)) {
            keys.find(|key| key.is_signed(signed.as_bytes(), &signature))
                .ok_or(Refused::Invalid("its signature is not that of a known key"))?;
            if let Some(known) = known {
                self.verified.insert(known);
            }
        }
        let Unique(claims) = object(claims).ok_or(NO_TOKEN)?;
        Ok(claims)
    }

    /// What the claims of a token say that is signed, or why it is not valid.
    fn check(
        &self,
        claims: &Map<String, Value>,
        said: Said<'_>,
        now: Duration,
    ) -> Result<Valid, &'static str> {
        let lifetime = self.lifetime(claims, now)?;
        let of_us = |name: &Value| self.audience.iter().any(|it| Some(&**it) == name.as_str());
        let is_for_us = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(of_us),
            Some(one) => of_us(one),
            None => false,
        };
        if !(is_for_us || self.audience.is_empty()) {
            return Err("it is for another audience (aud)");
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        if self.issuer.is_some() && self.issuer.as_deref() != issuer {
            return Err("it is of another issuer (iss)");
        }
        let user = claims.get(&self.claims.user).and_then(Value::as_str);
        let user = user
            .filter(|user| is_user(user))
            .ok_or("it names no user (auth.jwt.user_claim)")?;
        if self.claims.is_user_name && said.user_name.is_some_and(|name| name != user) {
            return Err("the user name beside it is another one");
        }
        if let (Some(claim), Some(id)) = (&self.claims.client_id, said.client_id)
            && claims.get(claim).and_then(Value::as_str) != Some(id)
        {
            return Err("it is for another client identifier");
        }
        Ok(Valid {
            user: Text::from(user),
            lifetime: lifetime.min(self.max_lifetime),
            rules: self
                .rules(claims)
                .ok_or("its rules, groups or limits cannot be read")?,
        })
    }

    /// How long a token with these claims is valid from `now` on, since 1970.
    fn lifetime(
        &self,
        claims: &Map<String, Value>,
        now: Duration,
    ) -> Result<Duration, &'static str> {
        const NO_TIME: &str = "a time in it is none (exp, nbf, iat)";
        let expires = claims.get("exp").ok_or("it has no end (exp)")?;
        let expires = seconds(expires).and_then(|at| at.checked_add(self.leeway));
        let lifetime = expires
            .ok_or(NO_TIME)?
            .checked_sub(now)
            .filter(|left| !left.is_zero())
            .ok_or("it has expired (exp)")?;
        if let Some(begins) = claims.get("nbf")
            && seconds(begins).ok_or(NO_TIME)? > now.saturating_add(self.leeway)
        {
            return Err("it is not valid yet (nbf)");
        }
        if let Some(issued) = claims.get("iat") {
            seconds(issued).ok_or(NO_TIME)?;
        }
        Ok(lifetime)
    }

    /// What its user may do and have; `None`: that cannot be read. Where claims may say
    /// what it may do, one that says nothing allows nothing.
    fn rules(&self, claims: &Map<String, Value>) -> Option<Option<Arc<OwnRules>>> {
        let nothing = Value::String(String::new());
        let said = |claim: &Option<String>| claims.get(claim.as_ref()?);
        let rules = self.claims.rules.as_ref();
        let given = Given {
            rules: rules.map(|claim| claims.get(claim).unwrap_or(&nothing)),
            groups: said(&self.claims.groups),
            limits: said(&self.claims.limits),
        };
        given.read()
    }
}

/// The keys that a token may be signed with, likely ones first.
fn likely<'a>(
    keys: &'a [Key],
    algorithm: &'a str,
    id: Option<&'a str>,
) -> impl Iterator<Item = &'a Key> {
    let of_it = move |key: &&Key| key.algorithm == algorithm;
    let is_named = move |key: &&Key| id.is_some() && key.id.as_deref() == id;
    let may_be_it = move |key: &&Key| id.is_none() || key.id.is_none();
    let named = keys.iter().filter(of_it).filter(is_named);
    let others = keys.iter().filter(of_it).filter(may_be_it);
    named.chain(others)
}

/// Whether a password may be a token: three parts, the first of them an object in
/// base64url.
pub(super) fn is_like_token(password: &[u8]) -> bool {
    password.starts_with(b"ey") && password.iter().filter(|byte| **byte == b'.').count() == 2
}

/// Whether this is the name of a user.
pub(super) fn is_user(name: &str) -> bool {
    !name.is_empty() && name.len() <= USER_BYTES_MAX && !name.contains(char::is_control)
}

fn read(path: &Path, algorithms: &[String]) -> Result<Vec<Key>, TokenError> {
    let text = std::fs::read(path).map_err(|source| TokenError::Read {
        path: path.into(),
        source,
    })?;
    keys::read(path, &text, algorithms)
}

/// A part of a token that is an object.
fn object(part: &str) -> Option<Unique> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Whether a token of this type says who a client is: the key may sign others, such as
/// those that end a session (RFC 8725 section 3.11).
fn is_for_access(kind: Option<&Value>) -> bool {
    let Some(kind) = kind else {
        return true;
    };
    let kind = kind.as_str().map(str::to_ascii_lowercase);
    let kind = kind.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("application/").unwrap_or(kind);
    matches!(kind, "jwt" | "at+jwt")
}

/// An object that has no member twice: what reads the other one of two sees another
/// token (RFC 7515 section 4, RFC 7519 section 4).
struct Unique(Map<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
                let mut members = Map::new();
                while let Some((name, value)) = access.next_entry::<String, Value>()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a member twice"));
                    }
                }
                Ok(Unique(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
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
