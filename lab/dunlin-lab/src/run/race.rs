//! `race`: a firewall drops UDP: a client that would rather use QUIC must not be
//! much slower than one that uses TLS over TCP, must remember, and must come
//! back to QUIC when UDP gets through again.

use core::time::Duration;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::Side;
use dunlin_link::linux::{Emulator, Namespace};
use serde::Deserialize;
use serde_json::Value;

use super::bench::{Bench, measure, outcome, reply};
use super::dialog::Dialog;
use super::experiment::{Claim, Experiment, Figure, Target};
use super::plan;
use super::record::{Cell, Factors, Measure, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float};
use crate::lab::{Lab, QUIC_PORT, find};
use crate::process::output;

/// QUIC and TLS race for a connection.
pub(crate) struct Race;

const SYSTEM: &str = "dunlin-quic";

/// A client that is on TLS tries QUIC after this time.
const PROBE_AFTER_MS: &str = "1000";

/// UDP gets through again so long after that client connected.
const OPEN_AFTER: Duration = Duration::from_millis(1500);

/// Longest wait until it is on QUIC.
const UPGRADE_MAX: Duration = Duration::from_secs(60);

/// Between two of its messages.
const PUBLISH_EVERY: Duration = Duration::from_millis(5);

/// Longest wait for a client to be ready, and for each of the last messages.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Where it publishes.
const TOPIC: &str = "race";

/// One-way delays.
const DELAYS: [&str; 3] = ["5", "25", "100"];

/// The way that others are compared with.
const TLS: &str = "TLS";
const QUIC: &str = "QUIC";
const FREE: &str = "auto, UDP gets through";
const EARLY: &str = "auto with tickets, UDP gets through";
const SUDDENLY: &str = "auto with tickets, UDP suddenly dropped";

/// How the firewall refuses: says nothing, or tells the sender by ICMP. With
/// the ways of the first connection and of those that remember it.
const VERDICTS: [(&str, &str, &str); 2] = [
    (
        "drop",
        "auto, UDP dropped, first time",
        "auto, UDP dropped, remembered",
    ),
    (
        "reject",
        "auto, UDP rejected, first time",
        "auto, UDP rejected, remembered",
    ),
];

/// Ways to connect: how much longer than TLS alone each may take in percent,
/// how many datagrams a connection may try, whether it is to be on QUIC.
const WAYS: [(&str, Option<f64>, Option<Target>, bool); 9] = [
    (TLS, None, None, false),
    (QUIC, None, None, true),
    (FREE, Some(0.0), None, true),
    (VERDICTS[0].1, Some(50.0), TRIED, false),
    (VERDICTS[0].2, Some(50.0), UNTRIED, false),
    (VERDICTS[1].1, Some(50.0), TRIED, false),
    (VERDICTS[1].2, Some(50.0), UNTRIED, false),
    (EARLY, Some(0.0), None, true),
    (SUDDENLY, Some(50.0), None, false),
];
/// Else the firewall counts nothing.
const TRIED: Option<Target> = Some(Target::AtLeast(1.0));
const UNTRIED: Option<Target> = Some(Target::AtMost(0.0));

const fn times(scale: Scale) -> u64 {
    match scale {
        Scale::Smoke => 1,
        Scale::Short => 5,
        Scale::Paper => 15,
    }
}

impl Experiment for Race {
    fn name(&self) -> &'static str {
        "race"
    }

    fn about(&self) -> &'static str {
        "time to connect by QUIC or TLS where a firewall drops UDP"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn in_all(&self) -> bool {
        false
    }

    fn missing(&self) -> Option<&'static str> {
        find("nft").is_none().then_some("nft is not installed")
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let delays: &[&str] = match scale {
            Scale::Paper => &DELAYS,
            _ => &DELAYS[1..2],
        };
        plan::cells(self.name(), &[SYSTEM], &[("delay_ms", delays)], 1)
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        6.0 + 3.0 * float(times(scale))
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let delay = format!("delay={}ms", cell.factor("delay_ms"));
        let bench = Bench::start(lab, cell, &[delay], None)?;
        let mut track = Track {
            bench: &bench,
            times: times(scale),
            delay: cell.factor("delay_ms"),
            measures: Vec::new(),
        };
        track.run()?;
        let measures = track.measures;
        Ok(outcome(measures, bench.finish_untimed()?))
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for delay in DELAYS {
            let sample = |metric, way: Option<&str>| {
                let mut pick = Pick::new(SYSTEM, metric).at("delay_ms", delay);
                if let Some(way) = way {
                    pick = pick.at("way", way);
                }
                Sample::of(records, &pick)
            };
            let claim = |what: &str, measured, unit, target| Claim {
                what: format!("{delay} ms each way, {what}"),
                paper: "ours".to_owned(),
                measured,
                unit,
                target,
                reason: None,
                causes: Vec::new(),
            };
            for (way, most, datagrams, _) in WAYS {
                let took = sample("connect", Some(way));
                let slower = took.change(&sample("connect", Some(TLS)), Statistic::Median);
                let what = format!("{way}: to CONNACK, against TLS alone");
                claims.push(claim(&what, slower, "%", most.map(Target::AtMost)));
                let wrong = sample("on-the-other-transport", Some(way));
                let wrong = wrong.estimate(Statistic::Mean);
                let none = Some(Target::AtMost(0.0));
                let what = format!("{way}: on the other transport");
                claims.push(claim(&what, wrong, "", none));
                if datagrams.is_some() {
                    let tried = sample("datagrams", Some(way)).estimate(Statistic::Mean);
                    let what = format!("{way}: datagrams tried by each");
                    claims.push(claim(&what, tried, "", datagrams));
                }
            }
            for (metric, unit, target) in [
                ("back-after", "s", Target::AtMost(15.0)),
                ("back-began-on-quic", "", Target::AtMost(0.0)),
                ("back-lost", "messages", Target::AtMost(0.0)),
                ("back-doubled", "messages", Target::AtMost(0.0)),
                ("back-next-on-quic", "", Target::AtLeast(1.0)),
            ] {
                let value = sample(metric, None).estimate(Statistic::Mean);
                claims.push(claim(metric, value, unit, Some(target)));
            }
        }
        // A short run has one delay.
        claims.retain(|claim| claim.measured.is_some());
        claims
    }
}

