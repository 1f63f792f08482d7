//! `cause-handshake`: `milios-handshake` at its highest loss with clients that know the
//! round trip, so that over QUIC a first packet that was lost is repeated after what the
//! path takes, and not after three quarters of a second.

use anyhow::Result;

use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::milios::HANDSHAKE;
use super::super::milios::connect::{CAUSES, HALF, INITIAL_RTT, knows_path};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic};
use crate::lab::Lab;

/// Clients that know the path.
pub(crate) struct Handshake;

const QUIC: &str = "dunlin-quic";
const OTHERS: [&str; 2] = ["dunlin-tls", "mosquitto-tls"];

/// The link's round trip, and what clients assume that know nothing.
const KNOWN: &str = "10";
const DEFAULT: &str = "default";

const TIMES: u32 = 5;

impl Experiment for Handshake {
    fn name(&self) -> &'static str {
        CAUSES
    }

    fn about(&self) -> &'static str {
        "delay of the handshake of clients that know the round trip, against loss"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn isolates(&self) -> bool {
        true
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (loss, times) = match scale {
            Scale::Smoke => ("10", 1),
            _ => ("20", TIMES),
        };
        let factors: [(&str, &[&str]); 2] =
            [("loss_percent", &[loss]), (INITIAL_RTT, &[KNOWN, DEFAULT])];
        let systems = [QUIC, OTHERS[0], OTHERS[1]];
        let mut cells = plan::cells(self.name(), &systems, &factors, times);
        // TCP always begins with a second (RFC 6298, 2.1).
        cells.retain(|cell| (cell.system == QUIC) == (cell.factor(INITIAL_RTT) == KNOWN));
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        HANDSHAKE.seconds(cell, scale)
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        HANDSHAKE.run(cell, scale, lab)
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            log_y: true,
            ..Figure::new(
                "handshake",
                "Delay of the handshake, QUIC knows the round trip",
                "handshake",
                Kind::Lines { x: "loss_percent" },
            )
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |system: &str| {
            let pick = Pick::new(system, "handshake").at("loss_percent", "20");
            Sample::of(records, &pick)
        };
        let row = |other: &&str| {
            let measured = sample(QUIC).change(&sample(other), Statistic::Mean);
            super::row(knows_path(other), measured, "%", Some(Target::AtMost(HALF)))
        };
        OTHERS.iter().map(row).collect()
    }
}
