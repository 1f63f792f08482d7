//! `[cluster]`: one broker on several machines, which keep what is durable in one log in
//! NATS and carry for each other what their clients publish.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;

/// Shards of one node: shard numbers of a node begin at its number times this.
pub const SHARDS_MAX: u16 = 64;

/// Bytes of the largest packets, one for each shard of a node, that cross at once: half of
/// what a link between nodes holds.
pub const CROSSING_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Longest `name`.
const NAME_BYTES_MAX: usize = 255;

/// `[cluster]`: see the head of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Cluster {
    /// A file with what all nodes know and nothing else does; absent: the broker is alone.
    pub secret_file: Option<PathBuf>,
    /// What people call this node; empty: the name of the machine.
    pub name: String,
}

impl Cluster {
    /// Whether the broker is a node of a cluster.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.secret_file.is_some()
    }

    /// What is wrong with it, as key and sentence. `has_log`: what is durable is a log;
    /// `shards`, `packet`: shards and the largest packet that were asked for.
    pub(super) fn check(&self, has_log: bool, shards: u16, packet: u64) -> Result<(), Wrong> {
        if self.name.len() > NAME_BYTES_MAX {
            let why = format!("has more than {NAME_BYTES_MAX} bytes");
            return Err(("name", why));
        }
        if self.is_used() && !has_log {
            let why = "the nodes of a cluster share a store in NATS: name it by \
                       store.nats.urls, or --cluster";
            return Err(("secret_file", why.into()));
        }
        if self.is_used() && packet.saturating_mul(shards.max(1).into()) > CROSSING_BYTES_MAX {
            let why = format!(
                "in a cluster, limits.max_packet_size times the number of shards ({shards}) is \
                 at most 32MiB: what is published may cross for each of them"
            );
            return Err(("secret_file", why));
        }
        if self.is_used() && shards > SHARDS_MAX {
            let why = format!("a node of a cluster has at most {SHARDS_MAX} shards");
            return Err(("secret_file", why));
        }
        Ok(())
    }
}
