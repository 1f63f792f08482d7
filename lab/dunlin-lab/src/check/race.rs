//! A firewall drops UDP: a client that would rather use QUIC must not be much
//! slower than one that uses TLS over TCP, must remember, and must come back
//! to QUIC when UDP gets through again.

use core::time::Duration;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::{Emulator, Namespace};
use serde_json::{Value, json};

use super::lab::{Lab, QUIC_PORT, find, valid};
use super::process::output;
use super::table::{Table, Target, figure, median, quantile};
use crate::racer::Raced;

/// How much longer it may take than TLS alone.
const RATIO_MAX: f64 = 1.5;

/// A client that is on TLS tries QUIC after this time.
const PROBE_AFTER: &str = "1s";

/// UDP gets through again so long after that client connected.
const OPEN_AFTER: Duration = Duration::from_millis(1500);

/// How the firewall refuses.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// Says nothing.
    Drop,
    /// Tells the sender by ICMP.
    Reject,
}

impl Verdict {
    const ALL: [Self; 2] = [Self::Drop, Self::Reject];

    const fn word(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Drop => "dropped",
            Self::Reject => "rejected",
        }
    }
}

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    if find("nft").is_none() {
        table.skipped("all of it", "nft is not installed");
        return Ok(table);
    }
    let delays: &[&str] = if lab.short {
        &["25ms"]
    } else {
        &["5ms", "25ms", "100ms"]
    };
    for delay in delays {
        one(lab, &mut table, delay)?;
    }
    Ok(table)
}

fn one(lab: &Lab, table: &mut Table, delay: &str) -> Result<()> {
    let times: u64 = if lab.short { 5 } else { 15 };
    let emulator = lab.link(&[&format!("delay={delay}")], "", None)?;
    let broker = lab.broker(&emulator, &[])?;
    let b = Emulator::address(Side::B);
    let (auto, tls) = (format!("auto://{b}"), format!("mqtts://{b}"));
    let quic = format!("quic://{b}");
    let connect = |url: &str, memory: Option<&Path>| racer(lab, &emulator, url, memory, &[]);
    let connects =
        |url: &str| -> Result<Vec<Raced>> { (0..times).map(|_| connect(url, None)).collect() };
    let name = |what: &str| format!("{delay} each way, {what}");

    let over_tls = connects(&tls)?;
    let tls_us = figures(table, &name("TLS"), &over_tls, None, Some(false));
    let over_quic = connects(&quic)?;
    figures(
        table,
        &name("QUIC"),
        &over_quic,
        Some((tls_us, Target::None)),
        Some(true),
    );
    let free = connects(&auto)?;
    let most = Target::AtMost(1.0);
    figures(
        table,
        &name("auto, UDP gets through"),
        &free,
        Some((tls_us, most)),
        Some(true),
    );

    let most = Target::AtMost(RATIO_MAX);
    for verdict in Verdict::ALL {
        let firewall = Firewall::start(emulator.namespace(Side::B), verdict)?;
        let word = verdict.word();
        let blocked = connects(&auto)?;
        let past = verdict.past();
        let what = name(&format!("auto, UDP {past}, first time"));
        figures(table, &what, &blocked, Some((tls_us, most)), Some(false));
        // Else the firewall counts nothing.
        let tried = figure(firewall.packets()?);
        let what = format!("{what}: datagrams tried");
        table.row(&what, tried, "", Target::AtLeast(figure(times)));
        let memory = lab.temporary(&format!("race-{delay}-{word}"));
        connect(&auto, Some(&memory))?;
        let before = firewall.packets()?;
        let known: Vec<Raced> = (0..times)
            .map(|_| connect(&auto, Some(&memory)))
            .collect::<Result<_>>()?;
        let what = name(&format!("auto, UDP {past}, remembered"));
        figures(table, &what, &known, Some((tls_us, most)), Some(false));
        let tried = figure(firewall.packets()? - before);
        let what = format!("{what}: datagrams tried");
        table.row(&what, tried, "", Target::AtMost(0.0));
    }
    with_tickets(lab, &emulator, table, &name, times, tls_us)?;
    back(lab, &emulator, table, &name("UDP back"), &auto)?;
    drop(broker);
    valid(&emulator.stop())
}

/// A client that could send early data meets a firewall that was not there.
fn with_tickets(
    lab: &Lab,
    emulator: &Emulator,
    table: &mut Table,
    name: &dyn Fn(&str) -> String,
    times: u64,
    tls_us: f64,
) -> Result<()> {
    let url = format!("auto://{}", Emulator::address(Side::B));
    let (memory, tickets) = (lab.temporary("race-tickets"), lab.temporary("tickets"));
    let shown = tickets.display().to_string();
    let more = ["--tickets", &shown];
    let (mut early, mut blocked) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let _ = std::fs::remove_file(&memory);
        racer(lab, emulator, &url, Some(&memory), &more)?;
        early.push(racer(lab, emulator, &url, Some(&memory), &more)?);
        let firewall = Firewall::start(emulator.namespace(Side::B), Verdict::Drop)?;
        blocked.push(racer(lab, emulator, &url, Some(&memory), &more)?);
        drop(firewall);
    }
    let what = name("auto with tickets, UDP gets through");
    let most = Target::AtMost(1.0);
    figures(table, &what, &early, Some((tls_us, most)), Some(true));
    let what = name("auto with tickets, UDP suddenly dropped");
    let most = Target::AtMost(RATIO_MAX);
    figures(table, &what, &blocked, Some((tls_us, most)), Some(false));
    Ok(())
}

