//! The experiments of paper 004: AMQP over TLS 1.2 and over QUIC, one connection
//! and several, against delay, loss and bandwidth.
//!
//! As in the paper a sender takes messages to a broker and ends; then a receiver
//! takes them from it and ends. Each is a process of its own, `dunlin send` and
//! `dunlin receive`, and the times are its own: startup is until the broker has
//! accepted the connection (`open`), the total until the connection is closed.
//! The paper's clients open step by step, each step after the answer to the one
//! before; so do these but for those that are called opened in one flight. Bytes
//! are those of IP packets that both hosts sent, lost or not.
//!
//! The text that we have of the paper gives no figures; what it said is from its
//! abstract and that of its journal version (Computer Networks 225, 2023).

mod exchange;

use core::time::Duration;

use anyhow::{Context as _, Result};

use self::exchange::{Exchange, Seen};
use super::bench::{Bench, outcome};
use super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::plan;
use super::record::{Cell, Factors, Measure, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic};
use crate::lab::Lab;

pub(crate) static SINGLE: Iqbal = Iqbal(Variant::Single);
pub(crate) static MULTI: Iqbal = Iqbal(Variant::Multi);
pub(crate) static DELAY: Iqbal = Iqbal(Variant::Delay);
pub(crate) static LOSS: Iqbal = Iqbal(Variant::Loss);
pub(crate) static BANDWIDTH: Iqbal = Iqbal(Variant::Bandwidth);

const SENDER: &str = "sender";
const RECEIVER: &str = "receiver";

/// What the paper calls AMQP over TCP.
const BASE: &str = "amqp-tls12";
const OURS: &str = "amqp-ours";

/// The paper's transports, and ours.
const SWEPT: [&str; 5] = [BASE, "amqp-tls13", "amqp-quic", "amqp-quic-0rtt", OURS];
const ALL: [&str; 9] = [
    BASE,
    "amqp-tls13",
    "amqp-quic",
    "amqp-quic-0rtt",
    OURS,
    "amqp-ours-1rtt",
    "amqp-ours-tls13",
    "artemis-tls12",
    "artemis-tls13",
];

/// Messages of a connection, where that is not what is varied.
const MESSAGES: &str = "10";

/// The same of the round trip, in milliseconds.
const ROUND_TRIP: &str = "20";

/// Least bytes that may wait for the rate, and the time that it may take.
const QUEUE_MIN: f64 = 15_000.0;
const QUEUE_SECONDS: f64 = 0.2;

/// Why bytes of a single message are more.
const PADDED: &str = "who sends an Initial fills a datagram of 1200 bytes (RFC 9000, 14.1), and QUIC \
    sends connection ids, a ticket and probes for larger packets, whether one message follows or \
    a hundred";

/// One of the paper's experiments.
#[derive(Debug)]
pub(crate) struct Iqbal(Variant);

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Messages of one connection.
    Single,
    /// Connections at once.
    Multi,
    Delay,
    Loss,
    Bandwidth,
}

impl Variant {
    const fn factor(self) -> &'static str {
        match self {
            Self::Single => "messages",
            Self::Multi => "connections",
            Self::Delay => "rtt_ms",
            Self::Loss => "loss_percent",
            Self::Bandwidth => "rate_kbit",
        }
    }

    const fn values(self, scale: Scale) -> &'static [&'static str] {
        match (self, scale) {
            (Self::Single, Scale::Smoke) => &["1"],
            (Self::Single, Scale::Short) => &["1", "100"],
            (Self::Single, Scale::Paper) => &["1", "10", "100", "1000"],
            (Self::Multi, Scale::Smoke) => &["2"],
            (Self::Multi, Scale::Short) => &["5"],
            (Self::Multi, Scale::Paper) => &["5", "20"],
            (Self::Delay, Scale::Smoke) => &["100"],
            (Self::Delay, Scale::Short) => &["20", "100", "300"],
            (Self::Delay, Scale::Paper) => &["10", "20", "50", "100", "200", "300"],
            (Self::Loss, Scale::Smoke) => &["5"],
            (Self::Loss, Scale::Short) => &["0", "5", "10"],
            (Self::Loss, Scale::Paper) => &["0", "2", "5", "10", "15", "20"],
            (Self::Bandwidth, Scale::Smoke) => &["250"],
            (Self::Bandwidth, Scale::Short) => &["64", "250", "1000", "10000"],
            (Self::Bandwidth, Scale::Paper) => &["50", "100", "250", "1000", "10000", "100000"],
        }
    }

    const fn systems(self, scale: Scale) -> &'static [&'static str] {
        match (self, scale) {
            (_, Scale::Smoke) => &[BASE, OURS],
            (Self::Single | Self::Delay, _) => &ALL,
            _ => &SWEPT,
        }
    }

    /// Whether round trips of single messages are measured, too.
    const fn has_round_trips(self) -> bool {
        matches!(self, Self::Single | Self::Delay)
    }
}

