//! `kumar-handshake`: packets of an establishment of a connection.
//!
//! What counts: IP packets of the client's flow, in both directions, as its
//! own device saw them: what it sent, lost later or not, and what arrived.
//! From its first packet to the one that brings the SUBACK (subscriber) or the
//! CONNACK (publisher), both included; and with `packets-settled` until the
//! flow has gone quiet, which adds acknowledgements, the end of a handshake
//! whose CONNECT was early data, session tickets, connection ids and QUIC's
//! search for a larger packet size. The broker's count is what its device saw
//! of both clients in the same times. The paper says "packets exchanged during
//! connection establishment" and leaves out pings; here keep alive is off.
//!
//! A first connection of each client is not counted: it brings the session
//! ticket where there are tickets, and TCP's cache of the path.
//!
//! CoAP has no CONNECT. There it is until the first answer: of the subscriber to its
//! GET with Observe, of the publisher to a PUT, which is its first message, too.
//! Confirmable or not makes no difference to the count.

use core::time::Duration;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result};
use dunlin_link::linux::Namespace;
use serde::Deserialize;

use super::super::bed::{BROKER, Bed, PUBLISHER, SUBSCRIBER, TESTBEDS};
use super::super::capture::{Captured, Packet};
use super::super::coap;
use super::super::dialog::Dialog;
use super::super::experiment::{Claim, Experiment, Figure, Kind, PaperPoint, Target};
use super::super::plan::cells;
use super::super::record::{Cell, Measure, Outcome, Record, Scale};
use super::super::stats::{Pick, Statistic, float};
use super::super::systems::{Serving, System};
use super::{change, factor, measure};
use crate::lab::{Lab, find};
use crate::process::output;

const ROLES: [&str; 3] = [SUBSCRIBER, PUBLISHER, BROKER];

/// Packets by testbed and role: over TCP, over QUIC in one round trip, in none.
/// The paper gives percentages (Table II); these are the smallest counts that
/// give them.
const TABLE_II: [(&str, &str, f64, f64, f64); 9] = [
    ("wired", SUBSCRIBER, 19.0, 12.0, 10.0),
    ("wired", PUBLISHER, 15.0, 10.0, 8.0),
    ("wired", BROKER, 34.0, 22.0, 18.0),
    ("wireless", SUBSCRIBER, 27.0, 14.0, 12.0),
    ("wireless", PUBLISHER, 21.0, 12.0, 10.0),
    ("wireless", BROKER, 48.0, 25.0, 21.0),
    ("long-distance", SUBSCRIBER, 24.0, 13.0, 11.0),
    ("long-distance", PUBLISHER, 17.0, 11.0, 9.0),
    ("long-distance", BROKER, 40.0, 24.0, 20.0),
];

/// Why the subscriber's connection takes more.
const SUBSCRIBES: &str = "SUBSCRIBE leaves with CONNECT as early data, but the server says first \
                          what its handshake needs, in two or three datagrams, and acknowledges; \
                          what passes until the SUBACK has come is counted, too";

/// Why a full handshake saves less than in the paper.
const ONE_ROUND_TRIP: &str = "the paper's TLS was 1.2; TLS 1.3 saves a round trip over TCP, too, \
                              and QUIC as shipped sends connection ids, a ticket and probes for \
                              larger packets";

/// Why little is saved once everything is quiet.
const SETTLED: &str = "after CONNACK both ends finish the handshake and send connection ids, a \
                       session ticket, a probe for larger packets each and acknowledgements";

const SYSTEMS: [&str; 9] = [
    "dunlin-quic",
    "dunlin-quic-0rtt",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "mqttv5-quic",
    "coap-con",
    "coap-dtls",
    "coap-dtls-psk",
];

const SMOKE: [&str; 4] = ["dunlin-quic-0rtt", "mosquitto-tls", "coap-con", "coap-dtls"];

/// Longest wait for a connection, whose packets may be lost.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// What claims with a target are about: a short run has more of them.
const JUDGED: [&str; 2] = ["dunlin-quic-0rtt", "mosquitto-tls"];

/// Connections of each client that count.
fn times(cell: &Cell, scale: Scale) -> u32 {
    match scale {
        Scale::Smoke => 2,
        Scale::Short if JUDGED.contains(&&*cell.system) => 5,
        Scale::Short => 3,
        Scale::Paper => 10,
    }
}

