//! A standby as a node uses it: it follows the log of another node, until the lease is its
//! own; then it takes the partition over.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use dunlin_store::{Recovered, Waiting};
use dunlin_store_redb::StoreMetrics;
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;

use crate::config::NatsConfig;
use crate::ended::Ended;
use crate::error::OpenError;
use crate::holder::{Lease, Want};
use crate::limits::{QUEUE_MAX, WAITING_BYTES_MAX};
use crate::recover::random_owner;
use crate::role::LogMetrics;
use crate::standing::Standing;
use crate::store::{self, NatsStore, Opened};
use crate::submit::Orders;

/// What comes of waiting, once: the lease is this node's, or it can wait no more.
pub type Outcome = Receiver<Result<(), OpenError>>;

/// The order to take over, and what is needed for it.
struct TakeOver {
    orders: Orders,
    opened: Opened,
}

/// A standby of one partition: its threads. Dropping it ends it.
pub struct NatsStandby {
    order: Option<oneshot::Sender<TakeOver>>,
    thread: Option<JoinHandle<()>>,
    role: Arc<LogMetrics>,
}

dunlin_base::opaque_debug!(NatsStandby);

impl NatsStandby {
    /// Begins to wait. Waits for the server, and for no more.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn start(config: NatsConfig) -> Result<(Self, Outcome), OpenError> {
        let owner = random_owner()?;
        let (begun, began) = sync_channel(1);
        // Two of them: the lease comes, and what follows fails.
        let (said, outcome) = sync_channel(2);
        let (order, ordered) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run(&config, owner, &begun, &said, ordered))
            .map_err(OpenError::Thread)?;
        let gone = |_| OpenError::Server("the standby's thread has ended".to_owned());
        let role = began.recv().map_err(gone).flatten()?;
        let standby = Self {
            order: Some(order),
            thread: Some(thread),
            role,
        };
        Ok((standby, outcome))
    }

    /// What it is to the log, and how far behind.
    #[must_use]
    pub fn role(&self) -> Arc<LogMetrics> {
        Arc::clone(&self.role)
    }

    /// Takes the partition over, and reads what is left: a former owner is refused from
    /// there on. Meant for when the lease is this node's; the log decides in any case.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn take_over(mut self) -> Result<(NatsStore, Recovered), OpenError> {
        let (commands, receiver) = channel(QUEUE_MAX);
        let (opened, result) = sync_channel(1);
        let ended = Arc::new(Ended::default());
        let metrics = Arc::new(StoreMetrics::default());
        let orders = Orders {
            commands: receiver,
            ended: Arc::clone(&ended),
            metrics: Arc::clone(&metrics),
        };
        if let Some(order) = self.order.take() {
            // Without a receiver, no result comes.
            let _ = order.send(TakeOver { orders, opened });
        }
        let gone = |_| OpenError::Server("the standby's thread has ended".to_owned());
        let recovered = result.recv().map_err(gone).flatten();
        let store = NatsStore {
            commands,
            thread: self.thread.take(),
            waiting: Waiting::new(WAITING_BYTES_MAX),
            metrics,
            ended,
            role: Arc::clone(&self.role),
        };
        recovered.map(|recovered| (store, recovered))
    }
}

impl Drop for NatsStandby {
    fn drop(&mut self) {
        self.order = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Begun = SyncSender<Result<Arc<LogMetrics>, OpenError>>;

fn run(
    config: &NatsConfig,
    owner: u64,
    begun: &Begun,
    said: &SyncSender<Result<(), OpenError>>,
    ordered: oneshot::Receiver<TakeOver>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Without a receiver, nothing wants it.
            let _ = begun.send(Err(OpenError::Thread(error)));
            return;
        }
    };
    runtime.block_on(async {
        let to = said.clone();
        let free = move || drop(to.try_send(Ok(())));
        let started = match Standing::begin(config).await {
            Ok(standing) => Lease::start(config.clone(), owner, Want::WhenFree(Box::new(free)))
                .map(|lease| (standing, lease)),
            Err(error) => Err(error),
        };
        let (standing, lease) = match started {
            Ok(started) => started,
            Err(error) => return drop(begun.send(Err(error))),
        };
        let role = Arc::new(LogMetrics::default());
        role.set_lease(lease.held(), lease.seen());
        let _ = begun.send(Ok(Arc::clone(&role)));
        if let Some((order, standing)) = wait(config, standing, &role, said, ordered).await {
            let taken = standing.take_over(config, owner, lease).await;
            store::serve(config, taken, order.orders, &order.opened, role).await;
        }
    });
}

/// Follows the log until the order to take over comes; `None`: it ends.
async fn wait(
    config: &NatsConfig,
    mut standing: Standing,
    role: &LogMetrics,
    said: &SyncSender<Result<(), OpenError>>,
    mut ordered: oneshot::Receiver<TakeOver>,
) -> Option<(TakeOver, Standing)> {
    let error = tokio::select! {
        order = &mut ordered => return order.ok().map(|order| (order, standing)),
        error = standing.follow(config, role) => error,
    };
    // Full: nothing wants it.
    drop(said.try_send(Err(error)));
    // Taking over tries once more, and says why it cannot.
    ordered.await.ok().map(|order| (order, standing))
}
