//! Who waits for a stream of a connection.

use std::sync::{Arc, Weak};

use dunlin_base::Instant;

use crate::error::Error;
use crate::shared::{ConnHandle, Opened, StreamHandle};
use crate::wait::Answer;

/// What a new stream is for.
pub(super) enum Wish {
    Stream(Weak<ConnHandle>, Answer<Arc<StreamHandle>>),
    /// The first one of a connection, in what is left of the time to connect.
    Connect(Arc<ConnHandle>, Answer<Opened>, Instant),
}

impl Wish {
    /// Who has the connection, if the caller still waits.
    pub(super) fn handle(&self) -> Option<Arc<ConnHandle>> {
        match self {
            _ if !self.is_awaited() => None,
            Self::Stream(conn, _) => conn.upgrade(),
            Self::Connect(conn, ..) => Some(Arc::clone(conn)),
        }
    }

    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Self::Stream(_, answer) => answer.is_awaited(),
            Self::Connect(_, answer, _) => answer.is_awaited(),
        }
    }

    pub(super) const fn until(&self) -> Option<Instant> {
        match self {
            Self::Stream(..) => None,
            Self::Connect(_, _, until) => Some(*until),
        }
    }

    pub(super) fn grant(self, stream: Arc<StreamHandle>, conn: Arc<ConnHandle>) {
        match self {
            Self::Stream(_, answer) => answer.give(Ok(stream)),
            Self::Connect(_, answer, _) => answer.give(Ok(Opened {
                conn,
                stream: Some(stream),
            })),
        }
    }

    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Stream(_, answer) => answer.give(Err(error)),
            Self::Connect(_, answer, _) => answer.give(Err(error)),
        }
    }
}
