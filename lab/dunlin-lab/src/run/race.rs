//! `race`: a firewall drops UDP: a client that would rather use QUIC must not be
//! much slower than one that uses TLS over TCP, must remember, and must come
//! back to QUIC when UDP gets through again.

use core::time::Duration;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::{Emulator, Namespace};
use serde_json::Value;

use super::bench::{Bench, measure, outcome, reply};
use super::experiment::{Claim, Experiment, Figure, Target};
use super::plan;
use super::record::{Cell, Factors, Measure, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float};
use crate::lab::{Lab, QUIC_PORT, find};
use crate::process::output;
use crate::tool::racer::Raced;

/// QUIC and TLS race for a connection.
pub(crate) struct Race;

const SYSTEM: &str = "dunlin-quic";

/// A client that is on TLS tries QUIC after this time.
const PROBE_AFTER: &str = "1s";

/// UDP gets through again so long after that client connected.
const OPEN_AFTER: Duration = Duration::from_millis(1500);

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
            self.racer(&auto, Some(&memory), &[])?;
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
            .map(|_| self.racer(url, memory, &[]))
            .collect::<Result<Vec<_>>>()?;
        self.note(way, &raced);
        Ok(())
    }

    /// What one way to connect gave.
    fn note(&mut self, way: &str, raced: &[Raced]) {
        let quic = WAYS.iter().any(|(name, _, _, quic)| *name == way && *quic);
        let wrong = raced.iter().filter(|raced| raced.quic != quic).count();
        let took = raced.iter().map(|raced| raced.connect_us / 1e3).collect();
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
            self.racer(url, Some(&memory), &more)?;
            early.push(self.racer(url, Some(&memory), &more)?);
            let firewall = Firewall::start(self.bench.emulator.namespace(Side::B), "drop")?;
            blocked.push(self.racer(url, Some(&memory), &more)?);
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
        let firewall = Firewall::start(self.bench.emulator.namespace(Side::B), "drop")?;
        let raced = thread::scope(|scope| {
            let client = scope.spawn(|| {
                let more = ["--upgrade-within", "60s", "--probe-after", PROBE_AFTER];
                self.racer(url, Some(&memory), &more)
            });
            thread::sleep(OPEN_AFTER);
            drop(firewall);
            client.join().ok().context("a thread failed")?
        })?;
        let next = self.racer(url, Some(&memory), &[])?;
        let after = raced.upgrade_us.map_or(f64::NAN, |us| us / 1e6);
        for (metric, unit, value) in [
            ("back-after", "s", after),
            ("back-began-on-quic", "", float(raced.quic.into())),
            ("back-published", "messages", float(raced.published)),
            ("back-lost", "messages", float(raced.lost)),
            ("back-doubled", "messages", float(raced.doubled)),
            ("back-next-on-quic", "", float(next.quic.into())),
        ] {
            self.measures.push(measure(metric, unit, vec![value]));
        }
        Ok(())
    }

    /// A client in a process of its own.
    fn racer(&self, url: &str, memory: Option<&Path>, more: &[&str]) -> Result<Raced> {
        let lab = self.bench.lab;
        let mut command = lab.me(self.bench.emulator.namespace(Side::A));
        command.args(["racer", "--url", url]).args(more);
        command.arg("--ca").arg(lab.certificate("ca.pem"));
        if let Some(memory) = memory {
            command.arg("--memory").arg(memory);
        }
        reply(command)
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
