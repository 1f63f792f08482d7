//! The background thread: what starts it, what it may hold, when it ends.

mod exchange;
mod lane;
mod lanes;
mod links;
mod receiving;
mod sasl;
mod sending;
mod task;

use std::sync::OnceLock;

pub use dunlin_dial::RuntimeLimits;
use dunlin_dial::{Key, Remote};

use crate::command::Command;
use crate::error::RuntimeError;
use crate::shared::NewClient;

/// A background thread with an event loop that any number of clients share.
/// It ends when its last handle and its last client are gone.
///
/// Most programs need none of this: [`Builder::connect`](crate::Builder::connect)
/// uses a process-wide one, started with the first client.
#[derive(Clone, Debug)]
pub struct Runtime {
    remote: Remote<NewClient, Command>,
}

impl Runtime {
    /// Starts a thread of its own.
    ///
    /// # Errors
    /// The system refuses an event loop or a thread.
    pub fn new(limits: RuntimeLimits) -> Result<Self, RuntimeError> {
        let remote = Remote::start::<task::ClientTask>("dunlin-amqp", limits, None)?;
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
    pub(crate) fn register(&self) -> Result<(Key, Remote<NewClient, Command>), RuntimeError> {
        Ok((self.remote.register()?, self.remote.clone()))
    }
}
