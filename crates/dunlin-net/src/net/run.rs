//! How the loop runs: wait, read, time, report.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;

use dunlin_base::transport::{NetEvent, NetEventKind, plain_addr};
use dunlin_base::{ConnId, StreamId};
use mio::net::TcpStream;
use mio::{Events, Registry, Token};

use super::{Conn, Net, Report, SOURCE_BASE, Source, WAKER, WATCH, layers, mark};
use crate::slots::SLOTS_MAX;
use crate::stream::{Cx, Step, StreamConn};
use crate::tcp;
use crate::timers::Armed;

/// Pause before accepting again when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where events go.
pub(super) type Handler<'a> = dyn FnMut(NetEvent<&[u8]>) + 'a;

/// Why a connection is run.
#[derive(Clone, Copy)]
enum Cause {
    /// The kernel reports readiness.
    Ready {
        readable: bool,
        writable: bool,
        hup: bool,
    },
    /// It has something left to read, or failed.
    Again,
    /// It was just accepted (TCP), or has got datagrams (QUIC).
    Input,
    Timer,
}

impl Net {
    /// Waits for something to happen, at most `timeout`, and reports it.
    ///
    /// # Errors
    /// The event queue failed; the loop cannot go on.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        handler: &mut dyn FnMut(NetEvent<&[u8]>),
    ) -> io::Result<()> {
        self.flush();
        let reported = self.report(handler);
        self.now = self.config.clock.now();
        let wait = if reported || self.is_busy() {
            Some(Duration::ZERO)
        } else {
            self.settle_timers();
            self.wait(timeout)
        };
        watch_blocked(&mut self.sources, self.poll.registry())?;
        match self.poll.poll(&mut self.events, wait) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => result?,
        }
        self.waker.clear();
        self.now = self.config.clock.now();
        let again = core::mem::take(&mut self.ready);
        self.dispatch(handler);
        for serial in again {
            self.run(serial, Cause::Again, handler);
        }
        self.run_sources(handler);
        self.run_timers(handler);
        self.run_follow();
        self.report(handler);
        Ok(())
    }

    fn dispatch(&mut self, handler: &mut Handler<'_>) {
        let events = core::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let token = event.token();
            if token == WAKER {
                continue;
            }
            if token == WATCH {
                self.network_changed();
                continue;
            }
            let (readable, writable) = (event.is_readable(), event.is_writable());
            if token.0 >= SLOTS_MAX {
                let hup = event.is_read_closed() || event.is_error();
                let cause = Cause::Ready {
                    readable,
                    writable,
                    hup,
                };
                self.run(token.0 as u64, cause, handler);
                continue;
            }
            match self.sources.get_mut(token.0 - SOURCE_BASE) {
                Some(Source::Tcp(listener)) => listener.ready = true,
                Some(source) => {
                    if let Some(port) = source.port_mut() {
                        port.readable |= readable;
                    }
                    if writable {
                        self.unblock(token.0 - SOURCE_BASE);
                    }
                }
                None => {}
            }
        }
        self.events = events;
    }

    fn run_sources(&mut self, handler: &mut Handler<'_>) {
        for index in 0..self.sources.len() {
            match self.sources.get(index) {
                Some(Source::Tcp(listener)) if listener.ready => self.accept(index, handler),
                Some(source) if source.port().is_some_and(|port| port.readable) => {
                    self.receive(index, handler);
                }
                _ => {}
            }
        }
    }

    /// Runs a QUIC connection after it got datagrams.
    pub(super) fn run_input(&mut self, serial: u64, handler: &mut Handler<'_>) {
        self.run(serial, Cause::Input, handler);
    }

    /// Runs a connection and does what it asks for.
    fn run(&mut self, serial: u64, cause: Cause, handler: &mut Handler<'_>) {
        let Some(conn) = self.slots.get_mut(serial) else {
            return;
        };
        let mut moved_ip = None;
        let (step, pending, handshaking) = match conn {
            Conn::Stream(tcp) => {
                let mut cx = Cx {
                    now: self.now,
                    limits: &self.config.limits,
                    counters: &mut self.counters,
                    scratch: &mut self.scratch,
                    out: handler,
                };
                let step = run_stream(tcp, cause, &mut cx);
                let handshaking = tcp.is_handshaking();
                (step, &mut tcp.pending, handshaking)
            }
            Conn::Quic(quic) => {
                let mut cx = dunlin_quic::Cx {
                    now: self.now,
                    clock: &self.config.clock,
                    limits: self.quic.limits(),
                    counters: &mut self.counters,
                    gather: &mut self.scratch.gather,
                    out: handler,
                };
                let again = match cause {
                    Cause::Timer => quic.conn.on_timer(&mut cx),
                    _ => quic.conn.run(&mut cx),
                };
                let step = if again { Step::Again } else { Step::Wait };
                moved_ip = quic.take_new_ip();
                // Its timer is armed when it is flushed.
                mark(&mut self.dirty, serial, &mut quic.dirty);
                let handshaking = quic.conn.life().is_handshaking();
                (step, &mut quic.pending, handshaking)
            }
        };
        if let Some((from, to)) = moved_ip {
            let (limits, counters) = (&self.config.limits, &mut self.counters);
            let admission = &self.config.shared.admission;
            admission.moved(from, to, limits, counters);
        }
        if *pending && !handshaking {
            *pending = false;
            self.config.shared.admission.handshake_over();
        }
        match step {
            Step::Gone(cause) => {
                if let Conn::Stream(tcp) = conn {
                    tcp.report(cause, handler);
                }
                self.remove(serial);
                return;
            }
            Step::Again => self.ready.push(serial),
            Step::Wait => {}
        }
        if let Conn::Stream(tcp) = conn {
            self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
        }
    }

    /// Whether there is something to do without the kernel.
    fn is_busy(&self) -> bool {
        let now = self.now;
        !self.ready.is_empty()
            || !self.dirty.is_empty()
            || self.sources.iter().any(|source| match source {
                Source::Tcp(listener) => listener.ready && listener.not_before <= now,
                other => other.port().is_some_and(|port| port.readable),
            })
    }

    /// Time to wait: the caller's bound, the next timer, a paused listener.
    fn wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        let paused = self.sources.iter().filter_map(|source| match source {
            Source::Tcp(listener) if listener.ready => Some(listener.not_before),
            _ => None,
        });
        let next = paused.chain(self.timers.next()).chain(self.look_at).min();
        let next = next.map(|at| at.saturating_duration_since(self.now));
        match (timeout, next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sleeping until an entry that stands for nothing, or for something later,
    /// would be for nothing.
    fn settle_timers(&mut self) {
        while let Some(serial) = self.timers.next_serial() {
            let armed = self.slots.get_mut(serial).map(Conn::armed_mut);
            if !self.timers.settle(armed) {
                break;
            }
        }
    }

    fn accept(&mut self, index: usize, handler: &mut Handler<'_>) {
        for _ in 0..self.config.limits.accept_budget {
            let Some(Source::Tcp(listener)) = self.sources.get_mut(index) else {
                return;
            };
            if listener.not_before > self.now {
                return;
            }
            match listener.socket.accept() {
                Ok((sock, addr)) => self.accepted(index, sock, plain_addr(addr), handler),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    listener.ready = false;
                    return;
                }
                Err(e) if tcp::is_exhausted(&e) => {
                    listener.not_before = self.now + ACCEPT_PAUSE;
                    self.counters.accept_exhausted += 1;
                    tracing::warn!(error = %e, "cannot accept connections for a moment");
                    return;
                }
                // The connection died in the queue; the next one may live.
                Err(error) => tracing::debug!(%error, "a connection ended before it was accepted"),
            }
        }
    }

    fn accepted(
        &mut self,
        index: usize,
        sock: TcpStream,
        addr: SocketAddr,
        handler: &mut Handler<'_>,
    ) {
        let Some(Source::Tcp(listener)) = self.sources.get(index) else {
            return;
        };
        let limits = &self.config.limits;
        let admission = &self.config.shared.admission;
        // Who completes the handshake of TCP receives at its address.
        if let Err(refusal) = admission.admit(addr.ip(), true, self.now, limits) {
            refusal.count(&mut self.counters);
            return;
        }
        let layers = match layers::of_server(listener, limits) {
            Ok(layers) => layers,
            Err(error) => {
                tracing::error!(%error, "cannot serve a connection");
                admission.withdraw(addr.ip(), limits);
                return;
            }
        };
        let origin = listener.origin.clone();
        let _ = sock.set_nodelay(true);
        let deadline = self.now + limits.handshake_timeout;
        match self.insert_stream(sock, addr, origin, layers, deadline) {
            Ok(Some(serial)) => {
                self.counters.accepted += 1;
                self.run(serial, Cause::Input, handler);
                return;
            }
            Ok(None) => self.counters.refused_full += 1,
            Err(error) => tracing::warn!(%error, "cannot watch an accepted connection"),
        }
        let limits = &self.config.limits;
        self.config.shared.admission.withdraw(addr.ip(), limits);
    }

    fn run_timers(&mut self, handler: &mut Handler<'_>) {
        // Bounded by what is due now, so that a deadline that is armed for the
        // past cannot hold the loop.
        for _ in 0..self.timers.len() {
            let Some((at, serial)) = self.timers.pop_due(self.now) else {
                break;
            };
            let Some(armed) = self.slots.get_mut(serial).map(Conn::armed_mut) else {
                continue;
            };
            // A stale entry: the one that counts is another.
            if !armed.is_at(at) || !self.timers.fires(serial, armed, self.now) {
                continue;
            }
            // A peer that has just moved must be sent something first: until
            // then quinn-proto has a timer for losses on the old path, which
            // finds none to be lost on the new one.
            if matches!(self.slots.get(serial), Some(Conn::Quic(quic)) if quic.dirty) {
                self.flush_one(serial);
            }
            self.run(serial, Cause::Timer, handler);
            if self.is_move_due(serial, self.now) {
                self.run_move(serial);
            }
        }
        let slots = &self.slots;
        self.timers.sweep(slots.len(), |serial, at| {
            slots.get(serial).is_some_and(|conn| conn.armed().is_at(at))
        });
    }

    fn report(&mut self, handler: &mut Handler<'_>) -> bool {
        let any = !self.reports.is_empty();
        let slots = &self.slots;
        let lives = |conn: ConnId| match slots.get(conn.serial()) {
            Some(Conn::Quic(quic)) => !quic.conn.life().is_reported(),
            _ => false,
        };
        for report in self.reports.drain(..) {
            handler(match report {
                // Nothing follows the end.
                Report::Moved(conn, ..) | Report::MoveFailed(conn, _) if !lives(conn) => continue,
                Report::Moved(conn, from, to) => {
                    NetEvent::new(conn, NetEventKind::Moved { from, to })
                }
                Report::MoveFailed(conn, to) => {
                    NetEvent::new(conn, NetEventKind::MoveFailed { to })
                }
                Report::Sent(conn, bytes) => NetEvent::new(conn, NetEventKind::Sent { bytes }),
                Report::Finished(conn) => {
                    let stream = StreamId::CONTROL;
                    NetEvent::new(conn, NetEventKind::StreamFinished { stream })
                }
                Report::Blocked(conn, ..) if !lives(conn) => continue,
                Report::Blocked(conn, stream, bytes) => {
                    NetEvent::new(conn, NetEventKind::StreamBlocked { stream, bytes })
                }
                Report::Closed(conn, cause) => NetEvent::new(conn, NetEventKind::Closed { cause }),
            });
        }
        any
    }
}

