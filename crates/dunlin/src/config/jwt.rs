//! `auth.jwt`: how bearer tokens of clients are verified.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::Span;

/// How tokens may be signed, by the names of RFC 7518 and RFC 8037; `none` is not one.
pub const JWT_ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "EdDSA",
];

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
}

fn subject() -> String {
    "sub".into()
}

const fn half_a_minute() -> Span {
    Span::secs(30)
}

impl Jwt {
    /// How the values fit together.
    pub(super) fn check(&self) -> Result<(), Wrong> {
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
