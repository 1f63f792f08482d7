//! The experiments of paper 001, section 6.3: MQTT over QUIC, TLS and TCP on a
//! local network whose one end loses packets as they leave.
//!
//! The paper loses packets at the egress of one host, by `tc`; here it is the
//! clients' host. Its network is a switch; here packets take 5 ms each way.
//!
//! With CoAP a publisher puts, and `coap-server` notifies an observer.

mod bytes;
pub(super) mod connect;
pub(super) mod once;
mod publish;
mod publisher;
mod resources;

pub(super) use bytes::Bytes;
pub(super) use connect::{HANDSHAKE, SUBSCRIBE};
pub(super) use publish::Publish;
pub(super) use resources::Resources;

use anyhow::Result;
use dunlin_link::Action;

use super::bench::Bench;
use super::coap;
use super::experiment::{Claim, Estimate, Figure, Kind, PaperPoint, Target};
use super::generator::Generator;
use super::plan;
use super::record::{Cell, Record, Scale};
use super::stats::{Pick, Sample, Statistic};

/// What the paper compares, and what else there is.
const SYSTEMS: [&str; 6] = [
    "dunlin-quic",
    "dunlin-quic-0rtt",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "mqttv5-quic",
];

/// Time of a packet each way.
pub(super) const DELAY: &str = "delay=5ms";

/// Loss at the clients' egress, in percent.
const fn losses(scale: Scale) -> &'static [&'static str] {
    match scale {
        Scale::Smoke => &["10"],
        Scale::Short => &["0", "20"],
        Scale::Paper => &["0", "2", "5", "10", "15", "20"],
    }
}

/// The link of a cell.
fn link(cell: &Cell) -> Vec<String> {
    vec![DELAY.to_owned(), loss(cell)]
}

/// The loss of a cell, as a setting.
pub(super) fn loss(cell: &Cell) -> String {
    format!("up.loss={}%", cell.factor("loss_percent"))
}

/// Pairs that connect before anything is lost, which is what takes longest and
/// is looked at elsewhere; their warm-up meets the loss.
struct Pairs {
    pairs: &'static str,
    /// Messages of each.
    count: &'static str,
    /// Of each, before those that count.
    warm_up: &'static str,
}

/// Time between two messages of a pair.
const EVERY_US: u64 = 1_000_000;

/// What came of pairs.
struct Paired {
    /// Messages that arrived.
    delivered: u64,
    /// From publishing to arrival, in the order of publishing; of what still waits,
    /// to the end.
    delivered_us: Vec<u64>,
    /// From publishing to PUBACK.
    acknowledged_us: Vec<u64>,
    published: u64,
    late_us: u64,
    /// From before the first message to after the last arrival, since the epoch.
    window_us: (u64, u64),
    /// Time for which messages were sent, from the beginning of the window.
    sending_us: u64,
    /// Messages that were to be published.
    messages: u64,
}

impl Pairs {
    fn run(&self, bench: &Bench<'_>, cell: &Cell) -> Result<Paired> {
        let mut command = bench.load(bench.system.streams);
        command.args(["--announce", "--samples", "--qos", "1", "--pattern", "pair"]);
        // One a second of each.
        command.args(["--pubs", self.pairs, "--rate", self.pairs]);
        command.args(["--duration", self.count, "--drain", "10"]);
        command.args(["--exchange", self.warm_up]);
        let mut pairs = Generator::of(command)?;
        pairs.await_connected()?;
        bench.emulator.apply(Action::parse(&loss(cell))?);
        let done = pairs.end()?;
        let count: u64 = self.count.parse()?;
        let took = done
            .samples
            .iter()
            .map(|(_, sent, came)| came.saturating_sub(*sent));
        // What waits counts with the time that it has waited.
        let waited = done.waiting.iter().map(|(_, waited)| *waited);
        Ok(Paired {
            delivered: done.samples.len() as u64,
            delivered_us: took.chain(waited).collect(),
            acknowledged_us: done.acknowledged.iter().map(|(_, took)| *took).collect(),
            published: done.published,
            late_us: done.late_us,
            window_us: done.window_us,
            sending_us: count * EVERY_US,
            messages: count * self.pairs.parse::<u64>()?,
        })
    }

    /// How long that takes, with a link and a server.
    fn seconds(&self, cell: &Cell) -> f64 {
        let count = |text: &str| text.parse().unwrap_or(1.0);
        let lost = count(cell.factor("loss_percent")) / 20.0;
        if coap::is_of(cell) {
            // A message that is lost goes again after 2 to 3 s, then after 4 to 6 s.
            let late = if lost > 0.0 { 9.0 } else { 0.0 };
            return 2.0 + count(self.pairs) * 0.01 + count(self.count) + late;
        }
        // Two quiet seconds, one for the last message of the last pair.
        3.9 + count(self.pairs) * 0.007 + count(self.warm_up) * 0.1 + count(self.count) + 2.5 * lost
    }
}

/// Values of a system at a loss.
fn sample(records: &[Record], system: &str, metric: &str, loss: &str) -> Sample {
    Sample::of(records, &Pick::new(system, metric).at("loss_percent", loss))
}

/// The largest loss that both have been measured at.
fn worst<'a>(records: &'a [Record], systems: [&str; 2], metric: &str) -> &'a str {
    let has = |loss: &str| {
        systems
            .iter()
            .all(|system| !sample(records, system, metric, loss).is_empty())
    };
    records
        .iter()
        .filter_map(|record| record.cell.factors.get("loss_percent"))
        .filter(|loss| has(loss))
        .max_by_key(|loss| loss.parse::<u32>().unwrap_or_default())
        .map_or("20", String::as_str)
}

/// How much one system differs from another at a loss, in percent.
fn change(
    records: &[Record],
    [ours, theirs]: [&str; 2],
    metric: &str,
    loss: &str,
) -> Option<Estimate> {
    let base = sample(records, theirs, metric, loss);
    sample(records, ours, metric, loss).change(&base, Statistic::Mean)
}

/// Repetitions in a short run of the cells that claims with a target are about: these
/// systems, with the highest loss.
const SHORT_TIMES: u32 = 5;

/// More repetitions of the cells with that loss of these systems, for a short run.
fn again(name: &str, scale: Scale, systems: &[&str]) -> Vec<Cell> {
    if scale != Scale::Short {
        return Vec::new();
    }
    let worst = losses(scale)
        .last()
        .copied()
        .into_iter()
        .collect::<Vec<_>>();
    let mut cells = plan::cells(name, systems, &[("loss_percent", &worst)], SHORT_TIMES);
    cells.retain(|cell| cell.repetition > 0);
    cells
}

/// A row without a reason.
fn claim(
    what: String,
    paper: &str,
    measured: Option<Estimate>,
    unit: &'static str,
    target: Option<Target>,
) -> Claim {
    Claim {
        what,
        paper: paper.to_owned(),
        measured,
        unit,
        target,
        reason: None,
        causes: Vec::new(),
    }
}

/// A metric along the loss.
const fn lines(id: &'static str, title: &'static str, metric: &'static str) -> Figure {
    Figure::new(id, title, metric, Kind::Lines { x: "loss_percent" })
}

/// A metric along the loss, beside the paper's.
fn drawn(
    id: &'static str,
    title: &'static str,
    metric: &'static str,
    paper: Vec<PaperPoint>,
) -> Figure {
    Figure {
        paper,
        ..lines(id, title, metric)
    }
}

/// The bench of a cell.
fn bench<'a>(lab: &'a crate::lab::Lab, cell: &Cell) -> Result<Bench<'a>> {
    Bench::start(lab, cell, &link(cell), None)
}
