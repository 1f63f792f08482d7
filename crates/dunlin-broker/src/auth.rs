//! Who may connect: the policy of a listener, and the questions that a shard
//! asks of the authenticator as values.
//!
//! Password hashing takes milliseconds, so it never happens here: the shard
//! emits an [`AuthRequest`] and goes on; the answer comes back as an input.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_base::transport::Peer;

use crate::access::{Action, OwnRules};

/// What a client hears of [`AuthAnswer::Busy`].
pub(crate) const UNANSWERED: &str =
    "no answer who the client is: too many ask, or a server is down";

/// Whether a client without credentials may connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Never.
    Never,
    /// Clients on this machine.
    #[default]
    Loopback,
    /// Everybody.
    Always,
}

impl Anonymous {
    /// Whether `peer` may connect without credentials.
    #[must_use]
    pub const fn allows(self, peer: &Peer) -> bool {
        match self {
            Self::Never => false,
            // An IPv4 client of a dual-stack socket arrives as ::ffff:127.0.0.1.
            Self::Loopback => peer.addr.ip().to_canonical().is_loopback(),
            Self::Always => true,
        }
    }
}

/// What a listener asks of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthPolicy {
    /// Whether a client without credentials may connect.
    pub anonymous: Anonymous,
    /// A password file is loaded. Without one, a user name cannot be verified
    /// and its bearer counts as anonymous.
    pub passwords: bool,
    /// A verified client certificate is a credential, and its name the user.
    pub certificates: bool,
    /// The authenticator verifies tokens.
    pub tokens: bool,
    /// Whom it decides on besides those whose password is in the file.
    pub others: Others,
    /// A client with such a certificate is let in without asking it.
    pub certificate_first: bool,
    /// What becomes of subscriptions of which the rules allow a part.
    pub partial: Partial,
}

/// What becomes of a subscription of which the rules allow a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// It is refused.
    #[default]
    Refused,
    /// It is accepted, and messages that its client may not receive are left out. Shared
    /// ones are refused: a member would take such messages from the others.
    Filtered,
}

/// Whom the authenticator decides on without a password file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// No client.
    #[default]
    Never,
    /// Those that send a user name or a password.
    Credentials,
    /// All, also those that send neither.
    Always,
}

/// What follows from a CONNECT before anything slow is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// Let it in as this user, or without a name.
    Accept {
        /// Verified name, for the access list.
        user: Option<Text>,
    },
    /// Ask the authenticator.
    Ask(AuthRequest),
    /// Not authorized.
    Refuse,
}

impl AuthPolicy {
    /// Decides on a CONNECT without enhanced authentication.
    #[must_use]
    pub fn first_step(
        &self,
        peer: &Peer,
        client_id: &Text,
        user: Option<&Text>,
        password: Option<&Bytes>,
    ) -> FirstStep {
        if self.certificate_first && self.certificates && peer.identity.is_some() {
            return self.without_credentials(peer);
        }
        if self.asks(user.is_some() || password.is_some()) {
            return FirstStep::Ask(AuthRequest::Password {
                user: user.cloned().unwrap_or_default(),
                password: password.cloned().unwrap_or_default(),
                client_id: client_id.clone(),
                peer: peer.clone(),
            });
        }
        self.without_credentials(peer)
    }

    /// Whether the authenticator decides on a client that sends a user name or a
    /// password, or that does not.
    #[must_use]
    pub const fn asks(&self, sends_any: bool) -> bool {
        match self.others {
            Others::Always => true,
            Others::Credentials => sends_any,
            Others::Never => self.passwords && sends_any,
        }
    }

    /// Decides on a client that has sent no credentials, and that the authenticator
    /// knows nothing of.
    #[must_use]
    pub fn without_credentials(&self, peer: &Peer) -> FirstStep {
        if self.certificates && peer.identity.is_some() {
            return FirstStep::Accept {
                user: peer.identity.clone(),
            };
        }
        if self.anonymous.allows(peer) {
            return FirstStep::Accept { user: None };
        }
        FirstStep::Refuse
    }
}

/// A question to the authenticator.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthRequest {
    /// Verify a user name and password.
    Password {
        /// User name; empty if the client sent only a password.
        user: Text,
        /// Password; empty if the client sent none.
        password: Bytes,
        /// Client identifier.
        client_id: Text,
        /// Where the client is.
        peer: Peer,
    },
    /// Look up what SCRAM-SHA-256 needs of a user.
    Scram {
        /// User name.
        user: Text,
        /// Where the client is.
        address: IpAddr,
    },
    /// Verify a bearer token (RFC 6750).
    Token {
        /// User that the client claims to be, if it names one.
        user: Option<Text>,
        /// The token.
        token: Text,
        /// Client identifier, where it is known.
        client_id: Option<Text>,
    },
    /// Whether a client may use a topic.
    Topic(Box<TopicRequest>),
}

/// A question about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRequest {
    /// Verified name of the client's user.
    pub user: Option<Text>,
    /// Client identifier.
    pub client_id: Text,
    /// Where the client is.
    pub address: IpAddr,
    /// Number of its listener.
    pub listener: u16,
    /// What it wants to do.
    pub action: Action,
    /// Topic, or filter without `$share/NAME/`.
    pub topic: Text,
}

/// What a server says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What the client wants to do.
    pub action: Action,
    /// As it was asked.
    pub topic: Text,
    /// Whether it may; `None`: there is no answer.
    pub allowed: Option<bool>,
    /// Time for which that counts.
    pub lifetime: Duration,
}

