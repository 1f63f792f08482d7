//! What can go wrong when QUIC is set up or a connection begun.

use crate::{LbError, TlsError, TuningError};

/// QUIC cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuicError {
    /// Connection ids cannot be laid out as asked for.
    #[error("connection ids for a load balancer: {0}")]
    ConnectionIds(#[from] LbError),
    /// A setting is outside of what is possible.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The longest idle timeout does not fit the transport parameter.
    #[error("the longest idle timeout is too long for QUIC")]
    IdleTimeout,
}

/// A connection cannot be begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server name to verify is neither a host name nor an address.
    #[error("'{0}' is not a valid server name")]
    ServerName(String),
    /// TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// quinn-proto refuses.
    #[error("{0}")]
    Refused(quinn_proto::ConnectError),
}
