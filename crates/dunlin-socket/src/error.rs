//! Why a socket does not work, and what kind of [`io::Error`] that is.

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use dunlin_base::transport::CloseCause;
use dunlin_dial::{DialError, RuntimeError, UrlError};
use dunlin_net::{MoveError, NetError, TlsError, TuningError};

/// Why a socket does not work.
///
/// Methods that mirror those of [`std::net`] return it inside an [`io::Error`]
/// of the kind that each variant names; [`Error::of`] gets it out again.
///
/// # Examples
/// ```
/// use dunlin_socket::{Error, Stream};
///
/// let error = Stream::connect("no port").expect_err("not an address");
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// assert!(matches!(Error::of(&error), Some(Error::Address(..))));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server's address is none (`InvalidInput`).
    #[error("{0:?} is not a host with a port")]
    Address(String, #[source] Option<UrlError>),
    /// An option is out of range (`InvalidInput`).
    #[error("{0}")]
    Option(TuningError),
    /// Certificates or keys cannot be used (`InvalidInput`).
    #[error("{0}")]
    Tls(Arc<TlsError>),
    /// The host name has no address (the kind that the system says).
    #[error("cannot resolve {host}")]
    Resolve {
        /// The name.
        host: Arc<str>,
        /// What the system said.
        #[source]
        error: Arc<io::Error>,
    },
    /// No socket could be made, or no address bound (the kind that the system
    /// says).
    #[error("{0}")]
    Net(Arc<NetError>),
    /// The driver cannot run, or holds as much as it may (`Other`).
    #[error("{0}")]
    Driver(RuntimeError),
    /// The server's machine says that the port is closed (`ConnectionRefused`).
    #[error("connection refused")]
    Refused,
    /// The handshake did not end in time, or the server allowed no stream in that
    /// time (`TimedOut`).
    #[error("the handshake did not end in time, or no stream was allowed")]
    HandshakeTimeout,
    /// The handshake failed: the certificate is not good for the server's name, no
    /// application protocol is common, the server has no room (`InvalidData`).
    #[error("the handshake failed: {0}")]
    Handshake(Arc<str>),
    /// The peer was silent for too long: it is gone (`TimedOut`).
    #[error("the peer is gone: nothing arrived within the idle timeout")]
    IdleTimeout,
    /// The peer closed the connection before it had sent the end of this stream
    /// (`ConnectionAborted`).
    #[error("the peer closed the connection with code {code}")]
    Closed {
        /// Its application error code.
        code: u64,
    },
    /// The connection was lost (`ConnectionAborted`).
    #[error("the connection is lost: {0}")]
    Lost(Arc<str>),
    /// The address of this machine is gone (`NetworkDown`).
    #[error("the local address is gone")]
    AddressGone,
    /// This side closed the connection (`NotConnected`).
    #[error("this side closed the connection")]
    ClosedHere,
    /// The peer abandoned the stream (`ConnectionReset`).
    #[error("the peer reset the stream with code {code}")]
    Reset {
        /// Its application error code.
        code: u64,
    },
    /// The peer reads nothing more of this stream (`BrokenPipe`).
    #[error("the peer reads no more of this stream, code {code}")]
    Stopped {
        /// Its application error code.
        code: u64,
    },
    /// This side has ended what it sends (`BrokenPipe`).
    #[error("this side has ended what it sends")]
    ShutDown,
    /// The time limit of the call is over, or the socket does not block and would
    /// have to (`WouldBlock`, as where a TCP socket has a time limit).
    #[error("not within the time limit")]
    WouldBlock,
    /// Only QUIC can do that, and the connection had to take TLS over TCP
    /// (`Unsupported`).
    #[error("the connection is not one of QUIC")]
    NotQuic,
    /// As many calls wait already as may (`Other`).
    #[error("{0} calls wait for a stream already")]
    TooManyWaiting(usize),
    /// The connection cannot move (`Other`).
    #[error("{0}")]
    Move(Arc<MoveError>),
    /// The server does not answer over the new path; the connection stays where it
    /// was (`HostUnreachable`).
    #[error("no answer came over the new path")]
    NoPath,
    /// A time limit of zero (`InvalidInput`), as `std::net` refuses it.
    #[error("a time limit of {0:?} would never be met")]
    ZeroLimit(Duration),
}

