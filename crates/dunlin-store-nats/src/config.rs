//! How a store is run. Passwords are not shown.

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use crate::connect::{Servers, without_users};
use crate::limits::{COMPACT_BYTES, LEASE, LEASE_PARTS, PATIENCE};

/// How a store is run.
#[derive(Clone)]
pub struct NatsConfig {
    /// Servers, as `nats://user:password@host:port`; all for the same user. Other servers
    /// that these name are not connected to. TLS is used with all if one begins with `tls://`.
    pub urls: Vec<String>,
    /// The same servers for a user of the system account, who is asked whether they sync
    /// before they acknowledge.
    pub system_urls: Vec<String>,
    /// Servers that acknowledge before they sync, or cannot be asked, are accepted:
    /// what was acknowledged last may then be lost in a power cut.
    pub unsynced_accepted: bool,
    /// The partition is taken over only if it has no owner yet, or this machine had it last:
    /// a file beside the copy, with the extension `owner`, says so.
    pub own_only: bool,
    /// What stream and subjects begin with: letters, digits, `-` and `_`.
    pub prefix: String,
    /// Which partition.
    pub partition: u16,
    /// Replicas of the stream: 1, 3 or 5.
    pub replicas: usize,
    /// Certificates of the authorities that servers behind `tls://` are believed from; those
    /// of the system, if there is no such file.
    pub tls_ca: Option<PathBuf>,
    /// The file of the copy.
    pub copy: PathBuf,
    /// How long a server may not answer before the owner gives up.
    pub patience: Duration,
    /// How long a lease holds after it was renewed last: the same for all who may have it.
    pub lease: Duration,
    /// Bytes that a log may grow by before what is live is written again and the rest
    /// deleted; it grows by twice what is live in any case.
    pub compact_bytes: u64,
}

impl NatsConfig {
    /// Partition 0 under the prefix `dl`, one replica, no system account.
    #[must_use]
    pub fn new(url: &str, copy: PathBuf) -> Self {
        Self {
            urls: vec![url.to_owned()],
            system_urls: Vec::new(),
            unsynced_accepted: false,
            own_only: false,
            prefix: "dl".to_owned(),
            partition: 0,
            replicas: 1,
            tls_ca: None,
            copy,
            patience: PATIENCE,
            lease: LEASE,
            compact_bytes: COMPACT_BYTES,
        }
    }

    pub(crate) fn servers<'a>(&'a self, urls: &'a [String]) -> Servers<'a> {
        Servers {
            urls,
            tls_ca: self.tls_ca.as_deref(),
            patience: self.patience,
        }
    }

    pub(crate) fn stream(&self) -> String {
        format!("{}-p-{}", self.prefix, self.partition)
    }

    pub(crate) fn subject(&self, epoch: u64, owner: u64) -> String {
        format!("{}.p.{}.{epoch}-{owner:016x}", self.prefix, self.partition)
    }

    /// The bucket of the leases of all partitions.
    pub(crate) fn bucket(&self) -> String {
        format!("{}-lease", self.prefix)
    }

    /// How often a lease is renewed.
    pub(crate) fn renew_every(&self) -> Duration {
        self.lease / LEASE_PARTS
    }

    /// The subject of the lease of this one.
    pub(crate) fn lease_subject(&self) -> String {
        format!("$KV.{}.p-{}", self.bucket(), self.partition)
    }

    /// The epoch in a subject of this partition.
    pub(crate) fn epoch_in(&self, subject: &str) -> Option<u64> {
        let before = format!("{}.p.{}.", self.prefix, self.partition);
        let (epoch, _) = subject.strip_prefix(&before)?.split_once('-')?;
        epoch.parse().ok()
    }
}

impl fmt::Debug for NatsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsConfig")
            .field("urls", &without_users(&self.urls))
            .field("system_urls", &without_users(&self.system_urls))
            .field("unsynced_accepted", &self.unsynced_accepted)
            .field("own_only", &self.own_only)
            .field("prefix", &self.prefix)
            .field("partition", &self.partition)
            .field("replicas", &self.replicas)
            .field("tls_ca", &self.tls_ca)
            .field("copy", &self.copy)
            .field("patience", &self.patience)
            .field("lease", &self.lease)
            .field("compact_bytes", &self.compact_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let config = NatsConfig {
            urls: vec!["nats://a:se@cret@h:1".to_owned(), "nats://h2".to_owned()],
            system_urls: vec!["x:secret@h3:2".to_owned()],
            ..NatsConfig::new("", PathBuf::new())
        };
        let text = format!("{config:?}");
        assert!(!text.contains("cret"), "{text}");
        assert!(
            text.contains("nats://h:1") && text.contains("h3:2"),
            "{text}"
        );
    }
}
