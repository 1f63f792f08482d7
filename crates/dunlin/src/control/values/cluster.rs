//! Nodes of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node of the cluster, as the one that answers sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterNode {
    /// Its number.
    pub node: u16,
    /// What people call it.
    pub name: String,
    /// It is the one that answers.
    pub here: bool,
    /// What it does; none: there is no link to it, which would say so.
    pub role: Option<NodeRole>,
    /// Whether it has the lease of the log, as far as the one that answers knows.
    pub lease: bool,
    /// Where its configuration says that clients reach it.
    pub addresses: Vec<String>,
    /// Its shards.
    pub shards: u16,
    /// The version of its program.
    pub version: String,
    /// Since when it is a member, by its own clock, in seconds since 1970; none: it does not
    /// say.
    pub since: Option<u64>,
    /// Records of the log that it has not read yet, as a standby; only of the one that answers.
    pub behind_records: Option<u64>,
    /// The link to it; none: it is the one that answers.
    pub link: Option<NodeLink>,
    /// How long there has been a link, in seconds.
    pub link_seconds: Option<u64>,
    /// Bytes for it that it has not handled yet.
    pub waiting_bytes: Option<u64>,
    /// Bytes of it that are not handled here yet.
    pub held_bytes: Option<u64>,
    /// From a heartbeat to its answer, the last time, in microseconds.
    pub round_trip_us: Option<u64>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRole {
    /// It has what is durable, and clients.
    Home,
    /// It has clients, and waits to be the home.
    Edge,
    /// It waits to be the home, and has no clients.
    Standby,
}

impl NodeRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Home, Self::Edge, Self::Standby];

    /// As metrics say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Edge => "edge",
            Self::Standby => "standby",
        }
    }
}

/// How the link to a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeLink {
    /// It is there.
    Linked,
    /// It is lost, or not made yet.
    Lost,
}