pub(super) struct Handshake;

impl Experiment for Handshake {
    fn name(&self) -> &'static str {
        "kumar-handshake"
    }

    fn about(&self) -> &'static str {
        "packets that establish a connection, seen by subscriber, publisher and broker"
    }

    fn source(&self) -> &'static str {
        "paper 000, Fig. 9 and Table II"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (systems, testbeds, times): (&[&str], &[&str], u32) = match scale {
            Scale::Smoke => (&SMOKE, &TESTBEDS[..1], 1),
            Scale::Short => (&SYSTEMS, &TESTBEDS, 2),
            Scale::Paper => (&SYSTEMS, &TESTBEDS, 10),
        };
        let mut cells = cells(self.name(), systems, &[("testbed", testbeds)], times);
        if scale == Scale::Short {
            cells.retain(|cell| cell.repetition == 0 || JUDGED.contains(&&*cell.system));
        }
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        // Both waits, and some round trips; one time more for the warm-up.
        let each = match cell.factor("testbed") {
            "long-distance" => 1.1,
            _ => 0.36,
        };
        0.6 + f64::from(times(cell, scale) + 1) * each
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let system = System::of(cell)?;
        let times = times(cell, scale);
        let name = format!("{}-{}", cell.system, cell.factor("testbed"));
        // One of each kind is enough to look at.
        let place = |name: String| match cell.repetition {
            0 => lab.out(&name),
            _ => lab.temporary(&name),
        };
        let capture = place(format!("{name}.pcapng"));
        let keys = place(format!("{name}.keys"));
        let bed = Bed::start(cell.factor("testbed"), cell.seed, Some(capture.clone()))?;
        let mut broker = system.serve(lab, bed.namespace(BROKER)?, &Serving::default())?;
        let address = bed.address(BROKER)?;
        let settle = settle(cell.factor("testbed"));
        let connect = |role: &str, namespace: &Namespace| -> Result<Vec<Connected>> {
            let name = if role == SUBSCRIBER { "sub" } else { "pub" };
            let mut command = system.client(lab, address, name, role);
            // What a publisher of CoAP publishes is not what the subscriber observes.
            command.args(["-t", name, "-i", role, "-k", "0", "-d", "--timing"]);
            if name == "pub" {
                command.arg("-l");
            }
            command.env("SSLKEYLOGFILE", &keys);
            let sign = Sign::of(system, name == "sub");
            let mut one = || connect_once(namespace, &mut command, sign, settle);
            one()?;
            (0..times).map(|_| one()).collect()
        };
        let (subscriber, publisher) = (bed.namespace(SUBSCRIBER)?, bed.namespace(PUBLISHER)?);
        let (subscribed, published) = thread::scope(|scope| {
            let other = scope.spawn(|| connect(SUBSCRIBER, subscriber));
            let published = connect(PUBLISHER, publisher);
            (other.join(), published)
        });
        broker.runs()?;
        let subscribed = subscribed.ok().context("a thread failed")??;
        let published = published?;
        drop(broker);
        let invalid = bed.stop();
        if invalid.is_some() {
            return Ok(Outcome {
                invalid,
                ..Outcome::default()
            });
        }
        let captured = Captured::read(&capture)?;
        let mut outcome = count(&captured, [&subscribed, &published]);
        if cell.repetition == 0 {
            cross_check(&capture, &captured, &mut outcome)?;
        } else {
            for path in [capture, keys] {
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let paper = TABLE_II.iter().flat_map(|(testbed, role, tcp, one, none)| {
            let point = |series, value| PaperPoint {
                series,
                facet: Some(*role),
                x: testbed,
                value,
            };
            [
                point("paper: MQTT over TCP", *tcp),
                point("paper: MQTT over QUIC, 1-RTT", *one),
                point("paper: MQTT over QUIC, 0-RTT", *none),
            ]
        });
        let bars = |id, title, metric, paper| Figure {
            facet: Some("role"),
            paper,
            ..Figure::new(id, title, metric, Kind::Bars { x: "testbed" })
        };
        vec![
            bars(
                "packets",
                "Packets until the client has its CONNACK, or SUBACK",
                "packets",
                paper.collect(),
            ),
            bars(
                "packets-settled",
                "Packets until the connection has gone quiet",
                "packets-settled",
                Vec::new(),
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (testbed, role, tcp, one, none) in TABLE_II {
            let settled = " until quiet";
            for (ours, name, metric, until, paper, target) in [
                (
                    "dunlin-quic-0rtt",
                    "0-RTT",
                    "packets",
                    "",
                    none,
                    Some(-60.0),
                ),
                ("dunlin-quic", "1-RTT", "packets", "", one, None),
                (
                    "dunlin-quic-0rtt",
                    "0-RTT",
                    "packets-settled",
                    settled,
                    none,
                    None,
                ),
            ] {
                let pick = |system| {
                    Pick::new(system, metric)
                        .at("testbed", testbed)
                        .at("role", role)
                };
                let said = (paper / tcp - 1.0) * 100.0;
                let claim = change(
                    records,
                    format!(
                        "packets of a handshake{until}, {testbed}, {role}: {name} against Mosquitto over TLS"
                    ),
                    format!("{said:.1} % (Table II)"),
                    [&pick(ours), &pick("mosquitto-tls")],
                    Statistic::Median,
                    target.map(Target::AtMost),
                );
                // Most of the broker's packets are the subscriber's.
                let subscribes = role != PUBLISHER;
                let reason = match (ours, metric) {
                    (_, "packets-settled") => Some(SETTLED),
                    ("dunlin-quic", _) => Some(ONE_ROUND_TRIP),
                    _ => subscribes.then_some(SUBSCRIBES),
                };
                claims.push(Claim { reason, ..claim });
            }
        }
        claims.extend(beside_coap(records));
        claims
    }
}

/// Rows that are no claims of the paper.
fn beside_coap(records: &[Record]) -> Vec<Claim> {
    let mut rows = Vec::new();
    for (testbed, role, ..) in TABLE_II {
        let what = format!("packets until the first answer, {testbed}, {role}");
        for ours in ["dunlin-quic-0rtt", "dunlin-quic"] {
            let pick = |system: &str| {
                Pick::new(system, "packets")
                    .at("testbed", testbed)
                    .at("role", role)
            };
            rows.extend(coap::beside(records, ours, &what, Statistic::Median, pick));
        }
    }
    rows
}

/// Several round trips, and longer than acknowledgements are delayed.
fn settle(testbed: &str) -> Duration {
    Duration::from_millis(match testbed {
        "long-distance" => 450,
        _ => 200,
    })
}

/// What shows that a client is ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sign {
    Connected,
    Subscribed,
    /// A first line that it published has its answer.
    Answered,
}

impl Sign {
    const fn of(system: &System, subscribes: bool) -> Self {
        match (subscribes, system.coap) {
            (true, _) => Self::Subscribed,
            (false, Some(_)) => Self::Answered,
            (false, None) => Self::Connected,
        }
    }
}

/// When a connection got how far, in microseconds since 1970.
struct Connected {
    begun: u64,
    /// CONNACK was there, or SUBACK of a subscriber.
    ready: u64,
    /// Before DISCONNECT, long after the last packet.
    settled: u64,
}

/// What `--timing` prints, as far as it is read.
#[derive(Deserialize)]
struct Timing {
    start_unix_us: u64,
    connected_us: u64,
    subscribed_us: Option<u64>,
    acknowledged_us: Option<u64>,
}

impl Timing {
    /// Since the start.
    fn ready_us(&self, sign: Sign) -> u64 {
        let ready = match sign {
            Sign::Connected => None,
            Sign::Subscribed => self.subscribed_us,
            Sign::Answered => self.acknowledged_us,
        };
        ready.unwrap_or(self.connected_us)
    }
}

/// Connects once, and stays until the flow has gone quiet.
fn connect_once(
    namespace: &Namespace,
    command: &mut Command,
    sign: Sign,
    settle: Duration,
) -> Result<Connected> {
    let mut client = Dialog::start(namespace, command)?;
    if sign == Sign::Answered {
        client.give("21.5")?;
    }
    let line = match sign {
        Sign::Connected => "CONNACK",
        Sign::Subscribed => "Subscribed",
        Sign::Answered => "Answered",
    };
    client.await_line(line, CONNECT_MAX)?;
    thread::sleep(settle);
    let settled = UNIX_EPOCH.elapsed()?.as_micros();
    let said = client.leave(sign != Sign::Subscribed)?;
    let timing: Timing =
        serde_json::from_str(&said).with_context(|| format!("a client's timing is {said}"))?;
    // DISCONNECT leaves sooner than everything else.
    thread::sleep(settle / 2);
    Ok(Connected {
        begun: timing.start_unix_us,
        ready: timing.start_unix_us + timing.ready_us(sign),
        settled: u64::try_from(settled)?,
    })
}

/// Counts for each role, a value for each iteration.
fn count(captured: &Captured, connected: [&[Connected]; 2]) -> Outcome {
    let mut measures: Vec<Measure> = Vec::new();
    for metric in ["packets", "packets-settled"] {
        let mut both: Vec<f64> = Vec::new();
        for (role, connected) in [SUBSCRIBER, PUBLISHER].into_iter().zip(connected) {
            let (from, to) = (format!("from-{role}"), format!("to-{role}"));
            let sent: Vec<Packet> = captured.at(&from).copied().collect();
            let arrived: Vec<Packet> = captured.at(&to).copied().collect();
            let address = sent.first().map(|packet| packet.source);
            let of_client = |packet: &&Packet| {
                Some(packet.source) == address || Some(packet.destination) == address
            };
            let at_broker: Vec<Packet> = captured
                .of_host(BROKER)
                .filter(of_client)
                .copied()
                .collect();
            let mut own = Vec::new();
            both.resize(both.len().max(connected.len()), 0.0);
            for (one, sum) in connected.iter().zip(&mut both) {
                let window = match metric {
                    "packets" => until_ready(&arrived, one),
                    _ => (one.begun * 1000, one.settled * 1000),
                };
                own.push(within(&sent, window) + within(&arrived, window));
                *sum += within(&at_broker, window);
            }
            measures.push(of_role(metric, role, own));
        }
        measures.push(of_role(metric, BROKER, both));
    }
    Outcome {
        measures,
        ..Outcome::default()
    }
}

fn of_role(metric: &str, role: &str, values: Vec<f64>) -> Measure {
    Measure {
        factors: factor("role", role),
        ..measure(metric, "packets", values)
    }
}

/// From the beginning to the last arrival before the application was reply, in
/// nanoseconds: what the client answers at once is after it.
fn until_ready(arrived: &[Packet], one: &Connected) -> (u64, u64) {
    let (begin, end) = (one.begun * 1000, one.ready * 1000);
    let times = arrived.iter().map(|packet| packet.at);
    let last = times.filter(|at| (begin..=end).contains(at)).max();
    (begin, last.unwrap_or(begin))
}

fn within(packets: &[Packet], (begin, end): (u64, u64)) -> f64 {
    let inside = |packet: &&Packet| (begin..=end).contains(&packet.at);
    float(packets.iter().filter(inside).count() as u64)
}

/// Asks tshark whether it reads the same from the capture.
fn cross_check(path: &Path, captured: &Captured, outcome: &mut Outcome) -> Result<()> {
    let Some(tshark) = find("tshark") else {
        let note = "counts were not checked: tshark is not installed (apt install tshark)";
        outcome.notes.push(note.to_owned());
        return Ok(());
    };
    let mut command = Command::new(tshark);
    command.arg("-r").arg(path);
    command.args([
        "-T",
        "fields",
        "-e",
        "frame.interface_name",
        "-e",
        "frame.time_epoch",
    ]);
    let said = output(command)?;
    for role in ROLES {
        let (from, to) = (format!("from-{role}"), format!("to-{role}"));
        let of_role = |line: &&str| {
            let place = line.split('\t').next();
            place == Some(&*from) || place == Some(&*to)
        };
        let theirs = said.lines().filter(of_role).count();
        let ours = captured.of_host(role).count();
        if theirs != ours {
            outcome.invalid = Some(format!(
                "tshark counts {theirs} packets at the {role}, not {ours}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sign_has_its_time() {
        let said = r#"{"start_unix_us":7,"connected_us":10,"acknowledged_us":30,
            "all_acknowledged_us":40}"#;
        let timing: Timing = serde_json::from_str(said).unwrap();
        assert_eq!(timing.ready_us(Sign::Connected), 10);
        assert_eq!(timing.ready_us(Sign::Answered), 30);
        let said = r#"{"start_unix_us":7,"connected_us":0,"subscribed_us":20}"#;
        let timing: Timing = serde_json::from_str(said).unwrap();
        assert_eq!(timing.ready_us(Sign::Subscribed), 20);
    }
}
