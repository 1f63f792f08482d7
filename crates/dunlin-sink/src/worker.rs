//! One connection to the broker and one to the target: messages are gathered into a batch
//! while the batch before is stored, and acknowledged, in their order, when it is. What is
//! not acknowledged the broker keeps, so a target that is slow or away slows the broker.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dunlin_client::{Backoff, Client, ConnectionEvent, Events, Message, Messages, Subscribe};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};

use crate::batch::{Batch, Item, Limits};
use crate::config::{Config, ConfigError};
use crate::guard::Guard;
use crate::input::Input;
use crate::refusal::{Cause, Refusal};
use crate::refused::Place;
use crate::stats::Stats;
use crate::target::{Encode, Failure, Rows, Target};
use crate::window::Window;

/// A worker that went on for so long begins again without a longer wait.
const LASTED: Duration = Duration::from_secs(60);

/// When a client that is not connected tries again. Not at once: one whose connection is
/// lost has ended by then.
const RECONNECT: Backoff = Backoff {
    min: Duration::from_millis(500),
    max: Duration::from_secs(10),
    jitter: 0.2,
};

/// Time for DISCONNECT to leave.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// Messages after which the clock is read again.
const CLOCK_EVERY: usize = 64;

impl Item for Message {
    fn input(&self, time: i64) -> Input<'_> {
        Input {
            topic: &self.topic,
            payload: &self.payload,
            time,
            qos: self.qos as u8,
            retain: self.retain,
            properties: self.properties.as_deref(),
        }
    }
}

/// Why a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was asked to.
    Stopped,
    /// The connection to the broker is closed for good, or there was no subscription.
    Closed,
    /// A message was refused and there is no place for it.
    Refused(String),
}

/// What a worker works with.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) place: Place,
    pub(crate) target: Box<dyn Target>,
    pub(crate) guard: Guard,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) runtime: dunlin_client::Runtime,
}

type Encoder = Arc<dyn Encode>;
type Batches = mpsc::Receiver<Batch<Message>>;

impl Worker {
    /// Works until it is asked to stop, or must not go on.
    pub(crate) async fn run(mut self) -> End {
        let retry = &self.config.retry;
        let backoff = backoff(retry.min.0, retry.max.0);
        let mut stop = self.stop.clone();
        let mut failures = 0;
        loop {
            let began = Instant::now();
            match self.once().await {
                Ok(End::Closed) => {}
                Ok(end) => return end,
                Err(error) => tracing::error!(%error, "the sink cannot connect to the broker"),
            }
            failures = match began.elapsed() > LASTED {
                true => 1,
                false => failures + 1,
            };
            let wait = backoff.wait(failures, u32::MAX / 2);
            if timeout(wait, stop.wait_for(|stop| *stop)).await.is_ok() {
                return End::Stopped;
            }
        }
    }

    async fn once(&mut self) -> Result<End, ConfigError> {
        let window = self.config.in_flight();
        let builder = self
            .config
            .client()?
            .client_id(self.config.client_id(self.number))
            .clean_start(false)
            .session_expiry(self.config.broker.session_expiry.0)
            .persistent()
            .losses_max(0)
            .reconnect(RECONNECT)
            .receive_maximum(window)
            .receive_queue(usize::from(window))
            .manual_acknowledgement()
            .runtime(&self.runtime);
        let started = builder.start().map_err(|error| ConfigError::Value {
            key: "broker",
            why: error.to_string(),
        });
        let (client, mut messages, mut connecting) = started?;
        let watching = watch_connection(connecting.events(), Arc::clone(&self.stats));
        let end = tokio::select! {
            end = self.work(&client, &mut messages) => end,
            () = watching => End::Closed,
        };
        let _ = timeout(LEAVE_MAX, client.disconnect()).await;
        // A client without takers acknowledges what it gets: not before it has ended.
        drop(messages);
        Ok(end)
    }

