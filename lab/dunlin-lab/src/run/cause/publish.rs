//! `cause-publish`: what a sender that sends everything once and repeats what was lost
//! needs at least, on the link of `milios-publish`.
//!
//! Datagrams go to the other host and come back, as a message goes to a broker and on to
//! a subscriber. Which of them are lost, and how often, is the link's doing; the delay is
//! the round trip that was measured, and for each loss the time after which a sender can
//! know of it: a round trip at the soonest, or a probe timeout (RFC 9002, 6.2.1) with the
//! 5 ms in which Dunlin asks to be acknowledged, twice as long after each.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::{Emulator, Options};
use dunlin_link::{Action, Side};

use super::super::bench::{measure, outcome};
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::interrupt::pause;
use super::super::milios::{DELAY, loss, once};
use super::super::plan;
use super::super::record::{Cell, Factors, Measure, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic, float, mean, quantile_of};
use crate::lab::Lab;
use crate::link::start;
use crate::profile::of;

/// Datagrams through a link.
pub(crate) struct Publish;

/// What stands for a system: a sender that sends once.
const SENDER: &str = "sends-once";

const TIMES: u32 = 5;

/// Datagrams that measure the round trip, before anything is lost.
const ROUND_TRIPS: u32 = 50;

/// Longest wait for one of them.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);

/// Between two datagrams.
const EVERY: Duration = Duration::from_micros(200);

/// From the last datagram of a round until all that are not lost have arrived.
const SETTLE: Duration = Duration::from_millis(100);

/// Rounds after which what has still not arrived is a failure.
const ROUNDS_MAX: u32 = 64;

/// Time in which Dunlin asks its peer to acknowledge.
const ACK_DELAY_MS: f64 = 5.0;

/// Least that a probe timeout adds for the variation of the round trip (kGranularity).
const GRANULARITY_MS: f64 = 1.0;

const PORT: u16 = 9;

/// When what was lost is sent again, as a factor of the delays.
const REPEATED: &str = "repeated_after";
const ROUND_TRIP: &str = "round trip";
const PROBE: &str = "probe timeout";

const fn datagrams(scale: Scale) -> u32 {
    match scale {
        Scale::Smoke => 200,
        Scale::Short => 16_000,
        Scale::Paper => 50_000,
    }
}

impl Experiment for Publish {
    fn name(&self) -> &'static str {
        once::CAUSES
    }

    fn about(&self) -> &'static str {
        "the least publish delay of a sender that sends everything once, against loss"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn isolates(&self) -> bool {
        true
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (losses, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&["10"], 1),
            _ => (&["0", "10", "20"], TIMES),
        };
        plan::cells(self.name(), &[SENDER], &[("loss_percent", losses)], times)
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let rounds = match cell.factor("loss_percent") {
            "0" => 1.0,
            "10" => 5.0,
            _ => 7.0,
        };
        1.2 + f64::from(datagrams(scale)) * EVERY.as_secs_f64() + rounds * SETTLE.as_secs_f64()
    }

    fn run(&self, cell: &Cell, scale: Scale, _: &Lab) -> Result<Outcome> {
        let mut options = Options::new(format!("run-{}", std::process::id()));
        options.seed = cell.seed;
        options.profiles = of(&[DELAY])?;
        let emulator = start(options)?;
        let bound = |side, port| -> Result<UdpSocket> {
            let namespace = emulator.namespace(side);
            let socket = namespace.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))??;
            socket.set_read_timeout(Some(SETTLE))?;
            Ok(socket)
        };
        let (sender, echo) = (bound(Side::A, 0)?, bound(Side::B, PORT)?);
        sender.connect((Emulator::address(Side::B), PORT))?;
        let lossy = Action::parse(&loss(cell))?;
        let ended = AtomicBool::new(false);
        let (trips, sent) = thread::scope(|scope| {
            let reflected = scope.spawn(|| reflect(&echo, &ended));
            let all = || -> Result<_> {
                let trips = round_trips(&sender)?;
                emulator.apply(lossy);
                Ok((trips, sends(&sender, datagrams(scale))?))
            };
            let all = all();
            ended.store(true, Ordering::Relaxed);
            let reflected = reflected.join();
            reflected.map_err(|_| anyhow::anyhow!("the echo panicked"))??;
            all
        })?;
        let repeated: u64 = sent.iter().map(|sent| u64::from(sent - 1)).sum();
        let report = emulator.stop();
        // Else it was not only the link that lost them.
        let by_others = (report.from_a.lost != repeated).then(|| {
            let lost = report.from_a.lost;
            format!("the link lost {lost} datagrams, but {repeated} were missed")
        });
        let invalid = report.trouble().into_iter().next().or(by_others);
        let mut outcome = outcome(delays(&trips, &sent), invalid);
        let all = repeated + sent.len() as u64;
        outcome.notes.push(format!(
            "the link lost {:.0} % of the datagrams",
            float(repeated) / float(all.max(1)) * 100.0
        ));
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            split: Some(REPEATED),
            ..Figure::new(
                "delay",
                "Least delay of a sender that sends once",
                "delay",
                Kind::Lines { x: "loss_percent" },
            )
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sample = |after, loss| {
            let pick = Pick::new(SENDER, "delay").at(REPEATED, after);
            Sample::of(records, &pick.at("loss_percent", loss))
        };
        let mean = Statistic::Mean;
        let change = |after| sample(after, "10").change(&sample(after, "0"), mean);
        let of_probe = "publish delay of a sender that sends once and repeats after a probe \
             timeout, mean: 10 % loss against none";
        let mut rows = vec![
            super::row(
                once::floor(),
                change(ROUND_TRIP),
                "%",
                Some(Target::AtLeast(once::STABLE)),
            ),
            super::row(of_probe.to_owned(), change(PROBE), "%", None),
        ];
        for after in [ROUND_TRIP, PROBE] {
            let what = format!(
                "publish delay of a sender that sends once and repeats after a {after}, mean, \
                 20 % loss"
            );
            rows.push(super::row(
                what,
                sample(after, "20").estimate(mean),
                "ms",
                None,
            ));
        }
        rows
    }
}

