//! The mechanisms by their registered names.

use crate::scram::{METHOD, METHOD_PLUS};

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// ANONYMOUS (RFC 4505): no credentials.
    Anonymous,
    /// PLAIN (RFC 4616): user name and password, as they are.
    Plain,
    /// EXTERNAL (RFC 4422 appendix A): what the transport has proved.
    External,
    /// SCRAM-SHA-256 (RFC 7677).
    ScramSha256,
    /// SCRAM-SHA-256-PLUS: bound to the TLS channel (RFC 5929, RFC 9266).
    ScramSha256Plus,
    /// OAUTHBEARER (RFC 7628): a token.
    OAuthBearer,
    /// MSSBCBS, by which clients of Azure say that a token follows on `$cbs` (AMQP
    /// Claims-based Security): no credentials yet.
    Cbs,
}

impl Mechanism {
    /// All of them, strongest first.
    pub const ALL: [Self; 7] = [
        Self::ScramSha256Plus,
        Self::ScramSha256,
        Self::External,
        Self::OAuthBearer,
        Self::Plain,
        Self::Cbs,
        Self::Anonymous,
    ];

    /// The registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "ANONYMOUS",
            Self::Plain => "PLAIN",
            Self::External => "EXTERNAL",
            Self::ScramSha256 => METHOD,
            Self::ScramSha256Plus => METHOD_PLUS,
            Self::OAuthBearer => "OAUTHBEARER",
            Self::Cbs => "MSSBCBS",
        }
    }

    /// Whether what the client sends is a secret that others must not read.
    #[must_use]
    pub const fn needs_encryption(self) -> bool {
        matches!(self, Self::Plain | Self::OAuthBearer)
    }
}
