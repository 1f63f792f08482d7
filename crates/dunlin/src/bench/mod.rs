//! The load generator behind `dunlin bench`: drives `dunlin_net::Net` with
//! many connections a thread and counts what becomes of every message.
//!
//! It knows MQTT and AMQP from the client's side only and works against any broker.
//! Every payload starts with a stamp (publisher, number, intended time), so
//! that loss, duplicates and latency are counted exactly and on one clock.

mod amqp;
mod client;
mod common;
mod dialler;
pub mod fleet;
pub mod handshakes;
pub mod library;
pub mod limits;
mod mqtt;
mod pacer;
pub mod placement;
pub mod places;
pub mod plan;
pub mod proc;
mod publisher;
mod ready;
pub mod report;
pub mod scenario;
pub mod scene;
pub mod schedule;
pub mod shared;
pub mod stats;
pub mod subscriber;
pub mod wire;
mod worker;

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io::Write;
use std::thread;

use anyhow::{Context as _, bail};
use dunlin_base::transport::Transport;
use dunlin_net::Clock;

use plan::Plan;
use proc::Process;
use report::{Broker, Generator, Report, n};
use shared::{Phase, Shared, Window};
use stats::{Causes, Tally};
use worker::Worker;

/// How often the phases are checked.
const TICK: Duration = Duration::from_millis(10);
/// How often a progress line is written.
const PROGRESS: Duration = Duration::from_secs(2);
/// Connecting has failed when nothing happens for this long.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for what is on its way when publishing has ended.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Time between connecting and publishing.
const BREATH: Duration = Duration::from_millis(200);

/// Runs a plan. `broker` is the process to watch, `log` takes progress lines.
///
/// # Errors
/// The system allows too few files, a connection of a publisher or subscriber
/// does not come about, or a thread fails.
pub fn run(plan: &Plan, broker: Option<Process>, log: &mut dyn Write) -> anyhow::Result<Report> {
    plan.check()?;
    let is_quic = |kind| plan.target_of(kind).transport == Transport::Quic;
    let sockets = if is_quic('p') && is_quic('s') {
        plan.threads * plan.connecting.sources.len().max(1)
    } else {
        plan.connections()
    };
    limits::allow_files(sockets)?;
    let scene = plan.part.as_ref().map(|part| &part.scene);
    let clock = scene.map_or_else(Clock::new, |scene| scene.clock);
    let shared = Shared::new(plan.publishers);
    let mut workers = Vec::new();
    for thread in 0..plan.threads {
        workers.push(Worker::new(plan, &shared, clock, thread)?);
    }
    thread::scope(|scope| {
        let shared = &shared;
        let mut handles = Vec::new();
        for (number, worker) in workers.into_iter().enumerate() {
            let name = format!("bench-{number}");
            let run = move || {
                let result = worker.run();
                if result.is_err() {
                    shared.broken.store(true, Ordering::Release);
                }
                result
            };
            let handle = thread::Builder::new().name(name).spawn_scoped(scope, run);
            match handle {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    shared.set_phase(Phase::Stop);
                    return Err(error).context("cannot start a thread");
                }
            }
        }
        let mut conductor = Conductor {
            plan,
            shared,
            clock,
            broker,
            log,
            report: Report::new(plan),
            window: Window::default(),
        };
        let result = conductor.conduct();
        let (mut report, window) = (conductor.report, conductor.window);
        shared.set_phase(Phase::Stop);
        let mut tally = Tally::default();
        for handle in handles {
            match handle.join() {
                Ok(counted) => tally.merge(&counted?),
                Err(_) => bail!("a thread of the generator failed"),
            }
        }
        result.map_err(|error| with_causes(error, &tally.failures))?;
        report.count(plan, &tally, window);
        Ok(report)
    })
}

/// Says why connections failed.
fn with_causes(error: anyhow::Error, causes: &Causes) -> anyhow::Error {
    match causes.iter().max_by_key(|(_, count)| **count) {
        Some((cause, _)) => anyhow::anyhow!("{error}: {cause}"),
        None => error,
    }
}

/// Leads the threads through the phases.
struct Conductor<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    clock: Clock,
    broker: Option<Process>,
    log: &'a mut dyn Write,
    report: Report,
    /// What is measured.
    window: Window,
}

