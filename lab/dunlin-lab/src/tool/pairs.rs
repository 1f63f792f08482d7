//! The hidden command `pairs`: pairs of a publisher and a subscriber, in one
//! process with one clock, each with its own connections, so that messages are
//! as far apart as in the paper and there are still many in a short time.

use core::time::Duration;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Args;
use dunlin_client::{Client, Events, Messages, Publish};
use dunlin_link::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::access::{Access, quality};
use super::{Lateness, micros, printed};
use crate::say;

/// Quiet time between the last message of the warm-up and the first that counts:
/// clients may ask once what became of a flow that stopped.
const SETTLE: Duration = Duration::from_millis(1000);

/// For the last acknowledgements of the transport.
const LAST: Duration = Duration::from_millis(300);

/// Time for the caller to change the link.
const ANNOUNCED: Duration = Duration::from_millis(50);

/// Pairs that connect at a time. A crowd would wait for the processor, and QUIC
/// takes the first answer for a measure of the path, as it takes those of a
/// warm-up without pauses.
const CONNECTING_MAX: usize = 8;

/// Time between two messages of a warm-up.
const WARM_UP_EVERY: Duration = Duration::from_millis(100);

/// Longest that a client may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// Longest wait for a message of the warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(5);

/// Pairs of clients.
#[derive(Args, Clone, Debug)]
pub(crate) struct Pairs {
    #[command(flatten)]
    access: Access,
    #[arg(long, default_value_t = 1)]
    pairs: u16,
    /// Messages of each publisher.
    #[arg(long, default_value_t = 10)]
    count: u32,
    /// Messages of each pair that come before, one after the other: what an
    /// idle connection has learnt of its path after a while.
    #[arg(long, default_value_t = 20)]
    warm_up: u32,
    /// Time between two messages of a publisher.
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    every: Duration,
    #[arg(long, default_value_t = 1)]
    qos: u8,
    /// Bytes of a message.
    #[arg(long, default_value_t = 64)]
    payload: usize,
    /// Client identifiers begin with this.
    #[arg(long, default_value = "pair")]
    id: String,
    /// Print `connected` when all are, before the warm-up.
    #[arg(long)]
    announce: bool,
    /// Longest wait for the last messages.
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    patience: Duration,
}

/// What came of it. Times are in microseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Paired {
    /// Messages that were published.
    pub(crate) published: u64,
    /// From publishing to arrival.
    pub(crate) delivered_us: Vec<u64>,
    /// From publishing to PUBACK or PUBCOMP.
    pub(crate) acknowledged_us: Vec<u64>,
    pub(crate) disconnections: u64,
    /// How far behind its schedule it was with all but one in fifty.
    pub(crate) late_us: u64,
    /// From before the first message to after the last arrival, warm-up left
    /// out, since the epoch.
    pub(crate) window_us: (u64, u64),
    /// Time for which messages were sent, from the beginning of the window.
    pub(crate) sending_us: u64,
    /// Messages that were to be published.
    pub(crate) messages: u64,
}

#[derive(Default)]
struct State {
    paired: Paired,
    /// When it was published and how long it took.
    delivered: Vec<(u64, u64)>,
    acknowledged: Vec<(Instant, u64)>,
    late: Lateness,
}

type Shared = Arc<Mutex<State>>;

