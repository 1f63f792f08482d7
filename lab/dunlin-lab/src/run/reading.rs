//! `reading`: a device that stays connected sends a reading a second: how long until
//! it is acknowledged and what that takes on the wire, MQTT beside CoAP.

use core::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use dunlin_link::linux::Emulator;
use dunlin_link::{Action, Side};

use super::bench::{Bench, measure, millis, outcome};
use super::capture::Captured;
use super::coap::{self, Log, Reading as Request};
use super::dialog::Dialog;
use super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::generator::Generator;
use super::interrupt::pause;
use super::load::Load;
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float};
use super::systems::Broker;
use crate::lab::Lab;

/// Readings of devices that stay connected.
pub(crate) struct Reading;

const SYSTEMS: [&str; 8] = [
    "dunlin-quic",
    "dunlin-quic-topics",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "coap-con",
    "coap-non",
    "coap-dtls",
];

/// Delay each way.
const DELAY: &str = "delay=5ms";

/// Longest wait until a device has its first answer.
const FIRST_MAX: Duration = Duration::from_secs(20);

/// What still comes after the last reading that counts: CoAP repeats after 2 to 3 s,
/// then twice as long.
const TAIL_SECONDS: u32 = 12;

/// As short as the load generator has them.
const PAYLOAD: &str = "temperature=21.5";

const DAY_US: u64 = 86_400_000_000;

/// Devices, and seconds that count.
const fn size(scale: Scale) -> (u32, u32) {
    match scale {
        Scale::Smoke => (4, 1),
        Scale::Short => (60, 5),
        Scale::Paper => (60, 200),
    }
}

const fn losses(scale: Scale) -> &'static [&'static str] {
    match scale {
        Scale::Smoke => &["10"],
        Scale::Short => &["0", "10"],
        Scale::Paper => &["0", "2", "5", "10", "15", "20"],
    }
}

/// Readings that count: when each was sent, and how long until its answer.
type Readings = Vec<(u64, Option<u64>)>;

