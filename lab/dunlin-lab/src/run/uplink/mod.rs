//! `uplink`: a vehicle's broker and its bridge to a broker in the cloud, over a link that
//! loses packets and on which the vehicle's address changes.
//!
//! Four publishers in the vehicle publish with QoS 1 to its broker, whose bridge carries
//! that to the cloud, where a subscriber is. At first the link only loses packets; then,
//! again and again, the vehicle has no address for a second, and then another one. The
//! bridge is Dunlin's, over QUIC and over TLS, or mosquitto's; the broker in the cloud is
//! Dunlin for all, and mosquitto for its own bridge, too. Both bridges have the least keep
//! alive that mosquitto takes, 5 s, since that is how it notices that its address is gone;
//! mosquitto connects again after 1 s.

mod seen;
mod vehicle;

use core::net::Ipv4Addr;
use core::time::Duration;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use dunlin_link::linux::{Emulator, Options};
use dunlin_link::{Action, Side};

use self::seen::Seen;
use self::vehicle::{Publishers, await_probe, bridge, read, subscriber};
use super::bench::behind;
use super::congestion;
use super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::interrupt::pause;
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::running::Running;
use super::stats::{Pick, Sample, Statistic};
use super::systems::{Serving, System};
use super::validity;
use crate::lab::Lab;
use crate::link::start;
use crate::profile;

/// A vehicle's bridge.
pub(crate) struct Uplink;

const QUIC: &str = "bridge-quic";
const TOPICS: &str = "bridge-quic-topics";
const TLS: &str = "bridge-tls";
const MOSQUITTO: &str = "bridge-mosquitto";

/// The factor that says which broker is in the cloud, by a system that has it.
const CLOUD: &str = "cloud";
const DUNLIN_CLOUD: &str = "dunlin";
const MOSQUITTO_CLOUD: &str = "mosquitto";

/// 40 to 100 ms of round trip, 2 % of loss each way.
const LINK: [&str; 5] = [
    "delay=35ms",
    "jitter=uniform 15ms",
    "loss=2%",
    "rate=10mbit",
    "queue=250kB",
];

/// The time for which the vehicle has no address.
const OUTAGE: Duration = Duration::from_secs(1);

/// What is published in this time is not looked at.
const WARM_UP: Duration = Duration::from_secs(2);

/// Wait for the last messages, after the publishers have ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at whether all have come.
const LOOK: Duration = Duration::from_millis(50);

/// Messages of before the address changes, and all others.
const STEADY: &str = "steady";
const MOVING: &str = "moving";

/// Why a bridge of ours needs more bytes.
const BYTES: &str = "Mosquitto's bridge leaves Nagle's algorithm on, so that messages wait for each other \
    and share packets, each some 25 ms later; Dunlin sends each at once, with a user property \
    (dunlin-via, 40 bytes) that stops loops. With a stream per topic small packets are sent twice \
    for a while after each loss.";

/// Why what comes after a move may take long.
const WINDOW: &str = "What was on its way at the old address counts against the window of the new one. \
    Where that is full, all that goes at first is a probe for larger packets; when it is lost the \
    next packet goes after six seconds.";

/// How long and how often.
struct Size {
    steady: Duration,
    moves: u8,
    /// From one move to the next, or to the end.
    between: Duration,
}

impl Size {
    const fn of(scale: Scale) -> Self {
        let (steady, moves, between) = match scale {
            Scale::Smoke => (2, 1, 5),
            Scale::Short => (10, 2, 20),
            Scale::Paper => (60, 10, 30),
        };
        Self {
            steady: Duration::from_secs(steady),
            moves,
            between: Duration::from_secs(between),
        }
    }

    /// When the vehicle's address is lost.
    fn moves(&self) -> impl Iterator<Item = Duration> {
        let first = WARM_UP + self.steady;
        (0..self.moves).map(move |number| first + self.between * u32::from(number))
    }

    fn end(&self) -> Duration {
        WARM_UP + self.steady + self.between * u32::from(self.moves)
    }
}