/// Asks the kernel to report when a UDP socket takes datagrams again, only for
/// those that took none: it would report after every datagram.
fn watch_blocked(sources: &mut [Source], registry: &Registry) -> io::Result<()> {
    for (index, source) in sources.iter_mut().enumerate() {
        let Some(port) = source.port_mut() else {
            continue;
        };
        if let Some(interest) = port.changed_interest() {
            let token = Token(SOURCE_BASE + index);
            registry.reregister(port.socket_mut(), token, interest)?;
        }
    }
    Ok(())
}

fn run_stream(tcp: &mut StreamConn, cause: Cause, cx: &mut Cx<'_>) -> Step {
    match cause {
        Cause::Ready {
            readable,
            writable,
            hup,
        } => tcp.ready(readable, writable, hup, cx),
        Cause::Again => tcp.read(cx),
        Cause::Input => tcp.start_accepted(cx),
        Cause::Timer => tcp.on_timer(cx),
    }
}

impl Conn {
    const fn armed(&self) -> &Armed {
        match self {
            Self::Stream(tcp) => &tcp.armed,
            Self::Quic(quic) => &quic.armed,
        }
    }

    fn armed_mut(&mut self) -> &mut Armed {
        match self {
            Self::Stream(tcp) => &mut tcp.armed,
            Self::Quic(quic) => &mut quic.armed,
        }
    }
}
