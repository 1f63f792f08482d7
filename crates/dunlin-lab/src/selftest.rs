//! How exact a link is on this machine: delay, rate, loss, packets a second.
//!
//! Probes are threads in the namespaces, at real-time priority like the link,
//! so that what they see is the link and not the scheduler.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use dunlin_link::linux::{Emulator, Options, Report, missing, set_realtime};
use dunlin_link::{Loss, Side};

use crate::link::start;
use crate::profile;
use crate::say;

const PORT: u16 = 9;

/// Largest error of the median delay.
const DELAY_ERROR_MAX: Duration = Duration::from_micros(200);

/// Largest error of a rate.
const RATE_ERROR_MAX: f64 = 0.05;

/// Deviations that 99 % of normal draws keep.
const DEVIATIONS_99: f64 = 2.576;

/// Packets a second at which the kernel must drop nothing.
const PACE_PPS: u32 = 50_000;

/// Time for what is on its way to arrive.
const DRAIN: Duration = Duration::from_millis(200);

/// Runs all measurements; fails if one misses its target. Where there can be
/// no link that is said, and no failure.
pub(crate) fn run(short: bool) -> Result<ExitCode> {
    if let Some(what) = missing() {
        say::out(format_args!("link self-test: SKIPPED: {what}"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut test = SelfTest {
        short,
        passed: true,
        realtime: true,
    };
    say::out(format_args!(
        "{:<34} {:>12} {:>26}  verdict",
        "measurement", "expected", "seen"
    ));
    test.delays()?;
    test.losses()?;
    test.rates()?;
    test.packets_per_second()?;
    let verdict = match (test.passed, test.realtime) {
        (true, true) => "link self-test: passed",
        (false, true) => "link self-test: FAILED",
        (_, false) => "link self-test: no real-time priority, so times were not judged",
    };
    say::out(verdict);
    Ok(if test.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

struct SelfTest {
    short: bool,
    passed: bool,
    realtime: bool,
}

/// A link with a counting host B, and host A's socket.
struct Bench {
    emulator: Emulator,
    socket: UdpSocket,
    /// What packets count their time from.
    begun: Instant,
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    /// Times that packets took.
    arrived: Arc<Mutex<Vec<Duration>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Bench {
    fn start(settings: &[&str]) -> Result<Self> {
        let mut options = Options::new(format!("selftest-{}", std::process::id()));
        options.profiles = profile::of(settings)?;
        let emulator = start(options)?;
        let b = SocketAddr::from((Emulator::address(Side::B), PORT));
        let inside = emulator.namespace(Side::B).within(|| UdpSocket::bind(b))?;
        let answering = inside.context("cannot listen in namespace b")?;
        answering.set_read_timeout(Some(Duration::from_millis(20)))?;
        let socket = emulator.namespace(Side::A).within(|| {
            let socket = UdpSocket::bind((Emulator::address(Side::A), 0))?;
            socket.connect(b)?;
            io::Result::Ok(socket)
        })??;
        let stop = Arc::new(AtomicBool::new(false));
        let received = Arc::new(AtomicU64::new(0));
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let begun = Instant::now();
        let host = Host {
            socket: answering,
            begun,
            stop: stop.clone(),
            received: received.clone(),
            arrived: arrived.clone(),
        };
        let thread = thread::spawn(move || host.run());
        Ok(Self {
            emulator,
            socket,
            begun,
            stop,
            received,
            arrived,
            thread: Some(thread),
        })
    }

    fn end(mut self, delay: Duration) -> Report {
        thread::sleep(DRAIN + delay);
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.emulator.stop()
    }
}

/// Host B: counts packets and the times in them until told to stop.
struct Host {
    socket: UdpSocket,
    begun: Instant,
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    arrived: Arc<Mutex<Vec<Duration>>>,
}

impl Host {
    fn run(&self) {
        // What fails here is said once, by the link.
        let _ = set_realtime();
        let mut buffer = [0u8; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(_) = self.socket.recv(&mut buffer) else {
                continue;
            };
            let now = self.begun.elapsed();
            self.received.fetch_add(1, Ordering::Relaxed);
            let sent = buffer.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let sent = Duration::from_nanos(sent.unwrap_or_default());
            if !sent.is_zero()
                && let Ok(mut arrived) = self.arrived.lock()
            {
                arrived.push(now.saturating_sub(sent));
            }
        }
    }
}

impl SelfTest {
    fn line(&mut self, what: &str, expected: &str, seen: &str, good: bool, timing: bool) {
        let judged = self.realtime || !timing;
        self.passed &= good || !judged;
        let verdict = match (good, judged) {
            (true, _) => "ok",
            (false, true) => "MISSED",
            (false, false) => "not judged",
        };
        say::out(format_args!(
            "{what:<34} {expected:>12} {seen:>26}  {verdict}"
        ));
    }

    /// Times from host A to host B beside the delay.
    fn delays(&mut self) -> Result<()> {
        let (delays, probes): (&[u64], u64) = if self.short {
            (&[0, 10], 100)
        } else {
            (&[0, 1, 10, 50, 250], 400)
        };
        for delay in delays {
            let bench = Bench::start(&[&format!("delay={delay}ms")])?;
            self.realtime &= bench.emulator.no_realtime().is_none();
            let (socket, begun) = (&bench.socket, bench.begun);
            on_thread(|| probe(socket, begun, probes))?;
            let arrived = bench.arrived.clone();
            let report = bench.end(Duration::from_millis(*delay));
            let mut times = arrived
                .lock()
                .map(|times| times.clone())
                .unwrap_or_default();
            times.sort();
            let expected = Duration::from_millis(*delay);
            let at = |share: usize| {
                let index = times.len().saturating_sub(1) * share / 100;
                times.get(index).copied().unwrap_or_default()
            };
            let error = at(50).saturating_sub(expected);
            let early = times.first().is_none_or(|first| *first < expected);
            let seen = format!("p50 {:.3} p99 {:.3} ms", millis(at(50)), millis(at(99)));
            let good = error <= DELAY_ERROR_MAX && !early && report.kernel_drops == 0;
            self.line("delay, one way", &format!("{delay} ms"), &seen, good, true);
        }
        Ok(())
    }

    /// Shares of lost packets, counted by who receives.
    fn losses(&mut self) -> Result<()> {
        let sent: u32 = if self.short { 4_000 } else { 20_000 };
        for text in ["5%", "every 20", "ge 1% 30%"] {
            let bench = Bench::start(&[&format!("up.loss={text}")])?;
            let (socket, received) = (&bench.socket, bench.received.clone());
            on_thread(|| pace(socket, sent, 10_000, 100))?;
            let report = bench.end(Duration::ZERO);
            let lost = u64::from(sent).saturating_sub(received.load(Ordering::Relaxed));
            let loss = Loss::parse(text)?;
            let expected = f64::from(sent) * loss.share();
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            let error = (lost as f64 - expected).abs();
            let allowed = match loss {
                Loss::Every(_) => 0.0,
                // Bursts of mean length 1/r vary by this much more.
                Loss::GilbertElliott {
                    to_good, to_bad, ..
                } => {
                    let correlation = 1.0 - to_good - to_bad;
                    let stretch = (1.0 + correlation) / (1.0 - correlation);
                    deviation(sent, loss.share()) * stretch.sqrt()
                }
                _ => deviation(sent, loss.share()),
            };
            let good = error <= allowed && lost == report.from_a.lost && report.kernel_drops == 0;
            let what = format!("lost of {sent}, loss {text}");
            self.line(
                &what,
                &format!("{expected:.0}±{allowed:.0}"),
                &lost.to_string(),
                good,
                false,
            );
        }
        Ok(())
    }

    /// Bytes through a limited rate, while twice as much is offered.
    fn rates(&mut self) -> Result<()> {
        let rates: &[(u32, &str)] = if self.short {
            &[(10, "10mbit")]
        } else {
            &[(1, "1mbit"), (10, "10mbit"), (100, "100mbit")]
        };
        for (mbit, text) in rates {
            let bench = Bench::start(&[&format!("rate={text}"), "queue=30kB"])?;
            let socket = &bench.socket;
            let len = 1_222; // 1250 with headers
            let pps = mbit * 200;
            let seconds = if self.short { 1 } else { 3 };
            let (before, begun) = (bench.emulator.report().from_a.bytes_out, Instant::now());
            on_thread(|| pace(socket, pps * seconds, pps, len))?;
            let (after, took) = (bench.emulator.report().from_a.bytes_out, begun.elapsed());
            let _ = bench.end(Duration::ZERO);
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let seen = (after - before) as f64 * 8.0 / 1e6 / took.as_secs_f64();
            let good = (seen / f64::from(*mbit) - 1.0).abs() <= RATE_ERROR_MAX;
            let what = format!("rate, {} offered", 2 * mbit);
            self.line(
                &what,
                &format!("{mbit} Mbit/s"),
                &format!("{seen:.3} Mbit/s"),
                good,
                true,
            );
        }
        Ok(())
    }

    /// Packets a second at which nothing is lost behind the link's back, and
    /// the most that it moves.
    fn packets_per_second(&mut self) -> Result<()> {
        let bench = Bench::start(&["delay=5ms"])?;
        let socket = &bench.socket;
        on_thread(|| pace(socket, PACE_PPS, PACE_PPS, 100))?;
        thread::sleep(DRAIN);
        let report = bench.emulator.report();
        let seen = format!(
            "{} dropped, late p99 {} us",
            report.kernel_drops,
            report.lateness.quantile_us(0.99)
        );
        let what = format!("{} packets in 1 s, kernel drops", PACE_PPS);
        self.line(&what, "0 dropped", &seen, report.kernel_drops == 0, true);
        let packets = if self.short { 50_000 } else { 300_000 };
        let (before, begun) = (report.from_a.packets_in, Instant::now());
        on_thread(|| pace(socket, packets, u32::MAX, 100))?;
        let (report, took) = (bench.emulator.report(), begun.elapsed());
        let _ = bench.end(Duration::ZERO);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let kpps = (report.from_a.packets_in - before) as f64 / 1e3 / took.as_secs_f64();
        let seen = format!("{kpps:.0} kpps");
        self.line("as fast as one sender can", "-", &seen, true, false);
        Ok(())
    }
}

/// What 99 % of runs keep to, around the expected number of lost packets.
fn deviation(sent: u32, share: f64) -> f64 {
    DEVIATIONS_99 * (f64::from(sent) * share * (1.0 - share)).sqrt()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Sends packets with the time in them.
fn probe(socket: &UdpSocket, begun: Instant, count: u64) -> io::Result<()> {
    let _ = set_realtime();
    let mut packet = [0u8; 100];
    // The first few find caches cold, and carry no time.
    for round in 0..count + 5 {
        if round >= 5 {
            let now = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            packet[..8].copy_from_slice(&now.to_be_bytes());
        }
        socket.send(&packet)?;
        thread::sleep(Duration::from_millis(4));
    }
    Ok(())
}

/// Runs a probe on a thread of its own, which may take real-time priority.
fn on_thread(probe: impl FnOnce() -> io::Result<()> + Send) -> Result<()> {
    thread::scope(|scope| scope.spawn(probe).join())
        .unwrap_or_else(|_| Err(io::Error::other("the probe panicked")))
        .context("cannot send over the link")
}

/// Sends packets at this many a second, in bursts of a millisecond.
fn pace(socket: &UdpSocket, count: u32, per_second: u32, len: usize) -> io::Result<()> {
    let packet = vec![0u8; len];
    let begun = Instant::now();
    let mut sent: u32 = 0;
    while sent < count {
        let due = begun.elapsed().as_secs_f64() * f64::from(per_second);
        while sent < count && f64::from(sent) <= due {
            match socket.send(&packet) {
                Ok(_) => sent += 1,
                Err(error) if error.raw_os_error() == Some(105) => thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        if sent < count {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