/// What processes had spent at some instant.
#[derive(Clone, Copy)]
struct Spent {
    broker: Option<Duration>,
    own: Option<Duration>,
}

impl Conductor<'_> {
    fn conduct(&mut self) -> anyhow::Result<()> {
        let before = self.memory();
        self.connect()?;
        if let Some(places) = &self.plan.places {
            placement::check(places, self.plan)?;
        }
        thread::sleep(BREATH);
        self.await_scene()?;
        let spent = if self.plan.idle > 0 {
            self.hold()?
        } else {
            self.publish()?
        };
        self.note_cost(spent, before);
        if self.plan.idle == 0 {
            self.drain();
        }
        Ok(())
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let started = self.clock.now();
        let first = self.plan.subscribers + self.plan.idle;
        self.await_connections(first, "connecting")?;
        self.shared.set_phase(Phase::Publishers);
        self.await_connections(self.plan.connections(), "connecting publishers")?;
        let c = &mut self.report.connections;
        let last = self.shared.last_ready_us.load(Ordering::Acquire);
        let last = dunlin_base::Instant::from_micros(last);
        c.seconds = (last - started).as_secs_f64();
        c.ready = self.shared.ready.load(Ordering::Acquire);
        c.per_second = c.ready as f64 / c.seconds.max(1e-6);
        Ok(())
    }

    fn await_connections(&mut self, wanted: usize, what: &str) -> anyhow::Result<()> {
        let (mut progress, mut last_line) = ((0, self.clock.now()), self.clock.now());
        loop {
            self.check_threads()?;
            let ready = self.shared.ready.load(Ordering::Acquire);
            let failed = self.shared.failed.load(Ordering::Acquire);
            if failed > 0 && self.plan.idle == 0 {
                bail!("{failed} of {wanted} connections failed");
            }
            if ready + failed >= wanted {
                if ready == 0 && wanted > 0 {
                    bail!("no connection came about");
                }
                return Ok(());
            }
            let now = self.clock.now();
            if ready + failed != progress.0 {
                progress = (ready + failed, now);
            } else if now - progress.1 > CONNECT_PATIENCE {
                bail!("only {ready} of {wanted} connections came about, the rest hang");
            }
            if now - last_line >= PROGRESS {
                last_line = now;
                self.line(&format!(
                    "{what}: {} of {}",
                    n(ready as u64),
                    n(wanted as u64)
                ));
            }
            thread::sleep(TICK);
        }
    }

    /// In a scenario: waits for the others.
    fn await_scene(&self) -> anyhow::Result<()> {
        let Some(part) = &self.plan.part else {
            return Ok(());
        };
        part.scene.arrive();
        while !part.scene.has_begun() {
            self.check_threads()?;
            if part.scene.is_stopped() {
                bail!("another population did not come about");
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Lays down when publishing starts and what is measured.
    fn set_window(&mut self, start: dunlin_base::Instant) {
        let measure = start + self.plan.time.warmup;
        let end = measure + self.plan.time.duration;
        let us = dunlin_base::Instant::as_micros;
        self.window = match &self.plan.part {
            Some(part) => part.window(us(start)),
            None => Window {
                start_us: us(start),
                measure_us: us(measure),
                end_us: us(end),
            },
        };
    }

    /// Start and end of what is measured.
    fn measured(&self) -> (dunlin_base::Instant, dunlin_base::Instant) {
        let at = dunlin_base::Instant::from_micros;
        (at(self.window.measure_us), at(self.window.end_us))
    }

    /// Holds idle connections; returns what that cost.
    fn hold(&mut self) -> anyhow::Result<(Spent, Spent)> {
        self.set_window(self.clock.now());
        let (measure, end) = self.measured();
        self.sleep_until(measure, "settling")?;
        let before = self.spent();
        self.sleep_until(end, "holding")?;
        Ok((before, self.spent()))
    }

    /// Lets the threads publish; returns what the measured window cost.
    fn publish(&mut self) -> anyhow::Result<(Spent, Spent)> {
        self.set_window(self.clock.now() + Duration::from_millis(20));
        let (measure, end) = self.measured();
        let Window {
            start_us,
            measure_us,
            end_us,
        } = self.window;
        self.shared.set_window(start_us, measure_us, end_us);
        self.shared.set_phase(Phase::Run);
        self.sleep_until(measure, "warming up")?;
        let before = self.spent();
        self.sleep_until(end, "measuring")?;
        let after = self.spent();
        self.shared.set_phase(Phase::Drain);
        Ok((before, after))
    }

    /// Waits for what is on its way, as long as something arrives.
    fn drain(&self) {
        let started = self.clock.now();
        let mut progress = (0, started);
        loop {
            thread::sleep(TICK);
            let now = self.clock.now();
            let load = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            let (expected, received) = (load(&self.shared.expected), load(&self.shared.received));
            let waiting = load(&self.shared.waiting);
            let settled = now - started > 5 * TICK;
            if received >= expected && waiting == 0 && settled {
                return;
            }
            let moved = received + load(&self.shared.acknowledged);
            if moved != progress.0 {
                progress = (moved, now);
            }
            if now - progress.1 > self.plan.time.drain || now - started > DRAIN_MAX {
                return;
            }
        }
    }

    fn sleep_until(&mut self, until: dunlin_base::Instant, what: &str) -> anyhow::Result<()> {
        let mut last = (self.clock.now(), self.counts());
        loop {
            self.check_threads()?;
            let now = self.clock.now();
            if now >= until {
                return Ok(());
            }
            if now - last.0 >= PROGRESS {
                let counts = self.counts();
                let seconds = (now - last.0).as_secs_f64();
                let rate = |now: u64, before: u64| n(((now - before) as f64 / seconds) as u64);
                let lost = self.shared.lost.load(Ordering::Acquire);
                let mut text = format!(
                    "{what}: sent {}/s, delivered {}/s",
                    rate(counts.0, last.1.0),
                    rate(counts.1, last.1.1),
                );
                if lost > 0 {
                    text.push_str(&format!(", {lost} connections lost"));
                }
                self.line(&text);
                last = (now, counts);
            }
            thread::sleep((until - now).min(TICK));
        }
    }

    fn counts(&self) -> (u64, u64) {
        (
            self.shared.sent.load(Ordering::Relaxed),
            self.shared.received.load(Ordering::Relaxed),
        )
    }

    fn check_threads(&self) -> anyhow::Result<()> {
        if self.shared.broken.load(Ordering::Acquire) {
            bail!("a thread of the generator failed");
        }
        let connected = self.shared.ready.load(Ordering::Acquire);
        if connected > 0 && self.shared.lost.load(Ordering::Acquire) >= connected {
            bail!("the broker ended all connections");
        }
        Ok(())
    }

    fn spent(&self) -> Spent {
        Spent {
            broker: self.broker.and_then(Process::cpu),
            own: Process::own().and_then(Process::cpu),
        }
    }

    /// Memory of the broker: resident, and of that what is its own.
    fn memory(&self) -> (u64, u64) {
        let of = |what: fn(Process) -> Option<u64>| self.broker.and_then(what).unwrap_or(0);
        (of(Process::rss), of(Process::private))
    }

    fn note_cost(&mut self, (before, after): (Spent, Spent), memory_before: (u64, u64)) {
        let seconds = self.window.seconds();
        let cost = |before: Option<Duration>, after: Option<Duration>| {
            Some((after?.saturating_sub(before?)).as_secs_f64())
        };
        self.report.generator = cost(before.own, after.own).map(|cpu_seconds| Generator {
            cpu_seconds,
            busy: cpu_seconds / seconds / self.plan.threads as f64,
            ..Generator::default()
        });
        let Some(process) = self.broker else {
            return;
        };
        let (rss_before, private_before) = memory_before;
        let (rss_after, private_after) = self.memory();
        let cpu_seconds = cost(before.broker, after.broker).unwrap_or(0.0);
        let connections = self.report.connections.ready.max(1) as f64;
        let by_connection =
            |before: u64, after: u64| after.saturating_sub(before) as f64 / connections;
        self.report.broker = Some(Broker {
            pid: process.pid(),
            name: process.name(),
            cpu_seconds,
            cores: cpu_seconds / seconds,
            rss_before,
            rss_after,
            rss_per_connection: by_connection(rss_before, rss_after),
            private_before,
            private_after,
            private_per_connection: by_connection(private_before, private_after),
            ..Broker::default()
        });
    }

    fn line(&mut self, text: &str) {
        // Progress is not worth failing for.
        let _ = writeln!(self.log, "{text}");
    }
}
