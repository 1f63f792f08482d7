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

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    let times = if lab.short { 3 } else { 11 };
    let b = Emulator::address(Side::B);
    let ca = lab.certificate("ca.pem").display().to_string();
    let dunlin = |lab: &Lab, emulator: &Emulator, url: &str, more: &[&str]| {
        let mut command = lab.dunlin(emulator.namespace(Side::A));
        command.args(["pub", "--url", url, "--cafile", &ca, "--timing"]);
        command.args([
            "-i",
            "sleeper",
            "-t",
            "plant/7/temperature",
            "-m",
            "21.5",
            "-q",
            "1",
        ]);
        command.args(more);
        command
    };
    let quic = format!("quic://{b}:{QUIC_PORT}");
    let tls = format!("mqtts://{b}:{TLS_PORT}");
    let tickets = lab.temporary("tickets").display().to_string();

    let capture = Some(lab.out("wake.pcapng"));
    let emulator = lab.link(&["delay=50ms"], "", capture)?;
    let broker = lab.broker(&emulator, &[])?;
    let full = cycles(times, &emulator, || dunlin(lab, &emulator, &quic, &[]))?;
    let resumed = cycles(times + 1, &emulator, || {
        dunlin(lab, &emulator, &quic, &["--tickets", &tickets])
    });
    let over_tls = cycles(times, &emulator, || dunlin(lab, &emulator, &tls, &[]))?;
    drop(broker);
    let mosquitto = match (lab.mosquitto(&emulator)?, find("mosquitto_pub")) {
        (Some(server), Some(program)) => {
            let cycles = cycles(times, &emulator, || {
                let mut command = emulator.namespace(Side::A).command(&program);
                command.args(["-h", &b.to_string(), "-p", &TLS_PORT.to_string()]);
                command.args(["--cafile", &ca, "--tls-version", "tlsv1.3", "-V", "5"]);
                command.args(["-i", "sleeper", "-t", "plant/7/temperature"]);
                command.args(["-m", "21.5", "-q", "1"]);
                command
            })?;
            drop(server);
            Some(cycles)
        }
        _ => None,
    };
    valid(&emulator.stop())?;

    judge(&mut table, "QUIC, no ticket", &full, 2.1, None);
    let reference = mosquitto.as_deref().map(total_packets);
    match &resumed {
        // The first one had no ticket yet.
        Ok(cycles) => {
            let resumed = cycles.get(1..).unwrap_or_default();
            judge(&mut table, "QUIC, with tickets", resumed, 1.1, Some(5.0));
            if let Some(reference) = reference {
                let saved = 100.0 * (1.0 - total_packets(resumed) / reference);
                let what = "packets saved by QUIC with tickets beside mosquitto, TLS";
                table.row(what, saved, "%", Target::AtLeast(60.0));
            }
        }
        Err(error) => table.skipped("QUIC, with tickets", &format!("{error:#}")),
    }
    if let Some(reference) = reference {
        let saved = 100.0 * (1.0 - total_packets(&full) / reference);
        table.row("packets saved by QUIC without", saved, "%", Target::None);
    }
    judge(&mut table, "TLS over TCP", &over_tls, f64::NAN, None);
    match &mosquitto {
        Some(cycles) => judge(
            &mut table,
            "mosquitto_pub and mosquitto, TLS",
            cycles,
            f64::NAN,
            None,
        ),
        None => table.skipped(
            "mosquitto, TLS",
            "mosquitto or mosquitto_pub is not installed",
        ),
    }
    Ok(table)
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