/// Rounds of a sender and a receiver that count.
const fn rounds(scale: Scale) -> u32 {
    match scale {
        Scale::Smoke => 1,
        Scale::Short => 4,
        Scale::Paper => 30,
    }
}

/// A factor of the cell, or what holds where it does not vary.
fn number(cell: &Cell, factor: &str, otherwise: &str) -> Result<f64> {
    let value = cell.factors.get(factor).map_or(otherwise, String::as_str);
    value
        .parse()
        .with_context(|| format!("{factor} is no number"))
}

/// The link of a cell.
fn link(cell: &Cell) -> Result<Vec<String>> {
    let rtt = number(cell, "rtt_ms", ROUND_TRIP)?;
    let loss = number(cell, "loss_percent", "0")?;
    let mut settings = vec![format!("delay={}us", rtt * 500.0), format!("loss={loss}%")];
    if cell.factors.contains_key("rate_kbit") {
        let kbit = number(cell, "rate_kbit", "0")?;
        let queue = (kbit * 1000.0 / 8.0 * QUEUE_SECONDS).max(QUEUE_MIN);
        settings.push(format!("rate={kbit}kbit"));
        settings.push(format!("queue={queue}B"));
    }
    Ok(settings)
}

impl Experiment for Iqbal {
    fn name(&self) -> &'static str {
        match self.0 {
            Variant::Single => "iqbal-single",
            Variant::Multi => "iqbal-multi",
            Variant::Delay => "iqbal-delay",
            Variant::Loss => "iqbal-loss",
            Variant::Bandwidth => "iqbal-bandwidth",
        }
    }

    fn about(&self) -> &'static str {
        match self.0 {
            Variant::Single => "AMQP: one connection, with one message and more",
            Variant::Multi => "AMQP: several connections at once",
            Variant::Delay => "AMQP: one connection against round-trip time",
            Variant::Loss => "AMQP: one connection against loss",
            Variant::Bandwidth => "AMQP: one connection against bandwidth",
        }
    }

    fn source(&self) -> &'static str {
        match self.0 {
            Variant::Single => "paper 004, section 5.2",
            Variant::Multi => "paper 004, section 5.1",
            Variant::Delay => "paper 004, section 5.4.1",
            Variant::Loss => "paper 004, section 5.4.2",
            Variant::Bandwidth => "paper 004, section 5.4.3",
        }
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let times = if scale == Scale::Paper { 5 } else { 1 };
        let factors = [(self.0.factor(), self.0.values(scale))];
        plan::cells(self.name(), self.0.systems(scale), &factors, times)
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let rtt = number(cell, "rtt_ms", ROUND_TRIP).unwrap_or_default() / 1000.0;
        let trips = match cell.system.as_str() {
            OURS => 12.0,
            _ => 24.0,
        };
        let slow = match cell.factor("rate_kbit") {
            "50" | "64" => 2.5,
            "100" | "250" => 0.8,
            _ => 0.0,
        };
        let lost = number(cell, "loss_percent", "0").unwrap_or_default() * 0.1;
        let single = if self.0.has_round_trips() { 22.0 } else { 0.0 };
        let java = if cell.system.starts_with("artemis") {
            6.0
        } else {
            0.0
        };
        let round = 0.3 + trips * rtt + slow + lost;
        0.6 + java + f64::from(rounds(scale) + 1) * round + single * rtt
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        // Those of the first repetition are for lab/energy.
        let is_kept = self.0 == Variant::Single && cell.repetition == 0;
        let path = match is_kept {
            true => lab.out(&format!(
                "{}-{}.pcapng",
                cell.system,
                cell.factor("messages")
            )),
            false => lab.temporary("iqbal.pcapng"),
        };
        let bench = Bench::start(lab, cell, &link(cell)?, Some(path.clone()))?;
        let rtt = number(cell, "rtt_ms", ROUND_TRIP)?;
        let exchange = Exchange {
            bench: &bench,
            messages: cell
                .factors
                .get("messages")
                .map_or(MESSAGES, String::as_str),
            connections: number(cell, "connections", "1")? as u32,
            round_trip: Duration::from_secs_f64(rtt / 1000.0),
        };
        let mut seen = exchange.run(rounds(scale), self.0.has_round_trips())?;
        let invalid = bench.finish(0)?;
        seen.count(&path)?;
        if !is_kept {
            let _ = std::fs::remove_file(&path);
        }
        let mut outcome = outcome(measures(&seen, rtt), invalid);
        if let Some(note) = seen.refused() {
            outcome.notes.push(note);
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let x = self.0.factor();
        let kind = match self.0 {
            Variant::Single | Variant::Multi => Kind::Bars { x },
            _ => Kind::Lines { x },
        };
        let drawn = |id, title, metric| Figure {
            facet: Some("role"),
            log_y: self.0 == Variant::Bandwidth,
            ..Figure::new(id, title, metric, kind)
        };
        let mut figures = vec![
            drawn("startup", "Until the broker has accepted", "startup"),
            drawn("total", "Until the connection is closed", "total"),
        ];
        if self.0 == Variant::Single {
            figures.push(drawn("bytes", "Bytes of a connection", "bytes"));
        }
        figures
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        match self.0 {
            Variant::Single => single(records),
            Variant::Multi => multi(records),
            Variant::Delay => delay(records),
            Variant::Loss => loss(records),
            Variant::Bandwidth => bandwidth(records),
        }
    }
}

