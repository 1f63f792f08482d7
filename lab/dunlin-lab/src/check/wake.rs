//! A device wakes, publishes one message of QoS 1 and sleeps: round trips until
//! it is acknowledged, packets and bytes of the whole.

use core::time::Duration;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;
use serde_json::{Value, json};

use super::lab::{Lab, QUIC_PORT, TLS_PORT, find, valid};
use super::process::output;
use super::table::{Table, Target, figure, median};

/// Round trip of the link.
const RTT: Duration = Duration::from_millis(100);

/// Quiet time after which nothing more is expected on the link.
const QUIET: Duration = Duration::from_millis(700);

/// What one cycle took.
struct Cycle {
    /// Round trips until the acknowledgement; unknown of programs that do not
    /// tell.
    acknowledged: Option<f64>,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// Cycles of every system, in the order of the table.
struct Measured {
    full: Vec<Cycle>,
    /// The first one had no ticket yet, and is not here.
    resumed: Vec<Cycle>,
    over_tls: Vec<Cycle>,
    /// Empty where it is not installed.
    mosquitto: Vec<Cycle>,
}

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    let measured = measure(lab)?;
    judge(&mut table, "QUIC, no ticket", &measured.full, 2.1, None);
    judge(
        &mut table,
        "QUIC, with tickets",
        &measured.resumed,
        1.1,
        Some(5.0),
    );
    judge(
        &mut table,
        "TLS over TCP",
        &measured.over_tls,
        f64::NAN,
        None,
    );
    let name = "mosquitto_pub and mosquitto, TLS";
    if measured.mosquitto.is_empty() {
        table.skipped(name, "mosquitto or mosquitto_pub is not installed");
        return Ok(table);
    }
    judge(&mut table, name, &measured.mosquitto, f64::NAN, None);
    let saved = |cycles| 100.0 * (1.0 - total_packets(cycles) / total_packets(&measured.mosquitto));
    let what = "packets saved beside mosquitto, with tickets";
    table.row(what, saved(&measured.resumed), "%", Target::AtLeast(60.0));
    table.row(
        "packets saved beside mosquitto, without",
        saved(&measured.full),
        "%",
        Target::None,
    );
    Ok(table)
}

fn measure(lab: &Lab) -> Result<Measured> {
    let times = if lab.short { 3 } else { 11 };
    let b = Emulator::address(Side::B);
    let ca = lab.certificate("ca.pem").display().to_string();
    let quic = format!("quic://{b}:{QUIC_PORT}");
    let tls = format!("mqtts://{b}:{TLS_PORT}");
    let tickets = lab.temporary("tickets").display().to_string();
    let emulator = lab.link(&["delay=50ms"], "", Some(lab.out("wake.pcapng")))?;
    let message = [
        "-i",
        "sleeper",
        "-t",
        "plant/7/temperature",
        "-m",
        "21.5",
        "-q",
        "1",
    ];
    let dunlin = |url: &str, more: &[&str]| {
        let mut command = lab.dunlin(emulator.namespace(Side::A));
        command.args(["pub", "--url", url, "--cafile", &ca, "--timing"]);
        command.args(message).args(more);
        command
    };
    let broker = lab.broker(&emulator, &[])?;
    let full = cycles(times, &emulator, || dunlin(&quic, &[]))?;
    let resuming = || dunlin(&quic, &["--tickets", &tickets]);
    output(resuming()).context("the first connection with --tickets")?;
    let resumed = cycles(times, &emulator, resuming)?;
    let over_tls = cycles(times, &emulator, || dunlin(&tls, &[]))?;
    drop(broker);
    let mosquitto = match (lab.mosquitto(&emulator)?, find("mosquitto_pub")) {
        (Some(_server), Some(program)) => cycles(times, &emulator, || {
            let mut command = emulator.namespace(Side::A).command(&program);
            command.args(["-h", &b.to_string(), "-p", &TLS_PORT.to_string(), "-V", "5"]);
            command
                .args(["--cafile", &ca, "--tls-version", "tlsv1.3"])
                .args(message);
            command
        })?,
        _ => Vec::new(),
    };
    valid(&emulator.stop())?;
    Ok(Measured {
        full,
        resumed,
        over_tls,
        mosquitto,
    })
}

/// Packets of a cycle, both directions.
fn total_packets(cycles: &[Cycle]) -> f64 {
    of(cycles, |cycle| Some(figure(cycle.packets.iter().sum())))
}

fn of(cycles: &[Cycle], value: impl Fn(&Cycle) -> Option<f64>) -> f64 {
    let values: Vec<f64> = cycles.iter().filter_map(value).collect();
    median(&values)
}

/// The rows of one system. `rtts` is the target for round trips, if it is a
/// number, `datagrams` the one for packets of the client.
fn judge(table: &mut Table, name: &str, cycles: &[Cycle], rtts: f64, datagrams: Option<f64>) {
    let target = if rtts.is_nan() {
        Target::None
    } else {
        Target::AtMost(rtts)
    };
    let acknowledged = of(cycles, |cycle| cycle.acknowledged);
    if !acknowledged.is_nan() {
        let what = format!("{name}: round trips to PUBACK");
        table.row(&what, acknowledged, "RTT", target);
    }
    let sent = of(cycles, |cycle| Some(figure(cycle.packets[0])));
    let target = datagrams.map_or(Target::None, Target::AtMost);
    table.row(
        &format!("{name}: packets from the client"),
        sent,
        "",
        target,
    );
    let bytes = of(cycles, |cycle| Some(figure(cycle.bytes.iter().sum())));
    let what = format!("{name}: packets in all");
    table.row(&what, total_packets(cycles), "", Target::None);
    table.row(&format!("{name}: bytes in all"), bytes, "B", Target::None);
    let samples: Vec<Value> = cycles
        .iter()
        .map(|c| json!({"rtt": c.acknowledged, "packets": c.packets, "bytes": c.bytes}))
        .collect();
    table.note(json!({"what": format!("{name}: cycles"), "samples": samples}));
}

/// Runs a command again and again and counts what each time puts on the link.
fn cycles(times: usize, emulator: &Emulator, command: impl Fn() -> Command) -> Result<Vec<Cycle>> {
    let mut cycles = Vec::new();
    for _ in 0..times {
        thread::sleep(QUIET);
        let before = emulator.report();
        let said = output(command())?;
        thread::sleep(QUIET);
        let after = emulator.report();
        let timing = said.lines().last().unwrap_or_default();
        let acknowledged = if timing.is_empty() {
            None
        } else {
            let times: Value = serde_json::from_str(timing)
                .with_context(|| format!("--timing printed {timing}"))?;
            let us = times.get("acknowledged_us").and_then(Value::as_f64);
            us.map(|us| us / 1e6 / RTT.as_secs_f64())
        };
        cycles.push(Cycle {
            acknowledged,
            packets: [
                after.from_a.packets_in - before.from_a.packets_in,
                after.from_b.packets_in - before.from_b.packets_in,
            ],
            bytes: [
                after.from_a.bytes_in - before.from_a.bytes_in,
                after.from_b.bytes_in - before.from_b.bytes_in,
            ],
        });
    }
    Ok(cycles)
}