    async fn work(&mut self, client: &Client, messages: &mut Messages) -> End {
        let held = Held {
            count: AtomicU64::new(0),
            stats: Arc::clone(&self.stats),
        };
        let (opened, encoder) = watch::channel(None);
        let (to_store, batches) = mpsc::channel(1);
        let filler = Filler {
            limits: Limits {
                messages: self.config.batch.messages,
                bytes: usize::try_from(self.config.batch.bytes.0).unwrap_or(usize::MAX),
            },
            time: self.config.batch.time.0,
            held: &held,
            window: Window::new(self.config.in_flight()),
            guard: self.guard.clone(),
            stop: self.stop.clone(),
        };
        let subscribing = subscribe(client.clone(), Arc::clone(&self.config));
        let mut storer = Storer {
            client,
            opened,
            is_open: false,
            patience: Patience::new(&self.config, self.stop.clone()),
            timeout: self.config.retry.timeout.0,
            stats: &self.stats,
            held: &held,
            place: &self.place,
            target: &mut *self.target,
        };
        let ended = async {
            let fill = async { Ok(filler.fill(messages, encoder, to_store).await) };
            match tokio::try_join!(fill, storer.store_all(batches)) {
                Ok((end, ())) | Err(end) => end,
            }
        };
        tokio::select! {
            end = ended => end,
            () = subscribing => End::Closed,
        }
    }
}

/// Counts what a connection has brought and what of it is not acknowledged.
struct Held {
    count: AtomicU64,
    stats: Arc<Stats>,
}

impl Held {
    /// Counts a message; gives how many are held with it.
    fn take(&self, message: &Message) -> u64 {
        let count = self.count.fetch_add(1, Relaxed) + 1;
        let stats = &self.stats;
        stats.received.fetch_add(1, Relaxed);
        stats.repeated.fetch_add(message.dup.into(), Relaxed);
        let bytes = message.payload.len() as u64;
        stats.bytes.fetch_add(bytes, Relaxed);
        count
    }

    fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    fn acknowledged(&self, count: u64) {
        self.count.fetch_sub(count, Relaxed);
        self.stats.acknowledged.fetch_add(count, Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let left = self.count();
        self.stats.returned.fetch_add(left, Relaxed);
    }
}

const fn backoff(min: Duration, max: Duration) -> Backoff {
    Backoff {
        min,
        max,
        jitter: 0.2,
    }
}

/// Follows the connection; ends when it is lost. Another client begins then: one that knows
/// packet identifiers of the connection before would take what a broker sends again under
/// them, after it was killed, for messages that it has.
async fn watch_connection(mut events: Events, stats: Arc<Stats>) {
    let up = Up(stats, core::cell::Cell::new(false));
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Connected {
                session_present, ..
            } => {
                tracing::info!(session_present, "the sink is connected to the broker");
                up.set(true);
            }
            ConnectionEvent::Disconnected { cause } => {
                tracing::warn!(%cause, "the sink is not connected to the broker");
                if up.1.get() {
                    return;
                }
            }
            ConnectionEvent::Closed => return,
            _ => {}
        }
    }
}

/// Counts a connection while it is there.
struct Up(Arc<Stats>, core::cell::Cell<bool>);

