//! A running sink: its workers, each on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use dunlin_client::{Runtime, RuntimeLimits};
use tokio::sync::watch;

use crate::config::{Config, ConfigError};
use crate::guard::Guard;
use crate::marks::{self, Marks};
use crate::refused::Place;
use crate::stats::Stats;
use crate::targets;
use crate::worker::{End, Worker};

/// Why a sink does not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no thread or socket to be had.
    #[error("cannot start")]
    Start(#[source] std::io::Error),
    /// The same for what clients need.
    #[error("cannot start: {0}")]
    Client(String),
    /// A message was refused and there is no place for it.
    #[error("{0}")]
    Refused(String),
    /// A worker panicked.
    #[error("a worker panicked")]
    Panicked,
}

/// A running sink.
#[derive(Debug)]
pub struct Sink {
    stats: Arc<Stats>,
    stop: Stopper,
    workers: Vec<JoinHandle<End>>,
}

/// Asks a sink to stop, from anywhere.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Lets the sink store what is at hand, and end.
    pub fn stop(&self) {
        let _ = self.0.send_replace(true);
    }
}

impl Sink {
    /// Starts. Neither the broker nor the target need be there yet.
    ///
    /// # Errors
    /// The configuration is wrong, or there are no resources.
    pub fn start(config: Config) -> Result<Self, SinkError> {
        config.check()?;
        drop(config.client()?);
        let config = Arc::new(config);
        let stats = Arc::new(Stats::default());
        let place = Place::new(&config.refused);
        let marks = marks(&config)?;
        let (sender, stop) = watch::channel(false);
        let stopper = Stopper(Arc::new(sender));
        let mut workers = Vec::new();
        for number in 0..config.broker.workers {
            let runtime = Runtime::new(RuntimeLimits::default())
                .map_err(|error| SinkError::Client(error.to_string()))?;
            let worker = Worker {
                number,
                config: Arc::clone(&config),
                stats: Arc::clone(&stats),
                place: place.clone(),
                target: targets::build(&config)?,
                guard: Guard::new(marks.clone().map(|marks| marks::Worker { marks, number })),
                stop: stop.clone(),
                runtime,
            };
            workers.push(spawn(worker, stopper.clone()).map_err(SinkError::Start)?);
        }
        Ok(Self {
            stats,
            stop: stopper,
            workers,
        })
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Stops it from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// It did not end because it was asked to.
    pub fn join(self) -> Result<(), SinkError> {
        let mut outcome = Ok(());
        for worker in self.workers {
            match worker.join() {
                Ok(End::Stopped | End::Closed) => {}
                Ok(End::Refused(why)) => outcome = Err(SinkError::Refused(why)),
                Err(_) => outcome = Err(SinkError::Panicked),
            }
        }
        outcome
    }
}

/// Stack of a worker: expressions and values are nested.
const STACK_BYTES: usize = 16 << 20;

/// What remembers messages that ended the process.
fn marks(config: &Config) -> Result<Option<Arc<Marks>>, ConfigError> {
    let open = |path: &std::path::PathBuf| {
        let opened = Marks::open(path, config.broker.workers);
        opened.map(Arc::new).map_err(|error| ConfigError::Value {
            key: "state",
            why: format!("{}: {error}", path.display()),
        })
    };
    config.state.as_ref().map(open).transpose()
}

fn spawn(worker: Worker, stopper: Stopper) -> std::io::Result<JoinHandle<End>> {
    let name = format!("sink-{}", worker.number);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new()
        .name(name)
        .stack_size(STACK_BYTES);
    thread.spawn(move || {
        // Also when this one panics.
        let _last = Last(stopper);
        runtime.block_on(worker.run())
    })
}

/// When one worker ends, all do.
struct Last(Stopper);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.stop();
    }
}
