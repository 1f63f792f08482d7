//! `cause-transmit`: `nikitin-transmit` on links that lose nothing and are the same
//! otherwise, and over QUIC with a larger window at first. What is left of a difference
//! then is of the transports, and not of who was unlucky. ZigBee is left out: clients that
//! share 250 kbit/s end when they got their share.

use anyhow::Result;

use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::nikitin::{
    self, ALIKE, CAUSES_TRANSMIT, DEFAULT, FAST, LOSSLESS, OTHERS, SCENARIOS, SHORT_SYNTHETIC,
    WIDE, WIDE_SCENARIOS, WINDOW, transmits_lossless, transmits_wide,
};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use crate::lab::Lab;

/// Messages on links that lose nothing.
pub(crate) struct Transmit;

const QUIC: &str = "dunlin-quic";

const METRIC: &str = "transmit-rtts";

const TIMES: u32 = 5;

impl Experiment for Transmit {
    fn name(&self) -> &'static str {
        CAUSES_TRANSMIT
    }

    fn about(&self) -> &'static str {
        "time for 100 messages of QoS 1, on links that lose nothing"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn isolates(&self) -> bool {
        true
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (scenarios, links, times): (&[&str], &[&str], u32) = match scale {
            Scale::Smoke => (&["printer"], &["wifi"], 1),
            _ => (&SCENARIOS, &FAST, TIMES),
        };
        let factors = [
            ("scenario", scenarios),
            ("link", links),
            (WINDOW, &[DEFAULT, WIDE]),
            LOSSLESS,
        ];
        let systems = [QUIC, OTHERS[0], OTHERS[1]];
        let mut cells = plan::cells(self.name(), &systems, &factors, times);
        cells.retain(|cell| {
            let scenario = cell.factor("scenario");
            // TCP's window is the kernel's.
            let window = cell.factor(WINDOW) == DEFAULT
                || cell.system == QUIC && WIDE_SCENARIOS.contains(&scenario);
            // As in the short form, with which it is compared.
            window && (scenario != "synthetic" || SHORT_SYNTHETIC.contains(&cell.factor("link")))
        });
        cells
    }

    fn seconds(&self, _: &Cell, scale: Scale) -> f64 {
        match scale {
            Scale::Paper => 30.0,
            _ => 1.3,
        }
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        nikitin::Transmit.run(cell, scale, lab)
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            facet: Some("scenario"),
            split: Some(WINDOW),
            ..Figure::new(
                "transmit",
                "Time for all messages in round trips, nothing lost",
                METRIC,
                Kind::Bars { x: "link" },
            )
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        // TLS as it is, and QUIC with this window.
        let with = |window: &str| -> Vec<Record> {
            let has = |record: &&Record| {
                record.cell.system != QUIC || record.cell.factor(WINDOW) == window
            };
            records.iter().filter(has).cloned().collect()
        };
        let (default, wide) = (with(DEFAULT), with(WIDE));
        let mut rows = Vec::new();
        let mut add = |records: &[Record], what, scenario: &str, other| {
            let measured = nikitin::difference(records, [QUIC, other], METRIC, scenario, &FAST);
            rows.push(super::row(
                what,
                measured,
                "RTT",
                Some(Target::AtMost(ALIKE)),
            ));
        };
        for scenario in SCENARIOS {
            for other in OTHERS {
                add(
                    &default,
                    transmits_lossless(scenario, other),
                    scenario,
                    other,
                );
                if WIDE_SCENARIOS.contains(&scenario) {
                    add(&wide, transmits_wide(scenario, other), scenario, other);
                }
            }
        }
        rows
    }
}
