//! `milios-resources`: processor time and memory of a publisher, a process of
//! its own that publishes lines as they come: `dunlin pub` and `mosquitto_pub`.

use core::time::Duration;
use std::process::Command;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;

use super::super::bench::{Bench, measure, millis, outcome};
use super::super::coap;
use super::super::dialog::Dialog;
use super::super::experiment::{Claim, Experiment, Figure, PaperPoint, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::systems::{Broker, Wire};
use super::publisher::feed;
use super::{again, bench, change, claim, drawn, losses, worst};
use crate::lab::{Lab, find};
use crate::run::stats::{Pick, Statistic, float, mean};

/// One publisher.
pub(crate) struct Resources;

const SYSTEMS: [&str; 7] = [
    "dunlin-quic",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "coap-con",
    "coap-non",
    "coap-dtls",
];

/// What the publisher publishes to.
const TOPIC: &str = "plant/7/temperature";

/// Longest wait for the SUBACK, whose packets may be lost.
const SUBSCRIBE_MAX: Duration = Duration::from_secs(60);

/// Lines and time between two.
const fn load(scale: Scale) -> (usize, Duration) {
    match scale {
        Scale::Smoke => (10, Duration::from_millis(50)),
        Scale::Short => (80, Duration::from_millis(50)),
        Scale::Paper => (1000, Duration::from_secs(1)),
    }
}

/// Why QUIC takes more memory than TLS in one and the same program.
const BUFFERS: &str = "QUIC holds in the process what TCP holds in the kernel, which no \
    process is charged for: packets sent, datagrams received; `memory-private` shows how much that is.";

/// Why the publisher takes more memory than mosquitto's.
const BINARY: &str = "Most of what is resident are pages of the program, which is broker, \
    clients and tools in one; what the process has for itself is in `memory-private`.";

/// What isolates the program, and in it the pages that are read from its file; and the
/// percent that count as the same memory.
const SAME: &str = ", the same program";
const PRIVATE: &str = " that no file is behind";
const AS_MUCH: f64 = 5.0;

impl Resources {
    /// The publisher.
    fn publisher(bench: &Bench<'_>) -> Result<Dialog> {
        let mut command = match bench.system.broker {
            Broker::Mosquitto => {
                let program = find("mosquitto_pub")
                    .context("mosquitto_pub is not installed: apt install mosquitto-clients")?;
                let mut command = Command::new(program);
                command.args(["-V", "5", "-h", &Emulator::address(Side::B).to_string()]);
                command.args(["-p", &bench.system.port().to_string()]);
                if bench.system.wire == Wire::Tls {
                    command.args(["--tls-version", "tlsv1.3", "--cafile"]);
                    command.arg(bench.lab.certificate("ca.pem"));
                }
                command
            }
            _ => bench.client("pub"),
        };
        command.args(["-t", TOPIC, "-q", "1", "-l"]);
        Dialog::start(bench.emulator.namespace(Side::A), &mut command)
    }

    /// A subscriber that prints when something arrives, subscribed.
    fn subscriber(bench: &Bench<'_>) -> Result<Dialog> {
        let mut command = bench.client("sub");
        command.args(["-t", TOPIC, "-q", "1", "-F", "%U %p", "-d"]);
        let subscriber = Dialog::start(bench.emulator.namespace(Side::A), &mut command)?;
        subscriber.await_line("Subscribed", SUBSCRIBE_MAX)?;
        Ok(subscriber)
    }
}

impl Experiment for Resources {
    fn name(&self) -> &'static str {
        "milios-resources"
    }

    fn about(&self) -> &'static str {
        "processor time times delay, and memory, of a publisher against loss"
    }

    fn source(&self) -> &'static str {
        "paper 001, section 6.3.3"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let factors = [("loss_percent", losses(scale))];
        let mut cells = plan::cells(self.name(), &SYSTEMS, &factors, 1);
        cells.extend(again(self.name(), scale, &SYSTEMS[..3]));
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        // What waits behind a loss is waited for.
        let waits = coap::is_of(cell) && cell.factor("loss_percent") != "0";
        let late = if waits { 11.0 } else { 1.0 };
        late + match scale {
            Scale::Smoke => 0.5,
            Scale::Short => 4.0,
            Scale::Paper => 1000.0,
        }
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let bench = bench(lab, cell)?;
        let (count, every) = load(scale);
        let subscriber = Self::subscriber(&bench)?;
        let mut publisher = Self::publisher(&bench)?;
        let done = feed(&mut publisher, &subscriber, count, every)?;
        drop((publisher, subscriber));
        let delays = millis(&done.delivered_us);
        let peak = done.cpu_percent.iter().copied().fold(0.0, f64::max);
        let product = mean(&delays).map(|delay| delay * peak / 100.0);
        let mib = |bytes: u64| vec![float(bytes) / 1_048_576.0];
        let measures = vec![
            measure("delay", "ms", delays),
            measure("cpu-peak", "%", vec![peak]),
            measure("cpu-x-delay", "ms", product.into_iter().collect()),
            measure(
                "cpu-per-message",
                "us",
                vec![done.lines_cpu.as_secs_f64() * 1e6 / float(count as u64)],
            ),
            measure("cpu-start", "ms", vec![done.start_cpu.as_secs_f64() * 1e3]),
            measure("memory", "MiB", mib(done.resident_bytes)),
            measure("memory-private", "MiB", mib(done.private_bytes)),
        ];
        let mut outcome = outcome(measures, bench.finish(done.late_us)?);
        if done.lost > 0 {
            outcome
                .notes
                .push(format!("{} messages did not arrive", done.lost));
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let point = |series, value| PaperPoint {
            series,
            facet: None,
            x: "20",
            value,
        };
        vec![
            drawn(
                "cpu-peak",
                "Most use of a processor by the publisher in a second",
                "cpu-peak",
                vec![
                    point("paper: MQTT over QUIC", 61.0),
                    point("paper: MQTT over TLS", 25.0),
                    point("paper: MQTT over TCP", 25.0),
                ],
            ),
            drawn(
                "cpu-x-delay",
                "Use of a processor times publish delay",
                "cpu-x-delay",
                vec![
                    point("paper: MQTT over QUIC", 10.8),
                    point("paper: MQTT over TLS", 30.0),
                    point("paper: MQTT over TCP", 30.0),
                ],
            ),
            drawn(
                "cpu-per-message",
                "Processor time of the publisher for a message",
                "cpu-per-message",
                Vec::new(),
            ),
            drawn("memory", "Memory of the publisher", "memory", Vec::new()),
            drawn(
                "memory-private",
                "Memory of the publisher that no file is behind",
                "memory-private",
                Vec::new(),
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let quic = "dunlin-quic";
        let row = |other, metric, what: &str, paper, most: Option<f64>| {
            let loss = worst(records, [quic, other], metric);
            let measured = change(records, [quic, other], metric, loss);
            let what = format!("{what}, {loss} % loss: {quic} against {other}");
            let row = Claim {
                reason: match (metric, other) {
                    ("memory", "dunlin-tls") => Some(BUFFERS),
                    ("memory", _) => Some(BINARY),
                    _ => None,
                },
                ..claim(what, paper, measured, "%", most.map(Target::AtMost))
            };
            (row, loss)
        };
        let less = Some(0.0);
        let memory = "memory of the publisher";
        let mut rows = Vec::new();
        for other in ["dunlin-tls", "mosquitto-tls"] {
            let paper = "-64 % (10.8 against 30 ms, 6.3.3)";
            rows.push(row(other, "cpu-x-delay", "CPU times delay", paper, less).0);
            let paper = "+144 % (61 against 25 %, 6.3.3)";
            rows.push(row(other, "cpu-peak", "highest use of a processor", paper, None).0);
            let (row, loss) = row(other, "memory", memory, "less (6.3.3)", less);
            // What another program takes is not what QUIC takes.
            let cause = if other == "mosquitto-tls" {
                SAME
            } else {
                PRIVATE
            };
            let cause = format!("{memory}{cause}, {loss} % loss: {quic} against dunlin-tls");
            rows.push(row.because(self.name(), cause));
        }
        for (metric, cause) in [("memory", SAME), ("memory-private", PRIVATE)] {
            let what = format!("{memory}{cause}");
            rows.push(row("dunlin-tls", metric, &what, "not said", Some(AS_MUCH)).0);
        }
        let paper = "slightly more (6.3.3)";
        rows.push(row("mosquitto-tcp", "memory", memory, paper, None).0);
        for (metric, what) in [
            ("cpu-x-delay", "CPU times delay"),
            (
                "cpu-per-message",
                "processor time of the publisher for a message",
            ),
            (
                "memory-private",
                "memory of the publisher that no file is behind",
            ),
        ] {
            let what = format!("{what}, 0 % loss");
            let pick = |system: &str| Pick::new(system, metric).at("loss_percent", "0");
            rows.extend(coap::beside(records, quic, &what, Statistic::Mean, pick));
        }
        rows
    }
}
