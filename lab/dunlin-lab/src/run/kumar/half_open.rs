//! `kumar-half-open`: what connections cost whose clients are gone without a
//! word.
//!
//! 100 connections of publishers with keep alive off, one message a second
//! each; then their host vanishes, and after a while it is back and they
//! connect again with other client identifiers, as devices that were restarted
//! and let the library choose one. The course has the broker's resident
//! memory, its processor time and, where that can be seen, its connections.
//!
//! QUIC ends a connection after a silence that both ends agree on; for Dunlin
//! that is `limits.idle_timeout`, a day as shipped, here 30 s as in the paper
//! (4 s in the short form). TCP has no such time of its own, and the brokers
//! over TLS are as shipped. (Dunlin's limit would end them too.) CoAP has no
//! connections. What a server of libcoap keeps of a client, a session of DTLS above
//! all, goes after five minutes without a packet, for which `coap-server` has no
//! setting.

use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context as _, Result};
use dunlin_link::linux::Namespace;

use super::super::bed::{BROKER, Bed, PUBLISHER, SUBSCRIBER};
use super::super::coap;
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::generator::Generator;
use super::super::interrupt::pause;
use super::super::load::Load;
use super::super::plan::cells;
use super::super::record::{Cell, Measure, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic, float};
use super::super::systems::{Broker, Serving, System, Wire};
use super::{factor, measure};
use crate::lab::{Lab, TLS_PORT};
use crate::process::{Server, memory as memory_of};

/// Between two readings.
const LOOK: Duration = Duration::from_millis(500);

/// Readings at the beginning of a phase that are not in its figure.
const FIRST_READINGS: usize = 3;

/// Why resident memory does not fall.
const MEMORY: &str = "the connections are gone, and part of their memory is back at the system, \
                      the rest waits for those that come; a connection takes more over QUIC than \
                      over TLS, as the process holds what the kernel holds for TCP, which no \
                      process is charged for; of all memory an idle broker is the most";

/// Why processor time does not differ.
const PROCESSOR: &str = "a connection on which nothing comes costs neither broker any processor \
                         time worth measuring, so there is none to save; when publishers are \
                         back, QUIC's encryption packet by packet costs more than TLS";

/// After the idle timeout, until what it ended is gone; Dunlin waits five
/// seconds before it gives memory back to the system.
const MARGIN: Duration = Duration::from_secs(7);

/// Where Dunlin shows its connections.
const METRICS: &str = "127.0.0.1:9464";

/// Longest wait for that.
const METRICS_WAIT: Duration = Duration::from_secs(2);

const SYSTEMS: [&str; 6] = [
    "dunlin-quic",
    "dunlin-tls",
    "mosquitto-tls",
    "coap-con",
    "coap-dtls",
    "mqttv5-quic",
];

/// What QUIC is to take beside TLS, in percent.
const MEMORY_MOST: f64 = -50.0;
const PROCESSOR_MOST: f64 = -83.0;

const BASES: [(&str, &str); 2] = [
    ("dunlin-tls", "Dunlin over TLS"),
    ("mosquitto-tls", "Mosquitto over TLS"),
];

/// The row that isolates the processor time of connections: what there is to save. Part
/// of it is the broker's answers about its connections, twice a second, of Dunlin only.
fn to_save(name: &str) -> String {
    format!("processor after publishers vanished, {name}: of one core")
}

/// Percent of a core that are nothing to save.
const NOTHING: f64 = 0.1;

/// Repetitions in a short run of what claims are about.
const SHORT_TIMES: u32 = 5;

pub(super) struct HalfOpen;

/// How many, and how long each phase is.
pub(crate) struct Size {
    pub(crate) connections: u32,
    /// Before anybody connects.
    pub(crate) idle: Duration,
    pub(crate) publishing: Duration,
    pub(crate) idle_timeout: Duration,
    /// After the idle timeout.
    pub(crate) vanished: Duration,
    /// After the publishers have come back; 0 if they do not.
    pub(crate) restarted: Duration,
}

impl Size {
    /// How long it takes, with a network and a server.
    pub(crate) fn seconds(&self) -> f64 {
        let gone = self.idle_timeout + MARGIN + self.vanished;
        1.2 + (self.idle + self.publishing + gone + self.restarted).as_secs_f64()
    }
}

/// The experiment that isolates causes, and its claim.
pub(crate) const CAUSES: &str = "cause-half-open";
pub(crate) const ONE_LEAVES: &str =
    "memory beyond that of an idle broker after QUIC publishers vanished: 1 against 100";

