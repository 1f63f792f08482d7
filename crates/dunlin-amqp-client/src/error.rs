//! What can go wrong, one enum for each thing that is asked for.
//!
//! A text does not repeat its cause, which `source()` gives. What the transport
//! reports (TLS, sockets) is whole in one text and has no further cause.

use std::io;
use std::sync::Arc;

use dunlin_amqp::codec::SaslCode;
use dunlin_base::transport::CloseCause;
pub use dunlin_dial::RuntimeError;
use dunlin_dial::{Cause, DialError, UrlError};
use dunlin_net::{NetError, TlsError, TuningError};
use dunlin_sasl::scram::ScramError;

use crate::message::Message;
use crate::outcome::Condition;
use crate::redirect::Redirect;

/// Why a connection ended or did not come about.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectCause {
    /// The transport ended: lost, refused, handshake failed, timed out.
    #[error("connection failed: {0}")]
    Transport(CloseCause),
    /// The server closed the connection; with a condition, if that was not on
    /// purpose.
    #[error("the server closed the connection{}", words(.0))]
    Server(Option<Condition>),
    /// Another server is to serve this client; see
    /// [`Builder::follow_redirects`](crate::Builder::follow_redirects).
    #[error("the server names another one: {0}")]
    Redirected(Redirect),
    /// The server ended the session that all links of this client are on.
    #[error("the server ended the session{}", words(.0))]
    Session(Option<Condition>),
    /// The server does not know user and password, or may not let them in.
    #[error("the server refused the credentials")]
    Credentials,
    /// The server could not authenticate anyone.
    #[error("authentication was not possible ({0:?})")]
    Authentication(SaslCode),
    /// The server does not offer the mechanism.
    #[error("the server does not offer {wanted}; it offers {offered}")]
    Mechanism {
        /// The mechanism.
        wanted: &'static str,
        /// What it offers.
        offered: Arc<str>,
    },
    /// The server failed to prove that it knows the password.
    #[error("authentication failed")]
    Scram(#[source] ScramError),
    /// The server broke the protocol, or does not answer.
    #[error("closed by this client: {0}")]
    Peer(Condition),
    /// The host name has no address.
    #[error("cannot resolve {host}")]
    Resolve {
        /// The name.
        host: Arc<str>,
        /// What the operating system said.
        #[source]
        error: Arc<io::Error>,
    },
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(Arc<TlsError>),
    /// No socket could be made.
    #[error("{0}")]
    Net(Arc<NetError>),
    /// This side ended the connection.
    #[error("disconnected")]
    Local,
}

fn words(condition: &Option<Condition>) -> String {
    match condition {
        Some(condition) => format!(": {condition}"),
        None => String::new(),
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
        matches!(
            self,
            Self::Server(_) | Self::Session(_) | Self::Redirected(_)
        )
    }

    /// The server will never take these credentials, or this client.
    fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Credentials | Self::Mechanism { .. } | Self::Scram(_) | Self::Redirected(_)
        )
    }
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

impl From<UrlError> for ConnectError {
    fn from(error: UrlError) -> Self {
        Self::Options(error.into())
    }
}

/// An option that cannot be.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The URL is wrong.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The mechanism needs a user name and a password.
    #[error("{0} needs a user name and a password")]
    NoCredentials(&'static str),
    /// A name is longer than AMQP servers take.
    #[error("the {what} is longer than {max} bytes")]
    TooLong {
        /// What it names.
        what: &'static str,
        /// Its longest.
        max: usize,
    },
    /// QUIC cannot be like this.
    #[error("{0}")]
    Network(TuningError),
    /// The source of tokens gave none.
    #[error("no token")]
    Token(#[source] Arc<io::Error>),
}

/// A token was not set.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// There is no link to where tokens are taken.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It was not sent, or the connection was lost.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The server did not take it.
    #[error("the token was {0}")]
    Refused(Arc<str>),
}

/// A link did not come about or has ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The server refused the link.
    #[error("the server refused the link{}", words(.0))]
    Refused(Option<Condition>),
    /// Another server has the node, as this one says when it refuses or ends the link;
    /// see [`Builder::redirected`](crate::Builder::redirected).
    #[error("another server has the node: {0}")]
    Redirected(Redirect),
    /// The server ended the link.
    #[error("the server ended the link{}", words(.0))]
    Detached(Option<Condition>),
    /// The client has as many links as it may, or the server takes.
    #[error("the client has as many links as are allowed")]
    TooMany,
    /// What describes the link is larger than the server's frames.
    #[error("the description of the link is larger than the server's frames")]
    TooLarge,
    /// Deliveries that were to be resumed cannot be.
    #[error("the deliveries to resume have {0}")]
    Unsettled(&'static str),
    /// A filter cannot be written.
    #[error("the filter {0:?} is no AMQP value")]
    Filter(Arc<str>),
    /// A transaction is of one AMQP connection, and each link has its own.
    #[error("transactions need all links on one stream")]
    Streams,
    /// The link was ended by this side.
    #[error("the link is closed")]
    Closed,
    /// The client was closed.
    #[error(transparent)]
    Client(DisconnectCause),
}

/// A message was not taken over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It has more bytes than the receiver takes.
    #[error("the message is larger than the receiver takes")]
    TooLarge,
    /// It cannot be written as AMQP.
    #[error("the message cannot be encoded")]
    Encoding,
    /// It was sent settled, and the connection was lost with it.
    #[error("the connection was lost with the settled message")]
    Lost,
    /// Its transaction is over, because the connection was lost.
    #[error("the connection was lost and the transaction with it")]
    RolledBack,
    /// The link did not come about or has ended.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// [`Sender::try_send`](crate::Sender::try_send) did not hand the message over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// As many messages as allowed are in flight. Here it is again.
    #[error("as many messages as allowed are in flight")]
    Full(Box<Message>),
    /// It never will be.
    #[error(transparent)]
    Failed(#[from] SendError),
}

/// What was said of a received message has not reached the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The connection was lost, and the sender does not know the delivery any
    /// more: it may send the message again.
    #[error("the sender has forgotten the delivery")]
    Forgotten,
    /// The link or the client has ended.
    #[error("the link has ended")]
    Ended,
}

/// A transaction did not begin or did not end as it should.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The coordinator refused.
    #[error("the coordinator refused{}", words(.0))]
    Refused(Option<Condition>),
    /// The coordinator answered something else than a transaction.
    #[error("the coordinator gave no transaction")]
    Answer,
    /// The request did not get through: an unfinished transaction is rolled
    /// back.
    #[error(transparent)]
    Send(#[from] SendError),
}
