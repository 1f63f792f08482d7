//! What can go wrong, one enum for each thing that is asked for.
//!
//! A text does not repeat its cause, which `source()` gives. What the transport
//! reports (TLS, sockets) is whole in one text and has no further cause.

use core::error::Error;
use core::fmt;
use core::net::SocketAddr;
use std::io;
use std::sync::Arc;

use dunlin_base::topic::TopicError;
use dunlin_base::transport::CloseCause;
pub use dunlin_dial::RuntimeError;
use dunlin_dial::{Cause, DialError, UrlError};
use dunlin_mqtt::client::{CommandError, PeerError};
use dunlin_mqtt::codec::ReasonCode;
use dunlin_mqtt::scram::ScramError;
use dunlin_net::{MoveError, NetError, TlsError};

use crate::message::Publish;
use crate::streams::PriorityError;

/// Why a connection ended or did not come about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DisconnectCause {
    /// The transport ended: lost, refused, handshake failed, timed out.
    Transport(CloseCause),
    /// The server said that it ends the connection.
    Server {
        /// Its reason code.
        reason: ReasonCode,
        /// Its words, for people.
        text: Option<Arc<str>>,
    },
    /// The server did not accept the connection.
    Refused {
        /// Its reason code.
        reason: ReasonCode,
        /// Its words, for people.
        text: Option<Arc<str>>,
    },
    /// The server broke the protocol, or does not answer.
    Peer(PeerError),
    /// The host name has no address.
    Resolve {
        /// The name.
        host: Arc<str>,
        /// What the operating system said.
        error: Arc<io::Error>,
    },
    /// TLS cannot be set up.
    Tls(Arc<TlsError>),
    /// No socket could be made.
    Net(Arc<NetError>),
    /// The server failed to authenticate, or refused to.
    Scram(ScramError),
    /// The server gave up a stream with messages that it had not acknowledged:
    /// they are sent again on the next connection, on its first stream.
    StreamRefused,
    /// CONNECT cannot be sent: an option is not possible.
    Options(CommandError),
    /// This side ended the connection.
    Local,
}

impl fmt::Display for DisconnectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = |f: &mut fmt::Formatter<'_>, reason: &ReasonCode, text: &Option<Arc<str>>| {
            write!(f, "{} ({:#04x})", words(*reason), reason.to_u8())?;
            match text {
                Some(text) => write!(f, ": {text}"),
                None => Ok(()),
            }
        };
        match self {
            Self::Transport(cause) => write!(f, "connection failed: {cause}"),
            Self::Server { reason: r, text } => {
                f.write_str("the server disconnected: ")?;
                reason(f, r, text)
            }
            Self::Refused { reason: r, text } => {
                f.write_str("the server refused the connection: ")?;
                reason(f, r, text)
            }
            Self::Peer(error) => error.fmt(f),
            Self::Resolve { host, .. } => write!(f, "cannot resolve {host}"),
            Self::Tls(error) => error.fmt(f),
            Self::Net(error) => error.fmt(f),
            Self::Scram(_) => f.write_str("authentication failed"),
            Self::StreamRefused => f.write_str("the server gave up a stream of this client"),
            Self::Options(error) => error.fmt(f),
            Self::Local => f.write_str("disconnected"),
        }
    }
}

impl Error for DisconnectCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Resolve { error, .. } => Some(&**error),
            Self::Scram(error) => Some(error),
            // The text is that of the error, so its cause is the next one.
            Self::Peer(error) => error.source(),
            Self::Options(error) => error.source(),
            Self::Tls(_)
            | Self::Net(_)
            | Self::Transport(_)
            | Self::Server { .. }
            | Self::Refused { .. }
            | Self::StreamRefused
            | Self::Local => None,
        }
    }
}

impl From<DialError> for DisconnectCause {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Transport(cause) => Self::Transport(cause),
            DialError::Resolve { host, error } => Self::Resolve { host, error },
            DialError::Tls(error) => Self::Tls(error),
            DialError::Net(error) => Self::Net(error),
            other => Self::Transport(CloseCause::failed(&other.to_string())),
        }
    }
}

impl Cause for DisconnectCause {
    fn local() -> Self {
        Self::Local
    }

    fn transport(&self) -> Option<&CloseCause> {
        match self {
            Self::Transport(cause) => Some(cause),
            _ => None,
        }
    }

    fn is_by_server(&self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// The server threw this client out for another one of its name, or will
    /// never take it or what it sends.
    fn is_final(&self) -> bool {
        match self {
            Self::Server { reason, .. } | Self::Refused { reason, .. } => {
                matches!(
                    reason,
                    ReasonCode::SessionTakenOver
                        | ReasonCode::Banned
                        | ReasonCode::BadAuthenticationMethod
                        | ReasonCode::UnsupportedProtocolVersion
                        | ReasonCode::ClientIdentifierNotValid
                        | ReasonCode::PacketTooLarge
                )
            }
            Self::Options(_) => true,
            _ => false,
        }
    }
}

/// A reason code in words.
pub(crate) fn words(reason: ReasonCode) -> String {
    let mut words = String::new();
    for char in format!("{reason:?}").chars() {
        if char.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(char.to_ascii_lowercase());
    }
    words
}

/// The connection did not move to another local address; it goes on as before.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// There is no connection, or it ended meanwhile.
    #[error("there is no connection")]
    NotConnected,
    /// The server did not answer over the new path.
    #[error("the server does not answer towards {from}")]
    NoAnswer {
        /// The address that was tried.
        from: SocketAddr,
    },
    /// It cannot move: not QUIC, moving already, no such address, or the
    /// server does not allow it.
    #[error("{0}")]
    Refused(Arc<MoveError>),
    /// The client was closed.
    #[error(transparent)]
    Closed(DisconnectCause),
}

