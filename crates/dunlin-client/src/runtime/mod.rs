//! The background thread: who may start it, how it is talked to, when it ends.

mod data;
mod datagram;
mod dialing;
mod early;
mod incoming;
mod io;
mod link;
mod migrate;
mod outbox;
mod outgoing;
mod pace;
mod resolver;
mod session;
mod spread;
mod upgrade;

use core::fmt;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use dunlin_base::{Instant, StreamId, Text};
use dunlin_mqtt::codec::{ReasonCode, SubscribeOptions};
use dunlin_net::{Clock, Net, NetConfig, Qlog, QlogFilter, QlogLimits, Waker};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::{DisconnectCause, PublishError, RuntimeError, SubscribeError};
use crate::message::Publish;
use crate::options::Options;
use crate::shared::Shared;
use crate::streams::Priority;
pub(crate) use migrate::Migration;

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

/// A background thread with an event loop that any number of clients share.
/// It ends when its last handle and its last client are gone.
///
/// Most programs need none of this: [`Builder::connect`](crate::Builder::connect)
/// uses a process-wide one, started with the first client.
#[derive(Clone)]
pub struct Runtime {
    remote: Remote,
    limits: RuntimeLimits,
    qlog: Option<Qlog>,
}

impl Runtime {
    /// Starts a thread of its own.
    ///
    /// # Errors
    /// The system refuses an event loop or a thread.
    pub fn new(limits: RuntimeLimits) -> Result<Self, RuntimeError> {
        Self::start(limits, None)
    }

    /// As [`Runtime::new`], and logs every QUIC connection to a file of its own
    /// in this directory, in the sequential form of qlog.
    ///
    /// # Errors
    /// The directory cannot be made; as [`Runtime::new`].
    pub fn with_qlog(limits: RuntimeLimits, dir: &Path) -> Result<Self, RuntimeError> {
        Self::start(limits, Some(dir))
    }

    /// Waits until all connections that are logged have ended and their files
    /// are written, but not longer than `patience`. Blocks the thread.
    pub fn finish_qlog(&self, patience: Duration) {
        if let Some(qlog) = &self.qlog {
            qlog.finish(patience);
        }
    }

    fn start(limits: RuntimeLimits, qlog: Option<&Path>) -> Result<Self, RuntimeError> {
        let net_error = |error| RuntimeError::Net(Arc::new(error));
        let clock = Clock::new();
        let mut config = NetConfig::client(clock).map_err(net_error)?;
        if let Some(dir) = qlog {
            let qlog = Qlog::open(dir, QlogLimits::default(), clock);
            let qlog = qlog.map_err(|error| RuntimeError::Qlog(Arc::new(error)))?;
            qlog.select(QlogFilter::all());
            config.qlog = Some(qlog);
        }
        let qlog = config.qlog.clone();
        let net = Net::new(config).map_err(net_error)?;
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            waker: net.waker(),
            clients: AtomicUsize::new(0),
            next_key: AtomicU64::new(0),
        });
        let remote = Remote {
            guard: Arc::new(Guard(Arc::clone(&queue))),
        };
        thread::Builder::new()
            .name("dunlin-client".into())
            .spawn(move || io::Io::new(net, clock, queue).run())
            .map_err(|error| RuntimeError::Thread(Arc::new(error)))?;
        Ok(Self {
            remote,
            limits,
            qlog,
        })
    }

    /// The process-wide one.
    ///
    /// # Errors
    /// As [`Runtime::new`], the first time; later the same again.
    pub fn global() -> Result<Self, RuntimeError> {
        static GLOBAL: OnceLock<Result<Runtime, RuntimeError>> = OnceLock::new();
        GLOBAL
            .get_or_init(|| Self::new(RuntimeLimits::default()))
            .clone()
    }

    /// A place for another client.
    pub(crate) fn register(&self) -> Result<(Key, Remote), RuntimeError> {
        let queue = &self.remote.guard.0;
        let before = queue.clients.fetch_add(1, Ordering::AcqRel);
        if before >= self.limits.clients_max {
            queue.clients.fetch_sub(1, Ordering::AcqRel);
            return Err(RuntimeError::TooManyClients(self.limits.clients_max));
        }
        let key = Key(queue.next_key.fetch_add(1, Ordering::Relaxed));
        Ok((key, self.remote.clone()))
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Names a client towards the background thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u64);