/// UDP gets through again while a client is on TLS.
fn back(lab: &Lab, emulator: &Emulator, table: &mut Table, name: &str, url: &str) -> Result<()> {
    let memory = lab.temporary("race-back");
    let _ = std::fs::remove_file(&memory);
    let firewall = Firewall::start(emulator.namespace(Side::B), Verdict::Drop)?;
    let raced = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let more = ["--upgrade-within", "60s", "--probe-after", PROBE_AFTER];
            racer(lab, emulator, url, Some(&memory), &more)
        });
        thread::sleep(OPEN_AFTER);
        drop(firewall);
        client.join().ok().context("a thread failed")?
    })?;
    let seconds = raced.upgrade_us.map_or(f64::NAN, |us| us / 1e6);
    table.row(
        &format!("{name}: seconds until on QUIC"),
        seconds,
        "s",
        Target::AtMost(15.0),
    );
    let none = Target::AtMost(0.0);
    table.row(
        &format!("{name}: began on QUIC"),
        figure(raced.quic.into()),
        "",
        none,
    );
    table.row(
        &format!("{name}: published meanwhile"),
        figure(raced.published),
        "",
        Target::None,
    );
    table.row(
        &format!("{name}: lost, QoS 2"),
        figure(raced.lost),
        "",
        none,
    );
    table.row(
        &format!("{name}: doubled, QoS 2"),
        figure(raced.doubled),
        "",
        none,
    );
    let next = racer(lab, emulator, url, Some(&memory), &[])?;
    let what = format!("{name}: the next process begins on QUIC");
    table.row(&what, figure(next.quic.into()), "", Target::AtLeast(1.0));
    Ok(())
}

/// The rows of one way to connect, against the time of another; the median of
/// its own.
fn figures(
    table: &mut Table,
    what: &str,
    raced: &[Raced],
    against: Option<(f64, Target)>,
    quic: Option<bool>,
) -> f64 {
    let times: Vec<f64> = raced.iter().map(|r| r.connect_us).collect();
    let middle = median(&times);
    table.row(
        &format!("{what}: to CONNACK"),
        middle / 1e3,
        "ms",
        Target::None,
    );
    if let Some((base, target)) = against {
        table.row(
            &format!("{what}: times TLS alone"),
            middle / base,
            "",
            target,
        );
        let worst = quantile(&times, 1.0) / base;
        table.row(&format!("{what}: the slowest"), worst, "", Target::None);
    }
    if let Some(quic) = quic {
        let wrong = raced.iter().filter(|r| r.quic != quic).count() as u64;
        let what = format!("{what}: on the other transport");
        table.row(&what, figure(wrong), "", Target::AtMost(0.0));
    }
    table.note(json!({"what": what, "samples_us": Value::from(times)}));
    middle
}

/// A client in a process of its own.
fn racer(
    lab: &Lab,
    emulator: &Emulator,
    url: &str,
    memory: Option<&Path>,
    more: &[&str],
) -> Result<Raced> {
    let mut command = lab.me(emulator.namespace(Side::A));
    command.args(["racer", "--url", url]).args(more);
    command.arg("--ca").arg(lab.certificate("ca.pem"));
    if let Some(memory) = memory {
        command.arg("--memory").arg(memory);
    }
    let said = output(command)?;
    serde_json::from_str(said.trim()).with_context(|| format!("the racer printed {said}"))
}

/// A rule of nftables before the broker's UDP port, until it is dropped.
struct Firewall<'a> {
    namespace: &'a Namespace,
}

impl<'a> Firewall<'a> {
    fn start(namespace: &'a Namespace, verdict: Verdict) -> Result<Self> {
        let word = verdict.word();
        let rules = format!(
            "add table inet race; \
             add chain inet race before {{ type filter hook input priority 0; }}; \
             add rule inet race before udp dport {QUIC_PORT} counter {word}"
        );
        nft(namespace, &[&rules])?;
        Ok(Self { namespace })
    }

    /// Packets that met it.
    fn packets(&self) -> Result<u64> {
        let said = nft(self.namespace, &["-j", "list", "table", "inet", "race"])?;
        let said: Value = serde_json::from_str(&said).context("nft -j")?;
        let counts = said.get("nftables").and_then(Value::as_array);
        let counts = counts.into_iter().flatten();
        let found = counts
            .filter_map(|item| item.pointer("/rule/expr")?.as_array())
            .flatten()
            .find_map(|part| part.pointer("/counter/packets")?.as_u64());
        found.context("nft shows no counter")
    }
}

impl Drop for Firewall<'_> {
    fn drop(&mut self) {
        let _ = nft(self.namespace, &["delete", "table", "inet", "race"]);
    }
}

fn nft(namespace: &Namespace, arguments: &[&str]) -> Result<String> {
    let program = find("nft").context("nft is not installed")?;
    let mut command: Command = namespace.command(program);
    command.args(arguments);
    output(command)
}
