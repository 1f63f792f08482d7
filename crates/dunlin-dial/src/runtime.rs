//! What the background thread of a client library may hold, and why it does not
//! work.

use std::io;
use std::sync::Arc;

use dunlin_net::NetError;

/// Limits of one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeLimits {
    /// Clients at most. Default 65,536.
    pub clients_max: usize,
}

impl Default for RuntimeLimits {
    fn default() -> Self {
        Self {
            clients_max: 65_536,
        }
    }
}

/// The background thread does not work.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The event loop cannot be created.
    #[error("{0}")]
    Net(Arc<NetError>),
    /// The directory for qlog cannot be used.
    #[error("cannot log connections")]
    Qlog(#[source] Arc<io::Error>),
    /// The thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] Arc<io::Error>),
    /// As many clients as the runtime allows.
    #[error("the limit of {0} clients is reached")]
    TooManyClients(usize),
    /// The thread has ended.
    #[error("the client runtime has ended")]
    Ended,
}