impl Experiment for Reading {
    fn name(&self) -> &'static str {
        "reading"
    }

    fn about(&self) -> &'static str {
        "delay and bytes of a reading a second against loss, MQTT and CoAP"
    }

    fn source(&self) -> &'static str {
        "future work of paper 002, 6.1.3, and of paper 001, 7.2"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let factors = [("loss_percent", losses(scale))];
        let systems: &[&str] = match scale {
            Scale::Smoke => &["dunlin-quic", "coap-con"],
            _ => &SYSTEMS,
        };
        plan::cells(self.name(), systems, &factors, 1)
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let (devices, seconds) = size(scale);
        let repeats = cell.system.starts_with("coap") && cell.factor("loss_percent") != "0";
        2.0 + f64::from(devices) * 0.01 + f64::from(seconds) + if repeats { 6.0 } else { 2.0 }
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let path = lab.temporary("reading.pcapng");
        let bench = Bench::start(lab, cell, &[DELAY.to_owned()], Some(path.clone()))?;
        let loss = Action::parse(&format!("loss={}%", cell.factor("loss_percent")))?;
        let (devices, seconds) = size(scale);
        let window = |from: u64| (from, from + u64::from(seconds) * 1_000_000);
        let (readings, from, late_us) = match bench.system.broker {
            Broker::Libcoap => requests(&bench, loss, (devices, seconds))?,
            _ => publications(&bench, loss, (devices, seconds))?,
        };
        let invalid = bench.finish(late_us)?;
        let (from, to) = window(from);
        let counted: Readings = readings
            .into_iter()
            .filter(|(sent, _)| (from..to).contains(sent))
            .collect();
        let captured = Captured::read(&path)?;
        let mut measures = on_the_wire(&captured, &counted, (from, seconds));
        let _ = std::fs::remove_file(&path);
        let took: Vec<u64> = counted.iter().filter_map(|(_, took)| *took).collect();
        let missing = counted.len() - took.len();
        measures.push(measure("acknowledged", "ms", millis(&took)));
        let missing_percent = float(missing as u64) / float(counted.len().max(1) as u64) * 100.0;
        measures.push(measure("unanswered", "%", vec![missing_percent]));
        let mut outcome = outcome(measures, invalid);
        if counted.is_empty() {
            outcome.invalid = Some("no reading was sent while it counted".to_owned());
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let lines = |id, title, metric| {
            let kind = Kind::Lines { x: "loss_percent" };
            Figure::new(id, title, metric, kind)
        };
        vec![
            Figure {
                log_y: true,
                ..lines(
                    "acknowledged",
                    "Delay until a reading is acknowledged",
                    "acknowledged",
                )
            },
            lines("bytes", "Bytes on the wire for a reading", "bytes"),
            lines("unanswered", "Readings without an answer", "unanswered"),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let at = |system: &str, metric: &str, loss: &str| {
            let pick = Pick::new(system, metric).at("loss_percent", loss);
            Sample::of(records, &pick)
        };
        let mut rows = Vec::new();
        for (metric, statistic) in [
            ("acknowledged", Statistic::Mean),
            ("acknowledged", Statistic::Quantile(0.99)),
            ("bytes", Statistic::Mean),
        ] {
            let shown = match statistic {
                Statistic::Quantile(_) => "99th percentile",
                _ => "mean",
            };
            for other in ["coap-con", "coap-non", "coap-dtls"] {
                for loss in ["0", "10"] {
                    let target = (metric == "acknowledged" && other == "coap-dtls" && loss == "10")
                        .then_some(Target::AtMost(-50.0));
                    rows.push(Claim {
                        what: format!(
                            "{metric}, {shown}, {loss} % loss: dunlin-quic against {other}"
                        ),
                        paper: "left as future work (002, 6.1.3)".to_owned(),
                        measured: at("dunlin-quic", metric, loss)
                            .change(&at(other, metric, loss), statistic),
                        unit: "%",
                        target,
                        reason: None,
                        causes: Vec::new(),
                    });
                }
            }
        }
        // Fewer bytes under loss: what a lost packet adds.
        for (system, paper) in [
            ("dunlin-quic", "up to twice TCP's bytes (001, 7.1)"),
            ("dunlin-quic-topics", "up to twice TCP's bytes (001, 7.1)"),
            ("dunlin-tls", "not said"),
            ("coap-dtls", "not said"),
        ] {
            rows.push(Claim {
                what: format!("bytes of a reading, {system}: 10 % loss against none"),
                paper: paper.to_owned(),
                measured: at(system, "bytes", "10")
                    .change(&at(system, "bytes", "0"), Statistic::Mean),
                unit: "%",
                target: (system == "dunlin-quic").then_some(Target::AtMost(30.0)),
                reason: None,
                causes: Vec::new(),
            });
        }
        rows
    }
}

/// Bytes and packets of each second that counts, for a reading.
fn on_the_wire(
    captured: &Captured,
    counted: &Readings,
    (from, seconds): (u64, u32),
) -> Vec<super::record::Measure> {
    let [mut bytes, mut packets] = [const { Vec::new() }; 2];
    for second in 0..u64::from(seconds) {
        let start = from + second * 1_000_000;
        let within = |at: u64| (start..start + 1_000_000).contains(&at);
        let sent = counted.iter().filter(|(sent, _)| within(*sent)).count();
        if sent == 0 {
            continue;
        }
        // What hosts sent, whether or not it arrived.
        let seen = captured.at("from-a").chain(captured.at("from-b"));
        let seen: Vec<u32> = seen
            .filter(|packet| within(packet.at / 1000))
            .map(|packet| packet.len)
            .collect();
        let sum: u64 = seen.iter().map(|len| u64::from(*len)).sum();
        bytes.push(float(sum) / float(sent as u64));
        packets.push(float(seen.len() as u64) / float(sent as u64));
    }
    vec![
        measure("bytes", "bytes", bytes),
        measure("packets", "packets", packets),
    ]
}

