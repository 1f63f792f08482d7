//! Bridges to other brokers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A bridge to another broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// It is of the configuration file, which alone changes it.
    pub configured: bool,
    /// How it is.
    pub state: BridgeState,
    /// Where the other broker is, without a password.
    pub url: String,
    /// Connections to it for what goes out.
    pub connections: u16,
    /// What it carries, as in `out sensors/#`.
    pub topics: Vec<String>,
    /// Messages that wait for the other broker, those on their way included.
    pub waiting_messages: Option<u64>,
    /// Connections that the other broker has accepted.
    pub connects: u64,
    /// Messages carried to the other broker.
    pub messages_out: u64,
    /// Messages carried from it.
    pub messages_in: u64,
    /// Messages that it did not carry.
    pub messages_dropped: u64,
    /// From a message to its acknowledgement by the other broker, smoothed, in
    /// microseconds.
    pub round_trip_us: Option<u64>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When that was, in seconds since 1970.
    pub last_error_at: Option<u64>,
}

/// How a bridge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BridgeState {
    /// All of its connections are there.
    Connected,
    /// It tries.
    Connecting,
    /// An operator has paused it.
    Paused,
}

/// What becomes of messages that wait for the other broker of a bridge that is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Leftover {
    /// While there are any, the bridge is not removed.
    #[default]
    Refuse,
    /// They wait for an hour for a bridge of the same name.
    Keep,
    /// They are dropped.
    Discard,
}
