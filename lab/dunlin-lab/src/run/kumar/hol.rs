//! `kumar-hol`: from publishing to delivery while every 10th, 5th or 2nd packet
//! of the publisher is dropped.
//!
//! As in the paper, packets are dropped between publisher and broker, of the
//! publisher's flow, once it is connected; sent again, they count again. The
//! paper says neither rate nor payload: here one publisher sends 250 messages
//! of 64 bytes a second to eight topics in turn, QoS 0, to one subscriber. The
//! latency is from the call that publishes to the arrival at the application,
//! on one clock.
//!
//! With a stream per topic the client sends small packets twice for a while
//! after a loss, as it does by itself then; on one stream it does not.
//!
//! CoAP has neither streams nor order: what a confirmable message waits for is the
//! answer to the one before (NSTART of 1).

use core::time::Duration;

use anyhow::Result;

use super::super::bed::{BROKER, Bed, PUBLISHER, SUBSCRIBER, TESTBEDS};
use super::super::coap;
use super::super::experiment::{Claim, Experiment, Figure, Kind, PaperPoint, Target};
use super::super::generator::Generator;
use super::super::load::{Done, Load};
use super::super::plan::cells;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::stats::{Pick, Statistic, float};
use super::super::systems::{Serving, System};
use super::super::validity;
use super::{change, measure};
use crate::lab::Lab;

/// Messages a second.
pub(crate) const RATE: f64 = 250.0;

const TOPICS: u32 = 8;

/// Microseconds at the start that are not looked at.
const WARM_UP_US: u64 = 500_000;

/// Share of packets that is dropped, and every how many-th that is.
const DROPS: [(&str, &str); 3] = [("10", "10"), ("20", "5"), ("50", "2")];

/// Milliseconds of Table III: testbed, drops, over TCP, over QUIC.
const TABLE_III: [(&str, &str, f64, f64); 9] = [
    ("wired", "10", 3.114, 1.3833),
    ("wired", "20", 5.234, 3.5680),
    ("wired", "50", 10.6904, 8.9389),
    ("wireless", "10", 11.2176, 7.1099),
    ("wireless", "20", 15.7451, 10.5313),
    ("wireless", "50", 21.4137, 18.5313),
    ("long-distance", "10", 44.3578, 33.0088),
    ("long-distance", "20", 54.9340, 44.0462),
    ("long-distance", "50", 75.6283, 64.3635),
];

/// Why there is little to gain on the wired testbed.
const WIRED: &str = "messages are 4 ms apart and TCP repairs a loss within about as much, so few \
                     messages wait behind a lost one; part of what is left over QUIC is the way \
                     through three programs";

/// Why half of it cannot go.
const FAR: &str = "the way alone takes 70 ms, which no transport shortens: what TCP adds to it is \
    gone but for a few milliseconds";

/// Why a wireless run may show less.
const WIRELESS: &str = "the way alone takes 5 ms; what TCP adds depends on whether bursts of the \
                        air meet dropped packets: from 10 ms to more than a second in runs of \
                        three seconds";

/// The experiment that isolates causes.
pub(crate) const CAUSES: &str = "cause-hol";

/// What the issue expects is the best of the paper, at 10 %, on every testbed.
pub(crate) const MOST: f64 = -55.6;

/// Testbeds where it is not met by much.
pub(crate) const NARROW: [&str; 2] = ["wired", "long-distance"];

/// What no transport can be better than there.
pub(crate) fn floor(testbed: &str) -> String {
    format!(
        "mean latency, {testbed}: QUIC with a stream per topic, nothing dropped, \
         against Mosquitto over TLS, 10 % dropped"
    )
}

/// The same with messages that are farther apart, where the way is short.
pub(crate) const APART: &str = "wired";

pub(crate) fn apart() -> String {
    format!(
        "mean latency, {APART}, 10 % dropped, 20 ms between messages: \
         QUIC with a stream per topic against Mosquitto over TLS"
    )
}

const SMOKE: [&str; 3] = ["dunlin-quic-topics", "dunlin-tls", "coap-con"];

