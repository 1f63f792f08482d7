//! Load by clients of the library instead of the generator's own: publishers and
//! subscribers in one process with one clock. They use streams and datagrams, come
//! back after a loss, give up what is too old and move; what is measured is the
//! client, too.

mod clients;
mod count;

use core::time::Duration;
use std::io::Write;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use dunlin_client::{Builder, Client, Messages, Publish};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::plan::Plan;
use super::wire::{STAMP_BYTES, Stamp};
use clients::Clients;
pub use count::Done;
use count::{Counts, EXCHANGED};

/// Outcomes of messages of one publisher that are awaited at a time.
const DELIVERIES_MAX: usize = 1024;
/// Longest wait for acknowledgements, beside the time for messages.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Time for the caller to change the network once all are connected.
const ANNOUNCED: Duration = Duration::from_millis(50);
/// Time between two messages that are exchanged before.
const EXCHANGE_EVERY: Duration = Duration::from_millis(100);
/// Quiet time before the last of them and after it: clients may ask once what
/// became of a flow that stopped, and the last comes alone, as those that count.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait for one of them.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// For the last acknowledgements of the transport.
const LAST: Duration = Duration::from_millis(300);

/// What is done beside the plan.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Report the times of each message.
    pub samples: bool,
    /// Print `connected` when all are.
    pub announce: bool,
    /// Move the QUIC connection of every client to a new socket that often.
    pub migrate: Option<Duration>,
    /// Subscribers are in this network namespace.
    pub namespace: Option<String>,
    /// Messages that each publisher exchanges before, one after the other.
    pub exchange: u32,
}

/// Makes the client of a kind, `p` or `s`, with that number, not yet connected.
pub type Make<'a> = dyn Fn(char, usize) -> Result<Builder> + 'a;

/// Runs a plan.
///
/// # Errors
/// The plan makes no sense, a client cannot connect, subscribe or publish.
pub fn run(plan: &Plan, options: &Options, make: &Make<'_>) -> Result<Done> {
    plan.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .context("cannot start")?;
    let load = Arc::new(Load {
        counts: Counts::new(plan, options.samples),
        plan: plan.clone(),
        begun: Instant::now(),
    });
    runtime.block_on(load.run(options, make))
}

/// A run.
struct Load {
    plan: Plan,
    counts: Counts,
    /// Times are counted from here.
    begun: Instant,
}

impl Load {
    async fn run(self: Arc<Self>, options: &Options, make: &Make<'_>) -> Result<Done> {
        let mut tasks = JoinSet::new();
        let clients = Clients::connect(&self.plan, options, make).await?;
        for (number, (client, messages)) in clients.subscribers.into_iter().enumerate() {
            tasks.spawn(clients::watch(client.events(), Arc::clone(&self)));
            tasks.spawn(Arc::clone(&self).receive(number, messages));
            tasks.spawn(clients::roam(client, options.migrate));
        }
        for client in &clients.publishers {
            tasks.spawn(clients::watch(client.events(), Arc::clone(&self)));
            tasks.spawn(clients::roam(client.clone(), options.migrate));
        }
        if options.announce {
            let mut out = std::io::stdout().lock();
            writeln!(out, "connected").and_then(|()| out.flush())?;
            drop(out);
            sleep(ANNOUNCED).await;
        }
        if options.exchange > 0 {
            let each = clients.publishers.iter().enumerate();
            let exchanged = each.map(|(number, client)| {
                Arc::clone(&self).exchange(number, client.clone(), options.exchange)
            });
            all(exchanged).await?;
            sleep(QUIET).await;
        }
        let (start, from_us) = (Instant::now(), epoch_us());
        let each = clients.publishers.iter().enumerate();
        all(each.map(|(number, client)| Arc::clone(&self).publish(number, client.clone(), start)))
            .await?;
        self.drain().await;
        let seconds = start.elapsed().as_secs_f64();
        sleep(LAST).await;
        let mut done = self.counts.done();
        (done.seconds, done.window_us) = (seconds, (from_us, epoch_us()));
        tasks.abort_all();
        clients::disconnect(clients.publishers.into_iter().chain(clients.listening)).await;
        Ok(done)
    }

