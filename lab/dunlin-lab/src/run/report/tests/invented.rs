//! An invented experiment, with every kind of figure: numbers that look
//! like those of the papers, from a seed.

use std::path::Path;

use anyhow::{Result, bail};
use dunlin_link::Random;

use crate::lab::Lab;
use crate::run::experiment::{Claim, Experiment, Figure, Kind, PaperPoint, Target};
use crate::run::plan;
use crate::run::record::{Cell, Factors, Header, Measure, Outcome, Record, Scale};
use crate::run::stats::{Pick, Sample, Statistic};
use crate::run::store::Run;

pub(super) struct Invented {
    name: &'static str,
}

pub(super) static INVENTED: Invented = Invented { name: "invented" };

/// Isolates a cause: of the same records its one claim holds.
pub(super) static CAUSE: Invented = Invented {
    name: "cause-invented",
};

const SYSTEMS: [&str; 7] = [
    "dunlin-quic",
    "dunlin-quic-0rtt",
    "dunlin-quic-topics",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "mqttv5-quic",
];
const TESTBEDS: [&str; 3] = ["wired", "wireless", "long-distance"];
const LOSS: [&str; 5] = ["0", "5", "10", "15", "20"];
const LINKS: [&str; 5] = ["Wi-Fi", "ZigBee", "4G", "3G", "Ethernet"];

