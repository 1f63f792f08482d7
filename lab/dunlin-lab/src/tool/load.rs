//! The hidden command `load`: publishers and subscribers in one process, with
//! one clock, which print what was sent and what arrived as JSON. Runs inside
//! a namespace.

use core::time::Duration;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, BytesMut};
use clap::{Args, ValueEnum};
use dunlin_client::{
    Client, Connecting, ConnectionEvent, Delivery, Events, Message, Messages, Publish, Repeat,
    Runtime, RuntimeLimits,
};
use dunlin_link::linux::Namespace;
use dunlin_link::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::access::{Access, quality};
use super::{micros, printed};
use crate::say;

/// Microseconds that the load generator may be behind its schedule.
pub(crate) const BEHIND_US_MAX: u64 = 10_000;

/// Deliveries looked at at a time.
const DELIVERIES_MAX: usize = 1024;

/// Longest wait for acknowledgements, beside the patience.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Longest time for clients to disconnect.
const DISCONNECT_MAX: Duration = Duration::from_secs(2);

/// Causes of disconnections that are kept.
const CAUSES_MAX: usize = 16;

/// Messages whose times are kept.
const SAMPLES_MAX: usize = 1_000_000;

/// Bytes in front of a payload: publisher, topic, number and time.
const HEADER_BYTES: usize = 2 + 2 + 4 + 8;

/// Publishers and subscribers.
#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    #[command(flatten)]
    access: Access,
    #[arg(long, default_value_t = 1)]
    publishers: u16,
    #[arg(long, default_value_t = 1)]
    subscribers: u16,
    /// Topics of each publisher.
    #[arg(long, default_value_t = 8)]
    topics: u16,
    #[arg(long, default_value_t = 0)]
    qos: u8,
    /// Messages a second of each publisher; 0 for as many as possible.
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    time: Duration,
    /// Bytes of a message.
    #[arg(long, default_value_t = 64)]
    payload: usize,
    /// Client identifiers begin with this.
    #[arg(long, default_value = "load")]
    id: String,
    /// Longest wait for what is still to come.
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    patience: Duration,
    /// Give up messages of QoS 0 after this time.
    #[arg(long, value_parser = parse_duration)]
    max_age: Option<Duration>,
    /// When small packets are sent twice; if not given, as the policy has it.
    #[arg(long)]
    repeat: Option<When>,
    /// Print the times of each message.
    #[arg(long)]
    samples: bool,
    /// Move a QUIC connection of every client to a new socket that often.
    #[arg(long, value_parser = parse_duration)]
    migrate: Option<Duration>,
    /// Print `connected` when all are, before the first message.
    #[arg(long)]
    announce: bool,
    /// Subscribers live in this namespace, publishers in that of the process.
    #[arg(long, value_name = "NAMESPACE")]
    subscribers_in: Option<String>,
    /// Zero for none.
    #[arg(long, value_parser = parse_duration, default_value = "20s")]
    keep_alive: Duration,
    /// Messages of QoS 1 and 2 that the broker may have on their way.
    #[arg(long, default_value_t = 256)]
    receive_maximum: u16,
    /// How long sessions outlive connections.
    #[arg(long, value_parser = parse_duration, default_value = "600s")]
    session_expiry: Duration,
    /// Keep alive of subscribers, if it is another.
    #[arg(long, value_parser = parse_duration)]
    subscribers_keep_alive: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum When {
    Never,
    Always,
}

/// What a load did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Done {
    pub(crate) published: u64,
    /// Messages whose publisher learnt that they failed.
    pub(crate) failed: u64,
    /// Each message once for each subscriber.
    pub(crate) expected: u64,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    /// Messages of a topic that came after a later one.
    pub(crate) overtaken: u64,
    /// Connections that ended, and attempts that failed.
    pub(crate) disconnections: u64,
    /// Why the first of them did.
    #[serde(default)]
    pub(crate) causes: Vec<String>,
    /// Connections after the first one of each client.
    #[serde(default)]
    pub(crate) reconnections: u64,
    /// Moves of connections to other local addresses, wanted and by themselves.
    pub(crate) moves: u64,
    /// Messages that were sent late because this process was.
    #[serde(default)]
    pub(crate) behind: u64,
    pub(crate) seconds: f64,
    /// Topic, time of publishing and of arrival in microseconds.
    pub(crate) samples: Vec<(u16, u64, u64)>,
}

/// What one subscriber has seen of one topic of one publisher.
#[derive(Debug, Default)]
struct Seen {
    /// How often each number arrived.
    times: Vec<u8>,
    last: Option<u32>,
}

#[derive(Debug, Default)]
struct State {
    done: Done,
    /// By subscriber, publisher and topic.
    seen: Vec<Seen>,
    /// Numbers given out, by publisher and topic.
    sent: Vec<u32>,
    last_arrival: Option<Instant>,
}

