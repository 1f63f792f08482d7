//! `links`: eight links of AMQP over one QUIC connection that loses packets, with
//! a stream for each link and on one stream.
//!
//! 400 messages a second, settled, go to eight addresses in turn. The link that
//! loses packets each way is between the senders and the broker, or between the
//! broker and the receivers; who is at the other end is in the broker's
//! namespace. The programs are `dunlin send` and `dunlin receive`: this one writes
//! lines with the time in them, and reads them again.

use core::time::Duration;
use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Command};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;

use super::bench::{Bench, behind, measure, outcome};
use super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::running::Running;
use super::stats::{Pick, Sample, Statistic, float};
use crate::lab::{Lab, TCP_PORT};

/// Eight links, and who is late on them.
pub(crate) struct Links;

const SYSTEM: &str = "amqp-ours-1rtt";
const SINGLE: &str = "single";
const PER_LINK: &str = "per-link";

/// Which way is lossy.
const TO_BROKER: &str = "to the broker";
const FROM_BROKER: &str = "from the broker";

const LINKS: usize = 8;

/// Between two messages: 50 a second on each link.
const EVERY: Duration = Duration::from_micros(2500);

/// Bytes of a message.
const BYTES: usize = 200;

/// 40 ms of round trip.
const DELAY: &str = "delay=20ms";

/// A message that takes longer is late. One that is not lost takes 20 ms.
const LATE_MS: f64 = 60.0;

/// What is sent in this time is not looked at.
const WARM_UP: Duration = Duration::from_millis(1500);

/// Longest wait for the end of the sender.
const PATIENCE: Duration = Duration::from_secs(20);

/// Wait for the last messages after that.
const LAST: Duration = Duration::from_secs(1);

impl Experiment for Links {
    fn name(&self) -> &'static str {
        "links"
    }

    fn about(&self) -> &'static str {
        "AMQP: whether a lost packet holds up one link or all"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (ways, losses, times): (&[&str], &[&str], u32) = match scale {
            Scale::Smoke => (&[TO_BROKER], &["2"], 1),
            Scale::Short => (&[TO_BROKER, FROM_BROKER], &["2"], 3),
            Scale::Paper => (&[TO_BROKER, FROM_BROKER], &["1", "2", "5"], 10),
        };
        let mut cells = Vec::new();
        for repetition in 0..times {
            for way in ways {
                for loss in losses {
                    for streams in [SINGLE, PER_LINK] {
                        let factors =
                            [("loss_percent", *loss), ("streams", streams), ("way", *way)]
                                .map(|(name, value)| (name.to_owned(), value.to_owned()));
                        let mut cell = plan::cell("links", SYSTEM, factors.into(), repetition);
                        // Both meet the same wire.
                        let wire = format!("links/{repetition}/{way}/{loss}");
                        cell.seed = plan::hash(wire.as_bytes());
                        cells.push(cell);
                    }
                }
            }
        }
        cells
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        1.5 + time(scale).as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let settings = [
            DELAY.to_owned(),
            format!("loss={}%", cell.factor("loss_percent")),
        ];
        let bench = Bench::start(lab, cell, &settings, None)?;
        let to_broker = cell.factor("way") == TO_BROKER;
        let (far, near) = match to_broker {
            true => ("send", "receive"),
            false => ("receive", "send"),
        };
        let far = client(&bench, far, Side::A, &["--streams", cell.factor("streams")]);
        let near = client(&bench, near, Side::B, &[]);
        let (mut send, receive) = match to_broker {
            true => (far, near),
            false => (near, far),
        };
        send.arg("-l");
        let mut receiver = Running::start(receive)?;
        let arrivals = receiver.output()?;
        receiver.await_lines(LINKS, "receiving from")?;
        let mut sender = Running::start(send)?;
        let clock = Instant::now();
        let reading = thread::spawn(move || read(arrivals, clock));
        let (sent, late_us) = write(&mut sender, clock, time(scale))?;
        // Its input has ended.
        sender.await_end(PATIENCE)?;
        thread::sleep(LAST);
        drop(receiver);
        let arrived = reading.join().ok().context("a thread failed")?;
        let invalid = bench.finish(0)?.or_else(|| behind(late_us));
        Ok(judged(&arrived, sent, invalid))
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure {
                split: Some("streams"),
                facet: Some("way"),
                only: &[("loss_percent", "2")],
                ..Figure::new("latency-cdf", "Latency at 2 % loss", "latency", Kind::Cdf)
            },
            Figure {
                split: Some("streams"),
                facet: Some("way"),
                ..Figure::new(
                    "late",
                    "Messages later than 60 ms",
                    "late",
                    Kind::Bars { x: "loss_percent" },
                )
            },
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let rows = [TO_BROKER, FROM_BROKER].into_iter().flat_map(|way| {
            let of = |streams| {
                let pick = Pick::new(SYSTEM, "late").at("way", way);
                Sample::of(
                    records,
                    &pick.at("loss_percent", "2").at("streams", streams),
                )
            };
            let (single, apart) = (of(SINGLE), of(PER_LINK));
            let row = |what: &str, measured, target| Claim {
                what: format!("later than 60 ms, 40 ms round trip, 2 % loss, {way}: {what}"),
                paper: "ours".to_owned(),
                measured,
                unit: "%",
                target,
                reason: None,
                causes: Vec::new(),
            };
            [
                row("on one stream", single.estimate(Statistic::Mean), None),
                row("a stream a link", apart.estimate(Statistic::Mean), None),
                row(
                    "a stream a link against one",
                    apart.change(&single, Statistic::Mean),
                    Some(Target::AtMost(-75.0)),
                ),
            ]
        });
        rows.collect()
    }
}