impl Error {
    /// The error of a socket that an [`io::Error`] carries.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The kind of [`io::Error`] that it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Address(..) | Self::Option(_) | Self::Tls(_) | Self::ZeroLimit(_) => {
                ErrorKind::InvalidInput
            }
            Self::Resolve { error, .. } => error.kind(),
            Self::Net(error) => system_kind(error),
            Self::Driver(_) | Self::TooManyWaiting(_) | Self::Move(_) => ErrorKind::Other,
            Self::Refused => ErrorKind::ConnectionRefused,
            Self::HandshakeTimeout | Self::IdleTimeout => ErrorKind::TimedOut,
            Self::Handshake(_) => ErrorKind::InvalidData,
            Self::Closed { .. } | Self::Lost(_) => ErrorKind::ConnectionAborted,
            Self::AddressGone => ErrorKind::NetworkDown,
            Self::ClosedHere => ErrorKind::NotConnected,
            Self::Reset { .. } => ErrorKind::ConnectionReset,
            Self::Stopped { .. } | Self::ShutDown => ErrorKind::BrokenPipe,
            Self::WouldBlock => ErrorKind::WouldBlock,
            Self::NotQuic => ErrorKind::Unsupported,
            Self::NoPath => ErrorKind::HostUnreachable,
        }
    }

    /// The driver has ended.
    pub(crate) const fn ended() -> Self {
        Self::Driver(RuntimeError::Ended)
    }

    /// Why a connection did not come about.
    pub(crate) fn of_dial(error: DialError) -> Self {
        if error.is_refused() {
            return Self::Refused;
        }
        match error {
            DialError::Transport(CloseCause::Failed(text)) => Self::Handshake(text),
            DialError::Transport(cause) => Self::of_end(cause),
            DialError::Resolve { host, error } => Self::Resolve { host, error },
            DialError::Tls(error) => Self::Tls(error),
            DialError::Net(error) => Self::Net(error),
            other => Self::Lost(other.to_string().into()),
        }
    }

    /// Why an open connection ended.
    pub(crate) fn of_end(cause: CloseCause) -> Self {
        match cause {
            CloseCause::Peer { code } => Self::Closed { code },
            CloseCause::Local => Self::ClosedHere,
            CloseCause::IdleTimeout => Self::IdleTimeout,
            CloseCause::HandshakeTimeout => Self::HandshakeTimeout,
            CloseCause::AddressGone => Self::AddressGone,
            CloseCause::Failed(text) => Self::Lost(text),
            other => Self::Lost(other.to_string().into()),
        }
    }
}

fn system_kind(error: &NetError) -> ErrorKind {
    let mut cause = Some(error as &dyn core::error::Error);
    while let Some(now) = cause {
        if let Some(error) = now.downcast_ref::<io::Error>() {
            return error.kind();
        }
        cause = now.source();
    }
    ErrorKind::Other
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        Self::Driver(error)
    }
}

impl From<NetError> for Error {
    fn from(error: NetError) -> Self {
        Self::Net(Arc::new(error))
    }
}

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        Self::Tls(Arc::new(error))
    }
}

impl From<MoveError> for Error {
    fn from(error: MoveError) -> Self {
        Self::Move(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_tcp() {
        let cases = [
            (Error::of_end(CloseCause::IdleTimeout), ErrorKind::TimedOut),
            (
                Error::of_end(CloseCause::Peer { code: 7 }),
                ErrorKind::ConnectionAborted,
            ),
            (Error::Reset { code: 1 }, ErrorKind::ConnectionReset),
            (Error::ShutDown, ErrorKind::BrokenPipe),
            (Error::WouldBlock, ErrorKind::WouldBlock),
            (Error::Refused, ErrorKind::ConnectionRefused),
        ];
        for (error, kind) in cases {
            let text = error.to_string();
            let error = io::Error::from(error);
            assert_eq!((error.kind(), error.to_string()), (kind, text));
            assert!(Error::of(&error).is_some());
        }
    }

    #[test]
    fn what_the_system_says_of_a_socket_is_kept() {
        let source = io::Error::from(ErrorKind::AddrInUse);
        let addr = ([127, 0, 0, 1], 1).into();
        let error = Error::from(NetError::Dial { addr, source });
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}