/// The first connection did not come about.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// An option cannot be.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// There was no answer, or the server refused.
    #[error(transparent)]
    Failed(DisconnectCause),
    /// The background thread cannot be started or has ended.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl ConnectError {
    /// The server's reason code, if it was the server that refused.
    #[must_use]
    pub fn reason(&self) -> Option<ReasonCode> {
        match self {
            Self::Failed(DisconnectCause::Refused { reason, .. }) => Some(*reason),
            _ => None,
        }
    }
}

/// A message was not taken over by the server.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic is not a topic name.
    #[error("invalid topic")]
    Topic(#[from] TopicError),
    /// The server refused the message.
    #[error("the server refused the message: {} ({:#04x})", words(*.reason), .reason.to_u8())]
    Refused {
        /// Its reason code.
        reason: ReasonCode,
    },
    /// The packet is larger than the server takes, by the Maximum Packet Size
    /// of its CONNACK; nothing of it was sent.
    #[error("the packet is larger than the {max} bytes that the server takes")]
    TooLarge {
        /// What the server takes.
        max: u32,
    },
    /// The server takes no such message: its QoS or retain flag.
    #[error(transparent)]
    NotSupported(CommandError),
    /// The connection broke before a message of QoS 0 had left; it is not sent
    /// again, because a part of it may have arrived.
    #[error("the connection broke before the message had left")]
    Lost,
    /// A message of QoS 0 became older than allowed before it had arrived
    /// ([`Publish::max_age`], [`Builder::max_age`](crate::Builder::max_age)).
    #[error("the message became too old before it had arrived")]
    Obsolete,
    /// The client was disconnected first, for good.
    #[error("not published")]
    Closed(#[source] DisconnectCause),
}

/// [`Client::try_publish`](crate::Client::try_publish) did not take a message.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryPublishError {
    /// As many messages as allowed are in flight; the message comes back.
    #[error("too many messages are in flight")]
    Full(Publish),
    /// It can never be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// A subscription was not made or not ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The filter is not a topic filter.
    #[error("invalid topic filter")]
    Filter(#[from] TopicError),
    /// The server refused.
    #[error("the server refused the subscription: {} ({:#04x})", words(*.reason), .reason.to_u8())]
    Refused {
        /// Its reason code.
        reason: ReasonCode,
    },
    /// The server has no such subscriptions: wildcards, sharing, identifiers.
    #[error(transparent)]
    NotSupported(CommandError),
    /// The server's answer does not fit the question.
    #[error("the server answered with the wrong number of reason codes")]
    Answer,
    /// The client was disconnected first, for good.
    #[error("not subscribed")]
    Closed(#[source] DisconnectCause),
}

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// A text or binary field is longer than MQTT can express.
    #[error("{0} is longer than 65,535 bytes")]
    TooLong(&'static str),
    /// The topic of the will is not a topic name.
    #[error("invalid will topic")]
    WillTopic(#[source] TopicError),
    /// MQTT 3.1.1 has no password without a user name.
    #[error("MQTT 3.1.1 needs a user name with a password")]
    PasswordWithoutUser,
    /// MQTT 3.1.1 has no enhanced authentication.
    #[error("SCRAM needs MQTT 5.0")]
    ScramVersion,
    /// The URL is not one of MQTT.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// An option of the network cannot be.
    #[error(transparent)]
    Network(#[from] dunlin_net::TuningError),
    /// A priority cannot be.
    #[error(transparent)]
    Priority(#[from] PriorityError),
    /// The client identifier contains the null character.
    #[error("a client identifier must not contain the null character")]
    ClientId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_wraps_another_gives_it_as_its_source() {
        let lookup = || DisconnectCause::Resolve {
            host: "h".into(),
            error: Arc::new(io::Error::other("no such name")),
        };
        let wrapped: [(Box<dyn Error>, &str); 6] = [
            (Box::new(lookup()), "no such name"),
            (Box::new(ConnectError::Failed(lookup())), "no such name"),
            (Box::new(PublishError::Closed(lookup())), "cannot resolve h"),
            (
                Box::new(TryPublishError::Publish(PublishError::Closed(lookup()))),
                "cannot resolve h",
            ),
            (
                Box::new(SubscribeError::Filter(TopicError::Empty)),
                &TopicError::Empty.to_string(),
            ),
            (
                Box::new(RuntimeError::Thread(Arc::new(io::Error::other("full")))),
                "full",
            ),
        ];
        for (error, source) in wrapped {
            let found = error.source().map(ToString::to_string);
            assert_eq!(found.as_deref(), Some(source), "{error}");
            let causes = core::iter::successors(Some(&*error), |&error| error.source());
            let texts: Vec<String> = causes.map(ToString::to_string).collect();
            for (at, text) in texts.iter().enumerate().skip(1) {
                assert!(!texts[at - 1].contains(text.as_str()), "{texts:?}");
            }
        }
    }
}