/// One link, with every way to connect on it.
struct Track<'a> {
    bench: &'a Bench<'a>,
    times: u64,
    delay: &'a str,
    measures: Vec<Measure>,
}

impl Track<'_> {
    fn run(&mut self) -> Result<()> {
        let b = Emulator::address(Side::B);
        let (auto, tls) = (format!("auto://{b}"), format!("mqtts://{b}"));
        for (way, url) in [(TLS, &tls), (QUIC, &format!("quic://{b}")), (FREE, &auto)] {
            self.connects(way, url, None)?;
        }
        for (word, first, remembered) in VERDICTS {
            let firewall = Firewall::start(self.bench.emulator.namespace(Side::B), word)?;
            self.connects(first, &auto, None)?;
            self.tried(first, firewall.packets()?);
            let memory = self.memory(word);
            self.connect(&auto, Some(&memory), &[])?;
            let before = firewall.packets()?;
            self.connects(remembered, &auto, Some(&memory))?;
            self.tried(remembered, firewall.packets()? - before);
        }
        self.with_tickets(&auto)?;
        self.back(&auto)
    }

    /// A file for what clients remember of this link.
    fn memory(&self, name: &str) -> std::path::PathBuf {
        let name = format!("race-{}-{name}", self.delay);
        self.bench.lab.temporary(&name)
    }

    /// Connects again and again.
    fn connects(&mut self, way: &str, url: &str, memory: Option<&Path>) -> Result<()> {
        let raced = (0..self.times)
            .map(|_| self.connect(url, memory, &[]))
            .collect::<Result<Vec<_>>>()?;
        self.note(way, &raced);
        Ok(())
    }

    /// What one way to connect gave.
    fn note(&mut self, way: &str, raced: &[Timed]) {
        let quic = WAYS.iter().any(|(name, _, _, quic)| *name == way && *quic);
        let wrong = raced.iter().filter(|raced| raced.is_quic() != quic).count();
        let took = raced.iter().map(|raced| raced.connected_us / 1e3).collect();
        self.add("connect", "ms", way, took);
        self.add("on-the-other-transport", "", way, vec![float(wrong as u64)]);
    }

    fn tried(&mut self, way: &str, datagrams: u64) {
        let each = float(datagrams) / float(self.times);
        self.add("datagrams", "", way, vec![each]);
    }

    fn add(&mut self, metric: &str, unit: &str, way: &str, values: Vec<f64>) {
        self.measures.push(Measure {
            factors: Factors::from([("way".to_owned(), way.to_owned())]),
            ..measure(metric, unit, values)
        });
    }

    /// A client that could send early data meets a firewall that was not there.
    fn with_tickets(&mut self, url: &str) -> Result<()> {
        let memory = self.memory("tickets");
        let tickets = self.bench.lab.temporary("tickets").display().to_string();
        let more = ["--tickets", &tickets];
        let (mut early, mut blocked) = (Vec::new(), Vec::new());
        for _ in 0..self.times {
            let _ = std::fs::remove_file(&memory);
            self.connect(url, Some(&memory), &more)?;
            early.push(self.connect(url, Some(&memory), &more)?);
            let firewall = Firewall::start(self.bench.emulator.namespace(Side::B), "drop")?;
            blocked.push(self.connect(url, Some(&memory), &more)?);
            drop(firewall);
        }
        self.note(EARLY, &early);
        self.note(SUDDENLY, &blocked);
        Ok(())
    }

    /// UDP gets through again while a client is on TLS.
    fn back(&mut self, url: &str) -> Result<()> {
        let memory = self.memory("back");
        let _ = std::fs::remove_file(&memory);
        let host = self.bench.emulator.namespace(Side::A);
        let mut firewall = Some(Firewall::start(
            self.bench.emulator.namespace(Side::B),
            "drop",
        )?);
        let mut receiver = self.client("sub", url);
        receiver.args(["-i", "receiver"]).args(GOES_BACK);
        let receiver = Dialog::start(host, &mut receiver)?;
        receiver.await_line(&format!("Subscribed '{TOPIC}'"), WAIT_MAX)?;
        let mut sender = self.client("pub", url);
        sender.args(["-i", "sender", "-l"]).args(GOES_BACK);
        let mut sender = Dialog::start(host, sender.arg("--race-memory").arg(&memory))?;
        let begun = Instant::now();
        let mut published = 0_u64;
        loop {
            sender.give(&published.to_string())?;
            published += 1;
            if sender
                .await_line("connected over quic", PUBLISH_EVERY)
                .is_ok()
            {
                break;
            }
            if begun.elapsed() > OPEN_AFTER {
                drop(firewall.take());
            }
            if begun.elapsed() > UPGRADE_MAX {
                bail!("not on QUIC within {UPGRADE_MAX:?}");
            }
        }
        let raced: Timed = serde_json::from_str(&sender.leave(true)?)?;
        let times = arrivals(&receiver, published);
        let next = self.connect(url, Some(&memory), &[])?;
        let after = raced.back_us().map_or(f64::NAN, |us| us / 1e6);
        let lost = times.iter().filter(|times| **times == 0).count() as u64;
        let doubled = times.iter().map(|times| times.saturating_sub(1)).sum();
        for (metric, unit, value) in [
            ("back-after", "s", after),
            ("back-began-on-quic", "", float(raced.is_quic().into())),
            ("back-published", "messages", float(published)),
            ("back-lost", "messages", float(lost)),
            ("back-doubled", "messages", float(doubled)),
            ("back-next-on-quic", "", float(next.is_quic().into())),
        ] {
            self.measures.push(measure(metric, unit, vec![value]));
        }
        Ok(())
    }

    /// `dunlin pub` or `sub`, which says how long it took and over what.
    fn client(&self, name: &str, url: &str) -> Command {
        let lab = self.bench.lab;
        let mut command = lab.dunlin(self.bench.emulator.namespace(Side::A));
        command.args([name, "--timing", "--url", url, "-t", TOPIC]);
        command.arg("--cafile").arg(lab.certificate("ca.pem"));
        command
    }

    /// Connects once, in a process of its own.
    fn connect(&self, url: &str, memory: Option<&Path>, more: &[&str]) -> Result<Timed> {
        let mut command = self.client("pub", url);
        // One of QoS 0 would be lost with a connection that is given up.
        command.args(["-n", "-q", "1"]).args(more);
        if let Some(memory) = memory {
            command.arg("--race-memory").arg(memory);
        }
        reply(command)
    }
}

