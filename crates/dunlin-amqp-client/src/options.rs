//! Everything that a client knows before it connects.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::{Repeat, Text};
use dunlin_dial::{LinkOptions, Url, random_u64};
use dunlin_sasl::Mechanism;

use crate::error::OptionError;
use crate::limits::NAME_BYTES_MAX;
use crate::tokens::Tokens;

/// `max-frame-size` by default, and the least that AMQP allows.
const FRAME_BYTES: u32 = 64 << 10;
const FRAME_BYTES_MIN: u32 = 512;

/// Silence of the server after which the connection is lost, by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How a client says who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sasl {
    /// PLAIN with the URL's or the builder's user and password, else ANONYMOUS.
    #[default]
    Auto,
    /// No SASL: the AMQP header comes first.
    Off,
    /// ANONYMOUS.
    Anonymous,
    /// PLAIN: the password travels, over TLS or in the clear as the URL says.
    Plain,
    /// EXTERNAL: the client certificate.
    External,
    /// SCRAM-SHA-256, and -PLUS where the connection can be bound and the server
    /// offers that: the password does not travel, and the server proves that
    /// it knows it. Two round trips more.
    ScramSha256,
    /// OAUTHBEARER with this token.
    Bearer(String),
}

/// Which links share a stream of QUIC. What is lost of a stream holds back what
/// comes after it there, and nothing elsewhere. Other transports have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamPolicy {
    /// All: one AMQP connection, one session.
    #[default]
    Single,
    /// Each link has a stream, which is an AMQP connection of its own, as far as
    /// the server allows streams, and 16 at most; further links share them. Streams
    /// after the first one open when the server has accepted the client. A
    /// [`Controller`](crate::Controller) is refused: a transaction is of one AMQP
    /// connection.
    PerLink,
}

/// When small packets go twice, both ways, on a connection whose links have streams: one
/// lost packet holds back one link, and seldom that.
pub(crate) const STREAMS_REPEAT: Repeat = Repeat::OnLoss;

#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) link: Arc<LinkOptions>,
    pub(crate) container_id: Text,
    /// The container id was made up.
    pub(crate) random_id: bool,
    pub(crate) hostname: Option<Text>,
    pub(crate) sasl: Sasl,
    /// Where tokens come from, instead of [`Sasl::Bearer`].
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) user: Option<Text>,
    pub(crate) password: Option<Text>,
    pub(crate) frame_bytes: u32,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) streams: StreamPolicy,
    /// Where the client may be sent.
    pub(crate) redirect_hosts: Vec<Text>,
}

impl Options {
    pub(crate) fn new(url: Url) -> Self {
        let user = url.user().map(Text::from);
        let password = url.password().map(Text::from);
        let mut link = LinkOptions::new(url);
        link.pipelined = true;
        Self {
            link: Arc::new(link),
            container_id: Text::from(format!("dunlin-{:016x}", random_u64())),
            random_id: true,
            hostname: None,
            sasl: Sasl::Auto,
            tokens: None,
            user,
            password,
            frame_bytes: FRAME_BYTES,
            idle_timeout: Some(IDLE_TIMEOUT),
            streams: StreamPolicy::Single,
            redirect_hosts: Vec::new(),
        }
    }

    /// The mechanism; `None` without SASL.
    pub(crate) fn mechanism(&self) -> Option<Mechanism> {
        if self.tokens.is_some() {
            return Some(Mechanism::OAuthBearer);
        }
        Some(match &self.sasl {
            Sasl::Off => return None,
            Sasl::Auto if self.user.is_some() => Mechanism::Plain,
            Sasl::Auto | Sasl::Anonymous => Mechanism::Anonymous,
            Sasl::Plain => Mechanism::Plain,
            Sasl::External => Mechanism::External,
            Sasl::ScramSha256 => Mechanism::ScramSha256,
            Sasl::Bearer(_) => Mechanism::OAuthBearer,
        })
    }

    /// Those of further streams, on which the server knows already who it is.
    pub(crate) fn inherited(&self) -> Self {
        let mut inherited = self.clone();
        if inherited.mechanism().is_some() {
            inherited.sasl = Sasl::Anonymous;
        }
        inherited.tokens = None;
        inherited
    }

    /// The token for a connection that begins now.
    pub(crate) fn bearer(&self) -> Arc<str> {
        match (&self.tokens, &self.sasl) {
            (Some(tokens), _) => tokens.current(),
            (None, Sasl::Bearer(token)) => Arc::from(token.as_str()),
            (None, _) => Arc::from(""),
        }
    }

    /// Whose session tickets are used, among the clients of one server.
    pub(crate) fn tickets_of(&self) -> &str {
        match self.random_id {
            true => "",
            false => self.container_id.as_str(),
        }
    }

    /// Makes options fit together, or says which cannot be.
    pub(crate) fn check(&mut self) -> Result<(), OptionError> {
        self.link
            .url
            .require(dunlin_dial::Protocol::Amqp)
            .map_err(OptionError::Url)?;
        self.link.network.check().map_err(OptionError::Network)?;
        self.frame_bytes = self.frame_bytes.max(FRAME_BYTES_MIN);
        if self.container_id.len() > NAME_BYTES_MAX {
            return Err(OptionError::TooLong {
                what: "container id",
                max: NAME_BYTES_MAX,
            });
        }
        let Some(mechanism) = self.mechanism() else {
            return Ok(());
        };
        let has_both = self.user.is_some() && self.password.is_some();
        let needs_both = matches!(mechanism, Mechanism::Plain | Mechanism::ScramSha256);
        if needs_both && !has_both {
            return Err(OptionError::NoCredentials(mechanism.name()));
        }
        if mechanism.needs_encryption() {
            // A secret is not to be in bytes that an attacker can repeat.
            Arc::make_mut(&mut self.link).early_data = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn further_streams_send_no_secret() {
        let mut options = Options::new("amqp+quic://h".parse().expect("a URL"));
        assert_eq!(options.inherited().mechanism(), Some(Mechanism::Anonymous));
        options.sasl = Sasl::Bearer("token".into());
        assert_eq!(options.inherited().mechanism(), Some(Mechanism::Anonymous));
        let source = || Err(io::Error::other("not asked"));
        options.tokens = Some(Arc::new(Tokens::new(Box::new(source))));
        assert_eq!(options.mechanism(), Some(Mechanism::OAuthBearer));
        assert_eq!(options.inherited().mechanism(), Some(Mechanism::Anonymous));
        options.tokens = None;
        options.sasl = Sasl::Off;
        assert_eq!(options.inherited().mechanism(), None);
    }
}