fn size(scale: Scale) -> Size {
    let seconds = Duration::from_secs;
    match scale {
        Scale::Smoke => Size {
            connections: 10,
            idle: seconds(2),
            publishing: seconds(2),
            idle_timeout: seconds(2),
            vanished: seconds(2),
            restarted: seconds(2),
        },
        Scale::Short => Size {
            connections: 100,
            idle: seconds(3),
            publishing: seconds(4),
            idle_timeout: seconds(4),
            vanished: seconds(3),
            restarted: seconds(3),
        },
        Scale::Paper => Size {
            connections: 100,
            idle: seconds(30),
            publishing: seconds(120),
            idle_timeout: seconds(30),
            vanished: seconds(90),
            restarted: seconds(120),
        },
    }
}

impl Experiment for HalfOpen {
    fn name(&self) -> &'static str {
        "kumar-half-open"
    }

    fn about(&self) -> &'static str {
        "memory and processor time of the broker after 100 connections have vanished"
    }

    fn source(&self) -> &'static str {
        "paper 000, Fig. 10 and 11"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (systems, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&["dunlin-quic", "coap-dtls"], 1),
            Scale::Short => (&SYSTEMS[..5], SHORT_TIMES),
            Scale::Paper => (&SYSTEMS, 3),
        };
        let mut cells = cells(self.name(), systems, &[], times);
        // No claim is about CoAP.
        cells.retain(|cell| {
            scale != Scale::Short || cell.repetition == 0 || SYSTEMS[..3].contains(&&*cell.system)
        });
        cells
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        size(scale).seconds()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        measured(cell, &size(scale), lab)
    }

    fn figures(&self) -> Vec<Figure> {
        let course = |id, title, metric| Figure::new(id, title, metric, Kind::Course);
        let bars = |id, title, metric| Figure::new(id, title, metric, Kind::Bars { x: "phase" });
        vec![
            course(
                "memory",
                "Memory of the broker; publishers vanish",
                "memory-course",
            ),
            course(
                "memory-growth",
                "Memory of the broker beyond that of an idle one; publishers vanish",
                "growth-course",
            ),
            bars(
                "memory-phases",
                "Memory of the broker beyond that of an idle one",
                "memory-of-clients",
            ),
            course(
                "processor",
                "Processor time of the broker; publishers vanish",
                "processor-course",
            ),
            course(
                "connections",
                "Connections that the broker holds; publishers vanish",
                "connections-course",
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |system, metric| values(records, system, metric, "vanished");
        let median = Statistic::Median;
        let mut claims = against_tls(records);
        for (base, name) in BASES {
            claims.push(Claim {
                what: to_save(name),
                paper: "not said".to_owned(),
                measured: sample(base, "processor").estimate(median),
                unit: "%",
                target: Some(Target::AtMost(NOTHING)),
                reason: None,
                causes: Vec::new(),
            });
        }
        for (system, name) in [("dunlin-quic", "QUIC"), ("dunlin-tls", "TLS")] {
            claims.push(Claim {
                what: format!("{name}: connections that Dunlin holds after publishers vanished"),
                paper: "QUIC releases them, TCP keeps them (section IV-C)".to_owned(),
                measured: sample(system, "connections").estimate(median),
                unit: "",
                // The subscriber is still there.
                target: (system == "dunlin-quic").then_some(Target::AtMost(1.0)),
                reason: None,
                causes: Vec::new(),
            });
        }
        claims.extend(beside_coap(records));
        claims
    }
}

/// A broker before, while and after publishers are there.
pub(crate) fn measured(cell: &Cell, size: &Size, lab: &Lab) -> Result<Outcome> {
    let system = System::of(cell)?;
    let bed = Bed::start("wired", cell.seed, None)?;
    let namespace = bed.namespace(BROKER)?;
    let mut serving = Serving::default();
    if system.broker == Broker::Dunlin {
        serving.settings.push(format!("metrics.address={METRICS}"));
    }
    if system.wire == Wire::Quic {
        serving.idle_timeout = Some(size.idle_timeout);
    }
    let broker = system.serve(lab, namespace, &serving)?;
    let mut watch = Watch::new(system, namespace, broker);
    watch.phase("idle", size.idle)?;
    let load = || -> Result<Generator> {
        let namespaces = (bed.namespace(PUBLISHER)?, bed.namespace(SUBSCRIBER)?);
        let server = (system, bed.address(BROKER)?);
        let load = Load {
            publishers: size.connections,
            topics: 1,
            rate: Some(1.0),
            expiry: Duration::ZERO,
            keep_alive: 0,
            ..Load::of(Duration::from_secs(3600))
        };
        let more = ["--sub-keep-alive", "2"];
        let mut load = Generator::start(lab, namespaces, server, &load, &more)?;
        load.await_connected()?;
        Ok(load)
    };
    let first = load()?;
    watch.phase("publishing", size.publishing)?;

    // What their kernel says for them is not heard.
    bed.publisher_loses("all")?;
    first.kill()?;
    watch.wait(size.idle_timeout + MARGIN)?;
    watch.phase("vanished", size.vanished)?;

    if !size.restarted.is_zero() {
        bed.publisher_loses("none")?;
        let second = load()?;
        watch.phase("restarted", size.restarted)?;
        second.kill()?;
    }
    let mut outcome = watch.outcome();
    outcome.invalid = bed.stop();
    Ok(outcome)
}

/// Values of a system in a phase.
fn values(records: &[Record], system: &str, metric: &str, phase: &str) -> Sample {
    Sample::of(records, &Pick::new(system, metric).at("phase", phase))
}

/// QUIC against TLS, after the publishers have vanished and after they came back.
fn against_tls(records: &[Record]) -> Vec<Claim> {
    let median = Statistic::Median;
    let mut claims = Vec::new();
    for (metric, what, paper, most) in [
        // What connections cost is what the claim is about: how much an
        // idle broker takes is another matter.
        (
            "memory-of-clients",
            "memory beyond that of an idle broker",
            "-45.5 % to -50.3 %, of all memory (Fig. 10)",
            Some(MEMORY_MOST),
        ),
        // Without what it maps of its program and loads when it is first used.
        (
            "private-of-clients",
            "memory that no file is behind beyond that of an idle broker",
            "-45.5 % to -50.3 %, of all memory (Fig. 10)",
            Some(MEMORY_MOST),
        ),
        ("memory", "all memory", "-45.5 % to -50.3 % (Fig. 10)", None),
        (
            "processor",
            "processor",
            "-74.7 % to -83.2 % (Fig. 11)",
            Some(PROCESSOR_MOST),
        ),
    ] {
        for (base, name) in BASES {
            for (phase, when) in [
                ("vanished", "after publishers vanished"),
                ("restarted", "after they came back"),
            ] {
                if (metric, phase) == ("private-of-clients", "restarted") {
                    continue;
                }
                let ours = values(records, "dunlin-quic", metric, phase);
                let claim = Claim {
                    what: format!("{what} {when}: QUIC against {name}"),
                    paper: paper.to_owned(),
                    measured: ours.change(&values(records, base, metric, phase), median),
                    unit: "%",
                    target: most.filter(|_| phase == "vanished").map(Target::AtMost),
                    reason: match metric {
                        "processor" => Some(PROCESSOR),
                        _ => Some(MEMORY),
                    },
                    causes: Vec::new(),
                };
                claims.push(match (metric, claim.target) {
                    ("memory-of-clients" | "private-of-clients", Some(_)) => {
                        claim.because(CAUSES, ONE_LEAVES.to_owned())
                    }
                    ("processor", Some(_)) => claim.because(HalfOpen.name(), to_save(name)),
                    _ => claim,
                });
            }
        }
    }
    claims
}

/// Rows that are no claims of the paper.
fn beside_coap(records: &[Record]) -> Vec<Claim> {
    let mut rows = Vec::new();
    for (metric, what) in [
        ("memory-of-clients", "memory beyond that of an idle server"),
        ("memory", "all memory"),
        ("processor", "processor"),
    ] {
        let what = format!("{what} after publishers vanished");
        let pick = |system: &str| Pick::new(system, metric).at("phase", "vanished");
        let ours = "dunlin-quic";
        rows.extend(coap::beside(records, ours, &what, Statistic::Median, pick));
    }
    rows
}

/// What a broker needs at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// MiB.
    memory: f64,
    /// MiB that no file is behind.
    private: f64,
    /// Percent of one core since the last reading.
    processor: f64,
    connections: Option<f64>,
}