/// Of the clients that go back to QUIC.
const GOES_BACK: [&str; 7] = [
    "-d",
    "-q",
    "2",
    "-x",
    "60",
    "--race-probe-after",
    PROBE_AFTER_MS,
];

/// How often each of the messages came.
fn arrivals(receiver: &Dialog, published: u64) -> Vec<u64> {
    let mut times = vec![0; usize::try_from(published).unwrap_or_default()];
    while times.contains(&0) {
        let Some(line) = receiver.next(WAIT_MAX) else {
            break;
        };
        // The other lines say what happens.
        let number: Option<usize> = line.parse().ok();
        if let Some(times) = number.and_then(|number| times.get_mut(number)) {
            *times += 1;
        }
    }
    times
}

/// What `--timing` prints.
#[derive(Clone, Debug, Deserialize)]
struct Timed {
    connected_us: f64,
    /// Of the first connection.
    transport: String,
    #[serde(default)]
    reconnections: Vec<Reconnection>,
}

/// A later connection.
#[derive(Clone, Debug, Deserialize)]
struct Reconnection {
    us: f64,
    transport: String,
}

impl Timed {
    fn is_quic(&self) -> bool {
        self.transport == "quic"
    }

    /// From CONNACK until the connection was on QUIC again.
    fn back_us(&self) -> Option<f64> {
        let mut later = self.reconnections.iter();
        let back = later.find(|later| later.transport == "quic")?;
        Some(back.us - self.connected_us)
    }
}

/// A rule of nftables before the broker's UDP port, until it is dropped.
struct Firewall<'a> {
    namespace: &'a Namespace,
}

impl<'a> Firewall<'a> {
    fn start(namespace: &'a Namespace, verdict: &str) -> Result<Self> {
        let rules = format!(
            "add table inet race; \
             add chain inet race before {{ type filter hook input priority 0; }}; \
             add rule inet race before udp dport {QUIC_PORT} counter {verdict}"
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
