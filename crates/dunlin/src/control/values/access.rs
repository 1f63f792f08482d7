//! Who may do what: roles, tokens, users and their rights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may ask for what; each may also do what those before it may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look.
    Read,
    /// Change what clients have.
    Operate,
    /// Change the broker.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Admin];

    /// As in the file of tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// Who may come over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bearer {
    /// What the token is called.
    pub name: String,
    /// What it allows.
    pub role: Role,
}

/// A user of the password file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// The name.
    pub name: String,
}

/// What a client may do with a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Right {
    /// `subscribe`, `publish` or `receive`.
    pub action: String,
    /// Whether it may.
    pub allowed: bool,
    /// What decides.
    pub why: String,
}
