//! The background thread: what starts it, what it may hold, when it ends.

mod exchange;
mod flow;
mod io;
mod migrate;
mod receive;
mod requests;
mod scram;
mod send;
mod task;

use core::fmt;
use core::time::Duration;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use dunlin_net::{Clock, Net, NetConfig, Qlog, QlogFilter, QlogLimits};

use crate::command::{Key, Queue, Remote};
use crate::error::RuntimeError;

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
        let queue = Arc::new(Queue::new(net.waker()));
        let remote = Remote::new(&queue);
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
        let max = self.limits.clients_max;
        let key = self.remote.register(max);
        let key = key.ok_or(RuntimeError::TooManyClients(max))?;
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
