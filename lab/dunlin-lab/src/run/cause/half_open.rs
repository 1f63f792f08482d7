//! `cause-half-open`: whether what a broker still has after publishers over QUIC have
//! vanished is of connections. One publisher leaves as much as a hundred: what code and
//! tables take that the first connection needs.

use core::time::Duration;

use anyhow::Result;

use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::kumar::half_open::{self, CAUSES, ONE_LEAVES, Size};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic};
use crate::lab::Lab;

/// One publisher that vanishes, and a hundred.
pub(crate) struct HalfOpen;

const QUIC: &str = "dunlin-quic";

const PUBLISHERS: &str = "publishers";
const ONE: &str = "1";
const MANY: &str = "100";

const TIMES: u32 = 5;

/// Percent that one may leave less than a hundred.
const LESS_MAX: f64 = -20.0;

fn size(cell: &Cell) -> Size {
    Size {
        connections: if cell.factor(PUBLISHERS) == ONE {
            1
        } else {
            100
        },
        idle: Duration::from_secs(2),
        publishing: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(2),
        vanished: Duration::from_secs(2),
        restarted: Duration::ZERO,
    }
}

impl Experiment for HalfOpen {
    fn name(&self) -> &'static str {
        CAUSES
    }

    fn about(&self) -> &'static str {
        "memory of the broker after one publisher has vanished, and after a hundred"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn isolates(&self) -> bool {
        true
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (publishers, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&[ONE], 1),
            _ => (&[ONE, MANY], TIMES),
        };
        plan::cells(self.name(), &[QUIC], &[(PUBLISHERS, publishers)], times)
    }

    fn seconds(&self, cell: &Cell, _: Scale) -> f64 {
        size(cell).seconds()
    }

    fn run(&self, cell: &Cell, _: Scale, lab: &Lab) -> Result<Outcome> {
        half_open::measured(cell, &size(cell), lab)
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            split: Some(PUBLISHERS),
            ..Figure::new(
                "memory",
                "Memory of the broker beyond that of an idle one, publishers over QUIC",
                "memory-of-clients",
                Kind::Bars { x: "phase" },
            )
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |metric, phase, publishers| {
            let pick = Pick::new(QUIC, metric).at("phase", phase);
            Sample::of(records, &pick.at(PUBLISHERS, publishers))
        };
        let change = |metric, phase| {
            sample(metric, phase, ONE).change(&sample(metric, phase, MANY), Statistic::Median)
        };
        let metric = "memory-of-clients";
        let target = Some(Target::AtLeast(LESS_MAX));
        let mut rows = vec![super::row(
            ONE_LEAVES.to_owned(),
            change(metric, "vanished"),
            "%",
            target,
        )];
        for (phase, when) in [("publishing", "while"), ("vanished", "after")] {
            for publishers in [ONE, MANY] {
                let did = match phase {
                    "publishing" => "publish",
                    _ => "vanished",
                };
                rows.push(super::row(
                    format!(
                        "memory beyond that of an idle broker {when} {publishers} over QUIC {did}"
                    ),
                    sample(metric, phase, publishers).estimate(Statistic::Median),
                    "MiB",
                    None,
                ));
            }
        }
        rows
    }
}
