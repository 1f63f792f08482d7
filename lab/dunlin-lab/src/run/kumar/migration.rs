//! `kumar-migration`: the subscriber's address changes while 100 connections
//! publish to it.
//!
//! Ten publishers with ten connections each in the paper; here 100 connections
//! of one host. Messages are of QoS 1, 64 bytes; the old address is gone when
//! the new one is there. Over TCP our client sees that its address is gone and
//! connects again; should it not, it notices by its keep alive, which the paper
//! turned off (its sockets had a timeout of 30 s).
//!
//! CoAP is not among the systems: an observer is known by its address (RFC 7641, 4.1),
//! and a session of DTLS 1.2 without connection ids, too, so that there is nothing to
//! migrate.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::time::Instant;

use anyhow::Result;

use super::super::bed::{BROKER, Bed, PUBLISHER, SUBSCRIBER};
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::generator::Generator;
use super::super::interrupt::pause;
use super::super::load::{Done, Load};
use super::super::plan::cells;
use super::super::record::{Cell, Measure, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic, float};
use super::super::systems::{Serving, System};
use super::super::validity;
use super::measure;
use crate::lab::Lab;

/// Moves of the subscriber.
const MOVES: u32 = 3;

/// Width of a point of the course, and of what is called a dip.
const BIN: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);

const CONNECTIONS: u32 = 100;

const SYSTEMS: [&str; 5] = [
    "dunlin-quic",
    "dunlin-quic-topics",
    "dunlin-tls",
    "mosquitto-tls",
    "mqttv5-quic",
];

/// The course that is drawn: without what comes at once after a gap, which
/// would make all else flat.
const SHOWN: &str = "throughput-shown";

/// What claims are about, twice, and what it is compared with.
const SHORT: [&str; 3] = ["dunlin-quic", "dunlin-tls", "mosquitto-tls"];

pub(super) struct Migration;

/// How long and how much.
struct Size {
    connections: u32,
    /// Messages a second of each connection.
    rate: f64,
    between: Duration,
    keep_alive: u16,
}

fn size(scale: Scale) -> Size {
    match scale {
        Scale::Smoke => Size {
            connections: 10,
            rate: 10.0,
            between: Duration::from_secs(2),
            keep_alive: 1,
        },
        Scale::Short => Size {
            connections: CONNECTIONS,
            rate: 5.0,
            between: Duration::from_secs(5),
            keep_alive: 2,
        },
        Scale::Paper => Size {
            connections: CONNECTIONS,
            rate: 10.0,
            between: Duration::from_secs(240),
            keep_alive: 30,
        },
    }
}

impl Experiment for Migration {
    fn name(&self) -> &'static str {
        "kumar-migration"
    }

    fn about(&self) -> &'static str {
        "throughput, loss and reconnections while the subscriber's address changes three times"
    }

    fn source(&self) -> &'static str {
        "paper 000, Fig. 12"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (systems, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&SYSTEMS[..1], 1),
            Scale::Short => (&SHORT, 2),
            Scale::Paper => (&SYSTEMS, 3),
        };
        let mut cells = cells(self.name(), systems, &[], times);
        if scale == Scale::Short {
            cells.retain(|cell| cell.repetition == 0 || cell.system == SHORT[0]);
        }
        cells
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        0.7 + (size(scale).between * (MOVES + 1)).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let system = System::of(cell)?;
        let size = size(scale);
        let bed = Bed::start("wired", cell.seed, None)?;
        let mut broker = system.serve(lab, bed.namespace(BROKER)?, &Serving::default())?;
        let namespaces = (bed.namespace(PUBLISHER)?, bed.namespace(SUBSCRIBER)?);
        let server = (system, bed.address(BROKER)?);
        let load = Load {
            publishers: size.connections,
            topics: 1,
            rate: Some(size.rate),
            keep_alive: size.keep_alive,
            ..Load::of(size.between * (MOVES + 1))
        };
        // Mosquitto 2.0 overruns small ones when a session goes on.
        let more = ["--qos", "1", "--receive-maximum", "32000", "--samples"];
        let mut load = Generator::start(lab, namespaces, server, &load, &more)?;
        load.await_connected()?;
        let begun = Instant::now();
        let mut moves = Vec::new();
        for number in 0..MOVES {
            pause((size.between * (number + 1)).saturating_sub(begun.elapsed()))?;
            moves.push(begun.elapsed());
            let last = u8::try_from(number).unwrap_or_default();
            bed.subscriber_moves(Ipv4Addr::new(10, 203, 7, 100 + last))?;
        }
        let done = load.end();
        broker.runs()?;
        let done = done?;
        drop(broker);
        let mut outcome = outcome(&done, &moves, &size);
        outcome.invalid = bed.stop().or_else(|| validity::load(&done));
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let title = "Messages that arrived at the subscriber, which moved three times; \
                     what piled up meanwhile comes at once, and is cut off at twice the rate";
        vec![Figure::new("throughput", title, SHOWN, Kind::Course)]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let claim = |metric, unit, what: &str, paper: &str, most: f64, statistic| Claim {
            what: what.to_owned(),
            paper: paper.to_owned(),
            measured: Sample::of(records, &Pick::new("dunlin-quic", metric)).estimate(statistic),
            unit,
            target: Some(Target::AtMost(most)),
            reason: None,
            causes: Vec::new(),
        };
        let (most, mean) = (Statistic::Quantile(1.0), Statistic::Mean);
        let survive = "connections survive (Fig. 12)";
        let slight = "slight reduction (Fig. 12); over TCP throughput is zero for a while";
        let mut claims = vec![
            claim(
                "reconnections",
                "",
                "QUIC: reconnections of three moves",
                survive,
                0.0,
                most,
            ),
            claim(
                "lost",
                "messages",
                "QUIC: messages of QoS 1 lost",
                survive,
                0.0,
                most,
            ),
            claim(
                "dip",
                "%",
                "QUIC: throughput missing in the second after a move",
                slight,
                10.0,
                mean,
            ),
            claim(
                "gap",
                "ms",
                "QUIC: longest silence after a move",
                slight,
                1000.0,
                most,
            ),
        ];
        for (system, name) in [
            ("dunlin-tls", "Dunlin, TLS"),
            ("mosquitto-tls", "Mosquitto, TLS"),
        ] {
            claims.push(Claim {
                what: format!("{name}: longest silence after a move"),
                paper: "zero until the connection is established again (Fig. 12)".to_owned(),
                measured: Sample::of(records, &Pick::new(system, "gap")).estimate(mean),
                unit: "ms",
                target: None,
                reason: None,
                causes: Vec::new(),
            });
        }
        claims
    }
}

