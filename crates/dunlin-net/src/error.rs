//! What can go wrong when a [`crate::Net`] is set up or a connection moved. What
//! goes wrong with a connection later is a `CloseCause`.

use core::net::SocketAddr;
use std::io;

use dunlin_base::transport::Transport;

use dunlin_quic::{LbError, QuicError, TuningError};

/// A listener, a dialled connection or the loop itself cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The operating system refused the event queue or the random source.
    #[error("cannot create the event loop: {0}")]
    Loop(#[source] io::Error),
    /// The address is taken, not ours, or needs privileges.
    #[error("cannot listen on {transport} {addr}: {source}", transport = .transport.name())]
    Listen {
        /// What was to be listened for.
        transport: Transport,
        /// Where.
        addr: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// No socket could be made for an outgoing connection.
    #[error("cannot connect to {addr}: {source}")]
    Dial {
        /// Where to.
        addr: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A Unix socket cannot be connected to.
    #[error("cannot connect to {0}")]
    Unix(io::Error),
    /// An encrypted transport was asked for without TLS settings.
    #[error("{} needs TLS settings (certificate and key, or trusted roots)", .0.name())]
    TlsMissing(Transport),
    /// The server name to verify is neither a host name nor an address.
    #[error("'{0}' is not a valid server name")]
    ServerName(String),
    /// All connection slots are in use.
    #[error("the limit of {0} connections is reached")]
    TooManyConnections(usize),
    /// Connection ids cannot be laid out as asked for.
    #[error("connection ids for a load balancer: {0}")]
    ConnectionIds(#[from] LbError),
    /// A value of the configuration is outside of what is possible.
    #[error("{0}")]
    Config(&'static str),
    /// A setting of QUIC is outside of what is possible.
    #[error(transparent)]
    Tuning(#[from] TuningError),
}

impl From<QuicError> for NetError {
    fn from(error: QuicError) -> Self {
        match error {
            QuicError::ConnectionIds(error) => Self::ConnectionIds(error),
            QuicError::Tuning(error) => Self::Tuning(error),
            QuicError::IdleTimeout => Self::Config("the longest idle timeout is too long for QUIC"),
            other => Self::Loop(io::Error::other(other)),
        }
    }
}

/// A connection cannot be moved to another local address; it stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// There is no such connection any more.
    #[error("the connection is gone")]
    Unknown,
    /// Only QUIC connections can move.
    #[error("only a QUIC connection can move to another address")]
    NotQuic,
    /// Only the side that dialled can move.
    #[error("only the side that connected can move")]
    Accepted,
    /// The server has not confirmed the handshake yet.
    #[error("the handshake is not confirmed yet")]
    Handshaking,
    /// Another move is under way.
    #[error("the connection is moving already")]
    Busy,
    /// The server does not allow it (`disable_active_migration`).
    #[error("the server does not allow connections to move")]
    Forbidden,
    /// The new address is of another family than the server's.
    #[error("{local} and the server's {remote} are of different families")]
    Family {
        /// The address asked for.
        local: SocketAddr,
        /// The server.
        remote: SocketAddr,
    },
    /// No socket could be made there.
    #[error("cannot send from {local}: {source}")]
    Bind {
        /// The address asked for.
        local: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}
