//! A network with a counting host, and senders on the others.
//!
//! Packets carry the time when they were sent, and a number; zero is none.
//! Probes are threads at real-time priority like the link, so that what they
//! see is the link and not the scheduler.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use dunlin_link::Topology;
use dunlin_link::linux::{Testbed, TestbedOptions, TestbedReport, set_realtime};

use crate::link::start_testbed;

const PORT: u16 = 9;

/// Time for what is on its way to arrive.
pub(super) const DRAIN: Duration = Duration::from_millis(200);

/// Packets before those that are measured; they find caches cold.
const WARM_UP: u64 = 5;

/// How far apart probes are sent.
const PROBE_GAP: Duration = Duration::from_millis(4);

/// No room for a packet now (ENOBUFS).
const NO_ROOM: i32 = 105;

/// A network at work, and what its counting host gets.
pub(super) struct Bench {
    pub(super) testbed: Testbed,
    to: SocketAddr,
    begun: Instant,
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    arrivals: Arc<Mutex<Arrivals>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What packets showed.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    times: Vec<Duration>,
    numbers: Vec<u64>,
}

/// What became of all packets.
pub(super) struct Seen {
    pub(super) report: TestbedReport,
    pub(super) received: u64,
    /// How long packets took, in order.
    pub(super) times: Vec<Duration>,
    /// Numbers that arrived, in order.
    pub(super) numbers: Vec<u64>,
}

impl Seen {
    /// The time that this share of packets, in percent, did not exceed.
    pub(super) fn time(&self, percent: usize) -> Duration {
        let index = self.times.len().saturating_sub(1) * percent / 100;
        self.times.get(index).copied().unwrap_or_default()
    }

    /// Packets of one direction that a link lost.
    pub(super) fn lost_on(&self, link: &str) -> u64 {
        self.report.link(link).map_or(0, |link| link.up.lost)
    }
}

/// A host that sends.
pub(super) struct Sender {
    socket: UdpSocket,
    begun: Instant,
}

impl Bench {
    /// Starts a network, whose packets go to this host.
    pub(super) fn start(topology: Topology, to: &str) -> Result<Self> {
        let name = format!("selftest-{}", std::process::id());
        let testbed = start_testbed(TestbedOptions::new(name, topology))?;
        let to_address = SocketAddr::from((testbed.address(to)?, PORT));
        let inside = testbed
            .namespace(to)?
            .within(|| UdpSocket::bind(to_address))?;
        let socket = inside.with_context(|| format!("cannot listen on host {to}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let counter = Counter {
            socket,
            begun: Instant::now(),
            stop: Arc::default(),
            received: Arc::default(),
            arrivals: Arc::default(),
        };
        let bench = Self {
            testbed,
            to: to_address,
            begun: counter.begun,
            stop: Arc::clone(&counter.stop),
            received: Arc::clone(&counter.received),
            arrivals: Arc::clone(&counter.arrivals),
            thread: None,
        };
        let thread = thread::spawn(move || counter.run());
        Ok(Self {
            thread: Some(thread),
            ..bench
        })
    }

    /// A sender on a host.
    pub(super) fn sender(&self, host: &str) -> Result<Sender> {
        let from = self.testbed.address(host)?;
        let socket = self.testbed.namespace(host)?.within(|| {
            let socket = UdpSocket::bind((from, 0))?;
            socket.connect(self.to)?;
            io::Result::Ok(socket)
        })??;
        Ok(Sender {
            socket,
            begun: self.begun,
        })
    }

    /// Lets packets arrive that take this long, then ends it.
    pub(super) fn end(mut self, delay: Duration) -> Seen {
        thread::sleep(DRAIN + delay);
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let report = self.testbed.stop();
        let arrivals = self.arrivals.lock();
        let mut arrivals = arrivals.map(|seen| seen.clone()).unwrap_or_default();
        arrivals.times.sort();
        arrivals.numbers.sort_unstable();
        Seen {
            report,
            received: self.received.load(Ordering::Relaxed),
            times: arrivals.times,
            numbers: arrivals.numbers,
        }
    }
}

/// Counts packets and what they show until asked to stop.
struct Counter {
    socket: UdpSocket,
    begun: Instant,
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl Counter {
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
            let [sent, number] = [0, 8].map(|at| {
                let bytes = buffer.get(at..).and_then(|rest| rest.first_chunk());
                bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
            });
            if sent == 0 && number == 0 {
                continue;
            }
            if let Ok(mut arrivals) = self.arrivals.lock() {
                if sent != 0 {
                    let took = now.saturating_sub(Duration::from_nanos(sent));
                    arrivals.times.push(took);
                }
                if number != 0 {
                    arrivals.numbers.push(number);
                }
            }
        }
    }
}

impl Sender {
    /// Sends packets with the time in them, apart enough to meet an idle link.
    pub(super) fn probe(&self, count: u64) -> io::Result<()> {
        let _ = set_realtime();
        let mut packet = [0u8; 100];
        for round in 0..count + WARM_UP {
            if round >= WARM_UP {
                let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                packet[..8].copy_from_slice(&now.to_be_bytes());
            }
            self.socket.send(&packet)?;
            thread::sleep(PROBE_GAP);
        }
        Ok(())
    }

    /// Sends packets at this many a second, in bursts of a millisecond;
    /// numbered from 1 if asked for.
    pub(super) fn pace(&self, pace: Pace) -> io::Result<()> {
        let mut packet = vec![0u8; pace.len];
        let begun = Instant::now();
        let mut sent: u32 = 0;
        while sent < pace.count {
            let due = begun.elapsed().as_secs_f64() * f64::from(pace.per_second);
            while sent < pace.count && f64::from(sent) <= due {
                if pace.numbered
                    && let Some(place) = packet.get_mut(8..16)
                {
                    place.copy_from_slice(&(u64::from(sent) + 1).to_be_bytes());
                }
                match self.socket.send(&packet) {
                    Ok(_) => sent += 1,
                    Err(error) if error.raw_os_error() == Some(NO_ROOM) => thread::yield_now(),
                    Err(error) => return Err(error),
                }
            }
            if sent < pace.count {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// How packets are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) count: u32,
    pub(super) per_second: u32,
    /// Bytes of a packet, without headers.
    pub(super) len: usize,
    pub(super) numbered: bool,
}

/// Runs a probe on a thread of its own, which may take real-time priority.
pub(super) fn on_thread(probe: impl FnOnce() -> io::Result<()> + Send) -> Result<()> {
    thread::scope(|scope| scope.spawn(probe).join())
        .unwrap_or_else(|_| Err(io::Error::other("the probe panicked")))
        .context("cannot send over the link")
}