impl Experiment for Uplink {
    fn name(&self) -> &'static str {
        "uplink"
    }

    fn about(&self) -> &'static str {
        "a vehicle's bridge on a link that loses packets, while its address changes"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn in_all(&self) -> bool {
        false
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (systems, times): (&[(&str, &str)], u32) = match scale {
            Scale::Smoke => (&[(QUIC, DUNLIN_CLOUD)], 1),
            Scale::Short => (&SYSTEMS, 5),
            Scale::Paper => (&SYSTEMS, 10),
        };
        let mut cells = Vec::new();
        for repetition in 0..times {
            for (system, cloud) in systems {
                let factors = [(CLOUD.to_owned(), (*cloud).to_owned())];
                let mut cell = plan::cell(self.name(), system, factors.into(), repetition);
                // All meet the same wire.
                cell.seed = plan::hash(format!("uplink/{repetition}").as_bytes());
                cells.push(cell);
            }
        }
        cells
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        2.5 + Size::of(scale).end().as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let system = System::of(cell)?;
        let size = Size::of(scale);
        let mut options = Options::new(format!("run-{}", std::process::id()));
        options.seed = cell.seed;
        options.profiles = profile::of(&LINK)?;
        let emulator = start(options)?;
        let [vehicle, there] = Side::BOTH.map(|side| emulator.namespace(side));
        congestion::equal([vehicle, there]);
        let cloud = match cell.factor(CLOUD) {
            MOSQUITTO_CLOUD => MOSQUITTO,
            _ => QUIC,
        };
        let cloud = System::find(cloud).context("no broker for the cloud")?;
        let mut cloud = cloud.serve(lab, there, &Serving::default())?;
        let mut sub = Running::start(subscriber(lab, there))?;
        let (arrivals, probe) = read(&mut sub)?;
        let mut broker = bridge(lab, vehicle, system, Emulator::address(Side::B))?;
        let mut publishers = Publishers::start(lab, vehicle)?;
        await_probe(&mut publishers, &probe)?;
        let before = sent_bytes(&emulator);
        let clock = Instant::now();
        let publishing = thread::spawn({
            let end = size.end();
            move || publishers.publish(clock, end)
        });
        let moved = move_about(&emulator, clock, &size)?;
        let sent = publishing.join().ok().context("a thread failed")??;
        let begun = Instant::now();
        while arrivals.different() < sent.count && begun.elapsed() < PATIENCE {
            pause(LOOK)?;
        }
        let bytes = sent_bytes(&emulator) - before;
        cloud.runs()?;
        broker.runs()?;
        drop((sub, broker, cloud));
        let link = validity::link(&emulator.stop());
        let seen = Seen {
            sent,
            arrived: arrivals.all(clock),
            moved,
            bytes,
        };
        Ok(seen.outcome(&size, link.or_else(|| behind(seen.sent.late_us))))
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure {
                facet: Some("phase"),
                split: Some(CLOUD),
                ..Figure::new(
                    "delay-cdf",
                    "From the publisher in the vehicle to the subscriber in the cloud",
                    "delay",
                    Kind::Cdf,
                )
            },
            Figure::new(
                "silence",
                "Longest time without a delivery after an address change, 1 s of outage included",
                "silence",
                Kind::Bars { x: CLOUD },
            ),
            Figure::new(
                "bytes",
                "Bytes on the link for a message",
                "bytes",
                Kind::Bars { x: CLOUD },
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut rows = Vec::new();
        for (system, cloud) in SYSTEMS {
            rows.extend(figures_of(records, system, cloud));
        }
        for system in [QUIC, TOPICS, TLS] {
            rows.extend(targets_of(records, system));
        }
        rows
    }
}

/// Bridges and the broker in the cloud.
const SYSTEMS: [(&str, &str); 5] = [
    (QUIC, DUNLIN_CLOUD),
    (TOPICS, DUNLIN_CLOUD),
    (TLS, DUNLIN_CLOUD),
    (MOSQUITTO, DUNLIN_CLOUD),
    (MOSQUITTO, MOSQUITTO_CLOUD),
];

fn row(what: String, measured: Option<super::experiment::Estimate>, unit: &'static str) -> Claim {
    Claim {
        what,
        paper: "ours".to_owned(),
        measured,
        unit,
        target: None,
        reason: None,
        causes: Vec::new(),
    }
}

/// Values of one bridge, in a phase if the metric has phases.
fn sample(records: &[Record], (system, cloud): (&str, &str), metric: &str, phase: &str) -> Sample {
    let pick = Pick::new(system, metric).at(CLOUD, cloud);
    Sample::of(
        records,
        &match phase {
            "" => pick,
            phase => pick.at("phase", phase),
        },
    )
}

