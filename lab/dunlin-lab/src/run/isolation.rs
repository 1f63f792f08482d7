//! `isolation`: eight topics, and whether a lost packet holds up its own or
//! all, with every policy of streams, against loss and round-trip time.

mod spikes;

use core::time::Duration;
use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::bench::{Bench, measure, outcome, reply};
use super::experiment::{Claim, Experiment, Figure, Kind, PaperPoint, Target};
use super::load::{Done, Load};
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float, mean, quantile_of};
use super::validity;
use crate::lab::Lab;
use spikes::{NARROW_US, WIDE_US, alone, alone_by_chance, spikes};

/// Eight topics at 500 messages a second.
pub(crate) struct Isolation;

/// Messages that are not looked at, at the start.
const WARM_UP_US: u64 = 2_000_000;

/// Time within which topics are compared with each other.
const SLICE_US: u64 = 100_000;

/// Policies of streams over QUIC, which need a server that takes streams. All
/// send small packets twice for a while after a loss, unless said otherwise.
const POLICIES: [&str; 7] = [
    "per-topic",
    "per-topic, sent once",
    "per-topic, sent twice",
    "per-publish",
    "unordered",
    "auto",
    "datagrams",
];

/// Systems with one way to send.
const SINGLE: [&str; 4] = [
    "dunlin-quic",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
];

/// Seconds of sending, warm-up included.
const fn seconds(scale: Scale) -> Duration {
    match scale {
        Scale::Smoke => Duration::from_secs(3),
        Scale::Short => Duration::from_secs(6),
        Scale::Paper => Duration::from_secs(62),
    }
}

type Values = &'static [&'static str];

/// Loss each way in percent, and round trips in milliseconds.
const fn points(scale: Scale) -> (Values, Values) {
    match scale {
        Scale::Smoke => (&["5"], &["50"]),
        Scale::Short => (&["1", "5"], &["50"]),
        Scale::Paper => (&["1", "2", "5", "10"], &["25", "50", "100", "200"]),
    }
}