fn measures(seen: &Seen, rtt: f64) -> Vec<Measure> {
    let measure = |metric: &str, unit: &str, role: &str, values: Vec<f64>| Measure {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        factors: Factors::from([("role".to_owned(), role.to_owned())]),
        values,
        series: Vec::new(),
    };
    let mut measures = Vec::new();
    for (role, side) in [(SENDER, &seen.senders), (RECEIVER, &seen.receivers)] {
        measures.push(measure("startup", "ms", role, side.startup.clone()));
        measures.push(measure("total", "ms", role, side.total.clone()));
        measures.push(measure("bytes", "bytes", role, side.bytes.clone()));
    }
    let settled = &seen.senders.first;
    let trips = settled.iter().map(|ms| ms / rtt).collect();
    measures.push(measure("settled", "ms", SENDER, settled.clone()));
    measures.push(measure("settled-rtts", "RTT", SENDER, trips));
    if !seen.round_trips.is_empty() {
        let trips = seen.round_trips.clone();
        measures.push(measure("round-trip", "ms", SENDER, trips));
    }
    measures
}

/// Where values are picked: metric, role, factor and its value.
type At<'a> = (&'a str, &'a str, &'a str, &'a str);

/// How much more one system needs than another, in percent.
fn change(
    records: &[Record],
    what: &str,
    paper: &str,
    [ours, base]: [&str; 2],
    (metric, role, factor, value): At<'_>,
    target: Option<f64>,
) -> Claim {
    let of = |system: &str| {
        let pick = Pick::new(system, metric).at("role", role);
        Sample::of(records, &pick.at(factor, value))
    };
    Claim {
        what: format!("{what}, {role}, {factor} {value}: {ours} against {base}"),
        paper: paper.to_owned(),
        measured: of(ours).change(&of(base), Statistic::Median),
        unit: "%",
        target: target.map(Target::AtMost),
        reason: None,
        causes: Vec::new(),
    }
}

