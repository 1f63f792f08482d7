//! Why something is not done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// What kind of reason it is.
    pub code: Code,
    /// The reason, for people.
    pub text: String,
}

impl Failure {
    /// A reason.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// The request is not understood.
    BadRequest,
    /// Who asks may not have it.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It is there already, or under way.
    Conflict,
    /// Too much is asked at a time.
    Busy,
    /// A shard, the store or a file does not do its part.
    Unavailable,
}
