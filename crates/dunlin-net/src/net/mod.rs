//! The loop: what a caller can ask of it. How it runs is in `run`, what QUIC
//! needs besides is in `udp`.

mod layers;
mod run;
mod udp;

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, ShardId, StreamId};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::admission::Admission;
use crate::quic::{NewQuic, QuicConn, QuicSettings, UdpEndpoint, bind};
use crate::slots::{SLOTS_MAX, Slots};
use crate::stream::{Layers, NewStream, Scratch, StreamConn};
use crate::timers::Timers;
use crate::{
    ClientTls, ConnStats, Counters, DialConfig, ForeignDatagram, ListenerConfig, NetConfig,
    NetError, ServerTls, Waker, tcp,
};

/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Listeners and UDP sockets of one loop at most.
const SOURCES_MAX: usize = 1024;

/// The loop's own waker.
const WAKER: Token = Token(0);
/// First token of listeners and UDP sockets; connections use their serial,
/// which is larger than any of these.
const SOURCE_BASE: usize = 1;
const _: () = assert!(SOURCE_BASE + SOURCES_MAX < SLOTS_MAX);

/// A single-threaded event loop over sockets.
#[derive(Debug)]
pub struct Net {
    config: NetConfig,
    quic: QuicSettings,
    poll: Poll,
    events: Events,
    waker: Waker,
    slots: Slots<Conn>,
    sources: Vec<Source>,
    timers: Timers,
    admission: Admission,
    counters: Counters,
    scratch: Scratch,
    /// Connections with something left to do although the kernel is silent.
    ready: Vec<u64>,
    /// QUIC connections that may have something to transmit.
    dirty: Vec<u64>,
    /// QUIC connections to run after a batch of datagrams.
    touched: Vec<u64>,
    /// Datagrams for other shards.
    foreign: VecDeque<(ShardId, ForeignDatagram)>,
    /// Reports that arose outside of `poll`.
    reports: VecDeque<Report>,
    now: Instant,
}

#[derive(Debug)]
enum Conn {
    Stream(Box<StreamConn>),
    Quic(Box<QuicConn>),
}

/// What the kernel reports about by a small token.
#[derive(Debug)]
enum Source {
    Tcp(Listener),
    Udp(Box<UdpEndpoint>),
    /// A listener that was closed.
    Gone,
}

#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    config: ListenerConfig,
    ws_path: Arc<str>,
    /// The kernel may have more connections for us.
    ready: bool,
    /// Do not accept before this.
    not_before: Instant,
}

