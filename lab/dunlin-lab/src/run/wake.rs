//! `wake`: a device wakes, publishes one message of QoS 1 and sleeps; what that
//! puts on the wire, and how long it takes until the broker has the message.

use core::time::Duration;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;
use serde_json::Value;

use super::bench::{Bench, measure, outcome};
use super::capture::{Captured, Packet};
use super::coap;
use super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic};
use super::systems::{Broker, Wire};
use crate::lab::{Lab, find};
use crate::process::output;

/// One message and back to sleep.
pub(crate) struct Wake;

/// With the clients that belong to the brokers: `dunlin pub`, `mosquitto_pub`,
/// `coap-client`.
const SYSTEMS: [&str; 9] = [
    "dunlin-quic",
    "dunlin-quic-0rtt",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "coap-con",
    "coap-non",
    "coap-dtls",
    "coap-dtls-psk",
];

/// Round trip of the link.
const RTT: Duration = Duration::from_millis(100);

/// Quiet time after which nothing more is expected on the link.
const QUIET: Duration = Duration::from_millis(700);

/// Round trips until the acknowledgement, unless the program does not tell;
/// and the time of the cycle in microseconds since 1970.
type Cycle = (Option<f64>, (u64, u64));

const fn cycles(scale: Scale) -> usize {
    match scale {
        Scale::Smoke => 1,
        Scale::Short => 7,
        Scale::Paper => 51,
    }
}

/// Why it may take longer.
const BUSY: &str = "Beside round trips there is the time that a program takes to start, and with \
    early data the time until the ticket is struck off on the broker's disk. On a busy machine \
    that is tens of milliseconds, and long enough for the client to send its datagram again.";

impl Experiment for Wake {
    fn name(&self) -> &'static str {
        "wake"
    }

    fn about(&self) -> &'static str {
        "packets, bytes and time of one wake-publish-sleep cycle"
    }

    fn source(&self) -> &'static str {
        "ours; compare paper 000, Table II"
    }

    fn plan(&self, _scale: Scale) -> Vec<Cell> {
        let factors: [(&str, &[&str]); 1] = [("rtt_ms", &["100"])];
        plan::cells(self.name(), &SYSTEMS, &factors, 1)
    }

    fn checked(&self, cell: &Cell) -> bool {
        !cell.system.starts_with("coap")
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        let cycles = u32::try_from(cycles(scale)).unwrap_or(u32::MAX);
        0.4 + f64::from(cycles + 1) * (QUIET + RTT * 3).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let path = lab.temporary("wake.pcapng");
        let delay = format!("delay={}ms", (RTT / 2).as_millis());
        let bench = Bench::start(lab, cell, &[delay], Some(path.clone()))?;
        // Warm-up, and for the ticket.
        output(publisher(&bench)?)?;
        let mut seen = Vec::new();
        thread::sleep(QUIET);
        for _ in 0..cycles(scale) {
            let from = epoch_us();
            let said = output(publisher(&bench)?)?;
            thread::sleep(QUIET);
            let acknowledged = match bench.system.broker {
                Broker::Libcoap => round_trips(&coap::Log::read(said.lines())),
                _ => acknowledged(&said)?,
            };
            seen.push((acknowledged, (from, epoch_us())));
        }
        let invalid = bench.finish(0)?;
        let captured = Captured::read(&path)?;
        let measures = measures(&captured, &seen);
        let _ = std::fs::remove_file(&path);
        Ok(outcome(measures, invalid))
    }

    fn figures(&self) -> Vec<Figure> {
        let bars = |id, title, metric| Figure::new(id, title, metric, Kind::Bars { x: "rtt_ms" });
        vec![
            bars("packets", "Packets of a cycle, both ways", "packets"),
            bars("sent", "Packets that the client sends", "packets-sent"),
            bars("bytes", "Bytes of a cycle, both ways", "bytes"),
            bars(
                "acknowledged",
                "Round trips until PUBACK",
                "acknowledged-rtts",
            ),
            bars("awake", "From the first packet to the last", "awake"),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let of = |system: &str, metric: &str| Sample::of(records, &Pick::new(system, metric));
        let mut rows = Vec::new();
        for (system, most) in [("dunlin-quic", 2.1), ("dunlin-quic-0rtt", 1.1)] {
            rows.push(Claim {
                what: format!("round trips until PUBACK: {system}"),
                paper: "ours: 2 with 1-RTT, 1 with 0-RTT".to_owned(),
                measured: of(system, "acknowledged-rtts").estimate(Statistic::Median),
                unit: "RTT",
                target: Some(Target::AtMost(most)),
                reason: Some(BUSY),
                causes: Vec::new(),
            });
        }
        rows.push(Claim {
            what: "packets that the client sends: dunlin-quic-0rtt".to_owned(),
            paper: "not measured".to_owned(),
            measured: of("dunlin-quic-0rtt", "packets-sent").estimate(Statistic::Median),
            unit: "packets",
            target: Some(Target::AtMost(5.0)),
            reason: Some(BUSY),
            causes: Vec::new(),
        });
        let ours = ["dunlin-quic-0rtt", "dunlin-quic"];
        let targets = [Some(Target::AtMost(-60.0)), None];
        for (metric, paper) in [
            (
                "packets",
                "-56 % at best, for the handshake (000, Table II)",
            ),
            ("bytes", "not measured"),
        ] {
            for (system, target) in ours.into_iter().zip(targets) {
                let base = of("mosquitto-tls", metric);
                rows.push(Claim {
                    what: format!("{metric} of a cycle: {system} against mosquitto-tls"),
                    paper: paper.to_owned(),
                    measured: of(system, metric).change(&base, Statistic::Median),
                    unit: "%",
                    target: target.filter(|_| metric == "packets"),
                    reason: Some(BUSY),
                    causes: Vec::new(),
                });
            }
        }
        // A device that speaks CoAP over DTLS has what ours has: a server that it
        // verified, and a reading that was acknowledged.
        for (system, base) in [
            ("dunlin-quic-0rtt", "coap-dtls"),
            ("dunlin-quic-0rtt", "coap-dtls-psk"),
            ("dunlin-quic", "coap-dtls"),
            ("dunlin-quic-0rtt", "coap-con"),
        ] {
            for metric in ["packets", "bytes", "acknowledged-rtts"] {
                let base_of = of(base, metric);
                rows.push(Claim {
                    what: format!("{metric} of a cycle: {system} against {base}"),
                    paper: "left as future work (002, 6.1.3)".to_owned(),
                    measured: of(system, metric).change(&base_of, Statistic::Median),
                    unit: "%",
                    target: None,
                    reason: None,
                    causes: Vec::new(),
                });
            }
        }
        rows
    }
}

