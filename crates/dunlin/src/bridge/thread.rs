//! The thread that all bridges share, with the threads of their clients.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;

use dunlin_client::{Runtime, RuntimeLimits};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::known;
use super::run::Runner;
use crate::config::bridge::BRIDGES_MAX;
use crate::daemon::error::StartError;

/// Most clients of all bridges.
const CLIENTS_MAX: usize = BRIDGES_MAX * 20;

/// A bridge that is to begin.
struct Start {
    runner: Arc<Runner>,
    stop: watch::Receiver<bool>,
    /// Dropped when it has ended.
    alive: blocking::Sender<()>,
}

/// The thread. Dropping it waits for its bridges, which must have been stopped.
#[derive(Debug)]
pub(super) struct Thread {
    starts: Option<mpsc::Sender<Start>>,
    handle: Option<JoinHandle<()>>,
    /// Of their clients.
    pub(super) clients: Runtime,
    /// The number of this broker among those that have bridges.
    pub(super) broker: String,
}

/// A bridge that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) stop: watch::Sender<bool>,
    /// Closed when it has ended.
    pub(super) ended: blocking::Receiver<()>,
}

impl Thread {
    /// Starts it, with the folder for bridges.
    ///
    /// # Errors
    /// The folder cannot be used, or there is no thread to be had.
    pub(super) fn start(folder: &Path) -> Result<Self, StartError> {
        let unusable = |source| StartError::DataDir {
            path: folder.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let broker = known::broker_id(folder).map_err(unusable)?;
        let mut limits = RuntimeLimits::default();
        limits.clients_max = CLIENTS_MAX;
        let clients = Runtime::new(limits).map_err(|error| StartError::Loop(error.to_string()))?;
        let (starts, orders) = mpsc::channel(BRIDGES_MAX);
        let handle = spawn(orders).map_err(|error| StartError::Loop(error.to_string()))?;
        Ok(Self {
            starts: Some(starts),
            handle: Some(handle),
            clients,
            broker,
        })
    }

    /// Has a bridge begin.
    ///
    /// # Errors
    /// The thread does not take it.
    pub(super) fn run(&self, runner: Arc<Runner>) -> Result<Running, StartError> {
        let (stop, stopped) = watch::channel(false);
        let (alive, ended) = blocking::channel();
        let start = Start {
            runner,
            stop: stopped,
            alive,
        };
        let sent = self.starts.as_ref().map(|starts| starts.try_send(start));
        match sent {
            Some(Ok(())) => Ok(Running { stop, ended }),
            _ => Err(StartError::Loop("the bridges do not answer".into())),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.starts = None;
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread of the bridges panicked");
        }
    }
}

fn spawn(mut orders: mpsc::Receiver<Start>) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let thread = std::thread::Builder::new().name("bridges".into());
    thread.spawn(move || {
        runtime.block_on(async {
            let mut running = JoinSet::new();
            loop {
                tokio::select! {
                    start = orders.recv() => match start {
                        Some(start) => {
                            running.spawn(run(start));
                        }
                        None => break,
                    },
                    Some(_) = running.join_next() => {}
                }
            }
            while running.join_next().await.is_some() {}
        });
    })
}

async fn run(start: Start) {
    let Start {
        runner,
        stop,
        alive,
    } = start;
    runner.run(stop).await;
    drop(alive);
}