fn with<T>(state: &Shared, f: impl FnOnce(&mut State) -> T) -> T {
    f(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Pairs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        printed(self.all())
    }

    async fn all(&self) -> Result<Paired> {
        let state = Shared::default();
        let connected = self.connected().await?;
        let mut watching = JoinSet::new();
        // They stay until the end.
        let mut clients = Vec::new();
        let mut warming = JoinSet::new();
        for ((topic, publisher, subscriber, mut messages), number) in connected.into_iter().zip(0..)
        {
            for client in [&subscriber, &publisher] {
                watching.spawn(watch(client.events(), Arc::clone(&state)));
            }
            clients.extend([subscriber, publisher.clone()]);
            let me = self.clone();
            let offset = WARM_UP_EVERY * number / u32::from(self.pairs);
            warming.spawn(async move {
                tokio::time::sleep(offset).await;
                me.warm(&topic, &publisher, &mut messages).await?;
                anyhow::Ok((topic, publisher, messages))
            });
        }
        let mut pairs = Vec::new();
        while let Some(pair) = warming.join_next().await {
            pairs.push(pair??);
        }
        tokio::time::sleep(SETTLE).await;
        let begun = Instant::now();
        let from_us = epoch_us();
        let mut working = JoinSet::new();
        for ((topic, publisher, messages), number) in pairs.into_iter().zip(0..) {
            let offset = self.every * number / u32::from(self.pairs);
            let (me, state) = (self.clone(), Arc::clone(&state));
            let last = begun + offset + me.every * me.count;
            let (other, shared) = (me.clone(), Arc::clone(&state));
            working.spawn(async move {
                me.publish(&topic, &publisher, begun, begun + offset, &shared)
                    .await
            });
            working.spawn(async move {
                let end = last + other.patience;
                other.receive(messages, begun, end, &state).await;
                Ok(())
            });
        }
        while let Some(done) = working.join_next().await {
            done??;
        }
        tokio::time::sleep(LAST).await;
        let to_us = epoch_us();
        watching.abort_all();
        // Without DISCONNECT, which is not measured: where much is lost, that of
        // a hundred clients takes seconds.
        drop(clients);
        Ok(with(&state, |state| {
            let mut paired = core::mem::take(&mut state.paired);
            paired.late_us = state.late.p98_us();
            paired.window_us = (from_us, to_us);
            // In the order in which they were published, not in which they
            // came: those that took long are no neighbours.
            state.delivered.sort_unstable();
            state.acknowledged.sort_unstable();
            paired.delivered_us = state.delivered.iter().map(|(_, took)| *took).collect();
            paired.acknowledged_us = state.acknowledged.iter().map(|(_, took)| *took).collect();
            let sending = self.every * self.count;
            paired.sending_us = u64::try_from(sending.as_micros()).unwrap_or(u64::MAX);
            paired.messages = u64::from(self.pairs) * u64::from(self.count);
            paired
        }))
    }

    /// All pairs, a few at a time.
    async fn connected(&self) -> Result<Vec<(String, Client, Client, Messages)>> {
        let mut connecting = JoinSet::new();
        let turns = Arc::new(Semaphore::new(CONNECTING_MAX));
        for number in 0..self.pairs {
            let (me, turns) = (self.clone(), Arc::clone(&turns));
            connecting.spawn(async move {
                let _turn = turns.acquire().await?;
                me.connect(number).await
            });
        }
        let mut connected = Vec::new();
        while let Some(pair) = connecting.join_next().await {
            connected.push(pair??);
        }
        if self.announce {
            say::out("connected");
            tokio::time::sleep(ANNOUNCED).await;
        }
        Ok(connected)
    }

    /// Topic, publisher and subscriber of a pair.
    async fn connect(&self, number: u16) -> Result<(String, Client, Client, Messages)> {
        let topic = format!("pairs/{}/{number}", self.id);
        let builder = |role: &str| {
            let builder = self
                .access
                .transient(&format!("{}-{role}{number}", self.id))?;
            anyhow::Ok(builder.connect_timeout(CONNECT_MAX))
        };
        let (subscriber, messages) = builder("s")?.connect().await.context("cannot connect")?;
        subscriber
            .subscribe(topic.clone(), quality(self.qos))
            .await
            .context("cannot subscribe")?;
        let (publisher, _none) = builder("p")?.connect().await.context("cannot connect")?;
        Ok((topic, publisher, subscriber, messages))
    }

    /// Sends what does not count.
    async fn warm(&self, topic: &str, publisher: &Client, messages: &mut Messages) -> Result<()> {
        for number in (0..self.warm_up).rev() {
            if number == 0 {
                // One that comes alone, as those that count do.
                tokio::time::sleep(SETTLE).await;
            }
            let next = tokio::time::Instant::now() + WARM_UP_EVERY;
            let payload = vec![b'.'; self.payload];
            let message = Publish::new(topic.to_owned(), payload).qos(quality(self.qos));
            publisher.publish(message).await.context("cannot publish")?;
            // One of QoS 0 may be lost.
            let _ = timeout(WARM_UP_MAX, messages.next()).await;
            sleep_until(next).await;
        }
        Ok(())
    }

    async fn publish(
        &self,
        topic: &str,
        client: &Client,
        begun: Instant,
        start: Instant,
        state: &Shared,
    ) -> Result<()> {
        let mut acknowledging = JoinSet::new();
        for number in 0..self.count {
            let due = start + self.every * number;
            sleep_until(due.into()).await;
            let now = Instant::now();
            let mut payload = micros(begun).to_be_bytes().to_vec();
            payload.resize(self.payload.max(payload.len()), b'.');
            let message = Publish::new(topic.to_owned(), payload).qos(quality(self.qos));
            let delivery = client
                .start_publish(message)
                .await
                .context("cannot publish")?;
            with(state, |state| {
                state.late.note_until(due, now);
                state.paired.published += 1;
            });
            let state = Arc::clone(state);
            acknowledging.spawn(async move {
                if delivery.await.is_ok() {
                    let took = (due, micros(now));
                    with(&state, |state| state.acknowledged.push(took));
                }
            });
        }
        let all = async { while acknowledging.join_next().await.is_some() {} };
        // One without acknowledgement is missing in the list.
        let _ = timeout(self.patience, all).await;
        Ok(())
    }

    async fn receive(&self, mut messages: Messages, begun: Instant, end: Instant, state: &Shared) {
        let mut missing = self.count;
        while missing > 0 {
            let Ok(Some(message)) = tokio::time::timeout_at(end.into(), messages.next()).await
            else {
                return;
            };
            let now = micros(begun);
            let Some(sent) = message.payload.first_chunk() else {
                continue;
            };
            missing -= 1;
            let sent = u64::from_be_bytes(*sent);
            let took = (sent, now.saturating_sub(sent));
            with(state, |state| state.delivered.push(took));
        }
    }
}

async fn watch(mut events: Events, state: Shared) {
    while let Some(event) = events.next().await {
        if matches!(event, dunlin_client::ConnectionEvent::Disconnected { .. }) {
            with(&state, |state| state.paired.disconnections += 1);
        }
    }
}

fn epoch_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
