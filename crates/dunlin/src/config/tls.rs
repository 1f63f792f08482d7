//! `[tls]`: ciphers and key exchanges, and names of clients in certificates.

use std::path::PathBuf;

use dunlin_net::{CertName, TlsPolicy};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Wrong;

/// `[tls]`: what every encrypted listener may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Tls {
    /// Ciphers, by preference.
    pub cipher_suites: Vec<Cipher>,
    /// Key exchanges, by preference.
    pub groups: Vec<Group>,
    /// The order of ciphers is the server's, not the client's.
    pub server_order: bool,
    /// File that the secrets of connections are appended to.
    pub key_log: Option<PathBuf>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            cipher_suites: dunlin_net::Cipher::ALL.map(Cipher).into(),
            groups: dunlin_net::Group::ALL.map(Group).into(),
            server_order: false,
            key_log: None,
        }
    }
}

impl Tls {
    /// What the loops need to know.
    #[must_use]
    pub fn policy(&self) -> TlsPolicy {
        let mut policy = TlsPolicy::default();
        policy.ciphers = self.cipher_suites.iter().map(|c| c.0).collect();
        policy.groups = self.groups.iter().map(|g| g.0).collect();
        policy.server_order = self.server_order;
        policy
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        for (key, is_empty) in [
            ("cipher_suites", self.cipher_suites.is_empty()),
            ("groups", self.groups.is_empty()),
        ] {
            if is_empty {
                return Err((key, "at least one is needed".into()));
            }
        }
        Ok(())
    }
}

/// Which name in the certificate of a client is its user name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name(pub CertName);

/// A cipher, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cipher(pub dunlin_net::Cipher);

/// A key exchange, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub dunlin_net::Group);

macro_rules! by_name {
    ($($wrapper:ident($inner:ty)),*) => {$(
        impl Serialize for $wrapper {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.name())
            }
        }

        impl<'de> Deserialize<'de> for $wrapper {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map(Self).map_err(|_| {
                    let all = <$inner>::ALL.map(|one| format!("`{one}`"));
                    serde::de::Error::custom(format!("`{text}` is not one of {}", all.join(", ")))
                })
            }
        }
    )*};
}
by_name!(
    Name(CertName),
    Cipher(dunlin_net::Cipher),
    Group(dunlin_net::Group)
);