const fn time(scale: Scale) -> Duration {
    Duration::from_secs(match scale {
        Scale::Smoke => 4,
        Scale::Short => 8,
        Scale::Paper => 60,
    })
}

/// A client at one end of the link, with all links; at the broker's over TCP.
fn client(bench: &Bench<'_>, tool: &str, side: Side, more: &[&str]) -> Command {
    let mut command = bench.lab.dunlin(bench.emulator.namespace(side));
    let address = Emulator::address(Side::B);
    let url = match side {
        Side::A => bench.url(),
        Side::B => format!("amqp://{address}:{TCP_PORT}"),
    };
    command
        .args([tool, "-d", "--settled", "--url", &url])
        .args(more);
    if side == Side::A {
        command.arg("--ca").arg(bench.lab.certificate("ca.pem"));
    }
    for link in 0..LINKS {
        command.arg("-t").arg(format!("links/{link}"));
    }
    command
}

/// Writes lines with their times, in microseconds; how many of them count, and how
/// late all but one in fifty were.
fn write(sender: &mut Running, clock: Instant, time: Duration) -> Result<(u64, u64)> {
    let (mut count, mut late) = (0, Vec::new());
    let end = WARM_UP + time;
    for due in (0..).map(|n| EVERY * n).take_while(|due| *due < end) {
        thread::sleep(due.saturating_sub(clock.elapsed()));
        let now = clock.elapsed();
        late.push(u64::try_from((now - due).as_micros())?);
        count += u64::from(now >= WARM_UP);
        let mut line = format!("{}.", now.as_micros());
        line.extend(core::iter::repeat_n('.', BYTES.saturating_sub(line.len())));
        line.push('\n');
        sender.write(&line)?;
    }
    late.sort_unstable();
    let p98 = late.get(late.len() * 98 / 100).copied();
    Ok((count, p98.unwrap_or_default()))
}

/// Milliseconds of each message that counts.
fn read(arrivals: ChildStdout, clock: Instant) -> Vec<f64> {
    let mut latencies = Vec::new();
    for line in BufReader::new(arrivals).lines() {
        let Ok(line) = line else {
            break;
        };
        let now = clock.elapsed();
        let stamp = line.split('.').next().and_then(|text| text.parse().ok());
        let Some(sent) = stamp.map(Duration::from_micros) else {
            continue;
        };
        if sent >= WARM_UP {
            latencies.push(now.saturating_sub(sent).as_secs_f64() * 1e3);
        }
    }
    latencies
}

/// What did not arrive is late, too.
fn judged(latencies: &[f64], sent: u64, invalid: Option<String>) -> Outcome {
    let in_time = latencies.iter().filter(|ms| **ms <= LATE_MS).count() as u64;
    let late = float(sent.saturating_sub(in_time)) / float(sent.max(1)) * 100.0;
    let measures = vec![
        measure("latency", "ms", latencies.to_vec()),
        measure("late", "%", vec![late]),
    ];
    let mut outcome = outcome(measures, invalid);
    let lost = sent.saturating_sub(latencies.len() as u64);
    if lost > 0 {
        outcome
            .notes
            .push(format!("{lost} messages did not arrive"));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_late() {
        let outcome = judged(&[20.0, 60.0, 61.0], 4, None);
        let late = outcome.measures.iter().find(|it| it.metric == "late");
        assert_eq!(late.map(|it| it.values.clone()), Some(vec![50.0]));
        assert_eq!(outcome.notes, ["1 messages did not arrive"]);
    }
}