/// `moves` are times since the first message.
fn outcome(done: &Done, moves: &[Duration], size: &Size) -> Outcome {
    let first = done
        .samples
        .iter()
        .map(|(_, sent, _)| *sent)
        .min()
        .unwrap_or(0);
    let mut arrivals: Vec<Duration> = done
        .samples
        .iter()
        .map(|(_, _, arrived)| Duration::from_micros(arrived.saturating_sub(first)))
        .collect();
    arrivals.sort_unstable();
    let offered = f64::from(size.connections) * size.rate;
    let (mut gaps, mut dips) = (Vec::new(), Vec::new());
    for start in moves {
        let end = *start + size.between;
        gaps.push(longest_silence(&arrivals, *start, end).as_secs_f64() * 1e3);
        let came = count(&arrivals, *start, *start + SECOND);
        dips.push((1.0 - came / offered) * 100.0);
    }
    let course = course(&arrivals);
    Outcome {
        measures: vec![
            Measure {
                metric: "throughput".to_owned(),
                unit: "messages/s".to_owned(),
                series: course.clone(),
                ..Measure::default()
            },
            Measure {
                metric: SHOWN.to_owned(),
                unit: "messages/s".to_owned(),
                series: course
                    .into_iter()
                    .map(|(at, rate)| (at, rate.min(2.0 * offered)))
                    .collect(),
                ..Measure::default()
            },
            measure("gap", "ms", gaps),
            measure("dip", "%", dips),
            measure("lost", "messages", vec![float(done.lost)]),
            measure("doubled", "messages", vec![float(done.duplicated)]),
            measure("reconnections", "", vec![float(done.reconnections)]),
            measure("disconnections", "", vec![float(done.disconnections)]),
        ],
        notes: done
            .causes
            .iter()
            .map(|cause| format!("a connection ended: {cause}"))
            .collect(),
        ..Outcome::default()
    }
}

fn count(arrivals: &[Duration], start: Duration, end: Duration) -> f64 {
    let before = |time| arrivals.partition_point(|arrival| *arrival < time) as u64;
    float(before(end).saturating_sub(before(start)))
}

/// The longest time without an arrival that begins or ends in this time.
fn longest_silence(arrivals: &[Duration], start: Duration, end: Duration) -> Duration {
    arrivals
        .windows(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.last()?)))
        .filter(|(a, b)| *b >= start && *a < end)
        .map(|(a, b)| b - a)
        .max()
        .unwrap_or_else(|| end.saturating_sub(start))
}

fn course(arrivals: &[Duration]) -> Vec<(f64, f64)> {
    let Some(last) = arrivals.last() else {
        return Vec::new();
    };
    let mut course = Vec::new();
    let mut start = Duration::ZERO;
    // The last bin is not full.
    while start + BIN <= *last {
        let rate = count(arrivals, start, start + BIN) / BIN.as_secs_f64();
        course.push(((start + BIN / 2).as_secs_f64(), rate));
        start += BIN;
    }
    course
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_dips_are_found() {
        // 100 a second for four seconds, none from 1.5 s to 2.0 s.
        let samples: Vec<(u16, u64, u64)> = (0..400u64)
            .map(|number| 5_000 + number * 10_000)
            .filter(|at| !(1_500_000..2_000_000).contains(at))
            .map(|at| (0, at, at))
            .collect();
        let done = Done {
            samples,
            ..Done::default()
        };
        let size = Size {
            connections: 10,
            rate: 10.0,
            between: Duration::from_secs(2),
            keep_alive: 0,
        };
        let outcome = outcome(&done, &[Duration::from_millis(1400)], &size);
        let value = |metric: &str| {
            let found = outcome
                .measures
                .iter()
                .find(|measure| measure.metric == metric);
            found.unwrap().values[0]
        };
        assert!((value("gap") - 510.0).abs() < 1e-6, "{}", value("gap"));
        assert!((value("dip") - 50.0).abs() < 1.5, "{}", value("dip"));
        let series = &outcome.measures[0].series;
        assert_eq!(series.len(), 15);
        assert!((series[0].1 - 100.0).abs() < 1e-6);
        assert!(series[6].1 < 1e-6);
    }
}
