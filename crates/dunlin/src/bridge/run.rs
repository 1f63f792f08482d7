//! One bridge from start to end: its clients, its subscriptions, what it carries each way,
//! and another beginning when one of the clients is closed for good.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use dunlin_base::Text;
use dunlin_client::{
    Backoff, Client, ConnectionEvent, DisconnectCause, Events, Publish, SubscribeError,
};
use dunlin_dial::random_u64;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ends::{Ends, Plan};
use super::known::{Filters, Known};
use super::pump::{Ended, Pump, Source};
use super::route::{Route, Way};
use super::stats::{Stats, Wanted};
use crate::config::bridge::{Bridge, Version};
use crate::daemon::mailbox::{Address, Mail};
use crate::daemon::query::Query;

/// Time in which messages that are on their way when the broker stops may arrive.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Time for the other broker to hear that the bridge goes.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// Time for the clients to end, all at once: somewhat more than each takes at most.
const LEAVE_MAX: Duration = Duration::from_secs(6);

/// A bridge that went on for so long begins again without a longer wait.
const LASTED: Duration = Duration::from_secs(60);

/// A bridge, ready to run.
pub(super) struct Runner {
    pub(super) name: Arc<str>,
    pub(super) config: Bridge,
    pub(super) plan: Plan,
    /// Its name among all bridges of all brokers.
    pub(super) via: Text,
    pub(super) stats: Arc<Stats>,
    pub(super) known: Known,
    /// The shard that publishes its state.
    pub(super) shard: Address,
    /// What operators want of it.
    pub(super) wanted: watch::Sender<Wanted>,
}

/// How long this broker keeps what waits for a bridge that is paused.
const PAUSED_EXPIRY: Duration = Duration::from_secs(u32::MAX as u64);

/// How many of the connections to the other broker are there.
struct Presence {
    up: AtomicUsize,
    all: usize,
}

impl Runner {
    /// Runs until it is asked to stop.
    pub(super) async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let connection = &self.config.connection;
        let backoff = Backoff {
            min: connection.reconnect_min.0,
            max: connection.reconnect_max.0,
            ..Backoff::default()
        };
        self.announce(false);
        let mut failures = 0;
        let mut wanted = self.wanted.subscribe();
        while self.is_wanted(&mut stop, &mut wanted).await {
            let began = Instant::now();
            let is_ordered = self.round(&mut stop, &mut wanted).await;
            if self.stats.set_connected(false) {
                self.announce(false);
            }
            failures = match (is_ordered, began.elapsed() > LASTED) {
                (true, _) => continue,
                (false, true) => 1,
                (false, false) => failures + 1,
            };
            let wait = backoff.wait(failures, (random_u64() >> 32) as u32);
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                _ = wanted.changed() => failures = 0,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits while the bridge is paused; `false`: it is to stop.
    async fn is_wanted(
        &self,
        stop: &mut watch::Receiver<bool>,
        wanted: &mut watch::Receiver<Wanted>,
    ) -> bool {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => false,
            // It has a sender as long as the bridge.
            running = wanted.wait_for(|wanted| !wanted.paused) => running.is_ok(),
        }
    }

    /// Runs until a client is closed for good, or the bridge is to stop or to begin
    /// again; whether that is what it is to do.
    async fn round(
        self: &Arc<Self>,
        stop: &mut watch::Receiver<bool>,
        wanted: &mut watch::Receiver<Wanted>,
    ) -> bool {
        wanted.borrow_and_update();
        let (end, ended) = watch::channel(false);
        let mut once = core::pin::pin!(self.once(ended));
        tokio::select! {
            () = &mut once => return false,
            _ = stop.wait_for(|stop| *stop) => {}
            _ = wanted.changed() => {}
        }
        // Those who listen end.
        let _ = end.send(true);
        once.await;
        true
    }

    /// Says on `$SYS` whether the bridge is connected.
    fn announce(&self, connected: bool) {
        let name = Arc::clone(&self.name);
        self.shard
            .send(Mail::Query(Query::Bridge { name, connected }));
    }