const SHORT: [&str; 7] = [
    "dunlin-quic",
    "dunlin-quic-topics",
    "dunlin-tls",
    "mosquitto-tls",
    "coap-con",
    "coap-non",
    "coap-dtls",
];

const ALL: [&str; 9] = [
    "dunlin-quic",
    "dunlin-quic-topics",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "mqttv5-quic",
    "coap-con",
    "coap-non",
    "coap-dtls",
];

/// What claims with a target are about, where every 10th packet is dropped: a
/// short run has that so often.
const JUDGED: [&str; 2] = ["dunlin-quic-topics", "mosquitto-tls"];
const SHORT_TIMES: u32 = 5;

fn time(cell: &Cell, scale: Scale) -> Duration {
    match scale {
        Scale::Smoke => Duration::from_secs(2),
        Scale::Short if cell.factor("drop_percent") == DROPS[0].0 => Duration::from_secs(3),
        Scale::Short => Duration::from_secs(2),
        Scale::Paper => Duration::from_secs(300),
    }
}

pub(super) struct Hol;

impl Experiment for Hol {
    fn name(&self) -> &'static str {
        "kumar-hol"
    }

    fn about(&self) -> &'static str {
        "latency while every 10th, 5th or 2nd packet of the publisher is dropped"
    }

    fn source(&self) -> &'static str {
        "paper 000, Table III"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let drops = DROPS.map(|(percent, _)| percent);
        let (systems, testbeds, drops, times): (&[&str], &[&str], &[&str], u32) = match scale {
            Scale::Smoke => (&SMOKE, &TESTBEDS[..1], &drops[..1], 1),
            Scale::Short => (&SHORT, &TESTBEDS, &drops, SHORT_TIMES),
            Scale::Paper => (&ALL, &TESTBEDS, &drops, 10),
        };
        let factors = [("testbed", testbeds), ("drop_percent", drops)];
        let mut cells = cells(self.name(), systems, &factors, times);
        if scale == Scale::Short {
            let judged = |cell: &Cell| {
                cell.factor("drop_percent") == DROPS[0].0 && JUDGED.contains(&&*cell.system)
            };
            // A single stream is compared where the claims are.
            let compared =
                |cell: &Cell| cell.factor("drop_percent") == DROPS[0].0 || cell.system != SHORT[0];
            cells.retain(|cell| compared(cell) && (cell.repetition == 0 || judged(cell)));
        }
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        // Over TCP what piled up has to arrive, and at half of the packets that
        // takes longer than the sending.
        let late = match (cell.factor("testbed"), cell.factor("drop_percent")) {
            // Not all of it arrives before the end.
            _ if coap::is_of(cell) => 1.3,
            ("long-distance", "50") if !cell.system.contains("quic") => 4.0,
            ("long-distance", _) => 0.6,
            _ => 0.2,
        };
        0.4 + late + time(cell, scale).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        measured(cell, (RATE, time(cell, scale)), lab)
    }

    fn figures(&self) -> Vec<Figure> {
        let paper = TABLE_III.iter().flat_map(|(testbed, drops, tcp, quic)| {
            let point = |series, value| PaperPoint {
                series,
                facet: Some(*testbed),
                x: drops,
                value,
            };
            [
                point("paper: MQTT over TCP", *tcp),
                point("paper: MQTT over QUIC", *quic),
            ]
        });
        let plot = |id, title, kind, paper| Figure {
            facet: Some("testbed"),
            log_y: true,
            paper,
            ..Figure::new(id, title, "latency", kind)
        };
        let lines = Kind::Lines { x: "drop_percent" };
        vec![
            plot(
                "latency",
                "Mean latency against dropped packets",
                lines,
                paper.collect(),
            ),
            Figure {
                only: &[("drop_percent", "10")],
                ..plot(
                    "latency-cdf",
                    "Latency of messages, every 10th packet dropped",
                    Kind::Cdf,
                    Vec::new(),
                )
            },
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (testbed, drops, tcp, quic) in TABLE_III {
            let pick = |system| {
                Pick::new(system, "latency")
                    .at("testbed", testbed)
                    .at("drop_percent", drops)
            };
            let target = (drops == "10").then_some(Target::AtMost(MOST));
            let said = (quic / tcp - 1.0) * 100.0;
            for (base, name, target) in [
                ("mosquitto-tls", "Mosquitto over TLS", target),
                ("dunlin-tls", "Dunlin over TLS", None),
            ] {
                let claim = change(
                    records,
                    format!(
                        "mean latency, {testbed}, {drops} % dropped: \
                         QUIC with a stream per topic against {name}"
                    ),
                    format!("{said:.1} % (Table III)"),
                    [&pick("dunlin-quic-topics"), &pick(base)],
                    Statistic::Mean,
                    target,
                );
                let reason = match testbed {
                    "wired" => Some(WIRED),
                    "wireless" => Some(WIRELESS),
                    "long-distance" => Some(FAR),
                    _ => None,
                };
                let mut claim = Claim { reason, ..claim };
                if target.is_some() && NARROW.contains(&testbed) {
                    claim = claim.because(CAUSES, floor(testbed));
                }
                if target.is_some() && testbed == APART {
                    claim = claim.because(CAUSES, apart());
                }
                claims.push(claim);
            }
        }
        for (testbed, drops, ..) in TABLE_III {
            let what = format!("mean latency, {testbed}, {drops} % dropped");
            let pick = |system: &str| {
                Pick::new(system, "latency")
                    .at("testbed", testbed)
                    .at("drop_percent", drops)
            };
            let ours = "dunlin-quic-topics";
            claims.extend(coap::beside(records, ours, &what, Statistic::Mean, pick));
        }
        claims
    }
}

