//! The experiments of paper 002: a dumbbell of ten clients, five kinds of links
//! in three scenarios (Tables 5.1 to 5.3), and sizes of binaries.
//!
//! All links of the dumbbell are alike, so that a packet crosses three of them
//! in each direction, as in the paper's Mininet: its losses and delays add up.

mod connect;
mod mesh;
mod size;
mod symbols;
mod transmit;

pub(super) use connect::Connect;
pub(super) use mesh::Mesh;
pub(super) use size::Size;
pub(super) use transmit::{DEFAULT, SHORT_SYNTHETIC, Transmit, WINDOW};

use core::time::Duration;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::{Testbed, TestbedOptions};
use dunlin_link::{Loss, Topology};
use serde::de::DeserializeOwned;

use super::experiment::{Claim, Estimate, Target};
use super::plan;
use super::record::{Cell, Record, Scale};
use super::stats::{Pick, Sample, Statistic};
use super::systems::{Serving, System};
use super::validity;
use super::visits::Visits;
use super::{coap, congestion};
use crate::children::Known;
use crate::lab::{BROKER, Lab};
use crate::link::start_testbed;
use crate::process::Server;
use crate::profile::load;

/// What is compared: the paper has one implementation over QUIC and over TLS.
const SYSTEMS: [&str; 4] = ["dunlin-quic", "dunlin-tls", "mosquitto-tls", "mqttv5-quic"];

/// Between two looks at a client that is awaited.
const LOOK: Duration = Duration::from_millis(10);

/// Kinds of links, in the order of the paper's tables.
pub(super) const LINKS: [&str; 5] = ["wifi", "zigbee", "4g", "3g", "ethernet"];

/// Without the slow one, on which three clients share 250 kbit/s.
pub(super) const FAST: [&str; 4] = ["wifi", "4g", "3g", "ethernet"];

/// Scenarios, each a table.
pub(super) const SCENARIOS: [&str; 3] = ["home", "printer", "synthetic"];

/// What QUIC is compared with.
pub(super) const OTHERS: [&str; 2] = ["dunlin-tls", "mosquitto-tls"];

/// Round trips that count as sooner, and as on a par.
pub(super) const SOONER: f64 = -0.5;
pub(super) const ALIKE: f64 = 0.5;

/// A factor of cells whose links lose nothing.
pub(super) const LOSSLESS: (&str, &[&str]) = ("loss", &["none"]);

/// The experiment that isolates causes of [`Transmit`].
pub(super) const CAUSES_TRANSMIT: &str = "cause-transmit";

/// Repetitions in a short run of cells that a claim is about which few leave open.
const SHORT_TIMES: u32 = 5;

/// The claim of [`CAUSES_TRANSMIT`].
pub(super) fn transmits_lossless(scenario: &str, other: &str) -> String {
    format!(
        "transmission time, {scenario} without ZigBee, nothing lost: \
         dunlin-quic against {other}"
    )
}

/// Bytes that QUIC may have in flight at first for its messages to take as many round
/// trips as those of TCP with ten segments of 1,460 (RFC 6928): the default is ten packets
/// of 1,200 (RFC 9002, 7.2).
pub(super) const WIDE: &str = "30000";

/// Scenarios whose messages do not fit into the first window.
pub(super) const WIDE_SCENARIOS: [&str; 2] = ["home", "printer"];

/// The claim of [`CAUSES_TRANSMIT`] with [`WIDE`].
pub(super) fn transmits_wide(scenario: &str, other: &str) -> String {
    format!(
        "transmission time, {scenario} without ZigBee, nothing lost, {WIDE} bytes in flight \
         at first: \
         dunlin-quic against {other}"
    )
}

/// Clients of the dumbbell, first those that are one of a cluster.
const CLIENTS: [&str; 10] = [
    "c00", "c10", "c01", "c11", "c02", "c12", "c03", "c13", "c04", "c14",
];

/// Links that a packet crosses, there and back.
const CROSSED: u32 = 6;

/// The shipped profile of a scenario's link.
fn profile(scenario: &str, link: &str) -> String {
    let scenario = match scenario {
        "home" => "smart-home",
        "printer" => "printer-farm",
        other => other,
    };
    format!("{scenario}-{link}")
}

/// Round trip between a client and the broker: delays of the paper's tables.
fn round_trip(link: &str) -> Duration {
    let delay = match link {
        "wifi" => 10,
        "zigbee" => 5,
        "4g" => 20,
        "3g" => 40,
        _ => 1,
    };
    Duration::from_millis(delay) * CROSSED
}

/// The dumbbell with the broker of a cell.
struct Bed<'a> {
    lab: &'a Lab,
    testbed: Testbed,
    system: &'static System,
    server: Server,
}

impl<'a> Bed<'a> {
    fn start(lab: &'a Lab, cell: &Cell) -> Result<Self> {
        let system = System::of(cell)?;
        let profile = profile(cell.factor("scenario"), cell.factor("link"));
        let mut links = load(&profile)?;
        if cell.factor(LOSSLESS.0) == "none" {
            for side in &mut links {
                side.loss = Loss::None;
            }
        }
        let topology = Topology::dumbbell(&links)?;
        let mut options = TestbedOptions::new(format!("run-{}", std::process::id()), topology);
        options.seed = cell.seed;
        let testbed = start_testbed(options)?;
        congestion::equal(testbed.hosts().map(|(_, namespace, _)| namespace));
        let namespace = testbed.namespace("broker")?;
        let server = system.serve(lab, namespace, &Serving::default())?;
        Ok(Self {
            lab,
            testbed,
            system,
            server,
        })
    }