    /// From the start of the clients until one of them is closed, or the stop.
    async fn once(self: &Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut ends = match self.plan.start() {
            Ok(ends) => ends,
            Err(error) => {
                tracing::error!(bridge = &*self.name, %error, "a bridge cannot start");
                self.stats.failed(&error);
                return;
            }
        };
        let mut others = JoinSet::new();
        let remote = ends.remote().count();
        let clients = self.watch_all(&mut ends, &mut others);
        let mut pumps = JoinSet::new();
        let sources = self.carry(ends, &stop, &mut pumps, &mut others);
        let mut stopping = false;
        while !stopping {
            let ended = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {
                    stopping = true;
                    continue;
                }
                ended = pumps.join_next() => ended,
                Some(ended) = others.join_next() => Some(ended),
            };
            match ended {
                Some(Ok(Ended::Done)) => {}
                Some(Ok(Ended::Closed) | Err(_)) | None => break,
            }
        }
        if stopping && self.stats.is_connected() {
            let drained = async { while pumps.join_next().await.is_some() {} };
            // What is not acknowledged by then is sent again after the next start.
            let _ = timeout(DRAIN_MAX, drained).await;
            self.tell_gone(&clients).await;
        }
        pumps.shutdown().await;
        others.shutdown().await;
        let mut leaving = JoinSet::new();
        let wanted = *self.wanted.borrow();
        let has_expiry = self.config.version == Version::V5;
        for (number, client) in clients.into_iter().enumerate() {
            // Behind those of the other broker are those of this one.
            let is_here = number >= remote;
            let expiry = match (wanted.discards, wanted.paused) {
                (true, _) if is_here || has_expiry => Some(Duration::ZERO),
                (false, true) if is_here => Some(PAUSED_EXPIRY),
                _ => None,
            };
            leaving.spawn(async move {
                match expiry {
                    Some(expiry) => client.disconnect_and_keep_session(expiry).await,
                    None => client.disconnect().await,
                }
            });
        }
        let left = async { while leaving.join_next().await.is_some() {} };
        let _ = timeout(LEAVE_MAX, left).await;
        // A client without takers acknowledges what it gets: not before it has ended.
        drop(sources);
    }

    /// Watches all clients; gives them, those of the other broker first.
    fn watch_all(self: &Arc<Self>, ends: &mut Ends, tasks: &mut JoinSet<Ended>) -> Vec<Client> {
        let mut clients = Vec::new();
        let presence = Arc::new(Presence {
            up: AtomicUsize::new(0),
            all: ends.remote().count(),
        });
        for (number, end) in ends.remote().enumerate() {
            let status = self.plan.status(true).filter(|_| number == 0);
            let (client, events) = (end.client.clone(), end.connecting.events());
            clients.push(client.clone());
            let presence = Arc::clone(&presence);
            tasks.spawn(Arc::clone(self).watch(client, events, presence, status));
        }
        for end in ends.local() {
            clients.push(end.client.clone());
            tasks.spawn(until_closed(end.connecting.events()));
        }
        clients
    }

    /// Subscribes at both brokers and begins to carry; gives what is carried from.
    fn carry(
        self: &Arc<Self>,
        mut ends: Ends,
        stop: &watch::Receiver<bool>,
        pumps: &mut JoinSet<Ended>,
        others: &mut JoinSet<Ended>,
    ) -> Vec<Source> {
        let (here, there) = (ends.publishes_here(), ends.publish_there());
        let client = |end: &Option<_>| {
            end.as_ref()
                .map(|end: &super::ends::End| end.client.clone())
        };
        let sources = (client(&ends.local_source), client(&ends.remote_source));
        others.spawn(Arc::clone(self).subscribe(sources.0, sources.1));
        let ways = [
            (Way::Out, ends.local_source.take(), there),
            (Way::In, ends.remote_source.take(), here),
        ];
        let mut from = Vec::new();
        for (way, source, targets) in ways {
            let Some(source) = source else {
                continue;
            };
            let source = Source::new(Mutex::new(source.messages));
            from.push(Source::clone(&source));
            let pump = Pump {
                route: Route::new(&self.config, way, &self.via),
                stats: Arc::clone(&self.stats),
                window: usize::from(self.config.max_in_flight),
                room: Pump::room(),
            };
            pump.start(source, targets, stop.clone(), pumps);
        }
        from
    }

    /// Subscribes at both brokers, and ends what an earlier process had subscribed to.
    async fn subscribe(self: Arc<Self>, local: Option<Client>, remote: Option<Client>) -> Ended {
        let before = self.known.read();
        let out = Route::new(&self.config, Way::Out, &self.via).subscriptions();
        let back = Route::new(&self.config, Way::In, &self.via).subscriptions();
        let names = |of: &[(String, _)]| of.iter().map(|(filter, _)| filter.clone()).collect();
        let now = Filters {
            local: names(&out),
            remote: names(&back),
        };
        let both = |one: &[String], other: &[String]| [one, other].concat();
        self.note(&Filters {
            local: both(&before.local, &now.local),
            remote: both(&before.remote, &now.remote),
        });
        for (client, subscriptions, stale) in [
            (local, out, stale(&before.local, &now.local)),
            (remote, back, stale(&before.remote, &now.remote)),
        ] {
            let Some(client) = client else {
                continue;
            };
            if let Err(error) = subscribe_all(&client, subscriptions, stale).await {
                tracing::warn!(bridge = &*self.name, %error, "a bridge cannot subscribe");
                self.stats.failed(&error);
                return Ended::Closed;
            }
        }
        self.note(&now);
        Ended::Done
    }

    fn note(&self, filters: &Filters) {
        if let Err(error) = self.known.write(filters) {
            tracing::warn!(bridge = &*self.name, %error, "cannot note what a bridge subscribes to");
        }
    }

    /// Follows a connection to the other broker.
    async fn watch(
        self: Arc<Self>,
        client: Client,
        mut events: Events,
        presence: Arc<Presence>,
        status: Option<Publish>,
    ) -> Ended {
        let mut is_up = false;
        while let Some(event) = events.next().await {
            match event {
                ConnectionEvent::Connected { transport, .. } => {
                    let transport = transport.name();
                    tracing::info!(bridge = &*self.name, transport, "a bridge is connected");
                    self.stats.connect();
                    if !core::mem::replace(&mut is_up, true) {
                        presence.up.fetch_add(1, Ordering::Relaxed);
                    }
                    if let Some(status) = status.clone()
                        && let Ok(delivery) = client.start_publish(status).await
                    {
                        // The next connection says it again.
                        drop(delivery);
                    }
                }
                ConnectionEvent::Disconnected { cause } => {
                    self.note_loss(&cause);
                    if core::mem::replace(&mut is_up, false) {
                        presence.up.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                ConnectionEvent::Closed => break,
                _ => continue,
            }
            let connected = presence.up.load(Ordering::Relaxed) == presence.all;
            if self.stats.set_connected(connected) {
                self.announce(connected);
            }
        }
        Ended::Closed
    }

    fn note_loss(&self, cause: &DisconnectCause) {
        tracing::warn!(bridge = &*self.name, %cause, "a bridge is not connected");
        self.stats.failed(cause);
    }

    /// Says at the other broker that the bridge goes, if that is there.
    async fn tell_gone(&self, clients: &[Client]) {
        let first = clients
            .first()
            .filter(|client| client.transport().is_some());
        if let (Some(client), Some(status)) = (first, self.plan.status(false)) {
            let _ = timeout(FAREWELL_MAX, client.publish(status)).await;
        }
    }
}

/// What was subscribed to and is no more.
fn stale(before: &[String], now: &[String]) -> Vec<String> {
    let gone = before.iter().filter(|filter| !now.contains(filter));
    gone.cloned().collect()
}

async fn subscribe_all(
    client: &Client,
    subscriptions: Vec<(String, dunlin_client::Subscribe)>,
    stale: Vec<String>,
) -> Result<(), SubscribeError> {
    for outcome in client.subscribe_many(subscriptions).await? {
        outcome?;
    }
    for filter in stale {
        client.unsubscribe(filter).await?;
    }
    Ok(())
}

async fn until_closed(mut events: Events) -> Ended {
    while events.next().await.is_some() {}
    Ended::Closed
}