impl Experiment for Invented {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        "Invented numbers, in every kind of figure."
    }

    fn source(&self) -> &'static str {
        "no paper, Fig. <0>"
    }

    fn isolates(&self) -> bool {
        self.name == CAUSE.name
    }

    fn plan(&self, _: Scale) -> Vec<Cell> {
        let factors: [(&str, &[&str]); 2] = [("testbed", &TESTBEDS), ("loss_percent", &LOSS)];
        plan::cells("invented", &SYSTEMS, &factors, 2)
    }

    fn seconds(&self, _cell: &Cell, _scale: Scale) -> f64 {
        1.0
    }

    fn run(&self, _: &Cell, _: Scale, _: &Lab) -> Result<Outcome> {
        bail!("it is only drawn")
    }

    fn figures(&self) -> Vec<Figure> {
        let packets = |x: &'static str, facet: &'static str, value: f64| PaperPoint {
            series: "paper: MQTT over QUIC 0-RTT",
            facet: Some(facet),
            x,
            value,
        };
        vec![
            Figure {
                facet: Some("testbed"),
                only: &[("loss_percent", "0")],
                paper: vec![
                    packets("broker", "wired", 9.0),
                    packets("publisher", "wired", 8.0),
                    packets("broker", "wireless", 21.0),
                    PaperPoint {
                        series: "paper: MQTT over TCP",
                        ..packets("broker", "wireless", 48.0)
                    },
                ],
                ..Figure::new(
                    "packets",
                    "Packets of a handshake",
                    "packets",
                    Kind::Bars { x: "role" },
                )
            },
            Figure {
                facet: Some("testbed"),
                paper: vec![
                    PaperPoint {
                        series: "paper: TCP",
                        ..packets("10", "wired", 3.1)
                    },
                    PaperPoint {
                        series: "paper: TCP",
                        ..packets("20", "wired", 5.2)
                    },
                ],
                ..Figure::new(
                    "latency",
                    "Latency",
                    "latency",
                    Kind::Lines { x: "loss_percent" },
                )
            },
            Figure {
                log_y: true,
                ..Figure::new(
                    "latency-log",
                    "Latency, all",
                    "latency",
                    Kind::Lines { x: "loss_percent" },
                )
            },
            Figure {
                log_y: true,
                facet: Some("testbed"),
                ..Figure::new(
                    "latency-cdf",
                    "Distribution of latency",
                    "latency",
                    Kind::Cdf,
                )
            },
            Figure {
                only: &[("loss_percent", "0"), ("testbed", "wired")],
                ..Figure::new("memory", "Memory of the broker", "memory", Kind::Course)
            },
            Figure {
                facet: Some("testbed"),
                ..Figure::new("links", "Time by link", "time", Kind::Bars { x: "link" })
            },
            Figure {
                log_y: true,
                ..Figure::new(
                    "links-log",
                    "Time by link, logarithmic",
                    "time",
                    Kind::Bars { x: "link" },
                )
            },
            Figure {
                split: Some("policy"),
                ..Figure::new(
                    "spread",
                    "Spread by policy",
                    "spread",
                    Kind::Lines { x: "loss_percent" },
                )
            },
            Figure {
                split: Some("policy"),
                facet: Some("loss_percent"),
                ..Figure::new(
                    "spread-bars",
                    "Spread by policy",
                    "spread",
                    Kind::Bars { x: "testbed" },
                )
            },
            Figure::new(
                "nothing",
                "What was not recorded",
                "absent",
                Kind::Bars { x: "role" },
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |system: &str| {
            let pick = Pick::new(system, "packets")
                .at("testbed", "wireless")
                .at("role", "broker");
            Sample::of(records, &pick)
        };
        let tcp = sample("mosquitto-tls");
        let claim = |system: &str, target: f64| Claim {
            what: format!("packets of a handshake, wireless, broker: {system} against TLS"),
            paper: "\u{2212}56.25 % (Table II)".to_owned(),
            measured: sample(system).change(&tcp, Statistic::Median),
            unit: "%",
            target: Some(Target::AtMost(target)),
            reason: Some("it was invented"),
            causes: Vec::new(),
        };
        if self.name == CAUSE.name {
            return vec![claim("dunlin-quic", 100.0)];
        }
        let cause = claim("dunlin-quic", 100.0).what;
        vec![
            claim("dunlin-quic-0rtt", -50.0),
            claim("dunlin-quic", -90.0).because(CAUSE.name, cause),
            claim("dunlin-nowhere", -60.0),
            Claim {
                target: None,
                ..claim("mqttv5-quic", 0.0)
            },
        ]
    }
}

fn factors(name: &str, value: &str) -> Factors {
    Factors::from([(name.to_owned(), value.to_owned())])
}

fn outcome(cell: &Cell, random: &mut Random) -> Outcome {
    let system = SYSTEMS.iter().position(|s| *s == cell.system).unwrap_or(0) as f64;
    let testbed = TESTBEDS.iter().position(|t| *t == cell.factor("testbed"));
    let slow = [1.0, 4.0, 40.0][testbed.unwrap_or(0)];
    let loss: f64 = cell.factor("loss_percent").parse().unwrap_or(0.0);
    let mut measures = Vec::new();
    let mut measure = |metric: &str, unit: &str, of: Factors, values: Vec<f64>| {
        measures.push(Measure {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            factors: of,
            values,
            series: Vec::new(),
        });
    };
    for (index, role) in ["subscriber", "publisher", "broker"]
        .into_iter()
        .enumerate()
    {
        let mean = 7.0 + 2.0 * system + index as f64 + slow / 8.0;
        let values = (0..10).map(|_| (mean + 1.5 * random.normal()).round());
        measure(
            "packets",
            "packets",
            factors("role", role),
            values.collect(),
        );
    }
    let delay = slow * (1.0 + loss / 8.0 * (1.0 + system / 6.0));
    let values = (0..20).map(|_| delay * (0.3 * random.normal()).exp());
    measure("latency", "ms", Factors::new(), values.collect());
    for (index, link) in LINKS.into_iter().enumerate() {
        let mean = slow * (20.0 + 30.0 * index as f64) + 4.0 * system;
        let values = (0..5).map(|_| mean * (0.2 * random.normal()).exp());
        measure("time", "ms", factors("link", link), values.collect());
    }
    if system < 2.0 {
        for (index, policy) in ["single", "per-topic", "per-publish", "auto"]
            .into_iter()
            .enumerate()
        {
            let mean = (loss + 1.0) * (4.0 - index as f64) + system;
            let values = (0..5).map(|_| mean + random.normal());
            measure("spread", "ms", factors("policy", policy), values.collect());
        }
    }
    let series = (0..600).map(|second| {
        let at = f64::from(second);
        let open = if at < 100.0 { at / 100.0 } else { 1.0 };
        let held = if at > 360.0 && system < 3.0 { 0.2 } else { 1.0 };
        (
            at,
            5.0 + system + 20.0 * open * held + 0.3 * random.normal(),
        )
    });
    if loss == 0.0 && testbed == Some(0) {
        measures.push(Measure {
            metric: "memory".to_owned(),
            unit: "MiB".to_owned(),
            series: series.collect(),
            ..Measure::default()
        });
    }
    Outcome {
        measures,
        invalid: None,
        notes: vec!["the clock is <one> clock".to_owned()],
    }
}

/// Stores a run with all cells but this many.
pub(super) fn store(folder: &Path, scale: Scale, missing: usize) -> Run {
    store_of(&INVENTED, folder, scale, missing)
}

/// The same of either.
pub(super) fn store_of(of: &Invented, folder: &Path, scale: Scale, missing: usize) -> Run {
    let cells = of.plan(scale);
    let mut random = Random::new(1);
    let planned = cells.len();
    let mut run = Run {
        folder: folder.to_owned(),
        header: Header {
            experiment: of.name.to_owned(),
            scale,
            planned,
            started: "2026-11-21T18:00:00Z".to_owned(),
            finished: (missing == 0).then(|| "2026-11-21T18:20:00Z".to_owned()),
            environment: [("kernel", "6.1 <x>"), ("processor", "two | cores")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        },
        records: Vec::new(),
        cut: None,
    };
    std::fs::create_dir_all(folder).unwrap();
    run.write_header().unwrap();
    let mut text = String::new();
    for cell in cells.into_iter().take(planned - missing) {
        let mut outcome = outcome(&cell, &mut random);
        let slow = cell.system == "mqttv5-quic" && cell.factor("loss_percent") == "20";
        let lost = cell.system == "mqttv5-quic" && cell.factor("testbed") == "wired";
        if slow || lost {
            outcome.invalid = Some("the emulator's queue overran, \"12\" packets".to_owned());
        }
        let record = Record {
            cell,
            outcome,
            seconds: 2.0,
        };
        text.push_str(&serde_json::to_string(&record).unwrap());
        text.push('\n');
        run.records.push(record);
    }
    // At once, for `append` waits for the disk.
    std::fs::write(folder.join("cells.jsonl"), text).unwrap();
    run
}
