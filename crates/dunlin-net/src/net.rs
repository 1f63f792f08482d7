//! The loop: waits for sockets and timers, runs connections, reports events.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use dunlin_base::transport::{CloseCause, NetEvent, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::admission::Admission;
use crate::slots::{SLOTS_MAX, Slots};
use crate::stream::{Cx, NewStream, Scratch, Step, StreamConn};
use crate::timers::Timers;
use crate::{ConnStats, Counters, DialConfig, ListenerConfig, NetConfig, NetError, Waker, tcp};

/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Listeners and UDP sockets of one loop at most.
const SOURCES_MAX: usize = 1024;
/// Pause before accepting again when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The loop's own waker.
const WAKER: Token = Token(0);
/// First token of listeners; connections use their serial, which is larger
/// than any of these.
const SOURCE_BASE: usize = 1;
const _: () = assert!(SOURCE_BASE + SOURCES_MAX < SLOTS_MAX);

/// A single-threaded event loop over sockets.
#[derive(Debug)]
pub struct Net {
    config: NetConfig,
    poll: Poll,
    events: Events,
    waker: Waker,
    slots: Slots<Conn>,
    listeners: Vec<Listener>,
    timers: Timers,
    admission: Admission,
    counters: Counters,
    scratch: Scratch,
    /// Connections with something left to do although the kernel is silent.
    ready: Vec<u64>,
    /// Ends not yet reported.
    ended: VecDeque<(ConnId, CloseCause)>,
    now: Instant,
}

#[derive(Debug)]
enum Conn {
    Stream(Box<StreamConn>),
}

#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    config: ListenerConfig,
    /// The kernel may have more connections for us.
    ready: bool,
    /// Do not accept before this.
    not_before: Instant,
}

impl Net {
    /// A loop without sockets.
    ///
    /// # Errors
    /// The operating system refuses an event queue, or a limit is out of range.
    pub fn new(config: NetConfig) -> Result<Self, NetError> {
        if config.limits.connections_max > SLOTS_MAX {
            return Err(NetError::Config(
                "a loop holds at most 1,048,576 connections",
            ));
        }
        let poll = Poll::new().map_err(NetError::Loop)?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(NetError::Loop)?;
        Ok(Self {
            now: config.clock.now(),
            config,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            waker: Waker::new(waker),
            slots: Slots::new(),
            listeners: Vec::new(),
            timers: Timers::default(),
            admission: Admission::default(),
            counters: Counters::default(),
            scratch: Scratch::new(),
            ready: Vec::new(),
            ended: VecDeque::new(),
        })
    }

