//! The thread that moves packets: reads what hosts send, asks the
//! [`Network`] when it arrives, writes it then.

use core::time::Duration;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::report::{LinkReport, TestbedReport};
use super::sys::set_realtime;
use super::tun::Tun;
use crate::capture::{Capture, Point};
use crate::counters::Fate;
use crate::network::{Exit, Network};
use crate::script::{Action, Script};
use crate::side::Side;
use crate::topology::HostId;

/// Packets read from one host before others get their turn.
const BATCH_PACKETS: usize = 32;

/// Most by which the thread wakes before a packet is due, to make up for the
/// time that waking takes (some 100 us on virtual machines).
const EARLY_MAX: Duration = Duration::from_micros(200);

/// Buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 4096;

/// A capture, and where it goes.
pub(super) struct CaptureFile {
    pub(super) capture: Capture<BufWriter<File>>,
    pub(super) path: PathBuf,
}

/// Commands to the thread.
#[derive(Debug)]
pub(super) enum Order {
    Do(Action),
    Report(Sender<TestbedReport>),
    Stop,
}

/// What is known of a host's device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Heard {
    /// It had nothing when last asked.
    Nothing,
    /// It may have more.
    Something,
    /// It cannot be read any more.
    Gone,
}

/// What the thread owns.
pub(super) struct Pump {
    pub(super) network: Network,
    pub(super) script: Script,
    pub(super) tuns: Vec<Tun>,
    /// By host, like the devices.
    pub(super) heard: Vec<Heard>,
    pub(super) buffer_len: usize,
    pub(super) capture: Option<CaptureFile>,
    pub(super) orders: Receiver<Order>,
    /// Readable when there are orders.
    pub(super) bell: OwnedFd,
    pub(super) addresses: Sender<Action>,
    pub(super) start: Instant,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) report: TestbedReport,
    /// Shown to others at once.
    pub(super) first_failure: Arc<OnceLock<String>>,
    pub(super) drops_at_start: Vec<u64>,
    /// How long before a packet is due the thread asks to be woken.
    pub(super) early: Duration,
}

