//! The store as a node uses it: opened once a partition, submitted to by the shard that
//! serves it.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use dunlin_store::{Recovered, StoreDone, StoreError, Waiting};
use dunlin_store_redb::{Snapshots, StoreMetrics};
use tokio::sync::mpsc::{Sender, channel};

use crate::config::NatsConfig;
use crate::ended::Ended;
use crate::error::{GaveUp, OpenError};
use crate::limits::{QUEUE_MAX, WAITING_BYTES_MAX};
use crate::log::Log;
use crate::recover::{self, Owned};
use crate::role::LogMetrics;
use crate::submit::{Command, Orders, Submitter};

/// A partition that this process owns: its threads. Dropping it closes it.
#[derive(Debug)]
pub struct NatsStore {
    pub(crate) commands: Sender<Command>,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) waiting: Waiting,
    pub(crate) metrics: Arc<StoreMetrics>,
    pub(crate) ended: Arc<Ended>,
    pub(crate) role: Arc<LogMetrics>,
}

impl NatsStore {
    /// Takes the partition over and reads it: a former owner is refused from
    /// there on. Waits for the server.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: NatsConfig) -> Result<(Self, Recovered), OpenError> {
        let (commands, receiver) = channel(QUEUE_MAX);
        let (opened, result) = sync_channel(1);
        let ended = Arc::new(Ended::default());
        let metrics = Arc::new(StoreMetrics::default());
        let orders = Orders {
            commands: receiver,
            ended: Arc::clone(&ended),
            metrics: Arc::clone(&metrics),
        };
        let role = Arc::new(LogMetrics::default());
        let of_thread = Arc::clone(&role);
        let thread = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run(&config, orders, &opened, of_thread))
            .map_err(OpenError::Thread)?;
        let gone = |_| OpenError::Server("the store's thread has ended".to_owned());
        let recovered = result.recv().map_err(gone).flatten();
        let store = Self {
            commands,
            thread: Some(thread),
            waiting: Waiting::new(WAITING_BYTES_MAX),
            metrics,
            ended,
            role,
        };
        recovered.map(|recovered| (store, recovered))
    }

    /// A way to submit requests, whose answers go to `on_done`. It is called on the
    /// store's threads, in the order of submission for writes, and must not block.
    #[must_use]
    pub fn submitter(&self, on_done: Box<dyn Fn(StoreDone) + Send + Sync>) -> Submitter {
        Submitter {
            commands: self.commands.clone(),
            on_done: Arc::from(on_done),
            waiting: self.waiting.clone(),
        }
    }

    /// Why this owner acknowledges nothing any more; `None`: it does.
    #[must_use]
    pub fn gave_up(&self) -> Option<GaveUp> {
        self.ended.cause()
    }

    /// Calls `then` with the cause when this owner gives up, or now if it did. It is
    /// called on the store's threads and must not block. Of several, the last one counts.
    pub fn when_given_up(&self, then: Box<dyn FnOnce(GaveUp) + Send>) {
        self.ended.then(then);
    }

    /// What is written and refused. It says that it fails from the moment when this owner
    /// gave up.
    #[must_use]
    pub fn metrics(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.metrics)
    }

    /// What it is to the log, and whether it holds the lease.
    #[must_use]
    pub fn role(&self) -> Arc<LogMetrics> {
        Arc::clone(&self.role)
    }

    /// A way to views of what is acknowledged, from any thread that may block.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        let commands = self.commands.clone();
        Snapshots::new(move || {
            let (to, snapshot) = sync_channel(1);
            let sent = commands.blocking_send(Command::Snapshot(to));
            sent.map_err(|_| StoreError::Closed)?;
            snapshot.recv().unwrap_or(Err(StoreError::Closed))
        })
    }

    /// Carries out what was submitted, gives the lease back and ends. The partition stays
    /// this owner's until another takes it.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        // An error means that it has ended.
        let _ = self.commands.blocking_send(Command::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for NatsStore {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where it is said what opening came to.
pub(crate) type Opened = SyncSender<Result<Recovered, OpenError>>;

fn run(config: &NatsConfig, orders: Orders, opened: &Opened, role: Arc<LogMetrics>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Without a receiver, nothing wants it.
            let _ = opened.send(Err(OpenError::Thread(error)));
            return;
        }
    };
    runtime.block_on(async {
        let taken = recover::open(config).await;
        serve(config, taken, orders, opened, role).await;
    });
}

/// Says what a take-over came to, and serves what was taken.
pub(crate) async fn serve(
    config: &NatsConfig,
    taken: Result<(Owned, Recovered), OpenError>,
    orders: Orders,
    opened: &Opened,
    role: Arc<LogMetrics>,
) {
    let ended = Arc::clone(&orders.ended);
    let begun = match taken {
        Ok((owned, recovered)) => begin(config, owned, orders, role)
            .await
            .map(|log| (log, recovered)),
        Err(error) => Err(error),
    };
    match begun {
        Ok((log, recovered)) => {
            let _ = opened.send(Ok(recovered));
            log.run(|cause| ended.set(cause)).await;
        }
        Err(error) => drop(opened.send(Err(error))),
    }
}

async fn begin(
    config: &NatsConfig,
    owned: Owned,
    orders: Orders,
    role: Arc<LogMetrics>,
) -> Result<Log, OpenError> {
    let client = &owned.api.client;
    let inbox = client.new_inbox();
    let replies = client.subscribe(format!("{inbox}.*")).await;
    let replies = replies.map_err(|error| OpenError::Server(error.to_string()))?;
    Log::new(owned, config, (inbox, replies), (orders, role))
}
