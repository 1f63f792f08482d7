//! One connection over TCP: its life from connect to close, its deadlines and
//! its backlog. What is read and written are bytes; what they mean is above.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, NetEvent, Peer, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId};
use mio::net::TcpStream;

use crate::backlog::{Backlog, SLICES_MAX};
use crate::{Clock, ConnStats, Counters, NetLimits, tcp};

/// Bytes read with one call, and the size of the buffer shared by all
/// connections of a loop.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Datagram batches: how many buffers, and the size of each. The kernel may
/// coalesce datagrams up to the largest IP packet.
pub(crate) const UDP_BATCH: usize = 8;
pub(crate) const UDP_BYTES: usize = 64 << 10;

/// Time for which a closed connection still discards what the peer sends, so
/// that the kernel does not answer with RST and destroy what we sent last.
const DRAIN: Duration = Duration::from_secs(2);

/// What connections use of the loop while they run.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) clock: &'a Clock,
    pub(crate) limits: &'a NetLimits,
    pub(crate) counters: &'a mut Counters,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) out: &'a mut dyn FnMut(NetEvent<'_>),
}

/// Buffers shared by all connections of a loop.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) read: Vec<u8>,
    /// For one batch of received datagrams; empty until there is a UDP socket.
    pub(crate) udp_in: Vec<u8>,
    /// For one transmission.
    pub(crate) udp_out: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            read: vec![0; READ_BYTES],
            udp_in: Vec::new(),
            udp_out: Vec::new(),
        }
    }

    /// Makes room for datagrams.
    pub(crate) fn reserve_udp(&mut self) {
        self.udp_in.resize(UDP_BATCH * UDP_BYTES, 0);
    }
}