/// Sends every datagram back until it has ended.
fn reflect(socket: &UdpSocket, ended: &AtomicBool) -> io::Result<()> {
    let mut number = [0; 4];
    while !ended.load(Ordering::Relaxed) {
        match socket.recv_from(&mut number) {
            Ok((_, from)) => drop(socket.send_to(&number, from)?),
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether nothing came in time.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Round trips in milliseconds, one datagram after the other.
fn round_trips(socket: &UdpSocket) -> Result<Vec<f64>> {
    let mut trips = Vec::new();
    for number in 0..ROUND_TRIPS {
        let begun = Instant::now();
        socket.send(&number.to_be_bytes())?;
        let mut back = [0; 4];
        while back != number.to_be_bytes() || trips.len() as u64 != u64::from(number) + 1 {
            match socket.recv(&mut back) {
                Ok(_) if back == number.to_be_bytes() => {
                    trips.push(begun.elapsed().as_secs_f64() * 1e3);
                }
                Ok(_) => {}
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if begun.elapsed() > ROUND_TRIP_MAX {
                bail!("a datagram did not come back over a link that loses nothing");
            }
        }
    }
    Ok(trips)
}

/// How often each of so many datagrams had to be sent until it came back, in rounds: all
/// that is missing is sent again.
fn sends(socket: &UdpSocket, count: u32) -> Result<Vec<u32>> {
    let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
    let mut missing: Vec<u32> = (0..count).collect();
    for round in 1..=ROUNDS_MAX {
        let begun = Instant::now();
        thread::scope(|scope| -> Result<()> {
            let back = scope.spawn(|| collect(socket, missing.len()));
            for (number, place) in missing.iter().zip(0..) {
                let due = EVERY * place;
                thread::sleep(due.saturating_sub(begun.elapsed()));
                socket.send(&number.to_be_bytes())?;
            }
            let back = back
                .join()
                .map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
            for number in back {
                sent.entry(number).or_insert(round);
            }
            Ok(())
        })?;
        missing.retain(|number| !sent.contains_key(number));
        if missing.is_empty() {
            return Ok(sent.into_values().collect());
        }
        pause(Duration::ZERO)?;
    }
    bail!("{} datagrams were lost {ROUNDS_MAX} times", missing.len())
}

/// Numbers that come back, until none did for a while or all have.
fn collect(socket: &UdpSocket, most: usize) -> Result<Vec<u32>> {
    let mut back = Vec::new();
    let mut number = [0; 4];
    while back.len() < most {
        match socket.recv(&mut number) {
            Ok(_) => back.push(u32::from_be_bytes(number)),
            Err(error) if is_nothing(&error) => break,
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    Ok(back)
}

/// What messages took that had to be sent so often.
fn delays(trips: &[f64], sent: &[u32]) -> Vec<Measure> {
    let trip = quantile_of(trips, 0.5);
    let away: Vec<f64> = trips.iter().map(|took| (took - trip).abs()).collect();
    let variation = (4.0 * mean(&away).unwrap_or_default()).max(GRANULARITY_MS);
    let probe = trip + variation + ACK_DELAY_MS;
    let at_once = |sent: &u32| trip + f64::from(sent - 1) * trip;
    // Twice as long after each: 1, 3, 7 times in all.
    let by_probe = |sent: &u32| trip + probe * (f64::from(sent - 1).exp2() - 1.0);
    let of = |after: &str, values: Vec<f64>| Measure {
        factors: Factors::from([(REPEATED.to_owned(), after.to_owned())]),
        ..measure("delay", "ms", values)
    };
    vec![
        of(ROUND_TRIP, sent.iter().map(at_once).collect()),
        of(PROBE, sent.iter().map(by_probe).collect()),
        measure("probe-timeout", "ms", vec![probe]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_costs_a_round_trip_or_a_probe_timeout_that_doubles() {
        let measures = delays(&[10.0, 10.0, 10.0], &[1, 2, 3]);
        assert_eq!(measures[0].values, [10.0, 20.0, 30.0]);
        assert_eq!(measures[1].values, [10.0, 26.0, 58.0]);
        assert_eq!(measures[2].values, [16.0]);
        // Round trips that vary by 2 ms: four times that is more than the clock.
        let measures = delays(&[8.0, 10.0, 12.0, 10.0, 10.0], &[2]);
        assert!((measures[2].values[0] - (10.0 + 4.0 * 0.8 + 5.0)).abs() < 1e-9);
    }

    #[test]
    fn what_does_not_come_back_is_sent_again_and_counted() {
        let echo = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.set_read_timeout(Some(SETTLE)).unwrap();
        sender.connect(echo.local_addr().unwrap()).unwrap();
        // Swallows each third of the first six datagrams.
        let swallowing = thread::spawn(move || {
            let mut number = [0; 4];
            for place in 1..=8 {
                let (_, from) = echo.recv_from(&mut number).unwrap();
                if place > 6 || place % 3 != 0 {
                    echo.send_to(&number, from).unwrap();
                }
            }
        });
        assert_eq!(sends(&sender, 6).unwrap(), [1, 1, 2, 1, 1, 2]);
        swallowing.join().unwrap();
    }
}
