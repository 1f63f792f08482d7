//! `grid`: connecting and publishing with eight topics at every combination of
//! loss, round-trip time and bandwidth.

use core::time::Duration;

use anyhow::{Context as _, Result};

use super::bench::{Bench, measure, outcome, reply};
use super::experiment::{Claim, Estimate, Experiment, Figure, Kind, Target};
use super::load::{Done, Load};
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float, quantile_of};
use super::validity;
use super::visits::Visits;
use crate::lab::Lab;

/// Every combination.
pub(crate) struct Grid;

const SYSTEMS: [&str; 3] = ["dunlin-quic-topics", "dunlin-tls", "mosquitto-tls"];

/// Bytes that may wait for the rate: 200 ms of it.
const QUEUE_SECONDS: f64 = 0.2;

/// Clients in a second and more of a short run, and the time between two of
/// them: enough that the link carries one after the other.
fn crowd(kbit: &str) -> (usize, Duration) {
    let (clients, millis) = match kbit {
        "100" | "250" => (4, 300),
        "1000" => (12, 100),
        _ => (25, 40),
    };
    (clients, Duration::from_millis(millis))
}

/// Messages a second.
const RATE: f64 = 40.0;

type Values = &'static [&'static str];

/// Loss each way in percent, round trips in milliseconds, kilobits a second.
const fn axes(scale: Scale) -> (Values, Values, Values) {
    match scale {
        Scale::Smoke => (&["5"], &["50"], &["1000"]),
        Scale::Short => (&["0", "5"], &["20", "200"], &["250", "10000"]),
        Scale::Paper => (
            &["0", "1", "2", "5", "10"],
            &["10", "50", "100", "200", "600"],
            &["100", "250", "1000", "10000"],
        ),
    }
}

/// Longest that a client may take, and seconds of messages.
const fn size(scale: Scale) -> (Duration, Duration) {
    match scale {
        Scale::Smoke => (Duration::from_secs(10), Duration::from_secs(1)),
        Scale::Short => (Duration::from_secs(10), Duration::from_secs(2)),
        Scale::Paper => (Duration::from_secs(60), Duration::from_secs(60)),
    }
}

/// Why QUIC is not always as good.
const NARROW_LINK: &str = "At 250 kbit/s a datagram of 1200 bytes, which RFC 9000, 14.1, wants of \
    the sender of an Initial, takes 38 ms; a handshake has three. Small packets that are sent \
    twice after a loss take twice the bandwidth.";