/// The command line client of the broker's makers.
fn publisher(bench: &Bench<'_>) -> Result<Command> {
    let namespace = bench.emulator.namespace(Side::A);
    let ca = bench.lab.certificate("ca.pem");
    let mut command = match bench.system.broker {
        Broker::Libcoap => {
            let mut command = namespace.command(coap::client()?);
            let to = (Emulator::address(Side::B), "plant/7/temperature");
            bench.system.coap_request(&mut command, bench.lab, to);
            command.args(["-m", "put", "-e", "21.5"]);
            return Ok(command);
        }
        Broker::Mosquitto => {
            let program = find("mosquitto_pub")
                .context("mosquitto_pub is not installed: apt install mosquitto-clients")?;
            let mut command = namespace.command(program);
            command.args(["-h", &Emulator::address(Side::B).to_string(), "-V", "5"]);
            command.args(["-p", &bench.system.port().to_string()]);
            if bench.system.wire == Wire::Tls {
                command.args(["--tls-version", "tlsv1.3", "--cafile"]);
                command.arg(ca);
            }
            command
        }
        _ => {
            let mut command = bench.lab.dunlin(namespace);
            command.args(["pub", "--timing", "--url", &bench.url()]);
            if bench.system.wire != Wire::Tcp {
                command.arg("--cafile").arg(ca);
            }
            if bench.system.early {
                let tickets = bench.lab.temporary("wake-tickets");
                command.arg("--tickets").arg(tickets);
            }
            command
        }
    };
    command.args(["-i", "sleeper", "-t", "plant/7/temperature"]);
    command.args(["-m", "21.5", "-q", "1"]);
    Ok(command)
}

/// Round trips from the first packet of a client to the answer.
fn round_trips(log: &coap::Log) -> Option<f64> {
    let took = log.readings.first()?.answered? - log.begun?;
    Some(took.as_secs_f64() / RTT.as_secs_f64())
}

/// What `--timing` printed, in round trips.
fn acknowledged(said: &str) -> Result<Option<f64>> {
    let Some(line) = said.lines().last() else {
        return Ok(None);
    };
    let times: Value =
        serde_json::from_str(line).with_context(|| format!("--timing printed {line}"))?;
    let us = times.get("acknowledged_us").and_then(Value::as_f64);
    Ok(us.map(|us| us / 1e6 / RTT.as_secs_f64()))
}

fn measures(captured: &Captured, seen: &[Cycle]) -> Vec<super::record::Measure> {
    let [mut packets, mut sent, mut bytes, mut awake] = [const { Vec::new() }; 4];
    for (_, (from, to)) in seen {
        let within = |packet: &&Packet| (*from..*to).contains(&(packet.at / 1000));
        let of_client: Vec<&Packet> = captured.at("from-a").filter(within).collect();
        let of_broker: Vec<&Packet> = captured.at("from-b").filter(within).collect();
        let all = || of_client.iter().chain(&of_broker);
        let len = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        packets.push(len(all().count()));
        sent.push(len(of_client.len()));
        bytes.push(all().map(|packet| f64::from(packet.len)).sum());
        let times = || all().map(|packet| packet.at);
        if let (Some(first), Some(last)) = (times().min(), times().max()) {
            awake.push(Duration::from_nanos(last - first).as_secs_f64() * 1e3);
        }
    }
    let acknowledged = seen.iter().filter_map(|(rtts, _)| *rtts).collect();
    vec![
        measure("packets", "packets", packets),
        measure("packets-sent", "packets", sent),
        measure("bytes", "bytes", bytes),
        measure("awake", "ms", awake),
        measure("acknowledged-rtts", "RTT", acknowledged),
    ]
}

fn epoch_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
