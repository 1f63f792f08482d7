//! What became of the messages of a load by clients of the library.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tokio::sync::Notify;

use crate::bench::handshakes::all_but_one_in_fifty;
use crate::bench::plan::{Pattern, Plan};
use crate::bench::stats::{Latency, Summary};
use crate::bench::wire::Stamp;

/// The number of messages that do not count.
pub(super) const EXCHANGED: u32 = u32::MAX;
/// Messages whose times are kept.
const SAMPLES_MAX: usize = 1_000_000;
/// Causes of disconnections that are kept.
const CAUSES_MAX: usize = 16;
/// A message that leaves later than this was held up by this process.
const BEHIND: Duration = Duration::from_millis(10);

/// What came of it. Times are in microseconds from one clock.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Messages given to clients.
    pub published: u64,
    /// Those of which the client said that they failed.
    pub failed: u64,
    /// Deliveries that they must lead to.
    pub expected: u64,
    /// Deliveries, those counted that came again.
    pub received: u64,
    /// Expected and not delivered.
    pub lost: u64,
    /// Deliveries of a message that had been delivered.
    pub duplicated: u64,
    /// Messages of a topic that came after a later one.
    pub overtaken: u64,
    /// Connections that ended, and attempts that failed.
    pub disconnections: u64,
    /// Why the first of them did.
    pub causes: Vec<String>,
    /// Connections after the first one of each client.
    pub reconnections: u64,
    /// Moves of connections to other local addresses, wanted and by themselves.
    pub moves: u64,
    /// Messages that were given to the client more than 10 ms late, because this
    /// process was.
    pub behind: u64,
    /// How late they were with all but one in fifty.
    pub late_us: u64,
    /// From the first message to the last arrival.
    pub seconds: f64,
    /// The same since the epoch, with a moment for the transport's last packets.
    pub window_us: (u64, u64),
    /// From giving a message to the client to its arrival, warm-up left out.
    pub latency: Summary,
    /// Topic, time of publishing and of arrival, for one subscriber of each topic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<(u32, u64, u64)>,
    /// Time of publishing, and how long the acknowledgement took.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<(u64, u64)>,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = &self.latency;
        let ms = |us: u64| Duration::from_micros(us).as_secs_f64() * 1e3;
        for (name, count) in [
            ("published", self.published),
            ("failed", self.failed),
            ("expected", self.expected),
            ("lost", self.lost),
            ("duplicates", self.duplicated),
            ("overtaken", self.overtaken),
            ("disconnections", self.disconnections),
            ("moves", self.moves),
            ("sent late", self.behind),
        ] {
            writeln!(f, "{name:<16} {count}")?;
        }
        for cause in &self.causes {
            writeln!(f, "{:<16} {cause}", "ended")?;
        }
        let (p50, p99) = (ms(latency.p50_us), ms(latency.p99_us));
        let most = ms(latency.max_us);
        writeln!(
            f,
            "{:<16} p50 {p50:.2} ms  p99 {p99:.2} ms  max {most:.2} ms",
            "latency"
        )
    }
}

/// What one subscriber has seen of one publisher.
#[derive(Debug, Default)]
struct Seen {
    /// How often each number arrived.
    times: Vec<u8>,
    /// The latest number, by topic.
    last: Vec<Option<u32>>,
}

#[derive(Debug, Default)]
struct State {
    done: Done,
    /// Messages, by publisher.
    sent: Vec<u32>,
    /// By subscriber and publisher.
    seen: BTreeMap<(usize, usize), Seen>,
    late: Vec<u64>,
    latency: Latency,
    last_arrival: Option<Instant>,
    has_samples: bool,
    /// First time that is measured.
    measured_from_us: Option<u64>,
}

/// Counts, shared by the tasks of a run.
#[derive(Debug)]
pub(super) struct Counts {
    state: Mutex<State>,
    /// By publisher: a message that does not count has arrived.
    exchanged: Vec<Notify>,
    fans: Vec<Vec<u64>>,
}