impl Experiment for Grid {
    fn name(&self) -> &'static str {
        "grid"
    }

    fn about(&self) -> &'static str {
        "connecting and publishing against loss, round-trip time and bandwidth"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (losses, trips, rates) = axes(scale);
        let factors = [
            ("rate_kbit", rates),
            ("rtt_ms", trips),
            ("loss_percent", losses),
        ];
        plan::cells(self.name(), &SYSTEMS, &factors, 1)
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let time = size(scale).1.as_secs_f64();
        let late = if cell.factor("loss_percent") == "0" {
            0.0
        } else {
            0.8
        };
        let far: f64 = cell.factor("rtt_ms").parse().unwrap_or(0.0);
        let connecting = if scale == Scale::Paper { 10.0 } else { 1.4 };
        0.4 + connecting + late + time + far / 1000.0 * 8.0
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let number = |name: &str| -> Result<f64> {
            let value = cell.factor(name).parse();
            value.with_context(|| format!("{name} is no number"))
        };
        let kbit = number("rate_kbit")?;
        let queue = (kbit * 1000.0 / 8.0 * QUEUE_SECONDS).max(15_000.0);
        let settings = [
            format!("delay={}us", number("rtt_ms")? * 500.0),
            format!("loss={}%", cell.factor("loss_percent")),
            format!("rate={kbit}kbit"),
            format!("queue={queue}B"),
        ];
        let bench = Bench::start(lab, cell, &settings, None)?;
        let (timeout, time) = size(scale);
        let (clients, every) = crowd(cell.factor("rate_kbit"));
        let crowded = bench.visits(&Visits {
            clients: if scale == Scale::Paper { 50 } else { clients },
            first: 1,
            every,
            timeout,
            until: "connack",
            early: false,
            initial_rtt: None,
        })?;
        let mut command = bench.load(bench.system.streams);
        let load = Load {
            rate: Some(RATE),
            ..Load::of(time)
        };
        load.add_to(&mut command);
        command.arg("--samples");
        let done: Done = reply(command)?;
        let latencies: Vec<f64> = done
            .samples
            .iter()
            .map(|(_, sent, received)| float(received.saturating_sub(*sent)) / 1e3)
            .collect();
        let measures = vec![
            measure("connected", "ms", crowded.or_given_up(&crowded.connack_us)),
            measure("latency-p50", "ms", vec![quantile_of(&latencies, 0.5)]),
            measure("latency-p99", "ms", vec![quantile_of(&latencies, 0.99)]),
            measure("latency", "ms", latencies),
        ];
        let mut outcome = outcome(measures, bench.finish(crowded.late_us)?);
        if outcome.invalid.is_none() {
            outcome.invalid = validity::load(&done);
        }
        if done.lost > 0 {
            outcome
                .notes
                .push(format!("{} messages not delivered in time", done.lost));
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let lines = |id, title, metric, only| Figure {
            facet: Some("rate_kbit"),
            only,
            log_y: true,
            ..Figure::new(id, title, metric, Kind::Lines { x: "loss_percent" })
        };
        const NEAR: &[(&str, &str)] = &[("rtt_ms", "20")];
        const FAR: &[(&str, &str)] = &[("rtt_ms", "200")];
        vec![
            lines(
                "connected-near",
                "Delay until CONNACK, 20 ms round trip",
                "connected",
                NEAR,
            ),
            lines(
                "connected-far",
                "Delay until CONNACK, 200 ms round trip",
                "connected",
                FAR,
            ),
            lines(
                "latency-near",
                "99th percentile of latency, 20 ms round trip",
                "latency-p99",
                NEAR,
            ),
            lines(
                "latency-far",
                "99th percentile of latency, 200 ms round trip",
                "latency-p99",
                FAR,
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut rows = Vec::new();
        for (system, metric, statistic, what) in [
            (
                "dunlin-quic-topics",
                "connected",
                Statistic::Median,
                "not slower to connect",
            ),
            (
                "dunlin-quic-topics",
                "latency",
                Statistic::Quantile(0.99),
                "no larger 99th percentile of latency",
            ),
        ] {
            for other in ["dunlin-tls", "mosquitto-tls"] {
                let (held, all) = held(records, system, other, metric, statistic);
                let share = (all > 0).then(|| f64::from(held) / f64::from(all) * 100.0);
                let row = Claim {
                    what: format!("{system} {what} than {other}: points of the grid"),
                    paper: "ours".to_owned(),
                    measured: share.map(|value| Estimate {
                        value,
                        low: f64::NAN,
                        high: f64::NAN,
                    }),
                    unit: "%",
                    target: Some(Target::AtLeast(90.0)),
                    reason: Some(NARROW_LINK),
                    causes: Vec::new(),
                };
                rows.push(match metric {
                    "connected" => row.because(self.name(), at_rate(WIDE, other)),
                    _ => row,
                });
            }
        }
        rows.extend(rates(records));
        rows
    }
}

/// Rates that differ at what is otherwise the same point, in kilobits a second.
const NARROW: &str = "250";
const WIDE: &str = "10000";

/// The row that isolates the rate.
fn at_rate(kbit: &str, other: &str) -> String {
    format!(
        "delay until CONNACK, median, 20 ms round trip, nothing lost, {kbit} kbit/s: \
         dunlin-quic-topics against {other}"
    )
}

/// One point at two rates: what QUIC's large datagrams cost where they take long.
fn rates(records: &[Record]) -> Vec<Claim> {
    let mut rows = Vec::new();
    for other in ["dunlin-tls", "mosquitto-tls"] {
        for (kbit, target) in [
            (NARROW, None),
            (WIDE, Some(Target::AtMost((AS_GOOD - 1.0) * 100.0))),
        ] {
            let at = |system| {
                let pick = Pick::new(system, "connected").at("rate_kbit", kbit);
                Sample::of(records, &pick.at("rtt_ms", "20").at("loss_percent", "0"))
            };
            rows.push(Claim {
                what: at_rate(kbit, other),
                paper: "ours".to_owned(),
                measured: at("dunlin-quic-topics").change(&at(other), Statistic::Median),
                unit: "%",
                target,
                reason: None,
                causes: Vec::new(),
            });
        }
    }
    rows
}

/// Five in a hundred more is as good.
const AS_GOOD: f64 = 1.05;

/// At how many points one system is [as good](AS_GOOD) as another, of how many.
fn held(
    records: &[Record],
    ours: &str,
    theirs: &str,
    metric: &str,
    statistic: Statistic,
) -> (u32, u32) {
    let (mut held, mut all) = (0, 0);
    for record in records.iter().filter(|record| record.cell.system == ours) {
        let factors = &record.cell.factors;
        let at = |system| {
            let pick = Pick::new(system, metric);
            let pick = factors.iter().fold(pick, |pick, (k, v)| pick.at(k, v));
            Sample::of(records, &pick).value(statistic)
        };
        if let (Some(ours), Some(theirs)) = (at(ours), at(theirs)) {
            all += 1;
            held += u32::from(ours <= theirs * AS_GOOD);
        }
    }
    (held, all)
}
