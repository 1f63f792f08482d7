//! The thread that moves packets: reads what hosts send, asks the [`Link`] when
//! it arrives, writes it then.

use core::time::Duration;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::lateness::Lateness;
use super::sys::set_realtime;
use super::tun::Tun;
use crate::capture::{Capture, Point};
use crate::counters::{Counters, Fate};
use crate::link::{Link, Side};
use crate::script::{Action, Script};

/// Packets read from one host before others get their turn.
const BATCH_PACKETS: usize = 32;

/// Most by which the thread wakes before a packet is due, to make up for the
/// time that waking takes (some 100 us on virtual machines).
const EARLY_MAX: Duration = Duration::from_micros(200);

/// Buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 4096;

/// What a link did so far.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Packets from host A.
    pub from_a: Counters,
    /// Packets from host B.
    pub from_b: Counters,
    /// How late packets left.
    pub lateness: Lateness,
    /// Packets that the kernel dropped before or after the link: a run with
    /// any of them measured something else than this link.
    pub kernel_drops: u64,
    /// Whether the link ran at real-time priority.
    pub realtime: bool,
    /// Processor time of the link, in microseconds.
    pub cpu_us: u64,
    /// Changes of addresses that failed, and trouble with the capture.
    pub failures: Vec<String>,
}

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Order {
    Do(Action),
    Report(Sender<Report>),
    Stop,
}

/// What the thread owns.
pub(super) struct Pump {
    pub(super) link: Link,
    pub(super) script: Script,
    pub(super) tuns: [Tun; 2],
    pub(super) buffer_len: usize,
    pub(super) capture: Option<Capture<BufWriter<File>>>,
    pub(super) orders: Receiver<Order>,
    /// Readable when there are orders.
    pub(super) bell: OwnedFd,
    pub(super) addresses: Sender<Action>,
    pub(super) start: Instant,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) report: Report,
    pub(super) drops_at_start: u64,
    /// How long before a packet is due the thread asks to be woken.
    pub(super) early: Duration,
}

impl Pump {
    /// Moves packets until told to stop.
    pub(super) fn run(mut self, realtime: bool, ready: &Sender<io::Result<()>>) -> Report {
        let asked = if realtime {
            // Timers of real-time threads have no slack; this is for the rest.
            let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
            set_realtime()
        } else {
            Ok(())
        };
        self.report.realtime = realtime && asked.is_ok();
        // Who started the link waits for this; if it is gone, so is the need.
        let _ = ready.send(asked);
        loop {
            let read = self.read_hosts();
            self.do_steps();
            self.write_hosts();
            if read {
                continue;
            }
            if self.wait() && !self.obey() {
                return self.finish();
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// True if any host had sent something.
    fn read_hosts(&mut self) -> bool {
        let mut any = false;
        for side in Side::BOTH {
            for _ in 0..BATCH_PACKETS {
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.resize(self.buffer_len, 0);
                let len = match self.tun(side).read(&mut buffer) {
                    Ok(Some(len)) => len,
                    Ok(None) => {
                        self.spare.push(buffer);
                        break;
                    }
                    Err(error) => {
                        self.fail(format!("cannot read from host {}: {error}", side.letter()));
                        break;
                    }
                };
                any = true;
                buffer.truncate(len);
                self.enter(side, buffer);
            }
        }
        any
    }

    fn enter(&mut self, side: Side, bytes: Vec<u8>) {
        let now = self.now();
        self.note(now, Point::From(side), &bytes);
        if let Err((fate, bytes)) = self.link.handle_packet(now, side, bytes) {
            self.note(now, Point::Dropped(fate), &bytes);
            self.keep(bytes);
        }
    }

    fn do_steps(&mut self) {
        let now = self.now();
        while let Some(action) = self.script.poll(now) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        action.apply(&mut self.link);
        // The other thread ends only after this one.
        let _ = self.addresses.send(action);
    }

    fn write_hosts(&mut self) {
        let mut now = self.now();
        while let Some(packet) = self.link.poll(now) {
            if packet.fate == Fate::Left {
                if let Err(error) = self.tun(packet.to).write(&packet.bytes) {
                    self.fail(format!(
                        "cannot write to host {}: {error}",
                        packet.to.letter()
                    ));
                }
                now = self.now();
                self.report.lateness.record(now.saturating_sub(packet.due));
                self.note(now, Point::To(packet.to), &packet.bytes);
            } else {
                self.note(now, Point::Dropped(packet.fate), &packet.bytes);
            }
            self.keep(packet.bytes);
        }
    }

    /// Waits for a packet, an order or a time. True if there are orders.
    fn wait(&mut self) -> bool {
        let times = [self.link.next_timeout(), self.script.next_timeout()];
        let until = times.into_iter().flatten().min();
        let begun = self.now();
        let wait = until.map(|until| until.saturating_sub(begun).saturating_sub(self.early));
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let [a, b] = &self.tuns;
        let mut files = [
            PollFd::new(&self.bell, PollFlags::IN),
            PollFd::new(a, PollFlags::IN),
            PollFd::new(b, PollFlags::IN),
        ];
        match poll(&mut files, timeout.as_ref()) {
            Ok(0) => {
                let late = wait.map(|wait| self.now().saturating_sub(begun + wait));
                if wait.is_some_and(|wait| !wait.is_zero()) {
                    self.learn(late.unwrap_or_default());
                }
                false
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => files[0].revents().contains(PollFlags::IN),
            Err(error) => {
                self.fail(format!("cannot wait: {error}"));
                true
            }
        }
    }

    /// Learns how late waking is. Falls fast and rises slowly, so that waiting
    /// for the rest of the time, which costs processor time, stays short.
    fn learn(&mut self, late: Duration) {
        self.early = if late < self.early {
            self.early - (self.early - late) / 4
        } else {
            (self.early + (late - self.early) / 16).min(EARLY_MAX)
        };
    }

    /// False if told to stop.
    fn obey(&mut self) -> bool {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(self.bell.as_fd(), &mut count);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Do(action) => self.act(action),
                Order::Report(to) => {
                    let _ = to.send(self.snapshot());
                }
                Order::Stop => return false,
            }
        }
        true
    }

    fn snapshot(&mut self) -> Report {
        let mut drops = 0;
        for tun in &mut self.tuns {
            match tun.kernel_drops() {
                Ok(more) => drops += more,
                Err(error) => self
                    .report
                    .failures
                    .push(format!("cannot count drops: {error}")),
            }
        }
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Report {
            from_a: self.link.counters(Side::A).clone(),
            from_b: self.link.counters(Side::B).clone(),
            kernel_drops: drops.saturating_sub(self.drops_at_start),
            cpu_us: u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(cpu.tv_nsec).unwrap_or(0) / 1_000,
            ..self.report.clone()
        }
    }

    fn finish(mut self) -> Report {
        if let Some(Err(error)) = self.capture.as_mut().map(Capture::flush) {
            self.fail(format!("cannot write the capture: {error}"));
        }
        self.snapshot()
    }

    fn note(&mut self, at: Duration, point: Point, bytes: &[u8]) {
        let Some(capture) = &mut self.capture else {
            return;
        };
        if let Err(error) = capture.packet(at, point, bytes) {
            self.capture = None;
            self.fail(format!("cannot write the capture: {error}"));
        }
    }

    fn fail(&mut self, what: String) {
        if !self.report.failures.contains(&what) {
            self.report.failures.push(what);
        }
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(buffer);
        }
    }

    const fn tun(&mut self, side: Side) -> &mut Tun {
        let [a, b] = &mut self.tuns;
        match side {
            Side::A => a,
            Side::B => b,
        }
    }
}
