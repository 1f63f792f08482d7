//! `nikitin-mesh`: a mesh with cycles, in which links fail one after the other and
//! the nodes find other ways.

use core::time::Duration;
use std::time::Instant;

use anyhow::Result;
use dunlin_link::linux::{Testbed, TestbedOptions};
use dunlin_link::{Action, Topology};

use super::super::bench::{measure, millis, outcome};
use super::super::coap;
use super::super::congestion;
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::generator::Generator;
use super::super::interrupt::pause;
use super::super::load::{Done, Load};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic, float};
use super::super::systems::{Serving, System};
use super::super::validity;
use crate::lab::Lab;
use crate::link::start_testbed;
use crate::profile::of;

/// Failing links.
pub(crate) struct Mesh;

/// Once connected, DTLS adds nothing to how soon CoAP tries again.
const SYSTEMS: [&str; 5] = [
    "dunlin-quic",
    "dunlin-tls",
    "mosquitto-tls",
    "coap-con",
    "coap-non",
];

/// From the place of the publisher to that of broker and subscriber there are two
/// ways of two links, and two of three.
const NODES: [&str; 4] = ["west", "north", "south", "east"];
const LINKS: [(&str, &str, &str); 5] = [
    ("west_north", "west", "north"),
    ("north_east", "north", "east"),
    ("west_south", "west", "south"),
    ("south_east", "south", "east"),
    ("north_south", "north", "south"),
];

/// Links in the order in which they fail: each is on the way that is in use, and at
/// last there is one way of three links.
const FAILURES: [&str; 2] = ["west_north", "south_east"];

/// Between a failure and the next.
const BETWEEN: Duration = Duration::from_secs(4);

/// Messages a second.
const RATE: f64 = 100.0;

/// How long the nodes take to notice.
const fn outages(scale: Scale) -> &'static [&'static str] {
    match scale {
        Scale::Smoke => &["200"],
        Scale::Short => &["200", "1000"],
        Scale::Paper => &["50", "200", "1000", "3000"],
    }
}

/// Why it takes longer than the outage.
const PROBES: &str = "Who sends into a link that has failed waits longer between its attempts each \
    time, over TCP as over QUIC: after an outage the next attempt is up to as long away as the \
    outage was.";

impl Experiment for Mesh {
    fn name(&self) -> &'static str {
        "nikitin-mesh"
    }

    fn about(&self) -> &'static str {
        "silence after a link of a mesh with cycles fails, until packets take another way"
    }

    fn source(&self) -> &'static str {
        "future work of paper 002, 6.1.4"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (systems, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&["dunlin-quic", "coap-con"], 1),
            Scale::Short => (&SYSTEMS, 3),
            Scale::Paper => (&SYSTEMS, 10),
        };
        let factors = [("outage_ms", outages(scale))];
        plan::cells(self.name(), systems, &factors, times)
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        1.5 + duration(scale).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let system = System::of(cell)?;
        let mut options = TestbedOptions::new(format!("run-{}", std::process::id()), mesh()?);
        options.seed = cell.seed;
        let testbed = start_testbed(options)?;
        congestion::equal(testbed.hosts().map(|(_, namespace, _)| namespace));
        let broker = testbed.namespace("broker")?;
        let mut server = system.serve(lab, broker, &Serving::default())?;
        let namespaces = (testbed.namespace("device")?, testbed.namespace("watcher")?);
        let load = Load {
            topics: 1,
            rate: Some(RATE),
            patience: Duration::from_secs(10),
            ..Load::of(duration(scale))
        };
        let to = (system, testbed.address("broker")?);
        let more = ["--qos", "1", "--samples"];
        let mut load = Generator::start(lab, namespaces, to, &load, &more)?;
        load.await_connected()?;
        let outage = Duration::from_millis(cell.factor("outage_ms").parse()?);
        let times = fail(&testbed, outage, failures(scale))?;
        let done = load.end()?;
        server.runs()?;
        drop(server);
        let mut outcome = outcome_of(&done, &times);
        if coap::is_of(cell) {
            let all = done.received + done.lost;
            outcome.notes.extend(coap::missing(done.lost, all));
        }
        let report = testbed.stop();
        let network = validity::network(&report.trouble(), &report.lateness);
        outcome.invalid = network.or_else(|| validity::load(&done));
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let bars = |id, title, metric| {
            let kind = Kind::Bars { x: "outage_ms" };
            Figure::new(id, title, metric, kind)
        };
        let (silence, after) = (
            "Silence at the subscriber when a link fails",
            "From the new way to the first message on it",
        );
        vec![
            bars("silence", silence, "silence"),
            bars("after-reroute", after, "after-reroute"),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |system: &str, metric: &str, outage: &str| {
            let pick = Pick::new(system, metric).at("outage_ms", outage);
            Sample::of(records, &pick)
        };
        let row = |what: String, measured, unit, target: Option<Target>| Claim {
            what,
            paper: "left as future work (002, 6.1.4)".to_owned(),
            measured,
            unit,
            target,
            reason: target.map(|_| PROBES),
            causes: Vec::new(),
        };
        let mut rows = Vec::new();
        for outage in ["200", "1000"] {
            for other in ["dunlin-tls", "mosquitto-tls"] {
                let base = sample(other, "silence", outage);
                let ours = sample("dunlin-quic", "silence", outage);
                rows.push(row(
                    format!("silence, {outage} ms of outage: dunlin-quic against {other}"),
                    ours.change(&base, Statistic::Mean),
                    "%",
                    Some(Target::AtMost(0.0)),
                ));
            }
        }
        for (metric, unit) in [("reconnections", ""), ("lost", "messages")] {
            let pick = Pick::new("dunlin-quic", metric);
            let measured = Sample::of(records, &pick).estimate(Statistic::Quantile(1.0));
            let what = format!("{metric} over QUIC");
            rows.push(row(what, measured, unit, Some(Target::AtMost(0.0))));
        }
        for outage in ["200", "1000"] {
            let what = format!("silence, {outage} ms of outage");
            let pick = |system: &str| Pick::new(system, "silence").at("outage_ms", outage);
            let ours = "dunlin-quic";
            rows.extend(coap::beside(records, ours, &what, Statistic::Mean, pick));
        }
        rows
    }
}