impl Experiment for Isolation {
    fn name(&self) -> &'static str {
        "isolation"
    }

    fn about(&self) -> &'static str {
        "whether a lost packet holds up one topic or all, by policy of streams"
    }

    fn source(&self) -> &'static str {
        "published work on streams of MQTT over QUIC (mqttv5)"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (losses, trips) = points(scale);
        let policies: &[&str] = match scale {
            Scale::Paper => &POLICIES,
            Scale::Short => POLICIES.split_at(2).0,
            Scale::Smoke => &["per-topic"],
        };
        let single: &[&str] = match scale {
            Scale::Paper => &SINGLE,
            _ => SINGLE.split_at(3).0,
        };
        let mut cells = Vec::new();
        for loss in losses {
            for trip in trips {
                let at = |policy| {
                    [
                        ("loss_percent", [*loss]),
                        ("rtt_ms", [*trip]),
                        ("policy", [policy]),
                    ]
                };
                let more = |systems: &[&str], policy| {
                    let factors = at(policy);
                    let factors: Vec<(&str, &[&str])> =
                        factors.iter().map(|(k, v)| (*k, v.as_slice())).collect();
                    plan::cells("isolation", systems, &factors, 1)
                };
                cells.extend(more(single, "single"));
                for policy in policies {
                    cells.extend(more(&["dunlin-quic-topics"], policy));
                }
            }
        }
        // Policies are compared on the same wire, too.
        for cell in &mut cells {
            let (loss, trip) = (cell.factor("loss_percent"), cell.factor("rtt_ms"));
            cell.seed = plan::hash(format!("isolation/{loss}/{trip}").as_bytes());
        }
        cells
    }

    fn checked(&self, cell: &Cell) -> bool {
        let (system, policy) = (cell.system.as_str(), cell.factor("policy"));
        let here = match cell.factor("loss_percent") {
            "1" => {
                system == "dunlin-tls" || ["per-topic", "per-topic, sent once"].contains(&policy)
            }
            "5" => !["per-topic, sent twice", "unordered"].contains(&policy),
            _ => false,
        };
        here && cell.factor("rtt_ms") == "50"
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        0.8 + seconds(scale).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let trip: f64 = cell.factor("rtt_ms").parse().context("rtt_ms")?;
        let settings = [
            format!("delay={}us", trip * 500.0),
            format!("loss={}%", cell.factor("loss_percent")),
        ];
        let bench = Bench::start(lab, cell, &settings, None)?;
        let (streams, more) = match cell.factor("policy") {
            "per-topic, sent once" => ("per-topic", Some("--repeat-packets=never")),
            "per-topic, sent twice" => ("per-topic", Some("--repeat-packets=always")),
            "datagrams" => ("per-topic", Some("--datagrams")),
            "unordered" => ("per-publish-unordered", None),
            policy => (policy, None),
        };
        let mut command = bench.load(streams);
        let load = Load {
            rate: Some(500.0),
            ..Load::of(seconds(scale))
        };
        load.add_to(&mut command);
        command.arg("--samples").args(more);
        let done: Done = reply(command)?;
        let mut outcome = outcome(measures(&done), bench.finish(0)?);
        if outcome.invalid.is_none() {
            outcome.invalid = validity::load(&done);
        }
        if done.disconnections > 0 {
            let note = format!("{} disconnections", done.disconnections);
            outcome.notes.push(note);
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let lines = |id, title, metric| Figure {
            facet: Some("rtt_ms"),
            split: Some("policy"),
            ..Figure::new(id, title, metric, Kind::Lines { x: "loss_percent" })
        };
        let cdf = Figure {
            facet: Some("loss_percent"),
            split: Some("policy"),
            only: &[("rtt_ms", "50")],
            log_y: false,
            ..Figure::new(
                "latency-cdf",
                "Latency at 50 ms round trip",
                "latency",
                Kind::Cdf,
            )
        };
        vec![
            cdf,
            Figure {
                log_y: true,
                paper: vec![
                    PaperPoint {
                        series: "mqttv5's: TCP",
                        facet: None,
                        x: "5",
                        value: 355.0,
                    },
                    PaperPoint {
                        series: "mqttv5's: per-topic",
                        facet: None,
                        x: "5",
                        value: 183.0,
                    },
                ],
                ..lines("p99", "99th percentile of latency", "latency-p99")
            },
            lines(
                "alone",
                "Spikes of one topic only, within 1 ms",
                "spikes-alone",
            ),
            lines(
                "alone-wide",
                "Spikes of one topic only, within 10 ms",
                "spikes-alone-10ms",
            ),
            lines(
                "spread",
                "How far topics are apart at a time: isolated ones are",
                "spread",
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let topics = |metric, policy, loss| {
            let pick = Pick::new("dunlin-quic-topics", metric).at("policy", policy);
            Sample::of(records, &pick.at("loss_percent", loss).at("rtt_ms", "50"))
        };
        let mut rows = Vec::new();
        for (loss, metric, policy, what) in [
            (
                "5",
                "spikes-alone",
                "per-topic, sent once",
                "5 % loss: spikes of one topic only, per topic, sent once, within 1 ms",
            ),
            (
                "5",
                "spikes-alone-10ms",
                "per-topic",
                "5 % loss: spikes of one topic only, per topic, within 10 ms",
            ),
            (
                "1",
                "spikes-alone-10ms",
                "per-topic",
                "1 % loss: spikes of one topic only, per topic, within 10 ms",
            ),
        ] {
            rows.push(Claim {
                what: what.to_owned(),
                paper: "27 % (mqttv5's streams per topic)".to_owned(),
                measured: topics(metric, policy, loss).estimate(Statistic::Mean),
                unit: "%",
                target: Some(Target::AtLeast(80.0)),
                reason: None,
                causes: Vec::new(),
            });
        }
        for other in ["dunlin-tls", "mosquitto-tls"] {
            for policy in ["per-topic", "per-topic, sent once"] {
                let pick = Pick::new(other, "latency").at("loss_percent", "5");
                let base = Sample::of(records, &pick.at("rtt_ms", "50"));
                let ours = topics("latency", policy, "5");
                rows.push(Claim {
                    what: format!("5 % loss: 99th percentile, {policy}, against {other}"),
                    paper: "-48 % (183 against 355 ms, mqttv5's)".to_owned(),
                    measured: ours.change(&base, Statistic::Quantile(0.99)),
                    unit: "%",
                    // What is sent once waits for a round trip, as on TCP.
                    target: (policy == "per-topic").then_some(Target::AtMost(-50.0)),
                    reason: None,
                    causes: Vec::new(),
                });
            }
        }
        rows
    }
}

fn measures(done: &Done) -> Vec<super::record::Measure> {
    let first = done.samples.iter().map(|(_, sent, _)| *sent).min();
    let first = first.unwrap_or_default() + WARM_UP_US;
    let late = |sample: &&(u16, u64, u64)| sample.1 >= first;
    let samples: Vec<(u16, u64, u64)> = done.samples.iter().filter(late).copied().collect();
    let latency = |received: u64, sent: u64| float(received.saturating_sub(sent)) / 1e3;
    let latencies: Vec<f64> = samples.iter().map(|(_, s, r)| latency(*r, *s)).collect();
    let spikes = spikes(&samples);
    let span = samples.iter().map(|s| s.2).max().unwrap_or(0);
    let all: usize = spikes.values().map(Vec::len).sum();
    // None that touches several topics, where there is none.
    let share = |value: f64| vec![if all == 0 { 100.0 } else { value * 100.0 }];
    let tail = quantile_of(&latencies, 0.99);
    vec![
        measure("latency-p99", "ms", vec![tail]),
        measure("latency", "ms", latencies),
        measure("spikes", "spikes", vec![float(all as u64)]),
        measure("spikes-alone", "%", share(alone(&spikes, NARROW_US))),
        measure("spikes-alone-10ms", "%", share(alone(&spikes, WIDE_US))),
        measure(
            "spikes-alone-by-chance-10ms",
            "%",
            share(alone_by_chance(&spikes, WIDE_US, span)),
        ),
        measure("spread", "ms", spread(&samples)),
        measure("lost", "messages", vec![float(done.lost)]),
    ]
}

/// For each slice of time in which messages were sent: the slowest topic's mean
/// latency less that of the fastest.
fn spread(samples: &[(u16, u64, u64)]) -> Vec<f64> {
    let mut slices: BTreeMap<u64, BTreeMap<u16, Vec<f64>>> = BTreeMap::new();
    for (topic, sent, received) in samples {
        let latency = float(received.saturating_sub(*sent)) / 1e3;
        let slice = slices.entry(sent / SLICE_US).or_default();
        slice.entry(*topic).or_default().push(latency);
    }
    let of = |topics: &BTreeMap<u16, Vec<f64>>| {
        let means: Vec<f64> = topics.values().filter_map(|values| mean(values)).collect();
        let most = means.iter().copied().reduce(f64::max)?;
        let least = means.iter().copied().reduce(f64::min)?;
        Some(most - least)
    };
    slices.values().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_that_wait_together_are_not_apart() {
        let message = |topic, sent, took| (topic, sent, sent + took);
        let together: Vec<_> = (0..8).map(|t| message(t, 1000, 90_000)).collect();
        assert_eq!(spread(&together), [0.0]);
        let mut apart = together;
        apart.push(message(9, 1000, 50_000));
        assert_eq!(spread(&apart), [40.0]);
        assert!(spread(&[]).is_empty());
    }

    #[test]
    fn all_policies_meet_the_same_wire() {
        let cells = Isolation.plan(Scale::Paper);
        assert_eq!(cells.len(), 16 * (SINGLE.len() + POLICIES.len()));
        let seeds: std::collections::BTreeSet<u64> = cells.iter().map(|cell| cell.seed).collect();
        assert_eq!(seeds.len(), 16);
    }
}