    /// Messages one after the other, which do not count.
    async fn exchange(self: Arc<Self>, number: usize, client: Client, count: u32) -> Result<()> {
        sleep(EXCHANGE_EVERY * index(number) / index(self.plan.publishers).max(1)).await;
        for left in (0..count).rev() {
            if left == 0 {
                sleep(QUIET).await;
            }
            let next = tokio::time::Instant::now() + EXCHANGE_EVERY;
            let message = self.message(number, EXCHANGED, micros(self.begun));
            client.publish(message).await.context("cannot publish")?;
            // One of QoS 0 may be lost.
            let _ = timeout(EXCHANGE_MAX, self.counts.exchanged(number)).await;
            sleep_until(next).await;
        }
        Ok(())
    }

    async fn publish(self: Arc<Self>, number: usize, client: Client, start: Instant) -> Result<()> {
        let plan = &self.plan;
        let time = plan.time.warmup + plan.time.duration;
        // Publishers take turns.
        let every = plan.pace.rate.map(|rate| plan.publishers as f64 / rate);
        let share = number as f64 / plan.publishers as f64;
        let due = |sequence: u32| {
            let at = every.map(|every| (f64::from(sequence) + share) * every);
            at.map(Duration::from_secs_f64)
        };
        let mut outcomes = JoinSet::new();
        // When the client had taken the message before.
        let mut free = start;
        for sequence in 0..EXCHANGED {
            if due(sequence).unwrap_or_else(|| start.elapsed()) >= time {
                break;
            }
            if let Some(due) = due(sequence).map(|due| start + due) {
                sleep_until(due.into()).await;
                self.counts.late(due.max(free).elapsed());
            }
            let (now, at_us) = (Instant::now(), micros(self.begun));
            self.counts.sent(number, sequence);
            let message = self.message(number, sequence, at_us);
            let delivery = client.start_publish(message).await;
            let delivery = delivery.context("cannot publish")?;
            free = Instant::now();
            let load = Arc::clone(&self);
            outcomes.spawn(async move {
                let is_done = delivery.await.is_ok();
                load.counts.settled(is_done, at_us, now.elapsed());
            });
            if outcomes.len() >= DELIVERIES_MAX {
                outcomes.join_next().await;
            }
        }
        let all = async { while outcomes.join_next().await.is_some() {} };
        // A peer that is gone acknowledges nothing.
        let _ = timeout(plan.time.drain + SETTLE_MAX, all).await;
        (0..outcomes.len()).for_each(|_| self.counts.failed());
        Ok(())
    }

    fn message(&self, number: usize, sequence: u32, at_us: u64) -> Publish {
        let plan = &self.plan;
        let turn = sequence as usize % self.counts.topics(number);
        let topic = plan.topics_of_publisher(number).nth(turn);
        let topic = plan.topic(topic.unwrap_or_default());
        Publish::new(topic, self.payload(number, sequence, at_us)).qos(plan.messages.qos)
    }

    fn payload(&self, number: usize, sequence: u32, at_us: u64) -> Bytes {
        let size = self.plan.size_of(number);
        let stamp = Stamp {
            at_us,
            publisher: index(number),
            seq: sequence,
        };
        let mut payload = BytesMut::with_capacity(size.max(STAMP_BYTES));
        payload.put_slice(&stamp.to_bytes());
        payload.resize(size.max(STAMP_BYTES), b'.');
        payload.freeze()
    }

    async fn receive(self: Arc<Self>, number: usize, mut messages: Messages) {
        while let Some(message) = messages.next().await {
            let at_us = micros(self.begun);
            if let Some(stamp) = Stamp::from_payload(&message.payload) {
                self.counts.arrived(&self.plan, number, stamp, at_us);
            }
        }
    }

    /// Waits until everything is there, or nothing comes any more.
    async fn drain(&self) {
        let begun = Instant::now();
        while !self.counts.is_complete() {
            let last = self.counts.last_arrival().map_or(begun, |at| at.max(begun));
            if last.elapsed() > self.plan.time.drain {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Awaits all of them; the first error ends it.
async fn all(
    work: impl Iterator<Item: Future<Output = Result<()>> + Send + 'static>,
) -> Result<()> {
    let mut tasks: JoinSet<Result<()>> = work.collect();
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn epoch_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