type Shared = Arc<Mutex<State>>;

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        printed(self.all())
    }

    async fn all(self) -> Result<Done> {
        let begun = Instant::now();
        let lanes = usize::from(self.publishers) * usize::from(self.topics);
        let state = Arc::new(Mutex::new(State {
            sent: vec![0; lanes],
            ..State::default()
        }));
        lock(&state)
            .seen
            .resize_with(lanes * usize::from(self.subscribers), Seen::default);
        let mut tasks = JoinSet::new();
        let mut clients = Vec::new();
        let elsewhere = self.runtime_elsewhere()?;
        for number in 0..self.subscribers {
            let (client, messages) = self.connect("s", number, elsewhere.as_ref()).await?;
            let filter = format!("load/{}/#", self.id);
            client
                .subscribe(filter, quality(self.qos))
                .await
                .context("cannot subscribe")?;
            let (load, state) = (self.clone(), Arc::clone(&state));
            tasks.spawn(watch(client.events(), Arc::clone(&state)));
            tasks.spawn(async move { load.receive(number, messages, &state, begun).await });
            clients.push(client);
        }
        let mut publishing = JoinSet::new();
        let mut publishers = Vec::new();
        let mut connecting = Vec::new();
        for number in 0..self.publishers {
            connecting.push(self.start("p", number, None)?);
        }
        for (number, (client, _unused, connecting)) in (0..).zip(connecting) {
            connecting
                .await
                .with_context(|| format!("cannot connect to {}", self.access.url))?;
            tasks.spawn(watch(client.events(), Arc::clone(&state)));
            publishers.push((number, client.clone()));
            clients.push(client);
        }
        if self.announce {
            say::out("connected");
        }
        for (number, client) in publishers {
            let (load, state) = (self.clone(), Arc::clone(&state));
            publishing.spawn(async move { load.publish(number, &client, &state, begun).await });
        }
        if let Some(interval) = self.migrate {
            for client in clients.clone() {
                tasks.spawn(roam(client, interval));
            }
        }
        let start = Instant::now();
        while let Some(result) = publishing.join_next().await {
            result??;
        }
        self.drain(&state).await;
        let mut done = self.count(&state);
        done.seconds = start.elapsed().as_secs_f64();
        tasks.abort_all();
        let mut leaving = JoinSet::new();
        for client in clients {
            // One that cannot disconnect has reported so by its events.
            leaving.spawn(async move { timeout(DISCONNECT_MAX, client.disconnect()).await });
        }
        while leaving.join_next().await.is_some() {}
        Ok(done)
    }

    /// What drives clients that live in another namespace.
    fn runtime_elsewhere(&self) -> Result<Option<Runtime>> {
        let Some(name) = &self.subscribers_in else {
            return Ok(None);
        };
        // Its thread stays inside, and so do the sockets that it opens.
        let runtime = Namespace::existing(name)
            .within(|| Runtime::new(RuntimeLimits::default()))
            .with_context(|| format!("cannot enter {name}"))?;
        Ok(Some(runtime?))
    }

    async fn connect(
        &self,
        role: &str,
        number: u16,
        runtime: Option<&Runtime>,
    ) -> Result<(Client, Messages)> {
        let (client, messages, connecting) = self.start(role, number, runtime)?;
        connecting
            .await
            .with_context(|| format!("cannot connect to {}", self.access.url))?;
        Ok((client, messages))
    }

    fn start(
        &self,
        role: &str,
        number: u16,
        runtime: Option<&Runtime>,
    ) -> Result<(Client, Messages, Connecting)> {
        let keep_alive = match self.subscribers_keep_alive {
            Some(keep_alive) if role == "s" => keep_alive,
            _ => self.keep_alive,
        };
        let id = format!("{}-{role}{number}", self.id);
        let mut builder = self
            .access
            .builder(&id)?
            .session_expiry(self.session_expiry)
            .keep_alive(keep_alive)
            .receive_maximum(self.receive_maximum);
        if let Some(when) = self.repeat {
            builder = builder.repeat_packets(match when {
                When::Never => Repeat::Never,
                When::Always => Repeat::Always,
            });
        }
        if let Some(age) = self.max_age {
            builder = builder.max_age(age);
        }
        if let Some(runtime) = runtime {
            builder = builder.runtime(runtime);
        }
        builder
            .start()
            .with_context(|| format!("cannot connect to {}", self.access.url))
    }

    async fn publish(
        &self,
        number: u16,
        client: &Client,
        state: &Shared,
        begun: Instant,
    ) -> Result<()> {
        // Publishers take turns.
        let share = f64::from(number) / f64::from(self.publishers);
        let start = match self.rate > 0.0 {
            true => Instant::now() + Duration::from_secs_f64(share / self.rate),
            false => Instant::now(),
        };
        let mut pending: Vec<Delivery> = Vec::new();
        let mut count: u32 = 0;
        let mut behind: u64 = 0;
        // When the client had taken the message before.
        let mut free = start;
        while start.elapsed() < self.time {
            if self.rate > 0.0 {
                let due = start + Duration::from_secs_f64(f64::from(count) / self.rate);
                sleep_until(due.into()).await;
                let late = due.max(free).elapsed();
                behind += u64::from(late > Duration::from_micros(BEHIND_US_MAX));
            }
            let topic = u16::try_from(count % u32::from(self.topics)).unwrap_or_default();
            let lane = usize::from(number) * usize::from(self.topics) + usize::from(topic);
            let sequence = count / u32::from(self.topics);
            let mut payload = BytesMut::with_capacity(self.payload.max(HEADER_BYTES));
            payload.put_u16(number);
            payload.put_u16(topic);
            payload.put_u32(sequence);
            payload.put_u64(micros(begun));
            payload.resize(self.payload.max(HEADER_BYTES), b'.');
            let name = format!("load/{}/{number}/{topic}", self.id);
            let publish = Publish::new(name, payload.freeze()).qos(quality(self.qos));
            pending.push(
                client
                    .start_publish(publish)
                    .await
                    .context("cannot publish")?,
            );
            free = Instant::now();
            count += 1;
            if let Some(sent) = lock(state).sent.get_mut(lane) {
                *sent = sequence + 1;
            }
            if pending.len() >= DELIVERIES_MAX {
                settle(pending.drain(..DELIVERIES_MAX / 2), state).await;
            }
        }
        let left = pending.len() as u64;
        if timeout(self.patience + SETTLE_MAX, settle(pending.drain(..), state))
            .await
            .is_err()
        {
            // A peer that is gone acknowledges nothing.
            lock(state).done.failed += left;
        }
        lock(state).done.behind += behind;
        lock(state).done.published += u64::from(count);
        Ok(())
    }

    async fn receive(&self, number: u16, mut messages: Messages, state: &Shared, begun: Instant) {
        while let Some(message) = messages.next().await {
            let (now, at) = (Instant::now(), micros(begun));
            let mut state = lock(state);
            state.last_arrival = Some(now);
            self.note(number, &message, &mut state, at);
        }
    }

    fn note(&self, subscriber: u16, message: &Message, state: &mut State, now: u64) {
        let Some((publisher, topic, sequence, sent)) = read(&message.payload) else {
            return;
        };
        if publisher >= self.publishers || topic >= self.topics {
            return;
        }
        let lanes = usize::from(self.publishers) * usize::from(self.topics);
        let lane = usize::from(publisher) * usize::from(self.topics) + usize::from(topic);
        state.done.received += 1;
        let Some(seen) = state.seen.get_mut(usize::from(subscriber) * lanes + lane) else {
            return;
        };
        if seen.last.is_some_and(|last| sequence < last) {
            state.done.overtaken += 1;
        }
        seen.last = seen.last.max(Some(sequence));
        let index = sequence as usize;
        if seen.times.len() <= index {
            seen.times.resize(index + 1, 0);
        }
        if let Some(times) = seen.times.get_mut(index) {
            *times = times.saturating_add(1);
        }
        if self.samples && subscriber == 0 && state.done.samples.len() < SAMPLES_MAX {
            state.done.samples.push((topic, sent, now));
        }
    }

    /// Waits until everything is there, or nothing comes any more.
    async fn drain(&self, state: &Shared) {
        let begun = Instant::now();
        loop {
            let done = self.count(state);
            let last = lock(state)
                .last_arrival
                .map_or(begun, |last| last.max(begun));
            if done.lost == 0 || last.elapsed() > self.patience {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn count(&self, state: &Shared) -> Done {
        let state = lock(state);
        let mut done = state.done.clone();
        let once: u64 = state.sent.iter().map(|sent| u64::from(*sent)).sum();
        done.expected = once * u64::from(self.subscribers);
        let times = || state.seen.iter().flat_map(|seen| &seen.times);
        let unique = times().filter(|times| **times > 0).count() as u64;
        done.lost = done.expected.saturating_sub(unique);
        done.duplicated = times()
            .map(|times| u64::from(times.saturating_sub(1)))
            .sum();
        done
    }
}

/// Waits for outcomes.
async fn settle(deliveries: impl Iterator<Item = Delivery>, state: &Shared) {
    for delivery in deliveries {
        if delivery.await.is_err() {
            lock(state).done.failed += 1;
        }
    }
}

/// Counts connections that end or move.
async fn watch(mut events: Events, state: Shared) {
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Disconnected { cause } => {
                let mut state = lock(&state);
                state.done.disconnections += 1;
                if state.done.causes.len() < CAUSES_MAX {
                    state.done.causes.push(cause.to_string());
                }
            }
            ConnectionEvent::Connected { .. } => lock(&state).done.reconnections += 1,
            ConnectionEvent::Migrated(_) => lock(&state).done.moves += 1,
            _ => {}
        }
    }
}

/// Moves a connection to a new socket again and again.
async fn roam(client: Client, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        // One whose probe was lost stays, and one that moves already is busy:
        // moves are counted where they happen.
        let _ = client.migrate(None).await;
    }
}

fn read(payload: &[u8]) -> Option<(u16, u16, u32, u64)> {
    let (publisher, rest) = payload.split_first_chunk()?;
    let (topic, rest) = rest.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let time = rest.first_chunk()?;
    Some((
        u16::from_be_bytes(*publisher),
        u16::from_be_bytes(*topic),
        u32::from_be_bytes(*sequence),
        u64::from_be_bytes(*time),
    ))
}