/// What the loop must do with a connection after it ran.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for the next readiness.
    Wait,
    /// Its read budget is spent: run it again soon.
    Again,
    /// Remove it; report the cause unless the end was reported before.
    Gone(CloseCause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Phase {
    /// TCP connect is under way.
    Connecting,
    /// Bytes flow both ways.
    Open,
    /// Closed by us; the backlog is still leaving.
    Flushing,
    /// Our FIN is sent; what arrives is discarded.
    Draining,
}

/// A connection over TCP.
#[derive(Debug)]
pub(crate) struct StreamConn {
    id: ConnId,
    sock: TcpStream,
    addr: SocketAddr,
    transport: Transport,
    listener: u16,
    phase: Phase,
    /// Accepted, not dialled.
    pub(crate) accepted: bool,
    /// Counted as a pending handshake.
    pub(crate) pending: bool,
    /// Its end was reported.
    pub(crate) reported: bool,
    /// We end, or ended, our side; the peer's may go on.
    finished: bool,
    /// The peer has sent its FIN.
    peer_finished: bool,
    /// Something arrived since it opened.
    spoke: bool,
    paused: bool,
    /// The kernel said readable while paused.
    readable: bool,
    /// The kernel said that the peer's side ended: read until that shows.
    hup: bool,
    /// Writing failed; reported once everything that arrived is read.
    broken: Option<CloseCause>,
    backlog: Backlog,
    /// Bytes taken by `send` that `Sent` has not announced.
    owed: usize,
    last_read: Instant,
    idle: Duration,
    /// Deadline of the current phase.
    deadline: Instant,
    /// Earliest armed timer.
    pub(crate) armed: Instant,
}

/// How a connection comes to be.
pub(crate) struct NewStream {
    pub(crate) id: ConnId,
    pub(crate) sock: TcpStream,
    pub(crate) addr: SocketAddr,
    pub(crate) transport: Transport,
    /// The listener that accepted it; `None`: dialled.
    pub(crate) listener: Option<u16>,
    pub(crate) handshake_deadline: Instant,
}

impl StreamConn {
    pub(crate) fn new(new: NewStream, now: Instant, limits: &NetLimits) -> Self {
        Self {
            id: new.id,
            sock: new.sock,
            addr: new.addr,
            transport: new.transport,
            listener: new.listener.unwrap_or(0),
            phase: Phase::Connecting,
            accepted: new.listener.is_some(),
            pending: new.listener.is_some(),
            reported: false,
            finished: false,
            peer_finished: false,
            spoke: false,
            paused: false,
            readable: false,
            hup: false,
            broken: None,
            backlog: Backlog::default(),
            owed: 0,
            last_read: now,
            idle: limits.idle_timeout_max,
            deadline: new.handshake_deadline,
            armed: Instant::FAR_FUTURE,
        }
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn sock_mut(&mut self) -> &mut TcpStream {
        &mut self.sock
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.phase < Phase::Open
    }

    pub(crate) fn stats(&self) -> ConnStats {
        ConnStats::new(self.transport, self.owed)
    }

    /// The kernel reports readiness.
    pub(crate) fn ready(
        &mut self,
        readable: bool,
        writable: bool,
        hup: bool,
        cx: &mut Cx<'_>,
    ) -> Step {
        self.hup |= hup;
        if writable && let Err(cause) = self.on_writable(cx) {
            return Step::Gone(cause);
        }
        if readable || hup {
            return self.read(cx);
        }
        self.step()
    }

    /// Accepted connections have no connect to wait for.
    pub(crate) fn start_accepted(&mut self, cx: &mut Cx<'_>) -> Step {
        self.connected(cx);
        Step::Wait
    }

    /// Reads until nothing is left or the budget is spent.
    pub(crate) fn read(&mut self, cx: &mut Cx<'_>) -> Step {
        if self.phase == Phase::Connecting {
            return Step::Wait;
        }
        if self.paused && self.phase == Phase::Open && self.broken.is_none() {
            self.readable = true;
            return Step::Wait;
        }
        self.readable = false;
        let mut buf = core::mem::take(&mut cx.scratch.read);
        let step = self.read_into(&mut buf, cx);
        cx.scratch.read = buf;
        step
    }

    fn read_into(&mut self, buf: &mut [u8], cx: &mut Cx<'_>) -> Step {
        let mut budget = cx.limits.read_budget_bytes;
        while !self.peer_finished {
            match self.sock.read(buf) {
                Ok(0) => return self.on_eof(cx),
                Ok(n) => {
                    self.last_read = cx.now;
                    cx.counters.tcp_bytes_in += n as u64;
                    let (data, rest) = buf.split_at_mut(n);
                    self.feed(data, cx);
                    budget = budget.saturating_sub(n);
                    // Less than a full buffer means that the kernel has no
                    // more; what comes later is a new edge.
                    if !rest.is_empty() && !self.hup {
                        break;
                    }
                    if budget == 0 {
                        return Step::Again;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return self.failed("connection lost", &e),
            }
        }
        self.step()
    }

    fn feed(&mut self, data: &mut [u8], cx: &mut Cx<'_>) {
        if self.phase != Phase::Open {
            return;
        }
        self.on_spoke();
        (cx.out)(NetEvent::Bytes {
            conn: self.id,
            stream: StreamId::CONTROL,
            data,
        });
    }

    fn on_spoke(&mut self) {
        if !self.spoke {
            self.spoke = true;
            self.deadline = Instant::FAR_FUTURE;
        }
    }

    fn on_eof(&mut self, cx: &mut Cx<'_>) -> Step {
        self.peer_finished = true;
        match self.phase {
            Phase::Connecting => Step::Gone(failure("closed during the handshake")),
            Phase::Open => {
                self.deadline = cx.now + cx.limits.half_close_linger;
                (cx.out)(NetEvent::StreamFinished {
                    conn: self.id,
                    stream: StreamId::CONTROL,
                });
                Step::Wait
            }
            Phase::Flushing => Step::Wait,
            Phase::Draining => Step::Gone(CloseCause::Local),
        }
    }

    /// `Gone` once writing failed and reading found nothing more, or our FIN
    /// is sent and the peer's has come.
    fn step(&mut self) -> Step {
        if let Some(cause) = self.broken.take() {
            return Step::Gone(cause);
        }
        if self.phase == Phase::Draining && self.peer_finished {
            Step::Gone(CloseCause::Local)
        } else {
            Step::Wait
        }
    }

    fn on_writable(&mut self, cx: &mut Cx<'_>) -> Result<(), CloseCause> {
        if self.phase == Phase::Connecting {
            match self.connect_result() {
                Ok(true) => self.connected(cx),
                Ok(false) => return Ok(()),
                Err(e) => return Err(failure(&format!("cannot connect: {e}"))),
            }
        }
        if self.backlog.is_empty() {
            return Ok(());
        }
        let left = self.write_backlog(cx.counters);
        if left > 0 && self.phase == Phase::Open {
            (cx.out)(NetEvent::Sent {
                conn: self.id,
                bytes: left,
            });
        }
        self.shutdown_if_flushed();
        if self.phase == Phase::Flushing && self.backlog.is_empty() {
            let cause = self.end_writing(cx.now);
            self.report(cause, cx.out);
        }
        Ok(())
    }

    fn connect_result(&self) -> io::Result<bool> {
        if let Some(error) = self.sock.take_error()? {
            return Err(error);
        }
        match self.sock.peer_addr() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Open;
        self.last_read = cx.now;
        self.deadline = if self.accepted {
            cx.now + cx.limits.first_bytes_timeout
        } else {
            Instant::FAR_FUTURE
        };
        cx.counters.opened += 1;
        (cx.out)(NetEvent::Opened {
            conn: self.id,
            peer: Peer {
                addr: self.addr,
                transport: self.transport,
                listener: self.listener,
                identity: None,
                early_data: false,
            },
        });
    }

    /// Takes all of `data`; returns how many bytes left at once.
    pub(crate) fn send(
        &mut self,
        data: &mut SendBuf,
        limits: &NetLimits,
        counters: &mut Counters,
    ) -> Result<usize, CloseCause> {
        if self.phase > Phase::Open || self.finished || self.broken.is_some() {
            data.clear();
            return Ok(0);
        }
        let total = data.len();
        let mut left = 0;
        let mut full = self.phase != Phase::Open || !self.backlog.is_empty();
        if !full {
            (left, full) = self.write_direct(data, counters);
        }
        if left == total {
            data.clear();
            return Ok(left);
        }
        self.owed += total - left;
        self.backlog.put(data, left);
        if !full {
            left += self.write_backlog(counters);
        }
        if self.backlog.len() > limits.backlog_bytes_max {
            counters.backlog_overflows += 1;
            return Err(failure("the peer reads too slowly: backlog limit reached"));
        }
        Ok(left)
    }

    /// Whether the connection must be run although the kernel said nothing.
    pub(crate) fn wants_run(&self) -> bool {
        self.broken.is_some()
    }

    /// Writes `data` without keeping it. Says how much was written and whether
    /// the kernel takes no more.
    fn write_direct(&mut self, data: &SendBuf, counters: &mut Counters) -> (usize, bool) {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = slices
            .iter_mut()
            .zip(data.slices())
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count();
        let slices = slices.get(..filled).unwrap_or_default();
        let offered: usize = slices.iter().map(|s| s.len()).sum();
        let n = self.write_some(slices);
        counters.tcp_bytes_out += n as u64;
        (n, n < offered)
    }

    /// Writes the backlog until the kernel takes no more; returns the credit
    /// that this frees.
    fn write_backlog(&mut self, counters: &mut Counters) -> usize {
        let mut wrote = 0;
        while !self.backlog.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = self.backlog.fill(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            let offered: usize = slices.iter().map(|s| s.len()).sum();
            let n = write_to(&self.sock, slices);
            let n = self.check_write(n);
            wrote += n;
            self.backlog.advance(n);
            // A short write arms the next edge, as a refused one does.
            if n < offered {
                break;
            }
        }
        counters.tcp_bytes_out += wrote as u64;
        self.settle(wrote)
    }

    fn write_some(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let result = write_to(&self.sock, slices);
        self.check_write(result)
    }

    /// A peer that reads no more may have sent something before: its end shows
    /// when that is read, so a failed write is not yet the end.
    fn check_write(&mut self, result: io::Result<usize>) -> usize {
        match result {
            Ok(n) => n,
            Err(e) => {
                self.broken = Some(failure(&format!("connection lost: {e}")));
                0
            }
        }
    }

    /// Turns bytes written into credit, exactly in total.
    fn settle(&mut self, wrote: usize) -> usize {
        let freed = if self.backlog.is_empty() {
            self.owed
        } else {
            wrote.min(self.owed)
        };
        self.owed -= freed;
        freed
    }

    /// Ends our side after the backlog; the connection stays.
    pub(crate) fn finish(&mut self) {
        if self.phase == Phase::Open && !core::mem::replace(&mut self.finished, true) {
            self.shutdown_if_flushed();
        }
    }

    fn shutdown_if_flushed(&mut self) {
        if self.finished && self.backlog.is_empty() {
            let _ = self.sock.shutdown(Shutdown::Write);
        }
    }

    /// Ends the connection after its backlog; returns the cause when that is
    /// already so.
    pub(crate) fn close(&mut self, now: Instant, limits: &NetLimits) -> Option<CloseCause> {
        match self.phase {
            Phase::Connecting => Some(self.end_writing(now)),
            Phase::Open => {
                self.phase = Phase::Flushing;
                self.deadline = now + limits.close_linger;
                self.backlog.is_empty().then(|| self.end_writing(now))
            }
            Phase::Flushing | Phase::Draining => None,
        }
    }

    fn end_writing(&mut self, now: Instant) -> CloseCause {
        if self.sock.shutdown(Shutdown::Write).is_err() {
            self.peer_finished = true;
        }
        self.phase = Phase::Draining;
        self.deadline = now + DRAIN;
        if self.peer_finished {
            CloseCause::Peer { code: 0 }
        } else {
            CloseCause::Local
        }
    }

    /// Whether a closed connection has nothing left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Draining && self.peer_finished
    }

    pub(crate) fn report(&mut self, cause: CloseCause, out: &mut dyn FnMut(NetEvent<'_>)) {
        if !core::mem::replace(&mut self.reported, true) {
            out(NetEvent::Closed {
                conn: self.id,
                cause,
            });
        }
    }

    pub(crate) fn reset(&self) {
        tcp::reset_on_drop(&self.sock);
    }

    pub(crate) fn set_idle_timeout(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Returns whether there is something to read now.
    pub(crate) fn pause(&mut self, paused: bool) -> bool {
        self.paused = paused;
        !paused && self.readable
    }

    /// When the connection must be looked at, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.phase == Phase::Open {
            self.deadline.min(self.last_read + self.idle)
        } else {
            self.deadline
        }
    }

    /// A deadline may be over.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) -> Step {
        if cx.now < self.next_deadline() {
            return Step::Wait;
        }
        let cause = match self.phase {
            Phase::Connecting => {
                cx.counters.handshake_timeouts += 1;
                CloseCause::HandshakeTimeout
            }
            Phase::Open if self.peer_finished => CloseCause::Peer { code: 0 },
            Phase::Open if !self.spoke && self.deadline <= cx.now => {
                cx.counters.silent_timeouts += 1;
                CloseCause::IdleTimeout
            }
            Phase::Open => {
                cx.counters.idle_timeouts += 1;
                CloseCause::IdleTimeout
            }
            Phase::Flushing | Phase::Draining => {
                self.reset();
                CloseCause::Local
            }
        };
        Step::Gone(cause)
    }

    fn failed(&self, what: &str, error: &io::Error) -> Step {
        if self.phase > Phase::Open {
            return Step::Gone(CloseCause::Local);
        }
        Step::Gone(failure(&format!("{what}: {error}")))
    }
}

/// A cause for people to read.
pub(crate) fn failure(text: &str) -> CloseCause {
    CloseCause::Failed(Arc::from(text))
}

/// Writes once; 0 when the kernel takes nothing now.
fn write_to(mut sock: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    if slices.is_empty() {
        return Ok(0);
    }
    loop {
        match sock.write_vectored(slices) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
