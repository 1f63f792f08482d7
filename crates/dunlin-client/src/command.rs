//! What the background thread is asked to do, and the way to it.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use dunlin_dial::Key;
use dunlin_dial::Resolved;
use dunlin_mqtt::codec::ReasonCode;
use dunlin_net::Waker;
use tokio::sync::oneshot;

use crate::error::DisconnectCause;
use crate::options::Options;
use crate::shared::Shared;
use crate::work::{Migration, QueuedPublish, Request};

/// What the background thread is asked to do. Bounded by what may be in
/// flight: publishes and requests need a permit, the others happen once.
pub(crate) enum Command {
    /// A new client connects.
    Add(Box<NewClient>),
    /// A message goes out.
    Publish(Key, QueuedPublish),
    /// A subscription is made or ended.
    Request(Key, Request),
    /// Messages were taken or acknowledged: runs the client.
    Run(Key),
    /// The client ends.
    Disconnect {
        key: Key,
        reason: ReasonCode,
        expiry: Option<Duration>,
        done: oneshot::Sender<()>,
    },
    /// All handles of the client are gone.
    Release(Key),
    /// The connection moves to another local address.
    Migrate(Key, Migration),
    /// A host name has been looked up.
    Resolved(Key, u64, Resolved),
    /// All handles of the runtime and of its clients are gone.
    End,
}

pub(crate) struct NewClient {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Arc<Options>,
    pub(crate) connected: oneshot::Sender<Result<(), DisconnectCause>>,
}

/// The way to the background thread.
#[derive(Clone)]
pub(crate) struct Remote {
    guard: Arc<Guard>,
}

impl Remote {
    pub(crate) fn new(queue: &Arc<Queue>) -> Self {
        Self {
            guard: Arc::new(Guard(Arc::clone(queue))),
        }
    }

    /// Leaves a command and wakes the thread. If the thread has ended, the
    /// command is dropped, which those who wait for it notice.
    pub(crate) fn push(&self, command: Command) {
        self.guard.0.push(command);
    }

    /// Takes a place for another client, of at most `max`.
    pub(crate) fn register(&self, max: usize) -> Option<Key> {
        let queue = &self.guard.0;
        let before = queue.clients.fetch_add(1, Ordering::AcqRel);
        if before >= max {
            queue.clients.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Key(queue.next_key.fetch_add(1, Ordering::Relaxed)))
    }

    /// Gives up a client's place.
    pub(crate) fn unregister(&self) {
        self.guard.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends the thread when the last handle that could ask for something is gone.
struct Guard(Arc<Queue>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.push(Command::End);
    }
}

/// Commands on their way to the thread.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    waker: Waker,
    clients: AtomicUsize,
    next_key: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    commands: Vec<Command>,
    ended: bool,
}

impl Queue {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            state: Mutex::default(),
            waker,
            clients: AtomicUsize::new(0),
            next_key: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, command: Command) {
        let mut state = self.lock();
        if state.ended {
            // Not under the lock: dropping may push again.
            drop(state);
            drop(command);
            return;
        }
        state.commands.push(command);
        let first = state.commands.len() == 1;
        drop(state);
        // The thread takes all at once, so the first has woken it already.
        if first {
            self.waker.wake();
        }
    }

    /// Takes everything; `into` is empty.
    pub(crate) fn take(&self, into: &mut Vec<Command>) {
        core::mem::swap(&mut self.lock().commands, into);
    }

    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let rest = core::mem::take(&mut state.commands);
        drop(state);
        drop(rest);
    }
}
