//! The background thread: what starts it, what it may hold, when it ends.

mod exchange;
mod links;
mod receiving;
mod sasl;
mod sending;
mod task;

use core::fmt;
use std::sync::{Arc, OnceLock};

use dunlin_dial::{Key, Remote};
use dunlin_net::{Clock, Net, NetConfig};

use crate::command::Command;
use crate::error::RuntimeError;
use crate::shared::NewClient;

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
    remote: Remote<NewClient, Command>,
    limits: RuntimeLimits,
}

impl Runtime {
    /// Starts a thread of its own.
    ///
    /// # Errors
    /// The system refuses an event loop or a thread.
    pub fn new(limits: RuntimeLimits) -> Result<Self, RuntimeError> {
        let net_error = |error| RuntimeError::Net(Arc::new(error));
        let clock = Clock::new();
        let config = NetConfig::client(clock).map_err(net_error)?;
        let net = Net::new(config).map_err(net_error)?;
        let remote = Remote::start::<task::ClientTask>("dunlin-amqp", net, clock);
        let remote = remote.map_err(|error| RuntimeError::Thread(Arc::new(error)))?;
        Ok(Self { remote, limits })
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