impl Pump {
    /// Moves packets until it is asked to stop.
    pub(super) fn run(mut self, realtime: bool, ready: &Sender<io::Result<()>>) -> TestbedReport {
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
            if self.wait() && !self.obey() {
                return self.finish();
            }
            self.read_hosts();
            self.do_steps();
            self.write_hosts();
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Takes what hosts have sent, some of each.
    fn read_hosts(&mut self) {
        for index in 0..self.tuns.len() {
            for _ in 0..BATCH_PACKETS {
                if self.heard.get(index) != Some(&Heard::Something) {
                    break;
                }
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.resize(self.buffer_len, 0);
                let Some(tun) = self.tuns.get_mut(index) else {
                    break;
                };
                let len = match tun.read(&mut buffer) {
                    Ok(Some(len)) => len,
                    Ok(None) => {
                        self.spare.push(buffer);
                        self.hear(index, Heard::Nothing);
                        break;
                    }
                    Err(error) => {
                        let name = self.host_name(HostId(index));
                        self.fail(format!("cannot read from host {name}: {error}"));
                        // Else it would keep the thread from ever waiting.
                        self.hear(index, Heard::Gone);
                        break;
                    }
                };
                buffer.truncate(len);
                self.enter(HostId(index), buffer);
            }
        }
    }

    fn hear(&mut self, host: usize, heard: Heard) {
        if let Some(known) = self.heard.get_mut(host) {
            *known = heard;
        }
    }

    fn enter(&mut self, from: HostId, bytes: Vec<u8>) {
        let now = self.now();
        self.note(now, Point::From(from), &bytes);
        if let Err(exit) = self.network.handle_packet(now, from, bytes) {
            self.dropped(now, *exit);
        }
    }

    fn dropped(&mut self, now: Duration, exit: Exit) {
        if let Some(capture) = &mut self.capture {
            let topology = self.network.topology();
            let link = exit.link.and_then(|link| topology.link_name(link));
            let point = Point::Dropped(exit.fate, link);
            let noted = capture.capture.packet(now, point, &exit.bytes);
            self.captured(noted);
        }
        self.keep(exit.bytes);
    }

    fn do_steps(&mut self) {
        let now = self.now();
        while let Some(action) = self.script.poll(now) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        // The caller has checked whether it names what is there.
        let _ = self.network.apply(&action);
        // The other thread ends only after this one.
        let _ = self.addresses.send(action);
    }

    fn write_hosts(&mut self) {
        let mut now = self.now();
        while let Some(exit) = self.network.poll(now) {
            let host = exit.to.filter(|_| exit.fate == Fate::Left);
            let Some((host, tun)) = host.and_then(|to| Some((to, self.tuns.get_mut(to.0)?))) else {
                self.dropped(now, exit);
                continue;
            };
            if let Err(error) = tun.write(&exit.bytes) {
                let name = self.host_name(host);
                self.fail(format!("cannot write to host {name}: {error}"));
            }
            now = self.now();
            self.report.lateness.record(now.saturating_sub(exit.due));
            self.note(now, Point::To(host), &exit.bytes);
            self.keep(exit.bytes);
        }
    }

    /// Waits for a packet, an order or a time. True if there are orders.
    fn wait(&mut self) -> bool {
        let times = [self.network.next_timeout(), self.script.next_timeout()];
        let until = times.into_iter().flatten().min();
        let begun = self.now();
        let wait = if self.heard.contains(&Heard::Something) {
            Some(Duration::ZERO)
        } else {
            until.map(|until| until.saturating_sub(begun).saturating_sub(self.early))
        };
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let tuns = self.tuns.iter().zip(&mut self.heard);
        let (mut known, mut files): (Vec<_>, Vec<_>) = tuns
            .filter(|(_, heard)| **heard != Heard::Gone)
            .map(|(tun, heard)| (heard, PollFd::new(tun, PollFlags::IN)))
            .unzip();
        files.push(PollFd::new(&self.bell, PollFlags::IN));
        match poll(&mut files, timeout.as_ref()) {
            Ok(0) => {
                let late = wait.map(|wait| self.now().saturating_sub(begun + wait));
                if wait.is_some_and(|wait| !wait.is_zero()) {
                    self.learn(late.unwrap_or_default());
                }
                false
            }
            Ok(_) => {
                for (heard, file) in known.iter_mut().zip(&files) {
                    // Errors too: reading tells what they are.
                    if !file.revents().is_empty() {
                        **heard = Heard::Something;
                    }
                }
                let bell = files.last();
                bell.is_some_and(|bell| bell.revents().contains(PollFlags::IN))
            }
            Err(rustix::io::Errno::INTR) => false,
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

    /// False if asked to stop.
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

    fn snapshot(&mut self) -> TestbedReport {
        let mut kernel_drops = 0;
        let mut kernel_drops_at = Vec::new();
        let names = self.network.topology().host_names();
        for ((tun, before), name) in self.tuns.iter_mut().zip(&self.drops_at_start).zip(names) {
            match tun.kernel_drops() {
                Ok(drops) if drops > *before => {
                    kernel_drops += drops - before;
                    kernel_drops_at.push(name.to_owned());
                }
                Ok(_) => {}
                Err(error) => self
                    .report
                    .failures
                    .push(format!("cannot count drops of host {name}: {error}")),
            }
        }
        let topology = self.network.topology();
        let links = topology.links().zip(topology.link_names());
        let links = links.map(|(link, name)| {
            let of = |side| self.network.counters(link, side).cloned();
            LinkReport {
                name: name.to_owned(),
                up: of(Side::A).unwrap_or_default(),
                down: of(Side::B).unwrap_or_default(),
            }
        });
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        TestbedReport {
            links: links.collect(),
            kernel_drops,
            kernel_drops_at,
            cpu_us: u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(cpu.tv_nsec).unwrap_or(0) / 1_000,
            ..self.report.clone()
        }
    }

    fn finish(mut self) -> TestbedReport {
        let flushed = self.capture.as_mut().map(|file| file.capture.flush());
        self.captured(flushed.unwrap_or(Ok(())));
        self.snapshot()
    }

    fn note(&mut self, at: Duration, point: Point<'_>, bytes: &[u8]) {
        if let Some(file) = &mut self.capture {
            let noted = file.capture.packet(at, point, bytes);
            self.captured(noted);
        }
    }

    /// Ends a capture that cannot be written.
    fn captured(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && let Some(file) = self.capture.take()
        {
            let path = file.path.display();
            self.fail(format!("cannot write the capture {path}: {error}"));
        }
    }

    fn host_name(&self, host: HostId) -> String {
        let name = self.network.topology().host_name(host);
        name.unwrap_or_default().to_owned()
    }

    fn fail(&mut self, what: String) {
        if !self.report.failures.contains(&what) {
            let _ = self.first_failure.set(what.clone());
            self.report.failures.push(what);
        }
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(buffer);
        }
    }
}