/// Publishers of QoS 1: their readings, from when they count, and how late the load
/// generator was.
fn publications(
    bench: &Bench<'_>,
    loss: Action,
    (devices, seconds): (u32, u32),
) -> Result<(Readings, u64, u64)> {
    let load = Load {
        publishers: devices,
        subscribers: 0,
        topics: 1,
        rate: Some(1.0),
        payload: PAYLOAD.len() as u32,
        expiry: Duration::ZERO,
        keep_alive: 60,
        patience: Duration::from_secs(u64::from(TAIL_SECONDS)),
        // The first second is no steady state.
        ..Load::of(Duration::from_secs(u64::from(seconds) + 2))
    };
    let mut command = bench.load(bench.system.streams);
    load.add_to(&mut command);
    command.args(["--announce", "--samples", "--qos", "1"]);
    let mut load = Generator::of(command)?;
    load.await_connected()?;
    pause(Duration::from_secs(1))?;
    bench.emulator.apply(loss);
    let from = epoch_us();
    let done = load.end()?;
    // Its own clock, which begins with the first message.
    let first = done.acknowledged.iter().map(|(sent, _)| *sent).min();
    let since_1970 = |sent: u64| done.window_us.0 + (sent - first.unwrap_or_default());
    let readings = done
        .acknowledged
        .iter()
        .map(|(sent, took)| (since_1970(*sent), Some(*took)));
    Ok((readings.collect(), from, done.late_us))
}

/// Clients of CoAP, one for each device, likewise.
fn requests(
    bench: &Bench<'_>,
    loss: Action,
    (devices, seconds): (u32, u32),
) -> Result<(Readings, u64, u64)> {
    let namespace = bench.emulator.namespace(Side::A);
    // One before, one for those that start late, and one at the end.
    let count = (seconds + 3).to_string();
    let wait = (seconds + TAIL_SECONDS).to_string();
    let mut clients = Vec::new();
    for device in 0..devices {
        let mut command = std::process::Command::new(coap::client()?);
        command.env("TZ", "UTC");
        command.args(["-m", "put", "-e", PAYLOAD, "-G", &count, "-B", &wait]);
        let to = (Emulator::address(Side::B), &*format!("p{device}"));
        bench.system.coap_request(&mut command, bench.lab, to);
        clients.push((Dialog::start(namespace, &mut command)?, Vec::new()));
    }
    for (client, said) in &mut clients {
        let begun = Instant::now();
        loop {
            let line = client.next(FIRST_MAX.saturating_sub(begun.elapsed()));
            let line = line.context("a client of CoAP got no answer")?;
            let answered = line.contains("process incoming");
            said.push(line);
            if answered {
                break;
            }
        }
    }
    bench.emulator.apply(loss);
    let from = epoch_us();
    pause(Duration::from_secs(u64::from(seconds)))?;
    let mut readings = Vec::new();
    for (client, mut said) in clients {
        let limit = Duration::from_secs(u64::from(TAIL_SECONDS));
        said.extend(core::iter::from_fn(|| client.next(limit)));
        let log = Log::read(said.iter().map(String::as_str));
        readings.extend(log.readings.iter().map(|request| since_1970(request, from)));
    }
    Ok((readings, from, 0))
}

/// The log has times of a day; `near` tells which.
fn since_1970(request: &Request, near: u64) -> (u64, Option<u64>) {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let sent = near / DAY_US * DAY_US + micros(request.sent);
    let took = request
        .answered
        .map(|at| micros(at.saturating_sub(request.sent)));
    (sent, took)
}

fn epoch_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_the_readings_of_their_second() {
        use super::super::capture::Packet;
        let packet = |at_us: u64, place, len| Packet {
            at: at_us * 1000,
            place,
            source: [10, 203, 0, 1].into(),
            destination: [10, 203, 0, 2].into(),
            protocol: 17,
            ports: [1, 2],
            len,
        };
        let captured = Captured {
            places: vec!["from-a".to_owned(), "from-b".to_owned(), "to-b".to_owned()],
            packets: vec![
                packet(500_000, 0, 70),
                packet(1_500_000, 0, 100),
                packet(1_500_000, 2, 100),
                packet(1_600_000, 1, 60),
                packet(2_700_000, 0, 30),
            ],
        };
        let counted = vec![
            (1_400_000, Some(10)),
            (1_450_000, None),
            (2_650_000, Some(10)),
        ];
        let measures = on_the_wire(&captured, &counted, (1_000_000, 3));
        assert_eq!(measures[0].values, [80.0, 30.0]);
        assert_eq!(measures[1].values, [1.0, 1.0]);
    }

    #[test]
    fn times_of_a_day_become_times_since_1970() {
        let request = Request {
            sent: Duration::from_secs(3),
            answered: Some(Duration::from_millis(3_020)),
        };
        let near = 20_000 * DAY_US + 2_500_000;
        assert_eq!(
            since_1970(&request, near),
            (20_000 * DAY_US + 3_000_000, Some(20_000))
        );
    }
}
