//! What application and driver share: connections, listeners, and what one asks
//! of the other.

mod conn;
mod listener;

use core::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use dunlin_base::StreamId;
use dunlin_dial::LinkOptions;
use dunlin_net::{ClientTls, ListenerConfig, Move};

pub(crate) use conn::{ConnHandle, ConnShared, ConnState, FIRST, Facts, Opened, StreamHandle};
pub(crate) use listener::{ListenerShared, ListenerState};

use crate::limits::Limits;
use crate::pipe::Bounds;
use crate::stats::Stats;
use crate::wait::Answer;

/// TLS that was made of options, with the tickets that it keeps.
pub(crate) type MadeTls = Arc<Mutex<Option<Arc<ClientTls>>>>;

/// The way to a driver's thread.
pub(crate) type Remote = dunlin_dial::Remote<NewTask, Command>;

/// What an application asks of a connection or listener. How many of each may be
/// on the way: one `Touch` a stream, one `Release` a stream, one `Dropped`, and
/// what callers wait for.
pub(crate) enum Command {
    /// Something changed on a stream.
    Touch(StreamId),
    /// The application has dropped a stream.
    Release(StreamId),
    /// A stream is abandoned.
    Reset(StreamId, u64),
    /// The handle is weak: a call that waits does not keep the connection.
    Open(Weak<ConnHandle>, Answer<Arc<StreamHandle>>),
    Stats(Answer<Stats>),
    Move {
        to: Option<SocketAddr>,
        how: Move,
        answer: Answer<SocketAddr>,
    },
    Close(u64),
    /// The application has dropped it.
    Dropped,
}

/// What a dialled connection is made of.
pub(crate) struct New {
    /// Whose tickets are used.
    pub(crate) scope: String,
    pub(crate) link: LinkOptions,
    pub(crate) made: MadeTls,
    pub(crate) with_stream: bool,
}

/// What a dialled connection is made of, in the loop.
pub(crate) struct NewConn {
    pub(crate) new: New,
    pub(crate) handle: Arc<ConnHandle>,
    pub(crate) shared: Arc<ConnShared>,
    pub(crate) answer: Answer<Opened>,
    pub(crate) settings: Settings,
    /// Gives its place among the connections back.
    pub(crate) place: Place,
}

/// What a listener is made of.
pub(crate) struct NewListener {
    pub(crate) configs: Vec<ListenerConfig>,
    pub(crate) shared: Arc<ListenerShared>,
    pub(crate) answer: Answer<SocketAddr>,
    pub(crate) settings: Settings,
    pub(crate) backlog: usize,
}

/// What a task is made of.
pub(crate) enum NewTask {
    Conn(Box<NewConn>),
    Listener(Box<NewListener>),
}

/// What connections of one driver have alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) bounds: Bounds,
    /// Streams of the peer that may wait to be accepted.
    pub(crate) streams: usize,
}

impl Settings {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            bounds: limits.bounds(),
            streams: limits.streams as usize,
        }
    }
}

/// A place among the connections of a driver.
pub(crate) struct Place(pub(crate) Remote);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.unregister();
    }
}
