//! The last hour, for the broker's page: a thread takes a sample of all shards each ten
//! seconds, as a scrape of the metrics does, and keeps so many.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use dunlin_broker::{Census, Stats};
use dunlin_net::Counters;
use dunlin_store_redb::{COMMIT_MICROS, StoreMetrics, StoreTotals};
use schemars::JsonSchema;
use serde::Serialize;

use super::report::{Paths, RTT_MICROS, ShardReport};
use super::shards::Shards;
use crate::bench::proc::Process;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(10);

/// Samples that are kept: those of an hour.
pub(crate) const SAMPLES_MAX: usize = 360;

/// Age up to which totals are shown again instead of asked for.
const TOTALS_AGE_MAX: Duration = Duration::from_secs(1);

/// The last hour.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct History {
    /// Time between two samples.
    interval_seconds: u64,
    /// The oldest first.
    samples: Vec<Sample>,
}

/// How the broker is, and what it did in a time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Sample {
    /// When it was taken, in seconds since 1970: the end of its time.
    time: u64,
    /// How long its time is.
    seconds: f64,
    /// Connections by transport.
    connections: BTreeMap<&'static str, u64>,
    /// Connected clients by what they speak.
    clients: Clients,
    /// Sessions, connected or not.
    sessions: u64,
    /// Subscriptions.
    subscriptions: u64,
    /// Retained messages.
    retained_messages: u64,
    /// Messages that wait for sessions.
    queued_messages: u64,
    /// Bytes of those in memory.
    queued_bytes: u64,
    /// QoS 1 and 2 messages on their way to clients.
    inflight_messages: u64,
    /// Bytes on their way to clients.
    backlog_bytes: u64,
    /// Resident memory of the process, where that is known.
    memory_bytes: Option<u64>,
    /// PUBLISH packets received in its time.
    messages_received: ByQos,
    /// PUBLISH packets sent in its time.
    messages_sent: ByQos,
    /// Bytes received in its time.
    bytes_received: u64,
    /// Bytes sent in its time.
    bytes_sent: u64,
    /// Messages that were not delivered in its time.
    dropped: Dropped,
    /// Clients accepted in its time.
    clients_accepted: u64,
    /// Clients refused in its time.
    clients_refused: u64,
    /// Connections opened in its time.
    connections_opened: u64,
    /// Connections refused in its time.
    connections_refused: u64,
    /// The store, if there is one.
    store: Option<Commits>,
    /// For each shard, the share of its time in which the thread of this number was busy.
    /// While one thread serves all of them it is the first's.
    shard_load: Vec<f64>,
    /// QUIC.
    quic: Quic,
}

/// Connected clients by what they speak.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Clients {
    mqtt_3_1_1: u64,
    mqtt_5_0: u64,
    amqp_1_0: u64,
}

/// Messages by QoS.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ByQos {
    qos0: u64,
    qos1: u64,
    qos2: u64,
}

/// Messages that were not delivered, by cause.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Dropped {
    /// QoS 0, because a receiver did not keep up.
    slow: u64,
    /// Because the queue of a receiver was full.
    full: u64,
    /// They expired in a queue.
    expired: u64,
    /// They were rejected, or tried too often.
    dead: u64,
    /// The receiver's rights to them had ended.
    denied: u64,
    /// Publishes refused because a queue was full.
    refused: u64,
}

/// Commits to the store.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Commits {
    /// How many.
    commits: u64,
    /// Time of the median one, in microseconds.
    p50_us: Option<u64>,
    /// Time that one in a hundred exceeds, in microseconds.
    p99_us: Option<u64>,
}

/// What QUIC did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Quic {
    /// Handshakes of clients, by kind.
    handshakes: Handshakes,
    /// Handshakes that failed or did not end in time, of every transport.
    handshakes_failed: u64,
    /// Clients asked to prove their address first.
    retries: u64,
    /// Connections whose early data was taken.
    early_data_accepted: u64,
    /// Connections whose early data was refused, by cause.
    early_data_refused: BTreeMap<&'static str, u64>,
    /// Packets sent.
    packets_sent: u64,
    /// Packets declared lost.
    packets_lost: u64,
    /// Median of the round-trip times of connections, in microseconds.
    rtt_p50_us: Option<u64>,
    /// What one in a hundred exceeds, in microseconds.
    rtt_p99_us: Option<u64>,
    /// Clients whose address changed.
    path_changes: u64,
    /// Times that bytes for a stream had to wait because the client had not read it.
    streams_blocked: u64,
}