    /// The current instant of the loop's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.config.clock.now()
    }

    /// A handle that wakes this loop from other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Totals since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections held, those still closing included.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.slots.len()
    }

    /// What is known of one connection; `None` once it is gone.
    #[must_use]
    pub fn stats(&self, conn: ConnId) -> Option<ConnStats> {
        self.find(conn).map(|conn| match conn {
            Conn::Stream(stream) => stream.stats(),
        })
    }

    /// Starts to accept connections; returns the bound address.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn listen(&mut self, config: ListenerConfig) -> Result<SocketAddr, NetError> {
        if self.listeners.len() >= SOURCES_MAX {
            return Err(NetError::Config("a loop has at most 1,024 listeners"));
        }
        let fail = |source| NetError::Listen {
            transport: config.transport,
            addr: config.addr,
            source,
        };
        match config.transport {
            Transport::Tcp => {}
            other => return Err(NetError::TlsMissing(other)),
        }
        let mut socket = tcp::listen(config.addr, config.reuse_port).map_err(fail)?;
        let addr = socket.local_addr().map_err(fail)?;
        let token = Token(SOURCE_BASE + self.listeners.len());
        self.poll
            .registry()
            .register(&mut socket, token, Interest::READABLE)
            .map_err(fail)?;
        self.listeners.push(Listener {
            socket,
            config,
            ready: false,
            not_before: Instant::ZERO,
        });
        Ok(addr)
    }

    /// Closes all listeners; connections stay.
    pub fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Starts to connect; `Opened` or `Closed` follows.
    ///
    /// # Errors
    /// No socket could be made, or the settings are incomplete.
    pub fn dial(&mut self, config: &DialConfig) -> Result<ConnId, NetError> {
        if self.slots.len() >= self.config.limits.connections_max {
            return Err(NetError::TooManyConnections(
                self.config.limits.connections_max,
            ));
        }
        match config.transport {
            Transport::Tcp => {}
            other => return Err(NetError::TlsMissing(other)),
        }
        let fail = |source| NetError::Dial {
            addr: config.addr,
            source,
        };
        let sock = tcp::connect(config.addr, config.local_addr).map_err(fail)?;
        self.now = self.config.clock.now();
        let timeout = config
            .handshake_timeout
            .unwrap_or(self.config.limits.handshake_timeout);
        let serial = self
            .insert_stream(
                sock,
                config.addr,
                config.transport,
                None,
                self.now + timeout,
            )
            .map_err(fail)?
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))?;
        self.counters.dialled += 1;
        if let Some(Conn::Stream(conn)) = self.slots.get_mut(serial) {
            self.timers
                .arm(serial, conn.next_deadline(), &mut conn.armed);
        }
        Ok(ConnId::new(self.config.shard, serial))
    }

    /// Waits for something to happen, at most `timeout`, and reports it.
    ///
    /// # Errors
    /// The event queue failed; the loop cannot go on.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        handler: &mut dyn FnMut(NetEvent<'_>),
    ) -> io::Result<()> {
        self.flush();
        let reported = self.report_ended(handler);
        self.now = self.config.clock.now();
        let wait = if reported || !self.ready.is_empty() || self.is_accept_ready() {
            Some(Duration::ZERO)
        } else {
            self.wait(timeout)
        };
        match self.poll.poll(&mut self.events, wait) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => result?,
        }
        self.waker.clear();
        self.now = self.config.clock.now();
        let again = core::mem::take(&mut self.ready);
        self.dispatch(handler);
        for serial in again {
            self.run_again(serial, handler);
        }
        for index in 0..self.listeners.len() {
            self.accept(index, handler);
        }
        self.run_timers(handler);
        self.report_ended(handler);
        Ok(())
    }

    /// Gives bytes to a connection; takes all of them. Returns how many left
    /// at once: room for as many more. The rest is announced by `Sent`.
    #[must_use = "these bytes are not announced by `Sent`"]
    pub fn send(&mut self, conn: ConnId, stream: StreamId, data: &mut SendBuf) -> usize {
        let serial = conn.serial();
        let result = match self.find_mut(conn) {
            Some(Conn::Stream(_)) if stream != StreamId::CONTROL => Ok(0),
            Some(Conn::Stream(_)) => self.send_on_stream(serial, data),
            None => Ok(0),
        };
        data.clear();
        result.unwrap_or_else(|cause| {
            self.end(serial, cause);
            0
        })
    }

    /// Closes a connection after what was given to `send`; `code` goes to a
    /// QUIC peer. `Closed` follows when the bytes have left.
    pub fn close(&mut self, conn: ConnId, code: u64) {
        let _ = code;
        let now = self.config.clock.now();
        let Some(Conn::Stream(stream)) = Self::find_in(&mut self.slots, &self.config, conn) else {
            return;
        };
        let ended = stream.close(now, &self.config.limits);
        let is_over = stream.is_over();
        if let Some(cause) = ended
            && !core::mem::replace(&mut stream.reported, true)
        {
            self.ended.push_back((conn, cause));
        }
        self.timers
            .arm(conn.serial(), stream.next_deadline(), &mut stream.armed);
        if is_over {
            self.remove(conn.serial());
        }
    }

    /// Ends a connection at once, dropping what has not left.
    pub fn abort(&mut self, conn: ConnId) {
        if let Some(Conn::Stream(stream)) = self.find_mut(conn) {
            stream.reset();
            self.end(conn.serial(), CloseCause::Local);
        }
    }

    /// Closes a connection once nothing arrived for `idle`.
    pub fn set_idle_timeout(&mut self, conn: ConnId, idle: Duration) {
        let idle = idle.min(self.config.limits.idle_timeout_max);
        if let Some(Conn::Stream(stream)) = Self::find_in(&mut self.slots, &self.config, conn) {
            stream.set_idle_timeout(idle);
            self.timers
                .arm(conn.serial(), stream.next_deadline(), &mut stream.armed);
        }
    }

    /// Stops or resumes reading, so that the peer is slowed down.
    pub fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        if let Some(Conn::Stream(stream)) = self.find_mut(conn)
            && stream.pause(paused)
        {
            self.ready.push(conn.serial());
        }
    }

    /// Sends what has gathered: QUIC datagrams of all connections touched
    /// since the last call. Also done at the start of [`Net::poll`].
    pub fn flush(&mut self) {}

    fn send_on_stream(&mut self, serial: u64, data: &mut SendBuf) -> Result<usize, CloseCause> {
        let Some(Conn::Stream(stream)) = self.slots.get_mut(serial) else {
            return Ok(0);
        };
        let left = stream.send(data, &self.config.limits, &mut self.counters)?;
        if stream.wants_run() {
            self.ready.push(serial);
        }
        Ok(left)
    }

    fn find(&self, conn: ConnId) -> Option<&Conn> {
        (conn.shard() == self.config.shard)
            .then(|| self.slots.get(conn.serial()))
            .flatten()
    }

    fn find_mut(&mut self, conn: ConnId) -> Option<&mut Conn> {
        Self::find_in(&mut self.slots, &self.config, conn)
    }

    /// As `find_mut`, borrowing only the table.
    fn find_in<'a>(
        slots: &'a mut Slots<Conn>,
        config: &NetConfig,
        conn: ConnId,
    ) -> Option<&'a mut Conn> {
        (conn.shard() == config.shard)
            .then(|| slots.get_mut(conn.serial()))
            .flatten()
    }

    fn insert_stream(
        &mut self,
        sock: TcpStream,
        addr: SocketAddr,
        transport: Transport,
        listener: Option<u16>,
        handshake_deadline: Instant,
    ) -> io::Result<Option<u64>> {
        let (now, config, registry) = (self.now, &self.config, self.poll.registry());
        self.slots.insert_with(|serial| {
            let new = NewStream {
                id: ConnId::new(config.shard, serial),
                sock,
                addr,
                transport,
                listener,
                handshake_deadline,
            };
            let mut conn = Box::new(StreamConn::new(new, now, &config.limits));
            let token = Token(serial as usize);
            registry.register(
                conn.sock_mut(),
                token,
                Interest::READABLE | Interest::WRITABLE,
            )?;
            Ok(Conn::Stream(conn))
        })
    }

    fn dispatch(&mut self, handler: &mut dyn FnMut(NetEvent<'_>)) {
        let events = core::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let token = event.token();
            if token == WAKER {
                continue;
            }
            if token.0 < SLOTS_MAX {
                if let Some(listener) = self.listeners.get_mut(token.0 - SOURCE_BASE) {
                    listener.ready = true;
                }
                continue;
            }
            let hup = event.is_read_closed() || event.is_error();
            let (readable, writable) = (event.is_readable(), event.is_writable());
            self.run(token.0 as u64, handler, |conn, cx| {
                conn.ready(readable, writable, hup, cx)
            });
        }
        self.events = events;
    }

    fn run_again(&mut self, serial: u64, handler: &mut dyn FnMut(NetEvent<'_>)) {
        self.run(serial, handler, StreamConn::read);
    }

    /// Runs a connection and does what it asks for.
    fn run(
        &mut self,
        serial: u64,
        handler: &mut dyn FnMut(NetEvent<'_>),
        f: impl FnOnce(&mut StreamConn, &mut Cx<'_>) -> Step,
    ) {
        let Some(Conn::Stream(conn)) = self.slots.get_mut(serial) else {
            return;
        };
        let mut cx = Cx {
            now: self.now,
            limits: &self.config.limits,
            counters: &mut self.counters,
            scratch: &mut self.scratch,
            out: handler,
        };
        let step = f(conn, &mut cx);
        if conn.pending && !conn.is_handshaking() {
            conn.pending = false;
            self.admission.handshake_over();
        }
        match step {
            Step::Gone(cause) => {
                conn.report(cause, handler);
                self.remove(serial);
                return;
            }
            Step::Again => self.ready.push(serial),
            Step::Wait => {}
        }
        self.timers
            .arm(serial, conn.next_deadline(), &mut conn.armed);
    }

    fn is_accept_ready(&self) -> bool {
        let now = self.now;
        self.listeners
            .iter()
            .any(|l| l.ready && l.not_before <= now)
    }

    fn accept(&mut self, index: usize, handler: &mut dyn FnMut(NetEvent<'_>)) {
        for _ in 0..self.config.limits.accept_budget {
            let Some(listener) = self.listeners.get_mut(index) else {
                return;
            };
            if !listener.ready || listener.not_before > self.now {
                return;
            }
            match listener.socket.accept() {
                Ok((sock, addr)) => {
                    let (transport, number) = (listener.config.transport, listener.config.index);
                    self.accepted(sock, addr, transport, number, handler);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => listener.ready = false,
                Err(e) if tcp::is_exhausted(&e) => {
                    listener.not_before = self.now + ACCEPT_PAUSE;
                    self.counters.accept_exhausted += 1;
                    tracing::warn!(error = %e, "cannot accept connections for a moment");
                }
                // The connection died in the queue; the next one may live.
                Err(error) => tracing::debug!(%error, "a connection ended before it was accepted"),
            }
        }
    }

    fn accepted(
        &mut self,
        sock: TcpStream,
        addr: SocketAddr,
        transport: Transport,
        listener: u16,
        handler: &mut dyn FnMut(NetEvent<'_>),
    ) {
        let limits = &self.config.limits;
        if !self.admission.admit(
            addr.ip(),
            self.slots.len(),
            self.now,
            limits,
            &mut self.counters,
        ) {
            return;
        }
        let _ = sock.set_nodelay(true);
        let deadline = self.now + limits.handshake_timeout;
        match self.insert_stream(sock, addr, transport, Some(listener), deadline) {
            Ok(Some(serial)) => {
                self.counters.accepted += 1;
                self.admission.begin(addr.ip(), &self.config.limits);
                self.run(serial, handler, |conn, cx| {
                    conn.start_accepted(cx);
                    Step::Wait
                });
            }
            Ok(None) => self.counters.refused_full += 1,
            Err(error) => tracing::warn!(%error, "cannot watch an accepted connection"),
        }
    }

    /// Time to wait: the caller's bound, the next timer, a paused listener.
    fn wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        let accept = self
            .listeners
            .iter()
            .filter(|l| l.ready)
            .map(|l| l.not_before);
        let next = accept.chain(self.timers.next()).min();
        let next = next.map(|at| at.saturating_duration_since(self.now));
        match (timeout, next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn run_timers(&mut self, handler: &mut dyn FnMut(NetEvent<'_>)) {
        while let Some((at, serial)) = self.timers.pop_due(self.now) {
            let Some(Conn::Stream(conn)) = self.slots.get_mut(serial) else {
                continue;
            };
            // A stale entry: the one that counts is earlier or later.
            if conn.armed != at {
                continue;
            }
            conn.armed = Instant::FAR_FUTURE;
            self.run(serial, handler, StreamConn::on_timer);
        }
        let slots = &self.slots;
        self.timers
            .sweep(slots.len(), |serial, at| match slots.get(serial) {
                Some(Conn::Stream(conn)) => conn.armed == at,
                None => false,
            });
    }

    fn report_ended(&mut self, handler: &mut dyn FnMut(NetEvent<'_>)) -> bool {
        let any = !self.ended.is_empty();
        for (conn, cause) in self.ended.drain(..) {
            handler(NetEvent::Closed { conn, cause });
        }
        any
    }

    /// Removes a connection outside of `poll`; its end is reported there.
    fn end(&mut self, serial: u64, cause: CloseCause) {
        if let Some(Conn::Stream(conn)) = self.slots.get(serial)
            && !conn.reported
        {
            self.ended
                .push_back((ConnId::new(self.config.shard, serial), cause));
        }
        self.remove(serial);
    }

    fn remove(&mut self, serial: u64) {
        let Some(Conn::Stream(conn)) = self.slots.remove(serial) else {
            return;
        };
        self.counters.closed += 1;
        if conn.pending {
            self.admission.handshake_over();
        }
        if conn.accepted {
            self.admission.end(conn.addr().ip());
        }
        // A descriptor is free again.
        for listener in &mut self.listeners {
            listener.not_before = Instant::ZERO;
        }
    }
}