/// What a bridge did, to be read beside the others.
fn figures_of(records: &[Record], system: &str, cloud: &str) -> Vec<Claim> {
    let (p50, p99, most) = (
        Statistic::Median,
        Statistic::Quantile(0.99),
        Statistic::Quantile(1.0),
    );
    let rows = [
        ("delay", STEADY, "p50", p50, "ms"),
        ("delay", STEADY, "p99", p99, "ms"),
        ("delay", STEADY, "max", most, "ms"),
        ("delay", MOVING, "p50", p50, "ms"),
        ("delay", MOVING, "p99", p99, "ms"),
        ("delay", MOVING, "max", most, "ms"),
        ("silence", "", "p50", p50, "ms"),
        ("silence", "", "max", most, "ms"),
        ("recovery", "", "p50", p50, "ms"),
        ("recovery", "", "max", most, "ms"),
        ("lost", "", "most of a run", most, "messages"),
        ("doubled", "", "most of a run", most, "messages"),
        ("bytes", "", "mean", Statistic::Mean, "bytes"),
    ];
    let of = |(metric, phase, word, statistic, unit)| {
        let sample = sample(records, (system, cloud), metric, phase);
        let phase = if phase.is_empty() { "" } else { " while " }.to_owned() + phase;
        let what = format!("{system}, cloud {cloud}: {metric}{phase}, {word}");
        row(what, sample.estimate(statistic), unit)
    };
    rows.map(of).into()
}

/// What must hold of a bridge of ours.
fn targets_of(records: &[Record], system: &str) -> Vec<Claim> {
    let ours = |metric, phase| sample(records, (system, DUNLIN_CLOUD), metric, phase);
    let most = Statistic::Quantile(1.0);
    let is_quic = system != TLS;
    let mut rows = Vec::new();
    let mut add = |what: &str, measured, unit, most, reason| {
        let what = format!("{system}: {what}");
        let target = Some(Target::AtMost(most));
        rows.push(Claim {
            target,
            reason,
            ..row(what, measured, unit)
        });
    };
    let lost = ours("lost", "").estimate(most);
    add("messages lost", lost, "messages", 0.0, None);
    if is_quic {
        // The connection goes on.
        let doubled = ours("doubled", "").estimate(most);
        add("messages doubled", doubled, "messages", 0.0, Some(WINDOW));
        let recovery = ours("recovery", "").estimate(most);
        let what = "from the new address to the next delivery";
        add(what, recovery, "ms", 1000.0, Some(WINDOW));
    }
    let mut bases = vec![(MOSQUITTO, DUNLIN_CLOUD), (MOSQUITTO, MOSQUITTO_CLOUD)];
    if is_quic {
        bases.push((TLS, DUNLIN_CLOUD));
    }
    for base in bases {
        let name = format!("{}, cloud {}", base.0, base.1);
        let theirs = |metric, phase| sample(records, base, metric, phase);
        let change = |metric, phase, statistic| {
            ours(metric, phase).change(&theirs(metric, phase), statistic)
        };
        let silence = change("silence", "", Statistic::Median);
        let most = if base.0 == MOSQUITTO { -50.0 } else { 0.0 };
        add(&format!("silence against {name}"), silence, "%", most, None);
        let slowest = change("delay", STEADY, Statistic::Quantile(0.99));
        let what = format!("p99 of the delay while steady against {name}");
        add(&what, slowest, "%", 0.0, None);
        let bytes = change("bytes", "", Statistic::Mean);
        let what = format!("bytes against {name}");
        add(&what, bytes, "%", 10.0, Some(BYTES));
    }
    rows
}

/// Bytes that both hosts have sent so far.
fn sent_bytes(emulator: &Emulator) -> u64 {
    let report = emulator.report();
    report.from_a.bytes_in + report.from_b.bytes_in
}

/// Takes the vehicle's address away, and gives it another, as often as planned; when the
/// address was gone and when there was another.
fn move_about(emulator: &Emulator, clock: Instant, size: &Size) -> Result<Vec<[Duration; 2]>> {
    let mut address = Emulator::address(Side::A);
    let apply = |action: String| -> Result<()> {
        emulator.apply(Action::parse(&action)?);
        Ok(())
    };
    let mut moved = Vec::new();
    for (number, at) in (1..).zip(size.moves()) {
        pause(at.saturating_sub(clock.elapsed()))?;
        apply("blackhole=on".to_owned())?;
        apply(format!("remove a {address}"))?;
        let gone = clock.elapsed();
        pause((at + OUTAGE).saturating_sub(clock.elapsed()))?;
        address = Ipv4Addr::new(10, 203, 7, number);
        apply(format!("add a {address}"))?;
        apply("blackhole=off".to_owned())?;
        moved.push([gone, clock.elapsed()]);
    }
    pause(size.end().saturating_sub(clock.elapsed()))?;
    Ok(moved)
}
