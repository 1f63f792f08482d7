//! What application and driver share of a connection, and who of the application
//! has it and its streams.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use dunlin_base::StreamId;
use dunlin_base::transport::Transport;
use dunlin_dial::Key;

use super::{Command, Remote};
use crate::error::Error;
use crate::pipe::Pipe;
use crate::stats::EarlyData;
use crate::wait::{Patience, Waiters, Woken, lock};

/// The stream that the client opens first.
pub(crate) const FIRST: StreamId = StreamId::CONTROL;

/// A connection that is open, and its first stream if one was asked for.
pub(crate) struct Opened {
    pub(crate) conn: Arc<ConnHandle>,
    pub(crate) stream: Option<Arc<StreamHandle>>,
}

/// What application and driver share of a connection.
pub(crate) struct ConnShared {
    remote: Remote,
    key: Key,
    pub(crate) state: Mutex<ConnState>,
    pub(crate) changed: Condvar,
}

/// Counts those of the application who have the connection: the last one closes
/// it.
pub(crate) struct ConnHandle {
    shared: Arc<ConnShared>,
}

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct ConnState {
    pub(crate) facts: Facts,
    pub(crate) early: EarlyData,
    pub(crate) end: Option<Error>,
    /// Streams of the peer that the application has not accepted.
    pub(crate) incoming: VecDeque<Arc<Pipe>>,
    /// Accepted: the client's first stream, until it is there.
    pub(crate) first: Option<Arc<Pipe>>,
    /// Times that the peer's address changed.
    pub(crate) address_changes: u32,
    pub(crate) patience: Patience,
    pub(crate) waiters: Waiters,
}

/// What is known of both ends.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) protocol: String,
    pub(crate) identity: Option<String>,
}

impl Default for Facts {
    fn default() -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            peer: nowhere,
            local: nowhere,
            transport: Transport::Quic,
            protocol: String::new(),
            identity: None,
        }
    }
}

impl ConnShared {
    pub(crate) fn new(remote: Remote, key: Key) -> Self {
        let state = ConnState {
            facts: Facts::default(),
            early: EarlyData::None,
            end: None,
            incoming: VecDeque::new(),
            first: None,
            address_changes: 0,
            patience: Patience::default(),
            waiters: Waiters::default(),
        };
        Self {
            remote,
            key,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ConnState> {
        lock(&self.state)
    }

    /// Changes the state and wakes those who wait for it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut ConnState) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let woken: Woken = state.waiters.take();
        drop(state);
        woken.wake(&self.changed);
        result
    }

    /// Asks the driver.
    pub(crate) fn push(&self, command: Command) {
        self.remote.push(self.key, command);
    }
}

impl ConnHandle {
    pub(crate) fn new(shared: Arc<ConnShared>) -> Arc<Self> {
        Arc::new(Self { shared })
    }

    pub(crate) fn shared(&self) -> &ConnShared {
        &self.shared
    }
}

impl Drop for ConnHandle {
    fn drop(&mut self) {
        self.shared.push(Command::Dropped);
    }
}

impl ConnState {
    /// Takes the client's first stream of an accepted connection.
    pub(crate) fn take_first(&mut self) -> Option<Arc<Pipe>> {
        self.first.take().or_else(|| self.incoming.pop_front())
    }

    /// Takes a stream of the peer; fails when there will be none.
    pub(crate) fn next_incoming(&mut self) -> Option<Result<Arc<Pipe>, Error>> {
        let pipe = self.incoming.pop_front().map(Ok);
        pipe.or_else(|| self.end.clone().map(Err))
    }
}

/// Counts those of the application who have the stream: the last one releases it.
pub(crate) struct StreamHandle {
    pub(crate) pipe: Arc<Pipe>,
    pub(crate) conn: Arc<ConnHandle>,
}

impl StreamHandle {
    pub(crate) fn new(pipe: Arc<Pipe>, conn: Arc<ConnHandle>) -> Arc<Self> {
        Arc::new(Self { pipe, conn })
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.conn.shared().push(Command::Release(self.pipe.id));
    }
}