/// What the background thread is asked to do. Bounded by what may be in
/// flight: publishes and requests need a permit, the others happen once.
pub(crate) enum Command {
    /// A new client connects.
    Add(Box<NewClient>),
    /// A message goes out.
    Publish(Key, QueuedPublish),
    /// A subscription is made or ended.
    Request(Key, Request),
    /// Messages were taken or acknowledged.
    Look(Key),
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
    Resolved(Key, u64, resolver::Resolved),
    /// All handles of the runtime and of its clients are gone.
    End,
}

pub(crate) struct NewClient {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Options,
    pub(crate) connected: oneshot::Sender<Result<(), DisconnectCause>>,
}

pub(crate) struct QueuedPublish {
    pub(crate) publish: Publish,
    permit: OwnedSemaphorePermit,
    done: oneshot::Sender<Result<ReasonCode, PublishError>>,
    /// By its topic.
    priority: Priority,
    /// When it is of no use any more.
    obsolete_at: Option<Instant>,
    /// The stream of this connection that it was written on.
    stream: Option<StreamId>,
}

impl QueuedPublish {
    pub(crate) fn new(
        publish: Publish,
        permit: OwnedSemaphorePermit,
        done: oneshot::Sender<Result<ReasonCode, PublishError>>,
    ) -> Self {
        Self {
            publish,
            permit,
            done,
            priority: Priority::NORMAL,
            obsolete_at: None,
            stream: None,
        }
    }

    pub(crate) fn finish(self, outcome: Result<ReasonCode, PublishError>) {
        drop(self.permit);
        // Whoever does not wait for the outcome does not want it.
        let _ = self.done.send(outcome);
    }
}

impl outbox::Waiting for QueuedPublish {
    fn topic(&self) -> &Text {
        &self.publish.topic
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn obsolete_at(&self) -> Option<Instant> {
        self.obsolete_at
    }
}

/// A SUBSCRIBE or UNSUBSCRIBE. Without someone who waits, it is one that the
/// client makes by itself after the server lost the session.
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    pub(crate) done: Option<(Answer, OwnedSemaphorePermit)>,
}

/// Where the answer to a request goes.
type Answer = oneshot::Sender<Result<Vec<ReasonCode>, SubscribeError>>;

impl Request {
    pub(crate) fn finish(self, outcome: Result<Vec<ReasonCode>, SubscribeError>) {
        if let Some((done, permit)) = self.done {
            drop(permit);
            let _ = done.send(outcome);
        }
    }
}

impl Request {
    /// What it is about.
    pub(crate) fn filters(&self) -> Box<dyn Iterator<Item = &Text> + '_> {
        match &self.kind {
            RequestKind::Subscribe { filters, .. } => Box::new(filters.iter().map(|(f, _)| f)),
            RequestKind::Unsubscribe { filters } => Box::new(filters.iter()),
        }
    }
}

pub(crate) enum RequestKind {
    Subscribe {
        filters: Vec<(Text, SubscribeOptions)>,
        id: Option<NonZeroU32>,
    },
    Unsubscribe {
        filters: Vec<Text>,
    },
}

/// The way to the background thread.
#[derive(Clone)]
pub(crate) struct Remote {
    guard: Arc<Guard>,
}

impl Remote {
    /// Leaves a command and wakes the thread. If the thread has ended, the
    /// command is dropped, which those who wait for it notice.
    pub(crate) fn push(&self, command: Command) {
        self.guard.0.push(command);
    }

    /// Gives up a client's place.
    fn unregister(&self) {
        self.guard.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Tells the thread when the last one who could ask for something is gone.
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
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, command: Command) {
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
    fn take(&self, into: &mut Vec<Command>) {
        core::mem::swap(&mut self.lock().commands, into);
    }

    fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let rest = core::mem::take(&mut state.commands);
        drop(state);
        drop(rest);
    }
}
