//! `cause-connect` and `cause-transmit`: `nikitin-connect` on the links of the printer
//! farm, and `nikitin-transmit`, on links that lose nothing and are the same otherwise.
//! What is left of a difference then is of the transports, and not of who was unlucky.
//! `cause-transmit` has QUIC with a larger window at first, too.

use anyhow::Result;

use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::nikitin::{
    self, ALIKE, CAUSES_CONNECT, CAUSES_TRANSMIT, LINKS, LOSSLESS, SCENARIOS, SHORT_SYNTHETIC,
    SOONER,
};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use crate::lab::Lab;

/// One of them.
pub(crate) struct Lossless {
    connects: bool,
}

/// Time until the transport is secure.
pub(crate) const CONNECT: Lossless = Lossless { connects: true };

/// Time for 100 messages.
pub(crate) const TRANSMIT: Lossless = Lossless { connects: false };

const SYSTEMS: [&str; 3] = ["dunlin-quic", "dunlin-tls", "mosquitto-tls"];

impl Lossless {
    /// What is measured otherwise.
    const fn of(&self) -> &'static dyn Experiment {
        match self.connects {
            true => &nikitin::Connect,
            false => &nikitin::Transmit,
        }
    }

    const fn metric(&self) -> &'static str {
        match self.connects {
            true => "connect-rtts",
            false => "transmit-rtts",
        }
    }

    const fn scenarios(&self) -> &'static [&'static str] {
        match self.connects {
            true => &["printer"],
            false => &SCENARIOS,
        }
    }
}

impl Experiment for Lossless {
    fn name(&self) -> &'static str {
        match self.connects {
            true => CAUSES_CONNECT,
            false => CAUSES_TRANSMIT,
        }
    }

    fn about(&self) -> &'static str {
        match self.connects {
            true => "time until the transport is secure, on links that lose nothing",
            false => "time for 100 messages of QoS 1, on links that lose nothing",
        }
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (scenarios, links, times): (&[&str], &[&str], u32) = match scale {
            Scale::Smoke => (&["printer"], &["wifi"], 1),
            _ if self.connects => (self.scenarios(), &LINKS, 5),
            _ => (self.scenarios(), &LINKS, 3),
        };
        let windows: &[&str] = match self.connects {
            true => &[nikitin::DEFAULT],
            false => &[nikitin::DEFAULT, nikitin::WIDE],
        };
        let factors = [
            ("scenario", scenarios),
            ("link", links),
            (nikitin::WINDOW, windows),
            LOSSLESS,
        ];
        let mut cells = plan::cells(self.name(), &SYSTEMS, &factors, times);
        // TCP's window is the kernel's.
        cells.retain(|cell| {
            cell.factor(nikitin::WINDOW) == nikitin::DEFAULT
                || cell.system == SYSTEMS[0]
                    && nikitin::WIDE_SCENARIOS.contains(&cell.factor("scenario"))
        });
        // As in the short form, with which it is compared.
        cells.retain(|cell| {
            let synthetic = cell.factor("scenario") == "synthetic";
            !synthetic || SHORT_SYNTHETIC.contains(&cell.factor("link"))
        });
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        match (self.connects, cell.factor("scenario"), cell.factor("link")) {
            (true, ..) => 2.2,
            _ if scale == Scale::Paper => 30.0,
            (_, "printer", "zigbee") => 4.6,
            (_, "home", "zigbee") => 1.9,
            _ => 1.2,
        }
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        self.of().run(cell, scale, lab)
    }

    fn figures(&self) -> Vec<Figure> {
        let (id, title) = match self.connects {
            true => (
                "connect",
                "Time until the transport is secure, nothing lost",
            ),
            false => ("transmit", "Time for all messages, nothing lost"),
        };
        vec![Figure {
            facet: Some("scenario"),
            split: Some(nikitin::WINDOW),
            log_y: true,
            ..Figure::new(id, title, self.metric(), Kind::Bars { x: "link" })
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let most = if self.connects { SOONER } else { ALIKE };
        // TLS as it is, and QUIC with this window.
        let with = |window: &str| -> Vec<Record> {
            let has = |record: &&Record| {
                record.cell.system != SYSTEMS[0] || record.cell.factor(nikitin::WINDOW) == window
            };
            records.iter().filter(has).cloned().collect()
        };
        let (default, wide) = (with(nikitin::DEFAULT), with(nikitin::WIDE));
        let mut rows = Vec::new();
        let mut add = |records: &[Record], what, scenario: &str, other| {
            let pair = [SYSTEMS[0], other];
            let measured = nikitin::difference(records, pair, self.metric(), scenario, &LINKS);
            rows.push(super::row(
                what,
                measured,
                "RTT",
                Some(Target::AtMost(most)),
            ));
        };
        for scenario in self.scenarios() {
            for other in nikitin::OTHERS {
                if self.connects {
                    let what = nikitin::connects_lossless(scenario, other);
                    add(&default, what, scenario, other);
                    continue;
                }
                let what = nikitin::transmits_lossless(scenario, other);
                add(&default, what, scenario, other);
                if nikitin::WIDE_SCENARIOS.contains(scenario) {
                    let what = nikitin::transmits_wide(scenario, other);
                    add(&wide, what, scenario, other);
                }
            }
        }
        rows
    }
}
