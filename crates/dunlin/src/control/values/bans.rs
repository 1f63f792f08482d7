//! Bans.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::qlog::Range;

/// Most bans.
pub const BANS_MAX: usize = 10_000;

/// Whom a ban keeps out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A client identifier, or container id.
    ClientId(String),
    /// A user that has authenticated.
    User(String),
    /// Address, or range of addresses.
    Address(Range),
}

/// A ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ban {
    /// Whom it keeps out.
    pub whom: Whom,
    /// Until when, in seconds since 1970; for good if not given.
    pub until: Option<u64>,
    /// Why.
    pub why: String,
}
