//! `storm`: every second the NAT forgets its ports and the host gets another
//! address, under traffic of all qualities of service and 5 % loss.

use core::time::Duration;
use std::thread::sleep;
use std::time::Instant;

use anyhow::Result;
use dunlin_link::Action;
use dunlin_link::linux::Emulator;

use super::bench::{Bench, measure, outcome};
use super::experiment::{Claim, Experiment, Figure, Target};
use super::generator::Generator;
use super::load::{Done, Load};
use super::plan;
use super::record::{Cell, Factors, Measure, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float};
use super::systems::Serving;
use crate::lab::Lab;

/// Rebinding and migration under traffic.
pub(crate) struct Storm;

const SYSTEM: &str = "dunlin-quic";

/// Between two changes of the same kind.
const PERIOD: Duration = Duration::from_secs(1);

/// Publishing goes on for so long after the last change.
const AFTER: Duration = Duration::from_secs(2);

/// The NAT forgets its ports.
const REBIND: &str = "rebinding";
/// In the middle of each second the host's address changes, too. Now and then
/// the application moves to another socket.
const BOTH: &str = "rebinding and moving";

const QOS: [&str; 3] = ["0", "1", "2"];

/// Seconds with changes.
const fn seconds(scale: Scale) -> u32 {
    match scale {
        Scale::Smoke => 3,
        Scale::Short => 10,
        Scale::Paper => 60,
    }
}

impl Experiment for Storm {
    fn name(&self) -> &'static str {
        "storm"
    }

    fn about(&self) -> &'static str {
        "rebinding and migration every second under traffic"
    }

    fn source(&self) -> &'static str {
        "ours; compare paper 000, Figure 12"
    }

    fn in_all(&self) -> bool {
        false
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let all = ["1", "2"].into_iter().flat_map(|shards| {
            let policies = ["single", "per-topic"].into_iter();
            policies.flat_map(move |policy| [REBIND, BOTH].map(|change| (shards, policy, change)))
        });
        let short = [("1", "single", REBIND), ("2", "per-topic", BOTH)];
        let chosen: Vec<_> = match scale {
            Scale::Smoke => short[1..].to_vec(),
            Scale::Short => short.to_vec(),
            Scale::Paper => all.collect(),
        };
        let cell = |(shards, policy, change)| {
            let factors = [("shards", shards), ("policy", policy), ("change", change)];
            let factors = factors.map(|(name, value): (&str, &str)| (name.into(), value.into()));
            plan::cell(self.name(), SYSTEM, Factors::from(factors), 0)
        };
        chosen.into_iter().map(cell).collect()
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        f64::from(seconds(scale)) + AFTER.as_secs_f64() + 1.0
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let serving = Serving {
            settings: vec![format!("shards={}", cell.factor("shards"))],
            ..Serving::default()
        };
        let settings = ["delay=10ms".to_owned(), "loss=5%".to_owned()];
        let mut bench = Bench::serving(lab, cell, &settings, None, &serving)?;
        let moves = cell.factor("change") == BOTH;
        let time = PERIOD * seconds(scale) + AFTER;
        let mut loads = Vec::new();
        for qos in QOS {
            let mut command = bench.load(cell.factor("policy"));
            let load = Load {
                rate: Some(50.0),
                patience: Duration::from_secs(10),
                ..Load::of(time)
            };
            load.add_to(&mut command);
            command.args(["--announce", "--qos", qos]);
            if moves {
                // Not in step with the link's seconds.
                command.args(["--migrate", "1.7"]);
            }
            loads.push(Generator::of(command)?);
        }
        // Addresses must not change during handshakes (RFC 9000 section 9).
        for load in &mut loads {
            load.await_connected()?;
        }
        blow(&bench.emulator, moves, seconds(scale))?;
        bench.server.runs()?;
        let mut measures = Vec::new();
        for (qos, load) in QOS.into_iter().zip(loads) {
            measures.extend(measures_of(qos, &load.end()?, scale));
        }
        Ok(outcome(measures, bench.finish_untimed()?))
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for change in [REBIND, BOTH] {
            for qos in QOS {
                let none = Some(Target::AtMost(0.0));
                // Of each of the two clients.
                let moves = (change == BOTH).then_some(Target::AtLeast(2.0));
                for (metric, unit, target, worst) in [
                    ("moves", "/s", moves, 0.0),
                    ("lost", "messages", none.filter(|_| qos != "0"), 1.0),
                    ("doubled", "messages", none.filter(|_| qos == "2"), 1.0),
                    ("disconnections", "", none, 1.0),
                ] {
                    let pick = Pick::new(SYSTEM, metric).at("change", change);
                    let sample = Sample::of(records, &pick.at("qos", qos));
                    claims.push(Claim {
                        what: format!("{change}, QoS {qos}: {metric}"),
                        paper: "ours".to_owned(),
                        measured: sample.estimate(Statistic::Quantile(worst)),
                        unit,
                        target,
                        reason: None,
                        causes: Vec::new(),
                    });
                }
            }
        }
        claims
    }
}

/// Changes the link every second.
fn blow(emulator: &Emulator, moves: bool, seconds: u32) -> Result<()> {
    let start = Instant::now();
    let until = |at: Duration| sleep(at.saturating_sub(start.elapsed()));
    for second in 0..seconds {
        let at = PERIOD * second;
        if moves {
            until(at + PERIOD / 2);
            let (high, low) = (second / 200 + 1, second % 200 + 10);
            emulator.apply(Action::parse(&format!("move a 10.203.{high}.{low}"))?);
        }
        until(at + PERIOD);
        emulator.apply(Action::parse("rebind a")?);
    }
    Ok(())
}

fn measures_of(qos: &str, done: &Done, scale: Scale) -> [Measure; 5] {
    [
        ("published", "messages", float(done.published)),
        ("moves", "/s", float(done.moves) / f64::from(seconds(scale))),
        ("lost", "messages", float(done.lost)),
        ("doubled", "messages", float(done.duplicated)),
        ("disconnections", "", float(done.disconnections)),
    ]
    .map(|(metric, unit, value)| Measure {
        factors: Factors::from([("qos".to_owned(), qos.to_owned())]),
        ..measure(metric, unit, vec![value])
    })
}
