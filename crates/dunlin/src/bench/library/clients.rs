//! The clients of a load: how they connect, move, are watched and leave.

use core::time::Duration;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use dunlin_client::{Builder, Client, ConnectionEvent, Events, Messages, Runtime, RuntimeLimits};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Load, Make, Options};
use crate::bench::plan::Plan;

/// Clients that connect at a time: a crowd would wait for the processor, and QUIC
/// takes the first answer for a measure of the path.
const CONNECTING_MAX: usize = 8;
/// Longest time for clients to disconnect.
const DISCONNECT_MAX: Duration = Duration::from_secs(2);

/// All clients, by number.
pub(super) struct Clients {
    pub(super) subscribers: Vec<(Client, Messages)>,
    pub(super) publishers: Vec<Client>,
    /// The subscribers again.
    pub(super) listening: Vec<Client>,
}

impl Clients {
    /// Connects subscribers and then publishers, a few at a time.
    pub(super) async fn connect(plan: &Plan, options: &Options, make: &Make<'_>) -> Result<Self> {
        let elsewhere = match &options.namespace {
            Some(name) => Some(runtime_in(name).with_context(|| format!("cannot enter {name}"))?),
            None => None,
        };
        let subscribers = (0..plan.subscribers).map(|number| {
            let builder = make('s', number)?;
            let builder = match &elsewhere {
                Some(runtime) => builder.runtime(runtime),
                None => builder,
            };
            Ok((builder, plan.filters_of_subscriber(number)))
        });
        let subscribers = connected(plan, subscribers.collect::<Result<_>>()?).await?;
        let publishers = (0..plan.publishers).map(|number| Ok((make('p', number)?, Vec::new())));
        let publishers = connected(plan, publishers.collect::<Result<_>>()?).await?;
        Ok(Self {
            listening: subscribers
                .iter()
                .map(|(client, _)| client.clone())
                .collect(),
            subscribers,
            publishers: publishers.into_iter().map(|(client, _)| client).collect(),
        })
    }
}

/// Connects clients and subscribes to their filters.
async fn connected(
    plan: &Plan,
    clients: Vec<(Builder, Vec<String>)>,
) -> Result<Vec<(Client, Messages)>> {
    let turns = Arc::new(Semaphore::new(CONNECTING_MAX));
    let (qos, url) = (plan.sessions.subscribe_qos, plan.target.url.clone());
    let mut connecting = JoinSet::new();
    for (number, (builder, filters)) in clients.into_iter().enumerate() {
        let (turns, url) = (Arc::clone(&turns), url.clone());
        connecting.spawn(async move {
            let _turn = turns.acquire().await?;
            let connected = builder.connect().await;
            let (client, messages) =
                connected.with_context(|| format!("cannot connect to {url}"))?;
            for filter in filters {
                let subscribed = client.subscribe(filter, qos).await;
                subscribed.context("cannot subscribe")?;
            }
            anyhow::Ok((number, client, messages))
        });
    }
    let mut connected = Vec::new();
    while let Some(one) = connecting.join_next().await {
        connected.push(one??);
    }
    connected.sort_unstable_by_key(|(number, ..)| *number);
    let each = connected.into_iter();
    Ok(each
        .map(|(_, client, messages)| (client, messages))
        .collect())
}

/// What drives clients in another network namespace: its thread stays inside, and
/// so do the sockets that it opens.
#[cfg(target_os = "linux")]
fn runtime_in(name: &str) -> Result<Runtime> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd as _;

    let file = std::fs::File::open(std::path::Path::new("/run/netns").join(name))?;
    let inside = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(Runtime::new(RuntimeLimits::default())?)
    });
    inside.join().ok().context("a thread failed")?
}

/// There are none.
#[cfg(not(target_os = "linux"))]
fn runtime_in(_: &str) -> Result<Runtime> {
    anyhow::bail!("network namespaces are Linux's")
}

/// Counts connections that end or move.
pub(super) async fn watch(mut events: Events, load: Arc<Load>) {
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Disconnected { cause } => load.counts.disconnected(&cause),
            ConnectionEvent::Connected { .. } => load.counts.reconnected(),
            ConnectionEvent::Migrated(_) => load.counts.moved(),
            _ => {}
        }
    }
}

/// Moves a connection to a new socket again and again.
pub(super) async fn roam(client: Client, every: Option<Duration>) {
    let Some(every) = every else {
        return;
    };
    loop {
        sleep(every).await;
        // One whose probe was lost stays, and one that moves already is busy:
        // moves are counted where they happen.
        let _ = client.migrate(None).await;
    }
}

/// Lets clients leave; one that cannot has said so by its events.
pub(super) async fn disconnect(clients: impl Iterator<Item = Client>) {
    let leave = |client: Client| async move {
        let _ = timeout(DISCONNECT_MAX, client.disconnect()).await;
    };
    let mut leaving: JoinSet<()> = clients.map(leave).collect();
    while leaving.join_next().await.is_some() {}
}
