//! What can go wrong when a [`crate::Net`] is set up. What goes wrong with a
//! connection later is a `CloseCause`.

use core::net::SocketAddr;
use std::io;

use dunlin_base::transport::Transport;

/// A listener, a dialled connection or the loop itself cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The operating system refused the event queue or the random source.
    #[error("cannot create the event loop: {0}")]
    Loop(#[source] io::Error),
    /// The address is taken, not ours, or needs privileges.
    #[error("cannot listen on {transport} {addr}: {source}", transport = .transport.scheme())]
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
    /// An encrypted transport was asked for without TLS settings.
    #[error("{} needs TLS settings (certificate and key, or trusted roots)", .0.scheme())]
    TlsMissing(Transport),
    /// The server name to verify is neither a host name nor an address.
    #[error("'{0}' is not a valid server name")]
    ServerName(String),
    /// All connection slots are in use.
    #[error("the limit of {0} connections is reached")]
    TooManyConnections(usize),
    /// A value of the configuration is outside of what is possible.
    #[error("{0}")]
    Config(&'static str),
    /// A setting of QUIC is outside of what is possible.
    #[error(transparent)]
    Tuning(#[from] crate::TuningError),
}