/// Handshakes of QUIC by kind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Handshakes {
    /// Nothing was known before.
    full: u64,
    /// An earlier session was resumed, without early data.
    resumed: u64,
    /// An earlier session was resumed, with early data.
    early_data: u64,
}

/// Where everything is known.
pub(crate) struct Known {
    pub(crate) shards: Shards,
    pub(crate) store: Option<Arc<StoreMetrics>>,
    /// Microseconds that each thread has been busy.
    pub(crate) busy: Box<dyn Fn() -> Vec<u64> + Send + Sync>,
}

/// The samples, and a way to take one.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Shared>);

struct Shared {
    known: Known,
    started: Instant,
    /// The latest report of each shard: one that does not answer is as it was.
    reports: Mutex<BTreeMap<u16, ShardReport>>,
    samples: Mutex<VecDeque<Sample>>,
    totals: Mutex<Option<(Instant, Sample)>>,
}

/// A running thread. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Recorder,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recording {
    /// Begins to take samples.
    pub(crate) fn start(known: Known) -> io::Result<Self> {
        let recorder = Recorder(Arc::new(Shared {
            known,
            started: Instant::now(),
            reports: Mutex::default(),
            samples: Mutex::default(),
            totals: Mutex::default(),
        }));
        let (stop, stopped) = channel();
        let taking = recorder.clone();
        let thread = std::thread::Builder::new().name("history".into());
        let thread = thread.spawn(move || {
            let mut before = taking.sum();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = taking.sum();
                keep(
                    &mut lock(&taking.0.samples),
                    sample(Some(&before), &now, before.at),
                );
                before = now;
            }
        })?;
        Ok(Self {
            recorder,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Recorder {
    /// Samples that were taken after this, in seconds since 1970.
    pub(crate) fn history(&self, since: u64) -> History {
        let samples = lock(&self.0.samples);
        let later = samples.iter().filter(|sample| sample.time > since);
        History {
            interval_seconds: INTERVAL.as_secs(),
            samples: later.cloned().collect(),
        }
    }

    /// What was counted since the broker started, as of now or a second ago.
    pub(crate) fn totals(&self) -> Sample {
        // Who comes meanwhile waits for the same answer.
        let mut totals = lock(&self.0.totals);
        if let Some((at, sample)) = &*totals
            && at.elapsed() < TOTALS_AGE_MAX
        {
            return sample.clone();
        }
        let fresh = sample(None, &self.sum(), self.0.started);
        *totals = Some((Instant::now(), fresh.clone()));
        fresh
    }

    /// Asks the shards.
    fn sum(&self) -> Totals {
        let known = &self.0.known;
        let fresh = known.shards.reports();
        let mut reports = lock(&self.0.reports);
        for report in fresh {
            reports.insert(report.shard, report);
        }
        let mut totals = Totals::new((known.busy)(), known.store.as_ref().map(|it| it.totals()));
        reports.values().for_each(|report| totals.add(report));
        totals
    }
}

dunlin_base::opaque_debug!(Recorder);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(samples: &mut VecDeque<Sample>, sample: Sample) {
    if samples.len() >= SAMPLES_MAX {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// What all shards have counted at one moment.
#[derive(Clone, Debug)]
struct Totals {
    at: Instant,
    time: u64,
    stats: Stats,
    counters: Counters,
    census: Census,
    /// Every shard has all of them.
    retained: usize,
    connections: BTreeMap<&'static str, u64>,
    paths: Paths,
    store: Option<StoreTotals>,
    busy: Vec<u64>,
}

impl Totals {
    fn new(busy: Vec<u64>, store: Option<StoreTotals>) -> Self {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            at: Instant::now(),
            time: time.unwrap_or_default().as_secs(),
            stats: Stats::default(),
            counters: Counters::default(),
            census: Census::default(),
            retained: 0,
            connections: BTreeMap::new(),
            paths: Paths::default(),
            store,
            busy,
        }
    }

    fn add(&mut self, report: &ShardReport) {
        self.stats = self.stats.plus(&report.stats);
        self.counters = self.counters.plus(&report.counters);
        self.census = self.census.plus(&report.census);
        self.retained = self.retained.max(report.census.retained);
        for (transport, count) in report.held.iter() {
            *self.connections.entry(transport.name()).or_default() += count as u64;
        }
        self.paths.rtt.add(&report.paths.rtt);
    }
}

/// What happened between two moments, or up to one.
fn sample(before: Option<&Totals>, now: &Totals, since: Instant) -> Sample {
    let none = (Stats::default(), Counters::default());
    let (old, old_net) = before.map_or((&none.0, &none.1), |it| (&it.stats, &it.counters));
    let (new, new_net) = (&now.stats, &now.counters);
    let of = |field: fn(&Stats) -> u64| field(new).saturating_sub(field(old));
    let net = |field: fn(&Counters) -> u64| field(new_net).saturating_sub(field(old_net));
    let time = now.at.saturating_duration_since(since);
    let census = &now.census;
    Sample {
        time: now.time,
        seconds: time.as_secs_f64(),
        connections: now.connections.clone(),
        clients: Clients {
            mqtt_3_1_1: census.spoken.mqtt_3_1_1 as u64,
            mqtt_5_0: census.spoken.mqtt_5_0 as u64,
            amqp_1_0: census.spoken.amqp_1_0 as u64,
        },
        sessions: census.sessions as u64,
        subscriptions: census.subscribed as u64,
        retained_messages: now.retained as u64,
        queued_messages: census.queued as u64,
        queued_bytes: census.queued_bytes as u64,
        inflight_messages: census.in_flight as u64,
        backlog_bytes: census.backlog_bytes as u64,
        memory_bytes: Process::own().and_then(Process::rss),
        messages_received: ByQos {
            qos0: of(|it| it.messages_received_qos0),
            qos1: of(|it| it.messages_received_qos1),
            qos2: of(|it| it.messages_received_qos2),
        },
        messages_sent: ByQos {
            qos0: of(|it| it.messages_sent_qos0),
            qos1: of(|it| it.messages_sent_qos1),
            qos2: of(|it| it.messages_sent_qos2),
        },
        bytes_received: of(|it| it.bytes_received),
        bytes_sent: of(|it| it.bytes_sent),
        dropped: Dropped {
            slow: of(|it| it.messages_dropped_slow),
            full: of(|it| it.messages_dropped_full),
            expired: of(|it| it.messages_expired),
            dead: of(|it| it.messages_dead),
            denied: of(|it| it.deliveries_denied),
            refused: of(|it| it.publishes_refused),
        },
        clients_accepted: of(|it| it.clients_accepted),
        clients_refused: of(|it| it.clients_refused),
        connections_opened: net(|it| it.opened),
        connections_refused: refused(new_net).saturating_sub(refused(old_net)),
        store: now
            .store
            .map(|store| commits(before.and_then(|it| it.store), &store)),
        shard_load: loads(before, now, time),
        quic: quic(before, now, &net),
    }
}

/// Connections refused, for any cause.
fn refused(counters: &Counters) -> u64 {
    let mut sum = 0;
    counters.each(|name, _, value| {
        if name.starts_with("refused_") {
            sum += value;
        }
    });
    sum
}

fn commits(before: Option<StoreTotals>, now: &StoreTotals) -> Commits {
    let before = before.unwrap_or_default();
    let classes: [u64; COMMIT_MICROS.len()] = core::array::from_fn(|at| {
        let of = |totals: &StoreTotals| totals.by_time.get(at).copied().unwrap_or(0);
        of(now).saturating_sub(of(&before))
    });
    let commits = now.commits.saturating_sub(before.commits);
    Commits {
        commits,
        p50_us: quantile(&COMMIT_MICROS, &classes, commits, 50),
        p99_us: quantile(&COMMIT_MICROS, &classes, commits, 99),
    }
}

fn loads(before: Option<&Totals>, now: &Totals, time: Duration) -> Vec<f64> {
    let old = |at: usize| before.and_then(|it| it.busy.get(at)).copied().unwrap_or(0);
    let micros = time.as_micros().max(1) as f64;
    let busy = now.busy.iter().enumerate();
    let load = busy.map(|(at, busy)| busy.saturating_sub(old(at)) as f64 / micros);
    load.map(|load| load.min(1.0)).collect()
}

fn quic(before: Option<&Totals>, now: &Totals, net: &dyn Fn(fn(&Counters) -> u64) -> u64) -> Quic {
    let (rtts, count) = now.paths.rtt.since(before.map(|it| &it.paths.rtt));
    let early_data = net(|it| it.early_data_accepted);
    let mut refused = BTreeMap::new();
    let mut sum = |counters: &Counters, add: bool| {
        counters.each(|name, _, value| {
            if let Some(cause) = name.strip_prefix("early_data_refused_") {
                let of: &mut u64 = refused.entry(cause).or_default();
                *of = match add {
                    true => of.saturating_add(value),
                    false => of.saturating_sub(value),
                };
            }
        });
    };
    sum(&now.counters, true);
    if let Some(before) = before {
        sum(&before.counters, false);
    }
    Quic {
        handshakes: Handshakes {
            full: net(|it| it.quic_handshakes_full),
            resumed: net(|it| it.quic_handshakes_resumed).saturating_sub(early_data),
            early_data,
        },
        handshakes_failed: net(|it| it.handshake_failures + it.handshake_timeouts),
        retries: net(|it| it.retries_sent),
        early_data_accepted: early_data,
        early_data_refused: refused,
        packets_sent: net(|it| it.quic_packets_out),
        packets_lost: net(|it| it.quic_packets_lost),
        rtt_p50_us: quantile(&RTT_MICROS, &rtts, count, 50),
        rtt_p99_us: quantile(&RTT_MICROS, &rtts, count, 99),
        path_changes: net(|it| it.migrations),
        streams_blocked: net(|it| it.quic_streams_blocked),
    }
}

/// The value that so many of a hundred do not exceed, from how many are in each class;
/// what is above the last class counts as its bound. `None`: there are none.
fn quantile(bounds: &[u64], classes: &[u64], count: u64, percent: u64) -> Option<u64> {
    if count == 0 {
        return None;
    }
    let rank = (count * percent).div_ceil(100).max(1);
    let (mut below, mut lower) = (0, 0);
    for (bound, class) in bounds.iter().zip(classes) {
        if below + class >= rank {
            let share = (bound - lower) * (rank - below) / class.max(&1);
            return Some(lower + share);
        }
        (below, lower) = (below + class, *bound);
    }
    bounds.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_class() {
        let bounds = [10, 20, 40];
        assert_eq!(quantile(&bounds, &[0, 0, 0], 0, 50), None);
        assert_eq!(quantile(&bounds, &[1, 0, 0], 1, 50), Some(10));
        assert_eq!(quantile(&bounds, &[10, 0, 0], 10, 50), Some(5));
        assert_eq!(quantile(&bounds, &[50, 49, 1], 100, 50), Some(10));
        assert_eq!(quantile(&bounds, &[50, 49, 1], 100, 99), Some(20));
        assert_eq!(quantile(&bounds, &[50, 49, 1], 100, 100), Some(40));
        assert_eq!(quantile(&bounds, &[0, 0, 0], 5, 50), Some(40), "above all");
    }

    #[test]
    fn a_sample_is_what_happened_between_two_looks() {
        let totals = |busy: u64, received: u64, used: u64| {
            let mut totals = Totals::new(vec![busy, 0], None);
            let mut report = ShardReport::default();
            report.stats.messages_received_qos1 = received;
            report.counters.early_data_refused_used = used;
            report.census.queued = 7;
            totals.add(&report);
            totals.add(&report);
            totals
        };
        let before = totals(1_000_000, 10, 1);
        let mut now = totals(6_000_000, 35, 3);
        now.at = before.at + Duration::from_secs(10);
        let it = sample(Some(&before), &now, before.at);
        assert_eq!(it.messages_received.qos1, 50);
        assert_eq!(it.quic.early_data_refused["used"], 4);
        assert_eq!(it.quic.early_data_refused["tls"], 0);
        assert_eq!((it.queued_messages, it.connections["quic"]), (14, 0));
        assert!((it.seconds - 10.0).abs() < 1e-9);
        assert!((it.shard_load[0] - 0.5).abs() < 1e-9 && it.shard_load[1] < 1e-9);
        assert!(it.store.is_none() && it.quic.rtt_p50_us.is_none());
        let all = sample(None, &now, before.at);
        assert_eq!(all.messages_received.qos1, 70);
    }

    #[test]
    fn an_hour_is_kept() {
        let totals = Totals::new(Vec::new(), None);
        let mut samples = VecDeque::new();
        for time in 0..SAMPLES_MAX as u64 + 5 {
            let mut it = sample(None, &totals, totals.at);
            it.time = time;
            keep(&mut samples, it);
        }
        assert_eq!((samples.len(), samples[0].time), (SAMPLES_MAX, 5));
    }
}