/// Systems whose startup and total are compared with the paper's base; those with
/// a target are judged.
fn faster(records: &[Record], factor: &str, value: &str, judged: bool) -> Vec<Claim> {
    let mut rows = Vec::new();
    for (ours, base) in [
        (OURS, BASE),
        (OURS, "amqp-tls13"),
        (OURS, "amqp-ours-tls13"),
        ("amqp-quic", BASE),
        ("amqp-quic-0rtt", BASE),
        (OURS, "artemis-tls12"),
    ] {
        let is_judged = judged && (ours, base) == (OURS, BASE);
        for (metric, role, paper, most) in [
            ("startup", SENDER, "-62 % (abstract)", -70.0),
            ("total", SENDER, "-22 % (abstract)", -22.0),
            ("total", RECEIVER, "-15 % (abstract)", -22.0),
        ] {
            let target = is_judged.then_some(most);
            let at = (metric, role, factor, value);
            rows.push(change(records, metric, paper, [ours, base], at, target));
        }
    }
    rows
}

fn single(records: &[Record]) -> Vec<Claim> {
    let mut rows = faster(records, "messages", "1", true);
    for (ours, base) in [
        (OURS, BASE),
        (OURS, "amqp-tls13"),
        ("amqp-quic", "amqp-tls13"),
    ] {
        for messages in ["1", "100"] {
            for role in [SENDER, RECEIVER] {
                let at = ("bytes", role, "messages", messages);
                let paper = "+250 % (3.5 times)";
                let most = (messages == "100").then_some(30.0);
                rows.push(Claim {
                    reason: Some(PADDED),
                    ..change(records, "bytes", paper, [ours, base], at, most)
                });
            }
        }
    }
    let at = ("round-trip", SENDER, "messages", "1");
    for (ours, base) in [(OURS, BASE), (OURS, "amqp-tls13"), ("amqp-quic", BASE)] {
        let what = "round trip of a disposition";
        let paper = "+71 % (abstract)";
        rows.push(change(records, what, paper, [ours, base], at, Some(5.0)));
    }
    rows
}

fn multi(records: &[Record]) -> Vec<Claim> {
    let values = Variant::Multi.values(Scale::Short);
    let rows = values.iter().flat_map(|value| {
        [SENDER, RECEIVER].map(|role| {
            let at = ("total", role, "connections", *value);
            let paper = "less (section 5.1)";
            change(records, "total", paper, [OURS, BASE], at, Some(-22.0))
        })
    });
    rows.collect()
}

fn delay(records: &[Record]) -> Vec<Claim> {
    let mut rows = faster(records, "rtt_ms", "100", true);
    for (system, most) in [(OURS, 2.1), ("amqp-ours-1rtt", 3.1)] {
        let pick = Pick::new(system, "settled-rtts").at("rtt_ms", "100");
        rows.push(Claim {
            what: format!("first message settled, 100 ms round trip: {system}"),
            paper: "ours".to_owned(),
            measured: Sample::of(records, &pick).estimate(Statistic::Median),
            unit: "RTT",
            target: Some(Target::AtMost(most)),
            reason: None,
            causes: Vec::new(),
        });
    }
    let at = ("round-trip", SENDER, "rtt_ms", "100");
    let what = "round trip of a disposition";
    let paper = "+71 % (abstract)";
    rows.push(change(records, what, paper, [OURS, BASE], at, Some(5.0)));
    rows
}

fn loss(records: &[Record]) -> Vec<Claim> {
    let values = Variant::Loss.values(Scale::Short);
    let rows = values.iter().map(|value| {
        let at = ("total", SENDER, "loss_percent", *value);
        let paper = "less (section 5.4.2)";
        change(records, "total", paper, [OURS, BASE], at, Some(0.0))
    });
    rows.collect()
}

fn bandwidth(records: &[Record]) -> Vec<Claim> {
    let mut rows = Vec::new();
    for value in Variant::Bandwidth.values(Scale::Short) {
        for base in [BASE, "amqp-tls13"] {
            for role in [SENDER, RECEIVER] {
                let at = ("total", role, "rate_kbit", *value);
                let paper = "more where it is low (section 5.4.3)";
                rows.push(change(records, "total", paper, [OURS, base], at, Some(0.0)));
            }
        }
    }
    rows
}
