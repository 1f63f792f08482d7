//! `cause-hol`: why `kumar-hol` finds less on two testbeds than the paper's best.
//!
//! With nothing dropped QUIC has what the way and three programs take, which is the least
//! that any transport can have. And with 20 ms between two messages, not 4, TCP has to
//! wait that much longer for what tells it of a loss, where the way is short.

use core::time::Duration;

use anyhow::{Context as _, Result};

use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::kumar::hol::{self, MOST, NARROW};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic};
use crate::lab::Lab;

/// Latency at other rates and with nothing dropped.
pub(crate) struct Hol;

const QUIC: &str = "dunlin-quic-topics";
const TLS: &str = "mosquitto-tls";

/// Milliseconds between two messages: as in `kumar-hol`, and five times as much.
const NEAR: &str = "4";
const APART: &str = "20";

const TIMES: u32 = 5;

fn time(cell: &Cell, scale: Scale) -> Duration {
    Duration::from_secs(match (scale, cell.factor("interval_ms")) {
        (Scale::Smoke, _) => 2,
        (Scale::Short, NEAR) => 3,
        (Scale::Short, _) => 5,
        (Scale::Paper, _) => 60,
    })
}

impl Experiment for Hol {
    fn name(&self) -> &'static str {
        hol::CAUSES
    }

    fn about(&self) -> &'static str {
        "what kumar-hol leaves to gain: nothing dropped, and messages that are farther apart"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn isolates(&self) -> bool {
        true
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (testbeds, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&NARROW[..1], 1),
            _ => (&NARROW, TIMES),
        };
        let factors: [(&str, &[&str]); 3] = [
            ("testbed", testbeds),
            ("interval_ms", &[NEAR, APART]),
            ("drop_percent", &["0", "10"]),
        ];
        let mut cells = plan::cells(self.name(), &[QUIC, TLS], &factors, times);
        cells.retain(|cell| {
            let dropped = cell.factor("drop_percent") != "0";
            match (cell.factor("interval_ms"), &*cell.system) {
                (NEAR, QUIC) => !dropped,
                (NEAR, _) => dropped,
                _ => dropped && cell.factor("testbed") == hol::APART,
            }
        });
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let late = if cell.factor("testbed") == "wired" {
            0.2
        } else {
            0.6
        };
        0.4 + late + time(cell, scale).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let interval: f64 = cell.factor("interval_ms").parse().context("no interval")?;
        hol::measured(cell, (1000.0 / interval, time(cell, scale)), lab)
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            facet: Some("testbed"),
            split: Some("drop_percent"),
            ..Figure::new(
                "latency",
                "Latency against the time between two messages",
                "latency",
                Kind::Lines { x: "interval_ms" },
            )
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |testbed: &str, system, interval, drops| {
            let pick = Pick::new(system, "latency").at("testbed", testbed);
            let pick = pick.at("interval_ms", interval).at("drop_percent", drops);
            Sample::of(records, &pick)
        };
        let mean = Statistic::Mean;
        let mut rows = Vec::new();
        for testbed in NARROW {
            let tls = sample(testbed, TLS, NEAR, "10");
            let least = sample(testbed, QUIC, NEAR, "0").change(&tls, mean);
            let target = Some(Target::AtLeast(MOST));
            rows.push(super::row(hol::floor(testbed), least, "%", target));
        }
        let tls = sample(hol::APART, TLS, APART, "10");
        let apart = sample(hol::APART, QUIC, APART, "10").change(&tls, mean);
        let target = Some(Target::AtMost(MOST));
        rows.push(super::row(hol::apart(), apart, "%", target));
        rows
    }
}