impl Counts {
    pub(super) fn new(plan: &Plan, has_samples: bool) -> Self {
        let fans = |p| {
            plan.topics_of_publisher(p)
                .map(|t| plan.fan_of(t))
                .collect()
        };
        Self {
            state: Mutex::new(State {
                sent: vec![0; plan.publishers],
                has_samples,
                ..State::default()
            }),
            exchanged: (0..plan.publishers).map(|_| Notify::new()).collect(),
            fans: (0..plan.publishers).map(fans).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Topics of a publisher, at least one.
    pub(super) fn topics(&self, publisher: usize) -> usize {
        self.fans.get(publisher).map_or(1, |fans| fans.len().max(1))
    }

    /// A message is given to its client.
    pub(super) fn sent(&self, publisher: usize, sequence: u32) {
        let fans = self.fans.get(publisher).map_or(&[][..], Vec::as_slice);
        let turn = sequence as usize % self.topics(publisher);
        let mut state = self.lock();
        state.done.published += 1;
        state.done.expected += fans.get(turn).copied().unwrap_or_default();
        if let Some(sent) = state.sent.get_mut(publisher) {
            *sent = sequence + 1;
        }
    }

    /// A message was so late when it was given.
    pub(super) fn late(&self, late: Duration) {
        let mut state = self.lock();
        state.done.behind += u64::from(late > BEHIND);
        let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        state.late.push(late);
    }

    /// The client knows what became of a message.
    pub(super) fn settled(&self, is_done: bool, at_us: u64, took: Duration) {
        if !is_done {
            return self.failed();
        }
        let mut state = self.lock();
        if state.has_samples && state.done.acknowledged.len() < SAMPLES_MAX {
            let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            state.done.acknowledged.push((at_us, took));
        }
    }

    pub(super) fn failed(&self) {
        self.lock().done.failed += 1;
    }

    pub(super) fn arrived(&self, plan: &Plan, subscriber: usize, stamp: Stamp, at_us: u64) {
        let publisher = stamp.publisher as usize;
        if stamp.seq == EXCHANGED {
            if let Some(exchanged) = self.exchanged.get(publisher) {
                exchanged.notify_one();
            }
            return;
        }
        let mut state = self.lock();
        let state = &mut *state;
        // Messages of others on the same topic are none of our business.
        if state
            .sent
            .get(publisher)
            .is_none_or(|sent| stamp.seq >= *sent)
        {
            return;
        }
        state.last_arrival = Some(Instant::now());
        state.done.received += 1;
        let topics = self.topics(publisher);
        let seen = state.seen.entry((subscriber, publisher)).or_default();
        seen.note(stamp.seq, topics, &mut state.done);
        let first = *state.measured_from_us.get_or_insert_with(|| {
            stamp.at_us + u64::try_from(plan.time.warmup.as_micros()).unwrap_or_default()
        });
        if stamp.at_us >= first {
            state.latency.record(at_us.saturating_sub(stamp.at_us));
        }
        let is_sampled = subscriber == 0 || matches!(plan.pattern, Pattern::Pair);
        if state.has_samples && is_sampled && state.done.samples.len() < SAMPLES_MAX {
            let turn = stamp.seq as usize % topics;
            let topic = plan.topics_of_publisher(publisher).nth(turn);
            let topic = u32::try_from(topic.unwrap_or_default()).unwrap_or(u32::MAX);
            state.done.samples.push((topic, stamp.at_us, at_us));
        }
    }

    /// Waits for a message that does not count.
    pub(super) async fn exchanged(&self, publisher: usize) {
        if let Some(exchanged) = self.exchanged.get(publisher) {
            exchanged.notified().await;
        }
    }

    pub(super) fn disconnected(&self, cause: &dyn fmt::Display) {
        let mut state = self.lock();
        state.done.disconnections += 1;
        if state.done.causes.len() < CAUSES_MAX {
            state.done.causes.push(cause.to_string());
        }
    }

    pub(super) fn reconnected(&self) {
        self.lock().done.reconnections += 1;
    }

    pub(super) fn moved(&self) {
        self.lock().done.moves += 1;
    }

    pub(super) fn last_arrival(&self) -> Option<Instant> {
        self.lock().last_arrival
    }

    /// Whether every delivery has come.
    pub(super) fn is_complete(&self) -> bool {
        let state = self.lock();
        state.done.received - state.done.duplicated >= state.done.expected
    }

    pub(super) fn done(&self) -> Done {
        let mut state = self.lock();
        let mut done = core::mem::take(&mut state.done);
        done.lost = done
            .expected
            .saturating_sub(done.received - done.duplicated);
        done.latency = state.latency.summary();
        done.late_us = all_but_one_in_fifty(core::mem::take(&mut state.late));
        // In the order in which they were published, not in which they came: those
        // that took long are no neighbours.
        done.samples
            .sort_unstable_by_key(|(_, sent, arrived)| (*sent, *arrived));
        done.acknowledged.sort_unstable();
        done
    }
}

impl Seen {
    fn note(&mut self, sequence: u32, topics: usize, done: &mut Done) {
        let index = sequence as usize;
        self.last.resize(topics, None);
        if let Some(last) = self.last.get_mut(index % topics) {
            done.overtaken += u64::from(last.is_some_and(|last| sequence < last));
            *last = (*last).max(Some(sequence));
        }
        if self.times.len() <= index {
            self.times.resize(index + 1, 0);
        }
        if let Some(times) = self.times.get_mut(index) {
            done.duplicated += u64::from(*times > 0);
            *times = times.saturating_add(1);
        }
    }
}
