//! `[cluster]`: one broker on several machines, which keep what is durable in one log in
//! NATS and carry for each other what their clients publish.

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::Span;

/// Shards of one node: shard numbers of a node begin at its number times this.
pub const SHARDS_MAX: u16 = 64;

/// Bytes of the largest packets, one of each shard of a node, that cross at once: half of
/// what a link between nodes holds. Each goes to another node once, for all shards there.
pub const CROSSING_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Longest `name`.
const NAME_BYTES_MAX: usize = 255;

/// Shortest `link_silence`: two heartbeats.
const LINK_SILENCE_MIN: Duration = Duration::from_secs(1);

/// Longest `link_silence`: a node that renews its entry no more is no member after 12 s, which
/// ends its links in any case.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(10);

/// `[cluster]`: see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Cluster {
    /// A file with what all nodes know and nothing else does; absent: the broker is alone.
    pub secret_file: Option<PathBuf>,
    /// What people call this node; empty: the name of the machine.
    pub name: String,
    /// How long a link to another node may be silent before it is lost.
    pub link_silence: Span,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            secret_file: None,
            name: String::new(),
            link_silence: Span::millis(2500),
        }
    }
}

impl Cluster {
    /// Whether the broker is a node of a cluster.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.secret_file.is_some()
    }

    /// What is wrong with it, as key and sentence. `lease`: what is durable is a log, with
    /// such a lease; `shards`, `packet`: shards and the largest packet that were asked for.
    pub(super) fn check(&self, lease: Option<Span>, shards: u16, packet: u64) -> Result<(), Wrong> {
        if self.name.len() > NAME_BYTES_MAX {
            let why = format!("has more than {NAME_BYTES_MAX} bytes");
            return Err(("name", why));
        }
        if !(LINK_SILENCE_MIN..=LINK_SILENCE_MAX).contains(&self.link_silence.0) {
            let why = format!("{} is not between 1s and 10s", self.link_silence);
            return Err(("link_silence", why));
        }
        // A home that is gone is to be gone for its edges before there is another one.
        if self.is_used()
            && let Some(lease) = lease.filter(|lease| lease.0 <= self.link_silence.0)
        {
            let why = format!(
                "{} is not below store.nats.lease, {lease}",
                self.link_silence
            );
            return Err(("link_silence", why));
        }
        if self.is_used() && lease.is_none() {
            let why = "the nodes of a cluster share a store in NATS: name it by \
                       store.nats.urls, or --cluster";
            return Err(("secret_file", why.into()));
        }
        if self.is_used() && packet.saturating_mul(shards.max(1).into()) > CROSSING_BYTES_MAX {
            let why = format!(
                "in a cluster, limits.max_packet_size times the number of shards ({shards}) is \
                 at most 32MiB: each of them may have one to send to another node at once"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_of_links_has_limits() {
        for (millis, is_good) in [(999, false), (1000, true), (10_000, true), (10_001, false)] {
            let cluster = Cluster {
                link_silence: Span::millis(millis),
                ..Cluster::default()
            };
            let found = cluster.check(None, 1, 1);
            match is_good {
                true => assert_eq!(found, Ok(()), "{millis}"),
                false => assert_eq!(found.expect_err("refused").0, "link_silence", "{millis}"),
            }
        }
        assert_eq!(Cluster::default().check(None, 1, 1), Ok(()));
    }

    #[test]
    fn a_link_is_lost_before_the_lease_of_a_home_that_died() {
        let cluster = Cluster {
            secret_file: Some("cluster.key".into()),
            ..Cluster::default()
        };
        let check = |lease| cluster.check(Some(Span::millis(lease)), 1, 1);
        assert_eq!(check(2501), Ok(()));
        assert_eq!(check(2500).expect_err("refused").0, "link_silence");
    }
}
