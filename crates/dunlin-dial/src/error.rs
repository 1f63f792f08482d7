//! Why a connection did not come about or ended, as far as the transport can
//! tell, and what a link must know of a cause that its owner names.

use core::fmt;
use std::io;
use std::sync::Arc;

use dunlin_base::transport::CloseCause;
use dunlin_net::{NetError, TlsError};

/// Why a connection did not come about or ended.
///
/// A text does not repeat its cause, which `source()` gives. What the transport
/// reports (TLS, sockets) is whole in one text and has no further cause.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The transport ended: lost, refused, handshake failed, timed out.
    #[error("connection failed: {0}")]
    Transport(CloseCause),
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
}

/// What is said of a UDP port that the server's machine says is closed.
pub(crate) const PORT_CLOSED: &str = "cannot connect: port is closed";

impl DialError {
    /// Whether the server's machine said that its UDP port is closed.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Transport(CloseCause::Failed(text)) if **text == *PORT_CLOSED)
    }
}

/// Why a connection ended, in the words of the protocol that ran on it.
pub trait Cause: Clone + fmt::Debug + From<DialError> {
    /// This side ended it.
    fn local() -> Self;

    /// How the transport ended, if that is all.
    fn transport(&self) -> Option<&CloseCause>;

    /// The server said, in the protocol, that it ends the connection.
    fn is_by_server(&self) -> bool;

    /// Another attempt would only do harm.
    fn is_final(&self) -> bool;
}

/// For an owner who has no words of a protocol.
impl Cause for DialError {
    fn local() -> Self {
        Self::Transport(CloseCause::Local)
    }

    fn transport(&self) -> Option<&CloseCause> {
        match self {
            Self::Transport(cause) => Some(cause),
            _ => None,
        }
    }

    fn is_by_server(&self) -> bool {
        false
    }

    fn is_final(&self) -> bool {
        false
    }
}