impl Up {
    fn set(&self, up: bool) {
        match (self.1.replace(up), up) {
            (false, true) => drop(self.0.connected.fetch_add(1, Relaxed)),
            (true, false) => drop(self.0.connected.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Subscribes; returns only if that is refused.
async fn subscribe(client: Client, config: Arc<Config>) {
    let how = Subscribe::new(config.broker.qos());
    let filters = config.subscriptions();
    let asked = filters.iter().map(|filter| (filter.as_str(), how));
    let refused = match client.subscribe_many(asked).await {
        Ok(answers) => answers
            .into_iter()
            .zip(&filters)
            .find_map(|(answer, filter)| answer.err().map(|error| (filter.clone(), error))),
        Err(error) => Some((filters.join(", "), error)),
    };
    match refused {
        Some((filter, error)) => tracing::error!(filter, %error, "the sink cannot subscribe"),
        None => core::future::pending().await,
    }
}

/// Gathers messages into batches.
struct Filler<'a> {
    limits: Limits,
    time: Duration,
    held: &'a Held,
    window: Window,
    guard: Guard,
    stop: watch::Receiver<bool>,
}

impl Filler<'_> {
    async fn fill(
        mut self,
        messages: &mut Messages,
        mut encoder: watch::Receiver<Option<Encoder>>,
        to_store: mpsc::Sender<Batch<Message>>,
    ) -> End {
        // Nothing is taken before it is known what rows are.
        tokio::select! {
            opened = encoder.wait_for(Option::is_some) => {
                if opened.is_err() {
                    return End::Closed;
                }
            }
            _ = self.stop.wait_for(|stop| *stop) => return End::Stopped,
        }
        loop {
            let current = encoder.borrow().clone();
            let Some(current) = current else {
                return End::Closed;
            };
            let first = tokio::select! {
                first = messages.next() => first,
                _ = self.stop.wait_for(|stop| *stop) => return End::Stopped,
            };
            let Some(first) = first else {
                return End::Closed;
            };
            let mut batch = Batch::new(current, self.guard.clone());
            let end = self.gather(&mut batch, first, messages).await;
            if to_store.send(batch).await.is_err() {
                return End::Closed;
            }
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Adds what comes until the batch is full or old; says why it is the last one.
    async fn gather(
        &mut self,
        batch: &mut Batch<Message>,
        first: Message,
        messages: &mut Messages,
    ) -> Option<End> {
        let mut came = Instant::now();
        let until = came + self.time;
        let mut time = now();
        self.add(batch, first, time);
        while !batch.is_full(&self.limits) {
            if batch.len().is_multiple_of(CLOCK_EVERY) {
                time = now();
                came = Instant::now();
                if came >= until {
                    return None;
                }
            }
            let message = match messages.try_next() {
                Some(message) => message,
                None if self.nothing_can_come(batch) => return None,
                None => {
                    let next = tokio::select! {
                        next = messages.next() => next,
                        () = sleep_until(until.into()) => {
                            let quiet = came.elapsed() >= self.time / 2;
                            self.window.is_old(self.held.count(), quiet);
                            return None;
                        }
                        _ = self.stop.wait_for(|stop| *stop) => return Some(End::Stopped),
                    };
                    time = now();
                    came = Instant::now();
                    match next {
                        Some(message) => message,
                        None => return Some(End::Closed),
                    }
                }
            };
            self.add(batch, message, time);
        }
        None
    }

    /// Whether the broker waits for acknowledgements of what is in the batch, and of nothing
    /// else: those of a batch before it let it send more.
    fn nothing_can_come(&mut self, batch: &Batch<Message>) -> bool {
        let held = self.held.count();
        let ends = held == batch.len() as u64 && self.window.is_full(held);
        if ends {
            self.window.ended();
        }
        ends
    }

    fn add(&mut self, batch: &mut Batch<Message>, message: Message, time: i64) {
        let held = self.held.take(&message);
        self.window.took(held);
        batch.add(message, time);
    }
}

/// Microseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_micros()).unwrap_or(i64::MAX))
}

/// Waits that grow, and end some time after the sink was asked to stop.
struct Patience {
    backoff: Backoff,
    failures: u32,
    stop: watch::Receiver<bool>,
    stop_time: Duration,
    deadline: Option<Instant>,
}

impl Patience {
    const fn new(config: &Config, stop: watch::Receiver<bool>) -> Self {
        Self {
            backoff: backoff(config.retry.min.0, config.retry.max.0),
            failures: 0,
            stop,
            stop_time: config.retry.stop.0,
            deadline: None,
        }
    }

    const fn begin_again(&mut self) {
        self.failures = 0;
    }

    /// Waits before another attempt. An error when it is time to go.
    async fn wait(&mut self) -> Result<(), End> {
        self.failures = self.failures.saturating_add(1);
        let wait = self.backoff.wait(self.failures, u32::MAX / 2);
        let until = Instant::now() + wait;
        if !*self.stop.borrow() {
            let stopped = timeout(wait, self.stop.wait_for(|stop| *stop)).await;
            if stopped.is_err() {
                return Ok(());
            }
        }
        let stop_time = self.stop_time;
        let deadline = *self
            .deadline
            .get_or_insert_with(|| Instant::now() + stop_time);
        sleep_until(until.min(deadline).into()).await;
        match Instant::now() < deadline {
            true => Ok(()),
            false => Err(End::Stopped),
        }
    }
}

/// Stores batches.
struct Storer<'a> {
    client: &'a Client,
    opened: watch::Sender<Option<Encoder>>,
    is_open: bool,
    patience: Patience,
    timeout: Duration,
    stats: &'a Stats,
    held: &'a Held,
    place: &'a Place,
    target: &'a mut dyn Target,
}

impl Drop for Storer<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

impl Storer<'_> {
    async fn store_all(&mut self, mut batches: Batches) -> Result<(), End> {
        tokio::select! {
            opened = self.open() => drop(opened?),
            // Asked to stop before there was anything to store.
            None = batches.recv() => return Ok(()),
        }
        while let Some(batch) = batches.recv().await {
            self.store(batch).await?;
        }
        Ok(())
    }

    /// Opens the target, as often as that takes.
    async fn open(&mut self) -> Result<Encoder, End> {
        loop {
            let opened = timeout(self.timeout, self.target.open()).await;
            let why = match opened {
                Ok(Ok(encoder)) => {
                    tracing::info!("the target of the sink is there");
                    self.stats.open.fetch_add(1, Relaxed);
                    self.is_open = true;
                    let _ = self.opened.send_replace(Some(Arc::clone(&encoder)));
                    return Ok(encoder);
                }
                Ok(Err(Failure::Later(why) | Failure::Refused(why))) => why,
                Err(_) => "it did not answer in time".into(),
            };
            tracing::warn!(why, "the target of the sink is not there");
            self.stats.retries.fetch_add(1, Relaxed);
            self.patience.wait().await?;
        }
    }

    fn close(&mut self) {
        if core::mem::replace(&mut self.is_open, false) {
            self.stats.open.fetch_sub(1, Relaxed);
        }
    }

    async fn encoder(&mut self) -> Result<Encoder, End> {
        let current = self.opened.borrow().clone();
        match current {
            Some(encoder) if self.is_open => Ok(encoder),
            _ => self.open().await,
        }
    }

    /// Stores a batch, in parts where the target refuses some of it, then acknowledges.
    async fn store(&mut self, mut batch: Batch<Message>) -> Result<(), End> {
        let mut parts = vec![(0, batch.len())];
        let mut rows = 0;
        while let Some((from, to)) = parts.pop() {
            match self.store_part(&mut batch, from, to).await? {
                Ok(stored) => rows += stored,
                Err(why) if to - from <= 1 => {
                    batch.refuse(from, Refusal::new(Cause::Target, why));
                }
                Err(_) => {
                    let middle = from + (to - from) / 2;
                    parts.push((middle, to));
                    parts.push((from, middle));
                }
            }
        }
        self.set_aside(&batch).await?;
        self.stats.stored(rows);
        let mut acknowledged = 0;
        for message in batch.into_items() {
            message.acknowledge();
            acknowledged += 1;
        }
        self.held.acknowledged(acknowledged);
        Ok(())
    }

    /// Stores some messages of a batch; the inner error: the target refuses one of them.
    async fn store_part(
        &mut self,
        batch: &mut Batch<Message>,
        from: usize,
        to: usize,
    ) -> Result<Result<usize, String>, End> {
        loop {
            let encoder = self.encoder().await?;
            batch.seal(&encoder, from);
            let rows = batch.rows(from, to);
            let count = rows.count;
            if count == 0 {
                return Ok(Ok(0));
            }
            let began = Instant::now();
            let outcome = self.attempt(rows).await;
            self.stats.took(began.elapsed());
            match outcome {
                Ok(()) => {
                    self.patience.begin_again();
                    return Ok(Ok(count));
                }
                Err(Failure::Refused(why)) => return Ok(Err(why)),
                Err(Failure::Later(why)) => {
                    tracing::warn!(why, rows = count, "rows are not stored, and tried again");
                    self.stats.retries.fetch_add(1, Relaxed);
                    self.close();
                    self.patience.wait().await?;
                }
            }
        }
    }

    async fn attempt(&mut self, rows: Rows) -> Result<(), Failure> {
        let stored = timeout(self.timeout, self.target.store(rows)).await;
        stored.unwrap_or_else(|_| Err(Failure::Later("it took too long".into())))
    }

    /// Puts refused messages where they belong.
    async fn set_aside(&mut self, batch: &Batch<Message>) -> Result<(), End> {
        let refused: Vec<_> = batch
            .refused()
            .map(|(message, time, refusal)| (message.input(time), refusal))
            .collect();
        let Some((input, refusal)) = refused.first() else {
            return Ok(());
        };
        if !self.place.is_there() {
            self.stats.halted.store(true, Relaxed);
            return Err(End::Refused(format!(
                "a message of topic {:?} cannot be stored ({refusal}): give refused messages \
                 a place with `refused.topic` or `refused.file`",
                input.topic
            )));
        }
        while let Err(why) = self.place.put(self.client, &refused).await {
            tracing::warn!(why, "refused messages cannot be set aside");
            self.stats.retries.fetch_add(1, Relaxed);
            self.patience.wait().await?;
        }
        for (_, refusal) in &refused {
            self.stats.refuse(refusal.cause);
        }
        tracing::warn!(messages = refused.len(), first = %refusal, "messages were refused");
        Ok(())
    }
}