#[derive(Debug)]
enum Report {
    Sent(ConnId, usize),
    Closed(ConnId, CloseCause),
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
        if config.shard.0 >= config.shards {
            return Err(NetError::Config(
                "a shard's number must be below the number of shards",
            ));
        }
        let poll = Poll::new().map_err(NetError::Loop)?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(NetError::Loop)?;
        Ok(Self {
            now: config.clock.now(),
            quic: QuicSettings::new(&config)?,
            config,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            waker: Waker::new(waker),
            slots: Slots::new(),
            sources: Vec::new(),
            timers: Timers::default(),
            admission: Admission::default(),
            counters: Counters::default(),
            scratch: Scratch::new(),
            ready: Vec::new(),
            dirty: Vec::new(),
            touched: Vec::new(),
            foreign: VecDeque::new(),
            reports: VecDeque::new(),
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
            Conn::Quic(quic) => quic.stats(),
        })
    }

    /// Starts to accept connections; returns the bound address.
    ///
    /// # Errors
    /// The address cannot be bound, or TLS settings are missing.
    pub fn listen(&mut self, config: ListenerConfig) -> Result<SocketAddr, NetError> {
        if self.sources.len() >= SOURCES_MAX {
            return Err(NetError::Config("a loop has at most 1,024 listeners"));
        }
        let (transport, addr) = (config.transport, config.addr);
        let fail = |source| NetError::Listen {
            transport,
            addr,
            source,
        };
        if transport.is_encrypted() && config.tls.is_none() {
            return Err(NetError::TlsMissing(transport));
        }
        match (transport, &config.tls) {
            (Transport::Quic, Some(tls)) => self.listen_udp(&config, tls).map_err(fail),
            _ => self.listen_tcp(config).map_err(fail),
        }
    }

    fn listen_tcp(&mut self, config: ListenerConfig) -> io::Result<SocketAddr> {
        let mut socket = tcp::listen(config.addr, config.reuse_port)?;
        let addr = socket.local_addr()?;
        let token = self.next_source();
        self.poll
            .registry()
            .register(&mut socket, token, Interest::READABLE)?;
        self.sources.push(Source::Tcp(Listener {
            socket,
            ws_path: config.ws_path.as_str().into(),
            config,
            ready: false,
            not_before: Instant::ZERO,
        }));
        Ok(addr)
    }

    fn listen_udp(&mut self, config: &ListenerConfig, tls: &ServerTls) -> io::Result<SocketAddr> {
        let socket = bind(config.addr, config.reuse_port)?;
        let addr = socket.local_addr()?;
        let server = self.quic.server_config(tls);
        let limits = &self.config.limits;
        let index = Some(config.index);
        let endpoint = UdpEndpoint::new(socket, addr, index, Some(server), &self.quic, limits)?;
        self.add_endpoint(endpoint)?;
        Ok(addr)
    }

    fn add_endpoint(&mut self, mut endpoint: UdpEndpoint) -> io::Result<usize> {
        let token = self.next_source();
        self.poll.registry().register(
            endpoint.socket_mut(),
            token,
            Interest::READABLE | Interest::WRITABLE,
        )?;
        self.scratch.reserve_udp();
        self.sources.push(Source::Udp(Box::new(endpoint)));
        Ok(self.sources.len() - 1)
    }

    fn next_source(&self) -> Token {
        Token(SOURCE_BASE + self.sources.len())
    }

    /// Closes all listeners; connections stay. A UDP port stays bound for its
    /// connections and takes no new ones.
    pub fn stop_listening(&mut self) {
        for source in &mut self.sources {
            match source {
                Source::Tcp(_) => *source = Source::Gone,
                Source::Udp(endpoint) => endpoint.refuse_new(),
                Source::Gone => {}
            }
        }
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
        self.now = self.config.clock.now();
        let timeout = config
            .handshake_timeout
            .unwrap_or(self.config.limits.handshake_timeout);
        let deadline = self.now + timeout;
        let serial = match (config.transport, &config.tls) {
            (transport, None) if transport.is_encrypted() => {
                return Err(NetError::TlsMissing(transport));
            }
            (Transport::Quic, Some(tls)) => self.dial_quic(config, tls, deadline)?,
            _ => self.dial_tcp(config, deadline)?,
        };
        self.counters.dialled += 1;
        Ok(ConnId::new(self.config.shard, serial))
    }

    fn dial_tcp(&mut self, config: &DialConfig, deadline: Instant) -> Result<u64, NetError> {
        let fail = |source| NetError::Dial {
            addr: config.addr,
            source,
        };
        let layers = layers::of_client(config, &self.config.limits)?;
        let sock = tcp::connect(config.addr, config.local_addr).map_err(fail)?;
        let serial = self
            .insert_stream(sock, config.addr, config.transport, None, layers, deadline)
            .map_err(fail)?
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))?;
        if let Some(Conn::Stream(conn)) = self.slots.get_mut(serial) {
            self.timers
                .arm(serial, conn.next_deadline(), &mut conn.armed);
        }
        Ok(serial)
    }

    fn dial_quic(
        &mut self,
        config: &DialConfig,
        tls: &Arc<ClientTls>,
        deadline: Instant,
    ) -> Result<u64, NetError> {
        let fail = |source| NetError::Dial {
            addr: config.addr,
            source,
        };
        let any: SocketAddr = if config.addr.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let local = config.local_addr.unwrap_or(any);
        let source = self.client_endpoint(local).map_err(fail)?;
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return Err(NetError::Config("the UDP socket is gone"));
        };
        let mut client = tls.quic.clone();
        client.transport_config(Arc::clone(&self.quic.transport));
        let std_now = self.config.clock.to_std(self.now);
        let (handle, proto) = endpoint
            .proto
            .connect(std_now, client, config.addr, &config.server_name)
            .map_err(|e| match e {
                quinn_proto::ConnectError::InvalidServerName(name) => NetError::ServerName(name),
                other => fail(io::Error::other(other)),
            })?;
        self.insert_quic(source, handle, proto, None, deadline)
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))
    }

    /// The UDP socket that dialled connections from `local` share.
    fn client_endpoint(&mut self, local: SocketAddr) -> io::Result<usize> {
        let found = self.sources.iter().position(|source| {
            matches!(source, Source::Udp(e) if e.listener.is_none() && e.bound_to == local)
        });
        if let Some(index) = found {
            return Ok(index);
        }
        if self.sources.len() >= SOURCES_MAX {
            return Err(io::Error::other("a loop has at most 1,024 UDP sockets"));
        }
        let socket = bind(local, false)?;
        let limits = &self.config.limits;
        let endpoint = UdpEndpoint::new(socket, local, None, None, &self.quic, limits)?;
        self.add_endpoint(endpoint)
    }

    /// Gives bytes to a connection; takes all of them. Returns how many left
    /// at once: room for as many more. The rest is announced by `Sent`.
    ///
    /// A dialled QUIC connection opens its control stream with the first bytes
    /// sent on it. Bytes for a stream that takes none any more are dropped and
    /// count as left.
    #[must_use = "these bytes are not announced by `Sent`"]
    pub fn send(&mut self, conn: ConnId, stream: StreamId, data: &mut SendBuf) -> usize {
        let serial = conn.serial();
        let (limits, counters) = (&self.config.limits, &mut self.counters);
        let result = match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) if stream == StreamId::CONTROL => {
                let result = tcp.send(data, limits, counters, &mut self.scratch);
                if tcp.wants_run() {
                    self.ready.push(serial);
                }
                result
            }
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, serial, &mut quic.dirty);
                quic.send(stream, data, limits, counters)
            }
            Some(Conn::Stream(_)) | None => Ok(0),
        };
        data.clear();
        result.unwrap_or_else(|cause| {
            self.end(conn, cause);
            0
        })
    }

    /// Opens a stream on a QUIC connection; `None` when the peer allows no
    /// more now, and on other transports.
    pub fn open_stream(&mut self, conn: ConnId, bidirectional: bool) -> Option<StreamId> {
        self.with_quic(conn, |quic| quic.open_stream(bidirectional))
            .flatten()
    }

    /// Ends our side of a stream after what was given to `send`.
    pub fn finish_stream(&mut self, conn: ConnId, stream: StreamId) {
        if let Some(Conn::Stream(tcp)) = Self::find_in(&mut self.slots, self.config.shard, conn)
            && stream == StreamId::CONTROL
        {
            let left = tcp.finish(&mut self.counters, &mut self.scratch);
            if left > 0 {
                self.reports.push_back(Report::Sent(conn, left));
            }
        } else {
            self.with_quic(conn, |quic| quic.finish_stream(stream));
        }
    }

    /// Abandons our side of a stream; bytes that have not left are dropped and
    /// announced by `Sent`. On other transports than QUIC it does nothing.
    pub fn reset_stream(&mut self, conn: ConnId, stream: StreamId, code: u64) {
        let dropped = self.with_quic(conn, |quic| quic.reset_stream(stream, code));
        if let Some(bytes) = dropped.filter(|n| *n > 0) {
            self.reports.push_back(Report::Sent(conn, bytes));
        }
    }

    /// Asks the peer to stop sending on a stream (QUIC).
    pub fn stop_stream(&mut self, conn: ConnId, stream: StreamId, code: u64) {
        self.with_quic(conn, |quic| quic.stop_stream(stream, code));
    }

    /// Closes a connection after what was given to `send`; `code` goes to a
    /// QUIC peer. `Closed` follows when the bytes have left.
    pub fn close(&mut self, conn: ConnId, code: u64) {
        let now = self.config.clock.now();
        let limits = &self.config.limits;
        match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) => {
                let ended = tcp.close(now, limits, &mut self.counters, &mut self.scratch);
                let is_over = tcp.is_over();
                if let Some(cause) = ended
                    && !core::mem::replace(&mut tcp.reported, true)
                {
                    self.reports.push_back(Report::Closed(conn, cause));
                }
                self.timers
                    .arm(conn.serial(), tcp.next_deadline(), &mut tcp.armed);
                if is_over {
                    self.remove(conn.serial());
                }
            }
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, conn.serial(), &mut quic.dirty);
                quic.close(code, now, limits);
                if quic.is_flushed(&self.config.clock, now)
                    && !core::mem::replace(&mut quic.reported, true)
                {
                    self.reports
                        .push_back(Report::Closed(conn, CloseCause::Local));
                }
            }
            None => {}
        }
    }

    /// Ends a connection at once, dropping what has not left.
    pub fn abort(&mut self, conn: ConnId) {
        self.end(conn, CloseCause::Local);
    }

    /// Closes a connection once nothing arrived for `idle`.
    pub fn set_idle_timeout(&mut self, conn: ConnId, idle: Duration) {
        let idle = idle.min(self.config.limits.idle_timeout_max);
        let serial = conn.serial();
        match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) => {
                tcp.set_idle_timeout(idle);
                self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
            }
            Some(Conn::Quic(quic)) => {
                quic.set_idle_timeout(idle);
                let at = quic.next_deadline(&self.config.clock);
                self.timers.arm(serial, at, &mut quic.armed);
            }
            None => {}
        }
    }

    /// Stops or resumes reading, so that the peer is slowed down.
    pub fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        let unread = match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) => tcp.pause(paused),
            Some(Conn::Quic(quic)) => quic.pause(paused),
            None => false,
        };
        if unread {
            self.ready.push(conn.serial());
        }
    }

    /// The next datagram that arrived here and belongs to another shard, which
    /// must be given it by [`Net::handle_foreign`].
    pub fn poll_foreign(&mut self) -> Option<(ShardId, ForeignDatagram)> {
        self.foreign.pop_front()
    }

    fn with_quic<R>(&mut self, conn: ConnId, f: impl FnOnce(&mut QuicConn) -> R) -> Option<R> {
        match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, conn.serial(), &mut quic.dirty);
                Some(f(quic))
            }
            _ => None,
        }
    }

    fn find(&self, conn: ConnId) -> Option<&Conn> {
        (conn.shard() == self.config.shard)
            .then(|| self.slots.get(conn.serial()))
            .flatten()
    }

    /// A connection, borrowing only the table.
    fn find_in(slots: &mut Slots<Conn>, shard: ShardId, conn: ConnId) -> Option<&mut Conn> {
        (conn.shard() == shard)
            .then(|| slots.get_mut(conn.serial()))
            .flatten()
    }

    fn insert_stream(
        &mut self,
        sock: TcpStream,
        addr: SocketAddr,
        transport: Transport,
        listener: Option<u16>,
        layers: Option<Box<Layers>>,
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
                layers,
                handshake_deadline,
            };
            let mut conn = Box::new(StreamConn::new(new, now, &config.limits));
            let token = Token(serial as usize);
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry.register(conn.sock_mut(), token, interest)?;
            Ok(Conn::Stream(conn))
        })
    }

    /// Stores a connection and lists it for its first transmission.
    fn insert_quic(
        &mut self,
        source: usize,
        handle: quinn_proto::ConnectionHandle,
        proto: quinn_proto::Connection,
        listener: Option<u16>,
        handshake_deadline: Instant,
    ) -> Option<u64> {
        let (now, config) = (self.now, &self.config);
        let inserted = self.slots.insert_with(|serial| {
            let new = NewQuic {
                id: ConnId::new(config.shard, serial),
                source,
                handle,
                proto,
                listener,
                handshake_deadline,
            };
            let conn = Box::new(QuicConn::new(new, now, &config.limits));
            Ok::<_, core::convert::Infallible>(Conn::Quic(conn))
        });
        let Ok(serial) = inserted;
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return None;
        };
        match serial {
            Some(serial) => {
                endpoint.bind_serial(handle, serial);
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    mark(&mut self.dirty, serial, &mut quic.dirty);
                }
            }
            None => {
                let drained = quinn_proto::EndpointEvent::drained();
                endpoint.proto.handle_event(handle, drained);
            }
        }
        serial
    }

    /// Ends a connection outside of `poll`; its end is reported there.
    fn end(&mut self, conn: ConnId, cause: CloseCause) {
        let reported = match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) => {
                tcp.reset();
                let reported = tcp.reported;
                self.remove(conn.serial());
                reported
            }
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, conn.serial(), &mut quic.dirty);
                quic.abort(&self.config.clock, self.config.clock.now());
                core::mem::replace(&mut quic.reported, true)
            }
            None => return,
        };
        if !reported {
            self.reports.push_back(Report::Closed(conn, cause));
        }
    }

    fn remove(&mut self, serial: u64) {
        let Some(conn) = self.slots.remove(serial) else {
            return;
        };
        self.counters.closed += 1;
        let (pending, accepted, addr) = match &conn {
            Conn::Stream(tcp) => (tcp.pending, tcp.accepted, tcp.addr().ip()),
            Conn::Quic(quic) => (quic.pending, quic.accepted, quic.admitted_ip()),
        };
        if pending {
            self.admission.handshake_over();
        }
        if accepted {
            self.admission.end(addr);
        }
        // A descriptor is free again.
        for source in &mut self.sources {
            if let Source::Tcp(listener) = source {
                listener.not_before = Instant::ZERO;
            }
        }
    }
}

/// Lists a QUIC connection for transmission, once.
fn mark(dirty: &mut Vec<u64>, serial: u64, listed: &mut bool) {
    if !core::mem::replace(listed, true) {
        dirty.push(serial);
    }
}
