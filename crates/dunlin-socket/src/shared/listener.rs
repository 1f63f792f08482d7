//! What application and driver share of a listener.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use dunlin_dial::Key;

use super::conn::ConnHandle;
use super::{Command, Remote};
use crate::error::Error;
use crate::wait::{Patience, Waiters, lock};

/// What application and driver share of a listener.
pub(crate) struct ListenerShared {
    remote: Remote,
    key: Key,
    pub(crate) state: Mutex<ListenerState>,
    pub(crate) changed: Condvar,
}

/// Connections that wait to be accepted.
#[derive(Default)]
pub(crate) struct ListenerState {
    incoming: VecDeque<Arc<ConnHandle>>,
    /// Places for connections that come in now.
    reserved: usize,
    pub(crate) addr: Option<SocketAddr>,
    is_over: bool,
    pub(crate) patience: Patience,
    pub(crate) waiters: Waiters,
}

impl ListenerShared {
    pub(crate) fn new(remote: Remote, key: Key) -> Self {
        Self {
            remote,
            key,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The application has dropped it.
    pub(crate) fn drop_it(&self) {
        self.remote.push(self.key, Command::Dropped);
    }

    pub(crate) const fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ListenerState> {
        lock(&self.state)
    }

    /// Changes the state and wakes those who wait for it.
    fn change<R>(&self, change: impl FnOnce(&mut ListenerState) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let woken = state.waiters.take();
        drop(state);
        woken.wake(&self.changed);
        result
    }

    /// Takes a place among those that wait; [`Self::put`] follows. `false`: there
    /// is none.
    pub(crate) fn reserve(&self, backlog: usize) -> bool {
        let mut state = self.lock();
        let has_room = state.incoming.len() + state.reserved < backlog;
        state.reserved += usize::from(has_room);
        has_room
    }

    /// A connection waits to be accepted.
    pub(crate) fn put(&self, connection: Arc<ConnHandle>) {
        self.change(|state| {
            state.reserved = state.reserved.saturating_sub(1);
            state.incoming.push_back(connection);
        });
    }

    /// Nothing comes in any more; connections that were not accepted are closed.
    pub(crate) fn end(&self) {
        let waiting = self.change(|state| {
            state.is_over = true;
            core::mem::take(&mut state.incoming)
        });
        drop(waiting);
    }
}

impl ListenerState {
    /// Takes a connection; fails when there will be none.
    pub(crate) fn next(&mut self) -> Option<Result<Arc<ConnHandle>, Error>> {
        let next = self.incoming.pop_front().map(Ok);
        next.or_else(|| self.is_over.then(|| Err(Error::ended())))
    }
}
