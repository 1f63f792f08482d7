//! `[store.nats]`: what is durable as a log in NATS JetStream, so that another machine goes
//! on when this one dies.

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::shown::hide;
use super::units::Span;

/// Most servers that can be named.
const URLS_MAX: usize = 16;

/// Most characters of the prefix.
const PREFIX_MAX: usize = 64;

/// How many replicas a stream may have.
const REPLICAS: [usize; 3] = [1, 3, 5];

/// Shortest `patience`: as long as an answer may take in any case.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

/// Longest `patience`.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);

/// Shortest `lease`: a renewal a second.
const LEASE_MIN: Duration = Duration::from_secs(3);

/// Longest `lease`.
const LEASE_MAX: Duration = Duration::from_secs(600);

/// When a broker that starts takes the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Take {
    /// Also from another broker.
    Always,
    /// If no other broker took it since this machine had it.
    Own,
    /// When no broker has it; until then, it is a standby.
    Free,
}

/// `[store.nats]`: see the head of the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Nats {
    /// Servers; none: the store is a file.
    pub urls: Vec<String>,
    /// The same servers for a user of the system account.
    pub system_urls: Vec<String>,
    /// What streams and subjects begin with.
    pub prefix: String,
    /// Replicas of the stream.
    pub replicas: usize,
    /// Servers that acknowledge before they sync are accepted.
    pub accept_unsynced: bool,
    /// When a broker that starts takes the store.
    pub take: Take,
    /// How long no server may answer before the broker ends.
    pub patience: Span,
    /// How long the lease of the store holds after it was renewed last.
    pub lease: Span,
    /// Who signs the servers' certificates; absent: those whom the system believes.
    pub ca: Option<PathBuf>,
}

impl Default for Nats {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            system_urls: Vec::new(),
            prefix: "dunlin".to_owned(),
            replicas: 3,
            accept_unsynced: false,
            take: Take::Always,
            patience: Span::secs(30),
            lease: Span::secs(3),
            ca: None,
        }
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats")
            .field("urls", &self.shown_urls())
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

impl Nats {
    /// Whether it is used.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        !self.urls.is_empty()
    }

    /// Whether a broker that starts waits as a standby.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        self.is_used() && self.take == Take::Free
    }

    /// The servers, without users and passwords.
    pub(crate) fn shown_urls(&self) -> Vec<String> {
        self.urls.iter().map(|url| hide("urls", url)).collect()
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        for (key, urls) in [
            ("nats.urls", &self.urls),
            ("nats.system_urls", &self.system_urls),
        ] {
            if urls.len() > URLS_MAX {
                return Err((key, format!("{} are more than {URLS_MAX}", urls.len())));
            }
            if !urls.iter().all(|url| is_url(url)) {
                // Without the URL, which may have a password.
                let why = "expected URLs such as \"nats://user:password@host:4222\" or \
                           \"tls://host\"";
                return Err((key, why.into()));
            }
        }
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !(1..=PREFIX_MAX).contains(&self.prefix.len()) || !self.prefix.chars().all(usable) {
            let why = format!("expected 1 to {PREFIX_MAX} letters, digits, - and _");
            return Err(("nats.prefix", why));
        }
        if !REPLICAS.contains(&self.replicas) {
            let why = format!("{} is not 1, 3 or 5", self.replicas);
            return Err(("nats.replicas", why));
        }
        if !(PATIENCE_MIN..=PATIENCE_MAX).contains(&self.patience.0) {
            let why = format!("{} is not between 5s and 1h", self.patience);
            return Err(("nats.patience", why));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease.0) {
            let why = format!("{} is not between 3s and 10m", self.lease);
            return Err(("nats.lease", why));
        }
        if self.take == Take::Free && !self.is_used() {
            let why = "a standby (\"free\", or --standby) needs nats.urls: a store that is a file \
                       is on one machine";
            return Err(("nats.take", why.into()));
        }
        if self.is_used() && !cfg!(feature = "cluster") {
            let why = "this program was built without the feature `cluster`";
            return Err(("nats.urls", why.into()));
        }
        if self.is_used() && self.system_urls.is_empty() && !self.accept_unsynced {
            let why = "whether the servers sync before they acknowledge can only be asked in \
                       the system account: name URLs with a user of it, or say \
                       accept_unsynced = true and lose what was acknowledged last in a power \
                       cut";
            return Err(("nats.system_urls", why.into()));
        }
        Ok(())
    }
}

fn is_url(url: &str) -> bool {
    let rest = ["nats://", "tls://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    // Other characters are `%` and two digits in a user or password.
    let rest = rest.filter(|rest| !rest.contains(['/', '?', '#', ' ']));
    let host = rest.map(|rest| rest.rsplit_once('@').map_or(rest, |(_, host)| host));
    host.is_some_and(|host| !host.is_empty())
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let nats = Nats {
            urls: vec!["nats://ann:secret@h:1".into(), "tls://h2".into()],
            ..Nats::default()
        };
        let text = format!("{nats:?}");
        assert!(!text.contains("cret") && !text.contains("ann"), "{text}");
        assert!(text.contains("@h:1") && text.contains("tls://h2"), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let url = || vec!["nats://u:secret@h".to_owned()];
        let good = Nats {
            urls: url(),
            system_urls: url(),
            ..Nats::default()
        };
        assert_eq!(good.check(), Ok(()));
        let unsynced = Nats {
            system_urls: Vec::new(),
            accept_unsynced: true,
            ..good.clone()
        };
        assert_eq!(unsynced.check(), Ok(()));
        type Change = fn(&mut Nats);
        let cases: [(&str, Change); 11] = [
            ("nats.lease", |it| it.lease = Span::secs(2)),
            ("nats.lease", |it| it.lease = Span::secs(601)),
            ("nats.take", |it| {
                it.urls.clear();
                it.take = Take::Free;
            }),
            ("nats.urls", |it| it.urls.push("http://u:secret@h".into())),
            ("nats.urls", |it| it.urls.push("nats://u:secret@".into())),
            ("nats.urls", |it| it.urls = vec!["tls://h".into(); 17]),
            ("nats.system_urls", |it| it.system_urls.clear()),
            ("nats.prefix", |it| it.prefix = "a.b".into()),
            ("nats.prefix", |it| it.prefix.clear()),
            ("nats.replicas", |it| it.replicas = 2),
            ("nats.patience", |it| it.patience = Span::secs(4)),
        ];
        for (key, change) in cases {
            let mut wrong = good.clone();
            change(&mut wrong);
            let (found, why) = wrong.check().expect_err(key);
            assert_eq!(found, key);
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
