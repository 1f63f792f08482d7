//! `memory`: four publishers and four subscribers as fast as they can, under
//! loss: memory of the broker stays bounded with every policy of streams.

use core::time::Duration;

use anyhow::Result;

use super::bench::{Bench, measure, outcome, reply};
use super::experiment::{Claim, Experiment, Figure, Target};
use super::load::{Done, Load};
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float};
use crate::lab::Lab;

/// Memory of the broker at saturation under loss.
pub(crate) struct Memory;

const SYSTEM: &str = "dunlin-quic";

/// Most resident memory of the broker, in MiB.
const MEMORY_MAX_MIB: f64 = 64.0;

/// Clients that get every message.
const SUBSCRIBERS: u32 = 4;

/// Longest that a load takes on top of its time.
const PATIENCE: Duration = Duration::from_secs(3);

const POLICIES: [&str; 4] = ["single", "per-topic", "per-publish", "auto"];

const fn seconds(scale: Scale) -> u32 {
    match scale {
        Scale::Smoke => 2,
        Scale::Short => 5,
        Scale::Paper => 15,
    }
}

impl Experiment for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> &'static str {
        "memory of the broker at saturation under loss"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn in_all(&self) -> bool {
        false
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (qos, losses): (&[&str], &[&str]) = match scale {
            Scale::Smoke => (&["1"], &["5"]),
            Scale::Short => (&["0", "1"], &["0", "5"]),
            Scale::Paper => (&["0", "1"], &["0", "1", "5", "10"]),
        };
        let factors = [
            ("qos", qos),
            ("loss_percent", losses),
            ("policy", &POLICIES),
        ];
        plan::cells(self.name(), &[SYSTEM], &factors, 1)
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        f64::from(seconds(scale)) + PATIENCE.as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let loss = format!("loss={}%", cell.factor("loss_percent"));
        let settings = ["delay=10ms", "rate=100mbit", "queue=250kB", &loss];
        let bench = Bench::start(lab, cell, &settings.map(str::to_owned), None)?;
        let mut command = bench.load(cell.factor("policy"));
        let load = Load {
            publishers: 4,
            subscribers: SUBSCRIBERS,
            payload: 256,
            patience: PATIENCE,
            ..Load::of(Duration::from_secs(seconds(scale).into()))
        };
        load.add_to(&mut command);
        command.args(["--qos", cell.factor("qos")]);
        let done: Done = reply(command)?;
        let (_, most) = bench.server.memory()?;
        // Packets that the kernel lost make memory none the smaller.
        let notes = bench.finish_untimed()?.into_iter().collect();
        // A publisher that was refused (full queues, 0x97) knows; that is no loss.
        let lost = done
            .lost
            .saturating_sub(done.failed * u64::from(SUBSCRIBERS));
        let measures = [
            ("memory", "MiB", float(most) / 1024.0 / 1024.0),
            ("published", "/s", float(done.published) / done.seconds),
            ("received", "/s", float(done.received) / done.seconds),
            ("lost", "messages", float(lost)),
            ("refused", "messages", float(done.failed)),
            ("not-arrived", "messages", float(done.lost)),
            ("doubled", "messages", float(done.duplicated)),
            ("disconnections", "", float(done.disconnections)),
        ];
        let measures = measures.map(|(metric, unit, value)| measure(metric, unit, vec![value]));
        Ok(Outcome {
            notes,
            ..outcome(measures.into(), None)
        })
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for policy in POLICIES {
            let mut claim = |what: &str, metric, qos: Option<&str>, unit, most| {
                let mut pick = Pick::new(SYSTEM, metric).at("policy", policy);
                if let Some(qos) = qos {
                    pick = pick.at("qos", qos);
                }
                claims.push(Claim {
                    what: format!("{policy}: {what}"),
                    paper: "ours".to_owned(),
                    measured: Sample::of(records, &pick).estimate(Statistic::Quantile(1.0)),
                    unit,
                    target: Some(Target::AtMost(most)),
                    reason: None,
                    causes: Vec::new(),
                });
            };
            claim(
                "most memory of the broker",
                "memory",
                None,
                "MiB",
                MEMORY_MAX_MIB,
            );
            claim("messages lost, QoS 1", "lost", Some("1"), "messages", 0.0);
        }
        claims
    }
}