/// Latency with so many messages a second for so long, while packets are dropped as the
/// cell's factors say.
pub(crate) fn measured(cell: &Cell, (rate, time): (f64, Duration), lab: &Lab) -> Result<Outcome> {
    let system = System::of(cell)?;
    let bed = Bed::start(cell.factor("testbed"), cell.seed, None)?;
    let mut broker = system.serve(lab, bed.namespace(BROKER)?, &Serving::default())?;
    let namespaces = (bed.namespace(PUBLISHER)?, bed.namespace(SUBSCRIBER)?);
    let server = (system, bed.address(BROKER)?);
    let load = Load {
        topics: TOPICS,
        rate: Some(rate),
        patience: Duration::from_secs(1),
        keep_alive: 0,
        ..Load::of(time)
    };
    let mut load = Generator::start(lab, namespaces, server, &load, &["--samples"])?;
    load.await_connected()?;
    let drops = DROPS
        .iter()
        .find(|(percent, _)| *percent == cell.factor("drop_percent"));
    if let Some((_, every)) = drops {
        bed.publisher_loses(every)?;
    }
    let done = load.end();
    broker.runs()?;
    let done = done?;
    drop(broker);
    let mut outcome = outcome(&done);
    if coap::is_of(cell) {
        let all = done.received + done.lost;
        outcome.notes.extend(coap::missing(done.lost, all));
    }
    outcome.invalid = bed.stop().or_else(|| validity::load(&done));
    Ok(outcome)
}

fn outcome(done: &Done) -> Outcome {
    let first = done
        .samples
        .iter()
        .map(|(_, sent, _)| *sent)
        .min()
        .unwrap_or(0);
    let arrived = done.samples.iter();
    let arrived = arrived.map(|(_, sent, arrived)| (*sent, arrived.saturating_sub(*sent)));
    // What waits counts with the time that it has waited, else loss would look good.
    let latencies = arrived
        .chain(done.waiting.iter().copied())
        .filter(|(sent, _)| *sent >= first + WARM_UP_US)
        .map(|(_, took)| float(took) / 1e3)
        .collect();
    Outcome {
        measures: vec![
            measure("latency", "ms", latencies),
            measure("lost", "messages", vec![float(done.lost)]),
            measure("disconnections", "", vec![float(done.disconnections)]),
        ],
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_at_the_end_has_a_latency_and_the_warm_up_has_none() {
        let done = Done {
            samples: vec![(0, 1_000, 2_000), (0, 600_000, 604_000)],
            waiting: vec![(2_000, 900_000), (700_000, 300_000)],
            ..Done::default()
        };
        let outcome = outcome(&done);
        assert_eq!(outcome.measures[0].values, [4.0, 300.0]);
    }
}