// Passwords must not reach a log by way of a derived `Debug`.
impl fmt::Debug for AuthRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password {
                user,
                client_id,
                peer,
                ..
            } => f
                .debug_struct("Password")
                .field("user", user)
                .field("client_id", client_id)
                .field("peer", peer)
                .finish_non_exhaustive(),
            Self::Scram { user, address } => f
                .debug_struct("Scram")
                .field("user", user)
                .field("address", address)
                .finish(),
            Self::Topic(request) => request.fmt(f),
            Self::Token { user, .. } => {
                let mut token = f.debug_struct("Token");
                token.field("user", user).finish_non_exhaustive()
            }
        }
    }
}

/// The authenticator's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthAnswer {
    /// The credentials are right.
    Accept {
        /// Verified name, for the access list.
        user: Option<Text>,
    },
    /// Something else than the password file vouches for the client.
    Granted(Box<Grant>),
    /// It knows nothing of this client, which has sent no credentials.
    Unknown,
    /// Bad user name or password, or no valid token.
    Refuse,
    /// Too many questions wait; the client may try again later.
    Busy,
    /// Too many wrong passwords came before; the client may try again later.
    TooSoon,
    /// What SCRAM needs; for unknown users made up, so that they fail only at
    /// the proof and look like known ones.
    Scram(ScramCredential),
    /// To a question about a topic.
    Topic(Box<Ruling>),
}

/// What a client is let in with by something else than the password file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Verified name, for the access list.
    pub user: Option<Text>,
    /// What vouches for it, for the log.
    pub by: By,
    /// Time until it ends; `None`: with the connection.
    pub lifetime: Option<Duration>,
    /// What the client may do besides what the access list says.
    pub rules: Option<Arc<OwnRules>>,
}

impl Grant {
    /// A grant for a user, without an end and without rules.
    #[must_use]
    pub const fn new(user: Option<Text>, by: By) -> Self {
        Self {
            user,
            by,
            lifetime: None,
            rules: None,
        }
    }
}

/// What vouches for a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Its certificate.
    #[default]
    Certificate,
    /// A token.
    Token,
    /// A server that is asked by HTTP.
    Http,
    /// A directory that is asked by LDAP.
    Ldap,
}

impl By {
    /// As the log calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "client certificate",
            Self::Token => "token",
            Self::Http => "http",
            Self::Ldap => "ldap",
        }
    }
}

/// What a server keeps of a password for SCRAM-SHA-256 (RFC 5802 section 3).
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// Salt.
    pub salt: Bytes,
    /// Iteration count.
    pub iterations: u32,
    /// `StoredKey`.
    pub stored_key: [u8; 32],
    /// `ServerKey`.
    pub server_key: [u8; 32],
}

// The keys let their holder pose as the server: not for logs.
impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCredential")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use dunlin_base::transport::Transport;

    use super::*;

    fn peer(addr: &str, identity: Option<&'static str>) -> Peer {
        Peer {
            addr: addr.parse().expect("address"),
            transport: Transport::Tls,
            listener: 0,
            identity: identity.map(Text::from_static),
            protocol: Text::new(),
            early_data: false,
            binding: None,
        }
    }

    #[test]
    fn anonymous_access_is_by_address() {
        let cases = [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("[::ffff:10.0.0.1]:1", false),
            ("192.0.2.1:1", false),
            ("[2001:db8::1]:1", false),
        ];
        for (addr, local) in cases {
            let peer = peer(addr, None);
            assert_eq!(Anonymous::Loopback.allows(&peer), local, "{addr}");
            assert!(!Anonymous::Never.allows(&peer));
            assert!(Anonymous::Always.allows(&peer));
        }
    }

    #[test]
    fn credentials_come_before_certificates_before_anonymity() {
        let open = AuthPolicy {
            anonymous: Anonymous::Always,
            passwords: true,
            certificates: true,
            ..AuthPolicy::default()
        };
        let closed = AuthPolicy {
            anonymous: Anonymous::Never,
            ..open
        };
        let unchecked = AuthPolicy {
            passwords: false,
            certificates: false,
            ..open
        };
        let (id, alice, secret) = (Text::from("c"), Text::from("alice"), Bytes::from("x"));
        let stranger = peer("192.0.2.1:1", None);
        let device = peer("192.0.2.1:1", Some("device"));
        let accept = |user: Option<&str>| FirstStep::Accept {
            user: user.map(Text::from),
        };

        let step = open.first_step(&device, &id, Some(&alice), Some(&secret));
        assert!(matches!(step, FirstStep::Ask(_)), "{step:?}");
        let step = open.first_step(&device, &id, None, Some(&secret));
        assert!(matches!(step, FirstStep::Ask(_)), "{step:?}");
        let step = closed.first_step(&device, &id, None, None);
        assert_eq!(step, accept(Some("device")));
        let step = closed.first_step(&stranger, &id, None, None);
        assert_eq!(step, FirstStep::Refuse);
        let step = open.first_step(&stranger, &id, None, None);
        assert_eq!(step, accept(None));
        // Nothing can verify the name, so it is not believed.
        let step = unchecked.first_step(&device, &id, Some(&alice), Some(&secret));
        assert_eq!(step, accept(None));
    }

    #[test]
    fn passwords_are_not_printed() {
        let policy = AuthPolicy {
            passwords: true,
            ..AuthPolicy::default()
        };
        let (id, alice, secret) = (Text::from("c"), Text::from("alice"), Bytes::from("hunter2"));
        let step = policy.first_step(&peer("[::1]:1", None), &id, Some(&alice), Some(&secret));
        let printed = format!("{step:?}");
        assert!(printed.contains("alice") && !printed.contains("hunter2"));
    }
}
