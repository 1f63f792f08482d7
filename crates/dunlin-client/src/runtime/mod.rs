//! The background thread: what starts it, what it may hold, when it ends.

mod exchange;
mod flow;
mod migrate;
mod receive;
mod requests;
mod scram;
mod send;
mod task;

use core::time::Duration;
use std::path::Path;
use std::sync::OnceLock;

use dunlin_dial::Key;
pub use dunlin_dial::RuntimeLimits;

use crate::error::RuntimeError;
use crate::shared::Remote;
pub(crate) use task::ClientTask;

/// A background thread with an event loop that any number of clients share.
/// It ends when its last handle and its last client are gone.
///
/// Most programs need none of this: [`Builder::connect`](crate::Builder::connect)
/// uses a process-wide one, started with the first client.
#[derive(Clone, Debug)]
pub struct Runtime {
    remote: Remote,
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
        self.remote.finish_qlog(patience);
    }

    fn start(limits: RuntimeLimits, qlog: Option<&Path>) -> Result<Self, RuntimeError> {
        let remote = Remote::start::<ClientTask>("dunlin-client", limits, qlog)?;
        Ok(Self { remote })
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
        Ok((self.remote.register()?, self.remote.clone()))
    }
}
