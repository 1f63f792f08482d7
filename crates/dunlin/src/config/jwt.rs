//! `auth.jwt`: how bearer tokens of clients are verified.

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::Span;

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

/// Tokens that let clients in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Jwt {
    /// A key set (RFC 7517), a public key in PEM, or a secret.
    pub key_file: PathBuf,
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
    /// How far clocks may differ.
    #[serde(default = "half_a_minute")]
    pub leeway: Span,
    /// Longest time for which a token lets its user in, however late it expires; then
    /// the client must set one again.
    #[serde(default = "a_day")]
    pub max_lifetime: Span,
}

fn subject() -> String {
    "sub".into()
}

const fn half_a_minute() -> Span {
    Span::secs(30)
}

const fn a_day() -> Span {
    Span::secs(24 * 60 * 60)
}

impl Jwt {
    /// How the values fit together.
    pub(super) fn check(&self) -> Result<(), Wrong> {
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
}
