//! The broker itself: its settings, listeners and certificates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clients::Protocol;

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its key in the configuration.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Whether that is the default.
    pub default: bool,
    /// What the configuration file says, if that is something else by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Where clients are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listening {
    /// Number of the listener in the configuration.
    pub listener: usize,
    /// Its transport.
    pub transport: String,
    /// Address and port.
    pub address: String,
    /// The path of a WebSocket.
    pub path: Option<String>,
    /// What is spoken there.
    pub protocols: Vec<Protocol>,
}

/// A certificate of the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Number of the listener in the configuration; none: it is that of the HTTP door.
    pub listener: Option<usize>,
    /// Its file.
    pub file: String,
    /// Whether it is one that the broker has made for itself.
    pub development: bool,
    /// Whose it is.
    pub subject: String,
    /// Names and addresses that it is good for.
    pub names: Vec<String>,
    /// From when on it is good, in seconds since 1970.
    pub not_before: i64,
    /// Until when it is good, in seconds since 1970.
    pub not_after: i64,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The number of the process.
    pub pid: u32,
    /// Since when it runs, in seconds.
    pub uptime_seconds: u64,
    /// Its data directory, as an absolute path.
    pub data_dir: String,
    /// Its store, likewise, if it has one.
    pub store: Option<String>,
    /// Whether it is being drained.
    pub draining: bool,
    /// Shards, and those of them that answer.
    pub shards: usize,
    /// See [`Status::shards`].
    pub shards_answering: usize,
    /// Connections.
    pub connections: u64,
    /// Sessions, connected or not.
    pub sessions: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Retained messages.
    pub retained: u64,
}
