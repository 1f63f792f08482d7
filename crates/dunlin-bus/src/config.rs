//! How a node takes part. Passwords and secrets are not shown.

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use crate::error::JoinError;
use crate::ids::NodeId;
use crate::limits::{
    EVICT_AFTER, HEARTBEAT_EVERY, MEMBER_TTL, PATIENCE, SECRET_BYTES_MAX, SECRET_BYTES_MIN, SILENCE,
};
use crate::member::About;

/// Times of links and entries. All nodes of a cluster should have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// How long an entry stays that is not renewed: whole seconds.
    pub ttl: Duration,
    /// How long a node that has no link to this one does not renew its entry, before this one
    /// ends it.
    pub evict_after: Duration,
    /// Between two heartbeats of a link.
    pub heartbeat: Duration,
    /// How long nothing may come on a link. It is lost a heartbeat later.
    pub silence: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ttl: MEMBER_TTL,
            evict_after: EVICT_AFTER,
            heartbeat: HEARTBEAT_EVERY,
            silence: SILENCE,
        }
    }
}

/// How a node takes part.
#[derive(Clone)]
pub struct Config {
    /// Servers, as `nats://user:password@host:port`; all for the same user. Other servers
    /// that these name are not connected to. TLS is used with all if one begins with `tls://`.
    pub urls: Vec<String>,
    /// Certificates of the authorities that servers behind `tls://` are believed from; those
    /// of the system, if there is no such file.
    pub tls_ca: Option<PathBuf>,
    /// How long no server may be there when the node joins.
    pub patience: Duration,
    /// What subjects and the bucket begin with: letters, digits, `-` and `_`. One cluster.
    pub prefix: String,
    /// Replicas of the bucket: 1, 3 or 5.
    pub replicas: usize,
    /// What all nodes of the cluster know and nothing else does.
    pub secret: Vec<u8>,
    /// What the node says about itself.
    pub about: About,
    /// The number to take if it is free.
    pub wanted: Option<NodeId>,
    /// Times.
    pub timing: Timing,
}

impl Config {
    /// With the prefix `dl`, one replica and no certificates.
    #[must_use]
    pub fn new(url: &str, secret: &[u8], about: About) -> Self {
        Self {
            urls: vec![url.to_owned()],
            tls_ca: None,
            patience: PATIENCE,
            prefix: "dl".to_owned(),
            replicas: 1,
            secret: secret.to_owned(),
            about,
            wanted: None,
            timing: Timing::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), JoinError> {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let secret = SECRET_BYTES_MIN..=SECRET_BYTES_MAX;
        let timing = &self.timing;
        let why = if self.prefix.is_empty() || !self.prefix.chars().all(usable) {
            "the prefix has other characters than letters, digits, - and _"
        } else if !secret.contains(&self.secret.len()) {
            "the secret of the cluster has less than 16 or more than 1024 bytes"
        } else if let Some(why) = self.about.wrong() {
            why
        } else if timing.ttl < Duration::from_secs(2) || timing.ttl.subsec_nanos() != 0 {
            "the time that an entry stays is not a whole number of seconds, 2 at least"
        } else if timing.heartbeat.is_zero() || timing.silence < timing.heartbeat {
            "heartbeats are rarer than silence allows"
        } else {
            return Ok(());
        };
        Err(JoinError::Config(why))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("urls", &dunlin_store_nats::without_users(&self.urls))
            .field("tls_ca", &self.tls_ca)
            .field("patience", &self.patience)
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .field("about", &self.about)
            .field("wanted", &self.wanted)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_secrets_are_not_shown() {
        let config = Config::new(
            "nats://a:pass@h:1",
            b"a secret of sixteen",
            About::default(),
        );
        let text = format!("{config:?}");
        assert!(text.contains("nats://h:1"), "{text}");
        assert!(
            !text.contains("pass@") && !text.contains("secret"),
            "{text}"
        );
        assert!(!text.contains(&format!("{:?}", config.secret)), "{text}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = Config::new("nats://h", b"a secret of sixteen", About::default());
        assert!(good.check().is_ok());
        let changes: [fn(&mut Config); 6] = [
            |config| config.prefix = "a.b".to_owned(),
            |config| config.prefix.clear(),
            |config| config.secret.truncate(15),
            |config| config.about.name = "x".repeat(300),
            |config| config.timing.ttl = Duration::from_millis(2500),
            |config| config.timing.silence = Duration::ZERO,
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut config = good.clone();
            change(&mut config);
            assert!(
                matches!(config.check(), Err(JoinError::Config(_))),
                "{index}"
            );
        }
    }
}
