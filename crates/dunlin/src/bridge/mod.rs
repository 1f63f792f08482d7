//! Bridges to other brokers, as the configuration lists them. A bridge is a client of the
//! other broker and a client of this one, and carries messages between the two; what
//! waits for the other broker waits in its session here, on disk like any other.
//!
//! All bridges share one thread, beside that of their clients.

mod ends;
mod known;
mod pump;
pub(crate) mod route;
mod run;
pub(crate) mod stats;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use dunlin_broker::home_shard;
use dunlin_client::{Runtime, RuntimeLimits};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use route::VIA;

use crate::config::Config;
use crate::config::bridge::{BRIDGES_MAX, Bridge};
use crate::daemon::error::StartError;
use crate::daemon::mailbox::Address;
use known::Known;
use run::Runner;
use stats::{Stats, View};

/// Most clients of all bridges.
const CLIENTS_MAX: usize = BRIDGES_MAX * 20;

/// The bridges of a running broker. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Bridges {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    views: Vec<View>,
}

impl Bridges {
    /// Starts the bridges of a configuration, if it has any. None waits for its other
    /// broker.
    ///
    /// # Errors
    /// A file of a bridge cannot be used, or there is no thread to be had.
    pub(crate) fn start(config: &Config, shards: &[Address]) -> Result<Option<Self>, StartError> {
        if config.bridge.is_empty() {
            return Ok(None);
        }
        let dir = config.data_dir.join("bridges");
        let unusable = |source| StartError::DataDir {
            path: dir.clone(),
            source,
        };
        std::fs::create_dir_all(&dir).map_err(unusable)?;
        let broker = known::broker_id(&dir).map_err(unusable)?;
        let mut limits = RuntimeLimits::default();
        limits.clients_max = CLIENTS_MAX;
        let clients = Runtime::new(limits).map_err(|error| StartError::Loop(error.to_string()))?;
        let mut runners = Vec::new();
        for bridge in &config.bridge {
            runners.push(runner(config, bridge, shards, &broker, &clients, &dir)?);
        }
        let views = runners.iter().map(|runner| View {
            name: Arc::clone(&runner.name),
            session: runner.config.has_out().then(|| runner.config.local_id()),
            stats: Arc::clone(&runner.stats),
            wanted: runner.wanted.clone(),
        });
        let views = views.collect();
        let (stop, stopped) = watch::channel(false);
        let started = spawn(runners, stopped);
        let thread = started.map_err(|error| StartError::Loop(error.to_string()))?;
        Ok(Some(Self {
            stop,
            thread: Some(thread),
            views,
        }))
    }

    /// What is known of each.
    pub(crate) fn views(&self) -> &[View] {
        &self.views
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the bridges panicked");
        }
    }
}

fn runner(
    config: &Config,
    bridge: &Bridge,
    shards: &[Address],
    broker: &str,
    clients: &Runtime,
    dir: &Path,
) -> Result<Arc<Runner>, StartError> {
    let count = u16::try_from(shards.len()).unwrap_or(u16::MAX);
    let home = usize::from(home_shard(&bridge.local_id(), count));
    let shard = shards.get(home).or_else(|| shards.first());
    let shard = shard.ok_or_else(|| StartError::Loop("there is no shard".into()))?;
    let id = ends::remote_id(bridge, broker);
    let plan = ends::Plan::new(config, bridge, id.clone(), shard, clients, dir)?;
    Ok(Arc::new(Runner {
        name: bridge.name.as_str().into(),
        config: bridge.clone(),
        plan,
        via: id,
        stats: Arc::new(Stats::default()),
        known: Known::new(dir, &bridge.name),
        shard: shard.clone(),
        wanted: watch::Sender::default(),
    }))
}

fn spawn(
    runners: Vec<Arc<Runner>>,
    stopped: watch::Receiver<bool>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let thread = std::thread::Builder::new().name("bridges".into());
    thread.spawn(move || {
        runtime.block_on(async {
            let mut running = JoinSet::new();
            for runner in runners {
                running.spawn(runner.run(stopped.clone()));
            }
            while running.join_next().await.is_some() {}
        });
    })
}
