//! `auth.jwt`: how bearer tokens of clients are verified.

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::Span;
use super::web;

/// How tokens may be signed, by the names of RFC 7518 and RFC 8037; `none` is not one.
pub const JWT_ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "EdDSA",
];

/// How far clocks may differ at most: a token lives as much longer.
const LEEWAY_MAX: Duration = Duration::from_secs(10 * 60);

/// Bounds of the time for which a token lets its user in.
const LIFETIME_MIN: Duration = Duration::from_secs(1);
const LIFETIME_MAX: Duration = Duration::from_secs(4 * 7 * 24 * 60 * 60);

/// Bounds of the time from one fetch of keys to the next.
const REFRESH: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(86_400));

/// Bounds of the time for which keys are kept that cannot be fetched again.
const MAX_AGE: (Duration, Duration) = (Duration::from_secs(60), LIFETIME_MAX);

/// Tokens that let clients in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Jwt {
    /// A key set (RFC 7517), a public key in PEM, or a secret; or else `jwks_url`.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// Where a key set is fetched.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Authorities of that server; absent: those of the system.
    #[serde(default)]
    pub jwks_ca_file: Option<PathBuf>,
    /// Time from one fetch to the next.
    #[serde(default = "five_minutes")]
    pub jwks_refresh: Span,
    /// How long keys are used that cannot be fetched again.
    #[serde(default = "a_day")]
    pub jwks_max_age: Span,
    /// How tokens may be signed, of [`JWT_ALGORITHMS`].
    pub algorithms: Vec<String>,
    /// Of which a token must name one; empty: any.
    #[serde(default)]
    pub audience: Vec<String>,
    /// Who must have issued it; absent: anyone.
    #[serde(default)]
    pub issuer: Option<String>,
    /// The claim that names the user.
    #[serde(default = "subject")]
    pub user_claim: String,
    /// Whether the user name of a client of MQTT that sends a token as its password
    /// must be that of the token.
    #[serde(default)]
    pub user_name: UserName,
    /// The claim that must be the client identifier; absent: any will do.
    #[serde(default)]
    pub client_id_claim: Option<String>,
    /// The claim that has topics of the client; absent: none has.
    #[serde(default)]
    pub rules_claim: Option<String>,
    /// The claim that has groups of the client; absent: none has.
    #[serde(default)]
    pub groups_claim: Option<String>,
    /// The claim that has limits of the client; absent: none has.
    #[serde(default)]
    pub limits_claim: Option<String>,
    /// Whether a client of MQTT may send its token over a connection that others read.
    #[serde(default)]
    pub unencrypted: bool,
    /// How far clocks may differ.
    #[serde(default = "half_a_minute")]
    pub leeway: Span,
    /// Longest time for which a token lets its user in, however late it expires; then
    /// the client must set one again.
    #[serde(default = "a_day")]
    pub max_lifetime: Span,
}

/// What the user name of a client is that sends a token as its password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserName {
    /// Any; the token says who it is.
    #[default]
    Any,
    /// That of the token.
    Same,
}

fn subject() -> String {
    "sub".into()
}

const fn half_a_minute() -> Span {
    Span::secs(30)
}

const fn five_minutes() -> Span {
    Span::secs(5 * 60)
}

const fn a_day() -> Span {
    Span::secs(24 * 60 * 60)
}

impl Jwt {
    /// How the values fit together.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.check_keys()?;
        if self.leeway.0 > LEEWAY_MAX {
            return Err(("jwt.leeway", format!("at most {}", Span(LEEWAY_MAX))));
        }
        if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&self.max_lifetime.0) {
            let (min, max) = (Span(LIFETIME_MIN), Span(LIFETIME_MAX));
            return Err(("jwt.max_lifetime", format!("{min} to {max}")));
        }
        if self.algorithms.is_empty() {
            let why = "there must be one at least, such as \"RS256\"".into();
            return Err(("jwt.algorithms", why));
        }
        let mut names = self.algorithms.iter();
        let unknown = names.find(|name| !JWT_ALGORITHMS.contains(&name.as_str()));
        match unknown {
            Some(name) => Err(("jwt.algorithms", format!("`{name}` is not known"))),
            None => Ok(()),
        }
    }

    /// Where the keys come from.
    fn check_keys(&self) -> Result<(), Wrong> {
        let Some(url) = &self.jwks_url else {
            return match &self.key_file {
                Some(_) => Ok(()),
                None => Err(("jwt.key_file", "this or jwks_url is needed".into())),
            };
        };
        if self.key_file.is_some() {
            return Err(("jwt.jwks_url", "key_file has the keys already".into()));
        }
        web::check(url).map_err(|why| ("jwt.jwks_url", why))?;
        // A key that is public, and is fetched by that name, is no secret.
        if self.algorithms.iter().any(|name| name.starts_with("HS")) {
            let why = "keys that are fetched are public: no HS256, HS384 or HS512".into();
            return Err(("jwt.algorithms", why));
        }
        for (key, value, (min, max)) in [
            ("jwt.jwks_refresh", self.jwks_refresh, REFRESH),
            ("jwt.jwks_max_age", self.jwks_max_age, MAX_AGE),
        ] {
            if !(min..=max).contains(&value.0) {
                return Err((key, format!("{} to {}", Span(min), Span(max))));
            }
        }
        match self.jwks_max_age < self.jwks_refresh {
            true => Err(("jwt.jwks_max_age", "is less than jwks_refresh".into())),
            false => Ok(()),
        }
    }
}
