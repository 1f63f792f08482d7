//! A node in the cluster: its thread, from joining to leaving.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use async_nats::Client;
use dunlin_store_nats::{ServerVersion, Servers, connect};
use tokio::sync::Notify;
use tokio::sync::mpsc::channel;

use crate::authority::Authority;
use crate::config::Config;
use crate::driver::{Driver, OnEvent, Parts, subject};
use crate::entry::Entry;
use crate::error::JoinError;
use crate::ids::Incarnation;
use crate::kv::Bucket;
use crate::limits::{ORDERS_MAX, PAYLOAD_LEAST};
use crate::link::Own;
use crate::member::Member;
use crate::metrics::BusMetrics;
use crate::peer::Event;

/// A node that is a member. Dropped, it leaves.
#[derive(Debug)]
pub struct Bus {
    member: Arc<Member>,
    metrics: Arc<BusMetrics>,
    leave: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Bus {
    /// Joins the cluster under a free number. Waits for the server.
    ///
    /// `on_event` is called on the thread of the bus, in order, and must not block. After
    /// [`Event::Expelled`] nothing more comes: drop this and join again.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(
        config: Config,
        on_event: impl Fn(Event) + Send + 'static,
    ) -> Result<Self, JoinError> {
        config.check()?;
        let metrics = Arc::new(BusMetrics::default());
        let leave = Arc::new(Notify::new());
        let (joined, result) = sync_channel(1);
        let shared = Shared {
            on_event: Box::new(on_event),
            metrics: Arc::clone(&metrics),
            leave: Arc::clone(&leave),
        };
        let thread = thread::Builder::new()
            .name("bus".to_owned())
            .spawn(move || run(&config, shared, &joined))
            .map_err(|error| JoinError::Thread(error.to_string()))?;
        let gone = |_| JoinError::Server("the thread of the bus has ended".to_owned());
        let member = result.recv().map_err(gone).flatten()?;
        Ok(Self {
            member,
            metrics,
            leave,
            thread: Some(thread),
        })
    }

    /// This node, as the others see it.
    #[must_use]
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> Arc<BusMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Loses all links, ends the entry, and waits until the others can see it, as far as the
    /// server answers.
    pub fn leave(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.leave.notify_one();
        // Called in `on_event`, it cannot wait for itself.
        let waits = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(waits) {
            // An error is a panic of `on_event`, which was reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread is given.
struct Shared {
    on_event: OnEvent,
    metrics: Arc<BusMetrics>,
    leave: Arc<Notify>,
}

type Joined = SyncSender<Result<Arc<Member>, JoinError>>;

fn run(config: &Config, shared: Shared, joined: &Joined) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Without a receiver, nothing wants it.
            let _ = joined.send(Err(JoinError::Thread(error.to_string())));
            return;
        }
    };
    runtime.block_on(async {
        match begin(config, shared).await {
            Ok((driver, member)) => {
                let _ = joined.send(Ok(member));
                driver.run().await;
            }
            Err(error) => drop(joined.send(Err(error))),
        }
    });
}

/// Connects, takes a number, and starts the task that keeps the entry.
async fn begin(config: &Config, shared: Shared) -> Result<(Driver, Arc<Member>), JoinError> {
    let client = connect(&Servers {
        urls: &config.urls,
        tls_ca: config.tls_ca.as_deref(),
        patience: config.patience,
    })
    .await?;
    check(&client)?;
    let bucket = Bucket::new(client.clone(), format!("{}-nodes", config.prefix));
    bucket.ensure(config.replicas, config.patience).await?;
    let incarnation = getrandom::u64().map_err(|error| JoinError::Thread(error.to_string()))?;
    let incarnation = Incarnation(incarnation);
    // Before the entry says so: greetings of others come as soon as they see it.
    let failed = |error: String| JoinError::Server(error);
    let inbox = client.subscribe(subject(&config.prefix, incarnation)).await;
    let inbox = inbox.map_err(|error| failed(error.to_string()))?;
    client
        .flush()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let authority = Authority::new(&config.secret, &config.prefix);
    let entry = Entry::take(&client, &bucket, config, &authority, incarnation).await?;
    let member = Arc::clone(&entry.member);
    let (orders, ordered) = channel(ORDERS_MAX);
    let (report, reports) = channel(ORDERS_MAX);
    tokio::spawn(entry.keep(ordered, report));
    let woken = Arc::new(Notify::new());
    let wakes = Arc::clone(&woken);
    let driver = Driver::new(Parts {
        own: Arc::new(Own {
            node: member.node,
            incarnation,
            encoding: member.about.encoding,
            authority,
            timing: config.timing,
            wake: Arc::new(move || wakes.notify_one()),
        }),
        prefix: config.prefix.clone(),
        client,
        inbox,
        orders,
        reports,
        leave: shared.leave,
        woken,
        on_event: shared.on_event,
        metrics: shared.metrics,
    });
    tracing::info!(node = %member.node, %incarnation, "joined the cluster");
    Ok((driver, member))
}

/// What the server has to be.
fn check(client: &Client) -> Result<(), JoinError> {
    let info = client.server_info();
    let version = ServerVersion::parse(&info.version);
    if version.is_none_or(|version| version < ServerVersion::LEAST) {
        let found = info.version;
        return Err(JoinError::OldServer { found });
    }
    if !info.jetstream {
        return Err(JoinError::NoJetStream);
    }
    if info.max_payload < PAYLOAD_LEAST {
        return Err(JoinError::SmallPayload(info.max_payload));
    }
    Ok(())
}