/// A broker that is looked at again and again.
struct Watch<'a> {
    system: &'a System,
    namespace: &'a Namespace,
    broker: Server,
    start: Instant,
    before: (Instant, Duration),
    readings: Vec<(f64, Reading)>,
    phases: Vec<(&'static str, Reading)>,
}

impl<'a> Watch<'a> {
    fn new(system: &'a System, namespace: &'a Namespace, broker: Server) -> Self {
        let now = Instant::now();
        Self {
            system,
            namespace,
            before: (now, broker.processor().unwrap_or_default()),
            broker,
            start: now,
            readings: Vec::new(),
            phases: Vec::new(),
        }
    }

    /// Looks for this time, and keeps what it was like under a name.
    fn phase(&mut self, name: &'static str, time: Duration) -> Result<()> {
        let first = self.readings.len();
        self.wait(time)?;
        let readings = self.readings.get(first..).unwrap_or_default();
        let steady = readings.get(FIRST_READINGS..).unwrap_or_default();
        let reading = mean(if steady.is_empty() { readings } else { steady });
        self.phases.push((name, reading));
        Ok(())
    }

    /// Looks for this time.
    fn wait(&mut self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            pause(LOOK)?;
            self.broker.runs()?;
            let (memory, _) = self.broker.memory()?;
            let (now, used) = (Instant::now(), self.broker.processor()?);
            let share = (used.saturating_sub(self.before.1)).as_secs_f64()
                / (now - self.before.0).as_secs_f64();
            self.before = (now, used);
            let private = memory_of(self.broker.id(), "RssAnon:")?;
            let mib = |bytes| float(bytes) / 1024.0 / 1024.0;
            let reading = Reading {
                memory: mib(memory),
                private: mib(private),
                processor: share * 100.0,
                connections: self.connections(),
            };
            self.readings
                .push((self.start.elapsed().as_secs_f64(), reading));
        }
        Ok(())
    }

    fn connections(&self) -> Option<f64> {
        match (self.system.broker, self.system.wire) {
            (Broker::Dunlin, _) => self.namespace.within(metrics).ok()?.ok(),
            (_, Wire::Tls) => self.established(),
            _ => None,
        }
    }

    /// Established connections of the namespace, as `ss -a` would show them.
    fn established(&self) -> Option<f64> {
        let port = format!(":{TLS_PORT:04X}");
        let table = format!("/proc/{}/net/tcp", self.broker.id());
        let count = |table: &str| {
            let text = std::fs::read_to_string(table).ok()?;
            let held = text.lines().filter(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let local = fields.next().is_some_and(|local| local.ends_with(&port));
                local && fields.nth(1) == Some("01")
            });
            Some(held.count() as u64)
        };
        Some(float(count(&table)? + count(&(table + "6")).unwrap_or(0)))
    }

    fn outcome(self) -> Outcome {
        let course = |metric: &str, unit: &str, value: fn(&Reading) -> Option<f64>| Measure {
            series: self
                .readings
                .iter()
                .filter_map(|(at, reading)| Some((*at, value(reading)?)))
                .collect(),
            ..measure(metric, unit, Vec::new())
        };
        let mut measures = vec![
            course("memory-course", "MiB", |reading| Some(reading.memory)),
            course("processor-course", "%", |reading| Some(reading.processor)),
            course("connections-course", "connections", |reading| {
                reading.connections
            }),
        ];
        let idle = self.phases.first().map(|(_, reading)| *reading);
        if let Some(idle) = idle {
            let growth =
                |(at, reading): &(f64, Reading)| (*at, (reading.memory - idle.memory).max(0.0));
            measures.push(Measure {
                series: self.readings.iter().map(growth).collect(),
                ..measure("growth-course", "MiB", Vec::new())
            });
        }
        for (phase, reading) in &self.phases {
            let beyond = |value: fn(&Reading) -> f64| {
                let idle = idle.filter(|_| *phase != "idle")?;
                Some((value(reading) - value(&idle)).max(0.0))
            };
            for (metric, unit, value) in [
                ("memory", "MiB", Some(reading.memory)),
                ("memory-of-clients", "MiB", beyond(|reading| reading.memory)),
                (
                    "private-of-clients",
                    "MiB",
                    beyond(|reading| reading.private),
                ),
                ("processor", "%", Some(reading.processor)),
                ("connections", "", reading.connections),
            ] {
                // What is not there has no place in a figure either.
                measures.extend(value.map(|value| Measure {
                    factors: factor("phase", phase),
                    ..measure(metric, unit, vec![value])
                }));
            }
        }
        Outcome {
            measures,
            ..Outcome::default()
        }
    }
}

/// Means, but of connections the last.
fn mean(readings: &[(f64, Reading)]) -> Reading {
    let count = float(readings.len() as u64);
    let mean = |value: fn(&Reading) -> f64| {
        readings
            .iter()
            .map(|(_, reading)| value(reading))
            .sum::<f64>()
            / count
    };
    Reading {
        memory: mean(|reading| reading.memory),
        private: mean(|reading| reading.private),
        processor: mean(|reading| reading.processor),
        connections: readings.last().and_then(|(_, reading)| reading.connections),
    }
}

/// Connections as Dunlin counts them; runs in its namespace.
fn metrics() -> Result<f64> {
    let mut stream = TcpStream::connect(METRICS)?;
    stream.set_read_timeout(Some(METRICS_WAIT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let counts = said
        .lines()
        .filter(|line| line.starts_with("dunlin_net_connections{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    let all: f64 = counts.sum();
    said.contains("dunlin_net_connections{")
        .then_some(all)
        .context("no connections in the metrics")
}