    /// `dunlin pub` at a client, or what does the same with CoAP, with where to
    /// connect.
    fn publisher(&self, client: &str) -> Result<Command> {
        let program = self.system.client(self.lab, BROKER, "pub", client);
        let namespace = self.testbed.namespace(client)?;
        let mut command = namespace.command(program.get_program());
        command.args(program.get_args());
        command.args(["--timing", "-i", client]);
        Ok(command)
    }

    /// Clients at a host that come one after another.
    fn visits(&self, visits: &Visits<'_>, client: &str) -> Result<Command> {
        let at = (self.testbed.namespace(client)?, BROKER);
        Ok(self.system.visits(self.lab, at, visits))
    }

    /// Ends it; what makes the cell worthless, if anything does.
    fn finish(mut self) -> Result<Option<String>> {
        self.server.runs()?;
        drop(self.server);
        let report = self.testbed.stop();
        Ok(validity::network(&report.trouble(), &report.lateness))
    }
}

/// A client that prints what it saw.
struct Running {
    child: Child,
    _known: Known,
}

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a client")?;
        let _known = Known::new(&child);
        Ok(Self { child, _known })
    }

    /// As [`Self::reply`]; nothing if it does not end until then.
    fn reply_until<T: DeserializeOwned>(mut self, until: Instant) -> Result<Option<T>> {
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                self.child.kill().context("cannot kill a client")?;
                self.child.wait()?;
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
        self.reply().map(Some)
    }

    fn reply<T: DeserializeOwned>(self) -> Result<T> {
        let output = self.child.wait_with_output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said.lines().last().unwrap_or_default();
        serde_json::from_str(line).with_context(|| format!("a client printed {line}"))
    }
}

/// The mean over these links of the difference between two systems' medians. Only
/// cells of one link are compared with each other, so intervals are made link by
/// link and added as those of independent values.
pub(super) fn difference(
    records: &[Record],
    [ours, theirs]: [&str; 2],
    metric: &str,
    scenario: &str,
    links: &[&str],
) -> Option<Estimate> {
    let of = |system: &str, link: &str| {
        let pick = Pick::new(system, metric).at("scenario", scenario);
        Sample::of(records, &pick.at("link", link))
    };
    let links: Vec<Estimate> = links
        .iter()
        .filter_map(|link| of(ours, link).difference(&of(theirs, link), Statistic::Median))
        .collect();
    let count = f64::from(u32::try_from(links.len()).ok().filter(|n| *n > 0)?);
    let value = links.iter().map(|link| link.value).sum::<f64>() / count;
    let half = |side: fn(&Estimate) -> f64| {
        let squares: f64 = links.iter().map(|link| side(link).powi(2)).sum();
        squares.sqrt() / count
    };
    Some(Estimate {
        value,
        low: value - half(|link| link.value - link.low),
        high: value + half(|link| link.high - link.value),
    })
}

/// More repetitions of cells of a short run: those of these scenarios and of the systems
/// that claims are about.
fn again(name: &str, cells: &[Cell], scale: Scale, scenarios: &[&str]) -> Vec<Cell> {
    let judged = |cell: &&Cell| {
        let system = cell.system.as_str();
        scenarios.contains(&cell.factor("scenario"))
            && (system == "dunlin-quic" || OTHERS.contains(&system))
    };
    let times = if scale == Scale::Short {
        SHORT_TIMES
    } else {
        1
    };
    let once: Vec<&Cell> = cells.iter().filter(judged).collect();
    let more = (1..times).flat_map(|repetition| once.iter().map(move |cell| (repetition, *cell)));
    more.map(|(repetition, once)| plan::cell(name, &once.system, once.factors.clone(), repetition))
        .collect()
}

/// Over QUIC against over TLS, in round trips of the links, over all links.
fn claims(
    records: &[Record],
    what: &str,
    metric: &str,
    paper: [(&str, Option<Target>); 3],
    reason: Option<&'static str>,
) -> Vec<Claim> {
    let mut rows = Vec::new();
    for (scenario, (said, target)) in SCENARIOS.into_iter().zip(paper) {
        for other in OTHERS {
            let pair = ["dunlin-quic", other];
            let measured = difference(records, pair, metric, scenario, &LINKS);
            rows.push(Claim {
                what: format!("{what}, {scenario}: dunlin-quic against {other}"),
                paper: said.to_owned(),
                measured,
                unit: "RTT",
                target,
                reason,
                causes: Vec::new(),
            });
        }
    }
    for scenario in SCENARIOS {
        let ours = "dunlin-quic";
        rows.extend(coap::additions(
            ours,
            &format!("{what}, {scenario}"),
            "RTT",
            |other| difference(records, [ours, other], metric, scenario, &LINKS),
        ));
    }
    rows
}