const fn failures(scale: Scale) -> usize {
    match scale {
        Scale::Smoke => 1,
        _ => FAILURES.len(),
    }
}

fn duration(scale: Scale) -> Duration {
    let failures = u32::try_from(failures(scale)).unwrap_or(1);
    BETWEEN * failures + Duration::from_secs(1)
}

/// The network, with 2 ms for each link.
fn mesh() -> Result<Topology> {
    let profiles = of(&["delay=2ms"])?;
    let mut topology = Topology::new();
    for node in NODES {
        topology.node(node)?;
    }
    // The second host has the address of the certificate.
    for (host, node) in [("device", "west"), ("broker", "east"), ("watcher", "east")] {
        topology.host(host)?;
        topology.link(host, host, node, profiles.clone())?;
    }
    for (name, from, to) in LINKS {
        topology.link(name, from, to, profiles.clone())?;
    }
    Ok(topology)
}

/// Has links fail, and the nodes find other ways after each; when that was.
fn fail(testbed: &Testbed, outage: Duration, count: usize) -> Result<Vec<[Duration; 2]>> {
    let begun = Instant::now();
    let mut times = Vec::new();
    for (number, link) in (0..).zip(FAILURES.iter().take(count)) {
        let at = Duration::from_secs(1) + BETWEEN * number;
        pause(at.saturating_sub(begun.elapsed()))?;
        testbed.apply(Action::parse(&format!("{link}.blackhole=on"))?)?;
        let failed = begun.elapsed();
        pause((at + outage).saturating_sub(begun.elapsed()))?;
        testbed.apply(Action::parse("reroute")?)?;
        times.push([failed, begun.elapsed()]);
    }
    Ok(times)
}

/// `times` are those of failures and new ways, since the first message.
fn outcome_of(done: &Done, times: &[[Duration; 2]]) -> Outcome {
    let first = done.samples.iter().map(|(_, sent, _)| *sent).min();
    let since = |at: u64| Duration::from_micros(at.saturating_sub(first.unwrap_or_default()));
    let mut arrivals: Vec<Duration> = done.samples.iter().map(|it| since(it.2)).collect();
    arrivals.sort_unstable();
    let [mut silence, mut after] = [const { Vec::new() }; 2];
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    for [failed, rerouted] in times {
        // What was on the way when it failed still arrives.
        let next = arrivals.partition_point(|at| at < rerouted);
        let last = next.checked_sub(1).and_then(|index| arrivals.get(index));
        if let Some(next) = arrivals.get(next) {
            let last = last.map_or(*failed, |last| *last);
            silence.push(micros(next.saturating_sub(last)));
            after.push(micros(next.saturating_sub(*rerouted)));
        }
    }
    outcome(
        vec![
            measure("silence", "ms", millis(&silence)),
            measure("after-reroute", "ms", millis(&after)),
            measure("lost", "messages", vec![float(done.lost)]),
            measure("reconnections", "", vec![float(done.reconnections)]),
        ],
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_goes_from_the_last_message_before_to_the_first_after() {
        let at = [0, 10, 20, 530, 540].map(|ms| (0, ms * 1000, ms * 1000));
        let done = Done {
            samples: at.to_vec(),
            ..Done::default()
        };
        let ms = Duration::from_millis;
        let outcome = outcome_of(&done, &[[ms(15), ms(500)]]);
        assert_eq!(outcome.measures[0].values, [510.0]);
        assert_eq!(outcome.measures[1].values, [30.0]);
        assert!(
            outcome_of(&done, &[[ms(600), ms(700)]]).measures[0]
                .values
                .is_empty()
        );
    }

    #[test]
    fn the_mesh_has_cycles() {
        let mesh = mesh().unwrap();
        assert!(mesh.check().is_ok());
        assert_eq!(mesh.hosts().count(), 3);
        assert!(LINKS.len() >= NODES.len());
        for link in FAILURES {
            mesh.link_id(link).unwrap();
        }
    }
}
