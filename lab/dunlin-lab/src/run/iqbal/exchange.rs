//! A round of a sender and a receiver, each a process, and what they and the
//! wire say of it.

use core::time::Duration;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use serde::Deserialize;

use super::super::bench::{Bench, reply};
use super::super::capture::Captured;
use super::super::stats::float;

/// What is sent.
const PAYLOAD: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Messages whose round trips are measured, one after another.
const ROUND_TRIPS: &str = "20";

/// Beside two round trips: what is still on its way when a process has ended.
const SETTLE: Duration = Duration::from_millis(50);

/// What `--timing` prints.
#[derive(Clone, Debug, Deserialize)]
struct Timed {
    connected_us: u64,
    closed_us: u64,
    acknowledged_us: Option<u64>,
    early_data: Option<bool>,
    #[serde(default)]
    round_trips_us: Vec<u64>,
}

/// Senders and receivers of a cell.
pub(super) struct Exchange<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) messages: &'a str,
    /// At once.
    pub(super) connections: u32,
    pub(super) round_trip: Duration,
}

/// What senders or receivers have seen: milliseconds of each connection, bytes of
/// a connection in each round.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) startup: Vec<f64>,
    pub(super) total: Vec<f64>,
    /// Until the first outcome.
    pub(super) first: Vec<f64>,
    pub(super) bytes: Vec<f64>,
    windows: Vec<(u64, u64)>,
}

/// What a cell gave.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) senders: Observed,
    pub(super) receivers: Observed,
    pub(super) round_trips: Vec<f64>,
    connections: u32,
    /// Connections that had early data to send, and those whose was taken.
    early: (u32, u32),
    is_early: bool,
}

impl Exchange<'_> {
    /// One round that does not count, as it brings tickets, then these.
    pub(super) fn run(&self, rounds: u32, has_round_trips: bool) -> Result<Seen> {
        let mut seen = Seen {
            connections: self.connections,
            is_early: self.bench.system.early,
            ..Seen::default()
        };
        self.round(&mut Seen::default())?;
        for _ in 0..rounds {
            self.round(&mut seen)?;
        }
        if has_round_trips {
            let timed: Timed = reply(self.sender(0, &["-M", "1", "-C", ROUND_TRIPS]))?;
            let trips = timed.round_trips_us.into_iter().map(millis);
            seen.round_trips = trips.collect();
        }
        Ok(seen)
    }

    fn round(&self, seen: &mut Seen) -> Result<()> {
        let count = self.messages;
        let senders = (0..self.connections).map(|n| self.sender(n, &["-C", count]));
        let sent = self.together(senders.collect(), &mut seen.senders)?;
        let receivers = (0..self.connections).map(|n| self.receiver(n));
        let received = self.together(receivers.collect(), &mut seen.receivers)?;
        for timed in sent.iter().chain(&received) {
            seen.early.0 += 1;
            seen.early.1 += u32::from(timed.early_data == Some(true));
        }
        Ok(())
    }

    fn sender(&self, number: u32, more: &[&str]) -> Command {
        let mut command = self.client("send", number);
        command.args(["-m", PAYLOAD]).args(more);
        command
    }

    fn receiver(&self, number: u32) -> Command {
        let mut command = self.client("receive", number);
        command.args(["-C", self.messages]);
        command
    }

    /// A client at a queue of its own.
    fn client(&self, tool: &str, number: u32) -> Command {
        let (bench, queue) = (self.bench, format!("/queues/iqbal-{number}"));
        let mut command = bench.lab.dunlin(bench.emulator.namespace(Side::A));
        command.args([tool, "--timing", "--url", &bench.url(), "-t", &queue]);
        command.arg("--ca").arg(bench.lab.certificate("ca.pem"));
        command.args(bench.system.amqp.unwrap_or_default());
        if bench.system.early {
            let tickets = bench.lab.temporary(&format!("tickets-{tool}-{number}"));
            command.arg("--tickets").arg(tickets);
        }
        command
    }

    /// Runs them at once, and notes what they say.
    fn together(&self, commands: Vec<Command>, observed: &mut Observed) -> Result<Vec<Timed>> {
        let begun = epoch_ns();
        let timed: Vec<Result<Timed>> = thread::scope(|scope| {
            let threads: Vec<_> = commands
                .into_iter()
                .map(|command| scope.spawn(|| reply(command)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Timed>>| {
                thread.join().ok().context("a thread failed")?
            };
            threads.into_iter().map(join).collect()
        });
        let timed: Vec<Timed> = timed.into_iter().collect::<Result<_>>()?;
        thread::sleep(2 * self.round_trip + SETTLE);
        observed.windows.push((begun, epoch_ns()));
        for one in &timed {
            observed.startup.push(millis(one.connected_us));
            observed.total.push(millis(one.closed_us));
            observed.first.extend(one.acknowledged_us.map(millis));
        }
        Ok(timed)
    }
}

impl Seen {
    /// Counts bytes in a capture.
    pub(super) fn count(&mut self, path: &Path) -> Result<()> {
        let captured = Captured::read(path)?;
        for side in [&mut self.senders, &mut self.receivers] {
            for (begin, end) in &side.windows {
                // What hosts sent, whether or not it arrived.
                let sent = captured.at("from-a").chain(captured.at("from-b"));
                let inside = sent.filter(|packet| (*begin..*end).contains(&packet.at));
                let bytes: u64 = inside.map(|packet| u64::from(packet.len)).sum();
                side.bytes.push(float(bytes) / f64::from(self.connections));
            }
        }
        Ok(())
    }

    /// Whether early data was not taken, in words.
    pub(super) fn refused(&self) -> Option<String> {
        let (all, taken) = self.early;
        let is_noted = self.is_early && taken < all;
        is_noted.then(|| {
            format!(
                "early data of {} of {all} connections was not taken",
                all - taken
            )
        })
    }
}

fn millis(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64() * 1e3
}

fn epoch_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
