//! The loop: what a caller can ask of it. How it runs is in `run`, what QUIC
//! needs besides is in `udp`.

mod command;
mod detach;
mod dial;
mod early;
mod layers;
mod paths;
mod quic;
mod run;
mod survey;
mod table;
mod udp;
mod watch;

pub use detach::DetachedConn;
pub use paths::Move;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, Transport};
use dunlin_base::{ConnId, Instant, Repeat, SendBuf, ShardId, StreamId};
use dunlin_quic::{EndpointKeys, QuicConn, QuicEndpoint, QuicSettings};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::port::{UdpPort, bind};
use crate::slots::{SLOTS_MAX, Slots};
use crate::stream::{Origin, Scratch, StreamConn};
use crate::timers::Timers;
use crate::{
    CertName, Clock, ConnStats, Counters, DatagramError, ForeignDatagram, ListenerConfig,
    NetConfig, NetError, ServerTls, StrikeId, Waker, tcp,
};

pub use survey::Held;

use quic::{QuicSlot, UdpEndpoint};

/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Listeners and UDP sockets of one loop at most.
const SOURCES_MAX: usize = 1024;

/// The loop's own waker.
const WAKER: Token = Token(0);
/// First token of listeners and UDP sockets; connections use their serial,
/// which is larger than any of these.
const SOURCE_BASE: usize = 1;
/// Changes of the network.
const WATCH: Token = Token(SLOTS_MAX - 1);
const _: () = assert!(SOURCE_BASE + SOURCES_MAX < WATCH.0);

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
    counters: Counters,
    held: Held,
    /// Where the next sample begins.
    sampled: usize,
    scratch: Scratch,
    /// Connections with something left to do although the kernel is silent.
    ready: Vec<u64>,
    /// QUIC connections that may have something to transmit.
    dirty: Vec<u64>,
    /// QUIC connections to run after a batch of datagrams.
    touched: Vec<u64>,
    /// Tells of changes of the network, once a connection follows them.
    watch: Option<watch::sys::Watch>,
    /// Dialled QUIC connections that move by themselves; some may be gone.
    following: Vec<u64>,
    /// When to look where they should send from.
    look_at: Option<Instant>,
    /// Datagrams for other shards.
    foreign: VecDeque<(ShardId, ForeignDatagram)>,
    /// Connections whose ticket's use is being kept.
    strikes: BTreeMap<StrikeId, u64>,
    /// Reports that arose outside of `poll`.
    reports: VecDeque<Report>,
    now: Instant,
}

#[derive(Debug)]
enum Conn {
    Stream(Box<StreamConn>),
    Quic(Box<QuicSlot>),
}

/// What the kernel reports about by a small token.
#[derive(Debug)]
enum Source {
    Tcp(Listener),
    Udp(Box<UdpEndpoint>),
    /// Another socket of an endpoint, to which a connection moved.
    Path(Box<paths::UdpPath>),
    /// A socket that was closed; its place is free.
    Gone,
}

#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    origin: Origin,
    tls: Option<(Arc<rustls::ServerConfig>, CertName)>,
    ws_path: Arc<str>,
    /// The kernel may have more connections for us.
    ready: bool,
    /// Do not accept before this.
    not_before: Instant,
}

impl Listener {
    /// Serves connections to come with this certificate, where it is used.
    fn set_tls(&mut self, tls: &ServerTls) {
        let protocols = &self.origin.protocols;
        let config = match self.origin.transport {
            Transport::Tls => tls.over_tcp(protocols),
            Transport::Wss => tls.over_ws(protocols),
            _ => return,
        };
        self.tls = Some((config, tls.cert_name()));
    }
}

#[derive(Debug)]
enum Report {
    Sent(ConnId, usize),
    Finished(ConnId),
    Blocked(ConnId, StreamId, usize),
    Moved(ConnId, SocketAddr, SocketAddr),
    MoveFailed(ConnId, SocketAddr),
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
            quic: quic_settings(&config)?,
            config,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            waker: Waker::new(waker),
            slots: Slots::new(),
            sources: Vec::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            held: Held::default(),
            sampled: 0,
            scratch: Scratch::new(),
            ready: Vec::new(),
            dirty: Vec::new(),
            touched: Vec::new(),
            watch: None,
            following: Vec::new(),
            look_at: None,
            foreign: VecDeque::new(),
            strikes: BTreeMap::new(),
            reports: VecDeque::new(),
        })
    }

    /// The loop's clock, for use within a handler of [`Net::poll`].
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.config.clock
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
    pub fn stats(&mut self, conn: ConnId) -> Option<ConnStats> {
        Self::find_in(&mut self.slots, self.config.shard, conn).map(|conn| match conn {
            Conn::Stream(stream) => stream.stats(),
            Conn::Quic(quic) => quic.conn.stats(),
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
            (Transport::Quic, Some(tls)) => {
                let tls = Arc::clone(tls);
                self.listen_udp(&config, &tls, fail)
            }
            _ => self.listen_tcp(config).map_err(fail),
        }
    }

    fn listen_tcp(&mut self, config: ListenerConfig) -> io::Result<SocketAddr> {
        let mut socket = tcp::listen(config.addr, config.reuse_port)?;
        let addr = socket.local_addr()?;
        let token = next_source(&self.sources);
        self.poll
            .registry()
            .register(&mut socket, token, Interest::READABLE)?;
        let mut listener = Listener {
            socket,
            ws_path: config.ws_path.as_str().into(),
            origin: Origin {
                transport: config.transport,
                listener: Some(config.index),
                protocols: config.protocols.into(),
            },
            tls: None,
            ready: false,
            not_before: Instant::ZERO,
        };
        if let Some(tls) = &config.tls {
            listener.set_tls(tls);
        }
        self.sources.push(Source::Tcp(listener));
        Ok(addr)
    }

    fn listen_udp(
        &mut self,
        config: &ListenerConfig,
        tls: &ServerTls,
        fail: impl Fn(io::Error) -> NetError,
    ) -> Result<SocketAddr, NetError> {
        let socket = bind(config.addr, config.reuse_port).map_err(&fail)?;
        let addr = socket.local_addr().map_err(&fail)?;
        let ecn = config.quic.ecn;
        let port = UdpPort::new(socket, ecn, &self.config.limits).map_err(&fail)?;
        let quic = QuicEndpoint::listening(
            config.index,
            tls,
            &config.protocols,
            config.quic.clone(),
            &self.quic,
            port.allows_mtu_discovery(),
        )?;
        let endpoint = UdpEndpoint {
            port,
            quic,
            bound_to: addr,
        };
        self.add_endpoint(endpoint).map_err(&fail)?;
        Ok(addr)
    }

    fn add_endpoint(&mut self, mut endpoint: UdpEndpoint) -> io::Result<usize> {
        let token = next_source(&self.sources);
        self.poll
            .registry()
            .register(endpoint.port.socket_mut(), token, UdpPort::INTEREST)?;
        self.scratch.reserve_udp();
        self.sources.push(Source::Udp(Box::new(endpoint)));
        Ok(self.sources.len() - 1)
    }

    /// Closes all listeners; connections stay. A UDP port stays bound for its
    /// connections and takes no new ones.
    pub fn stop_listening(&mut self) {
        for source in &mut self.sources {
            match source {
                Source::Tcp(_) => *source = Source::Gone,
                Source::Udp(endpoint) => endpoint.quic.refuse_new(),
                Source::Path(_) | Source::Gone => {}
            }
        }
    }

    /// Replaces certificate and key of the listeners with this number, for
    /// connections to come.
    pub fn set_tls(&mut self, listener: u16, tls: &Arc<ServerTls>) {
        for source in &mut self.sources {
            match source {
                Source::Tcp(tcp) if tcp.origin.listener == Some(listener) => {
                    tcp.set_tls(tls);
                }
                Source::Udp(udp) if udp.quic.listener() == Some(listener) => {
                    udp.quic.set_tls(tls, &self.quic);
                }
                _ => {}
            }
        }
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
                quic.conn.send(stream, data, self.quic.limits(), counters)
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
        self.with_quic(conn, |quic| quic.streams().open(bidirectional))
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
            self.with_quic(conn, |quic| quic.streams().finish(stream));
        }
    }

    /// Abandons our side of a stream; bytes that have not left are dropped and
    /// announced by `Sent`. On other transports than QUIC it does nothing.
    pub fn reset_stream(&mut self, conn: ConnId, stream: StreamId, code: u64) {
        let dropped = self.with_quic(conn, |quic| quic.streams().reset(stream, code));
        if let Some(bytes) = dropped.filter(|n| *n > 0) {
            self.reports.push_back(Report::Sent(conn, bytes));
        }
    }

    /// Asks the peer to stop sending on a stream (QUIC).
    pub fn stop_stream(&mut self, conn: ConnId, stream: StreamId, code: u64) {
        self.with_quic(conn, |quic| quic.streams().stop(stream, code));
    }

    /// Bytes given to [`Net::send`] for one stream that have not left: where a
    /// connection has several, `Sent` tells of all of them together. 0 on
    /// other transports than QUIC.
    #[must_use]
    pub fn stream_backlog(&mut self, conn: ConnId, stream: StreamId) -> usize {
        match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Quic(quic)) => quic.conn.streams().backlog(stream),
            _ => 0,
        }
    }

    /// Has what is sent on a stream leave before what is sent on streams with a
    /// lower priority (QUIC); streams begin with 0. It decides only among
    /// bytes that have not left: it makes nothing faster than the path.
    pub fn set_stream_priority(&mut self, conn: ConnId, stream: StreamId, priority: i32) {
        self.with_quic(conn, |quic| quic.streams().set_priority(stream, priority));
    }

    /// Keeps bytes of different streams in different packets (QUIC), so that a
    /// lost packet holds up one stream only. Lost bytes that are sent again
    /// may still share a packet.
    pub fn isolate_streams(&mut self, conn: ConnId, isolate: bool) {
        self.with_quic(conn, |quic| quic.streams().set_isolation(isolate));
    }

    /// Sends packets with bytes of streams, or datagrams, a second time a few
    /// milliseconds later (QUIC), so that a single loss holds up nothing. Only
    /// while both fit the congestion window: for few small messages. With
    /// [`Repeat::OnLoss`] for ten seconds after each loss.
    pub fn repeat_packets(&mut self, conn: ConnId, repeat: Repeat) {
        let now = self.now();
        self.with_quic(conn, |quic| quic.set_repeat(repeat, now));
    }

    /// The largest datagram (RFC 9221) that [`Net::send_datagram`] takes now;
    /// `None` when the connection carries none. It changes with the path.
    pub fn datagram_max_size(&mut self, conn: ConnId) -> Option<usize> {
        self.with_quic(conn, |quic| quic.datagrams().max_size())
            .flatten()
    }

    /// Sends a datagram (RFC 9221): it may be lost, and comes in no order. It
    /// is dropped, and counted, if it has not left at `expires`, or if newer
    /// ones need its place in the queue.
    ///
    /// # Errors
    /// It does not fit, or the connection carries no datagrams: send it on a
    /// stream.
    pub fn send_datagram(
        &mut self,
        conn: ConnId,
        data: Bytes,
        expires: Instant,
    ) -> Result<(), DatagramError> {
        let (limits, counters) = (self.quic.limits(), &mut self.counters);
        match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, conn.serial(), &mut quic.dirty);
                let mut datagrams = quic.conn.datagrams();
                datagrams.send(data, expires, limits, counters)
            }
            _ => Err(DatagramError::Unsupported),
        }
    }

    /// Closes a connection after what was given to `send`; `code` goes to a
    /// QUIC peer. `Closed` follows when the bytes have left.
    pub fn close(&mut self, conn: ConnId, code: u64) {
        self.close_as(conn, code, false);
    }

    fn close_as(&mut self, conn: ConnId, code: u64, promptly: bool) {
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
                // Ends when it is flushed.
                quic.conn.close(code, promptly, now, self.quic.limits());
            }
            None => {}
        }
    }

    /// As [`Net::close`] for a peer that ended the conversation: what is waiting is sent,
    /// but it need not arrive. Differs for QUIC only.
    pub fn close_promptly(&mut self, conn: ConnId, code: u64) {
        self.close_as(conn, code, true);
    }

    /// Ends a connection at once, dropping what has not left.
    pub fn abort(&mut self, conn: ConnId) {
        self.end(conn, CloseCause::Local);
    }

    /// Takes new keys for a QUIC connection (RFC 9001 section 6). Returns
    /// whether it did: not while the handshake or an earlier update is going
    /// on, and not on other transports.
    pub fn update_keys(&mut self, conn: ConnId) -> bool {
        let now = self.config.clock.now();
        let updated = self.with_quic(conn, |quic| quic.update_keys(now));
        let updated = updated.unwrap_or(false);
        self.counters.key_updates += u64::from(updated);
        updated
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
                quic.conn.reading_mut().set_idle_timeout(idle);
                let at = quic.conn.next_deadline(&self.config.clock);
                self.timers.arm(serial, at, &mut quic.armed);
            }
            None => {}
        }
    }

    /// Stops or resumes reading, so that the peer is slowed down. While reading
    /// is stopped the idle timeout rests.
    pub fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        let (now, serial) = (self.config.clock.now(), conn.serial());
        let unread = match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) => {
                let unread = tcp.pause(paused, now);
                self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
                unread
            }
            Some(Conn::Quic(quic)) => {
                let unread = quic.conn.reading_mut().pause(paused, now);
                let at = quic.conn.next_deadline(&self.config.clock);
                self.timers.arm(serial, at, &mut quic.armed);
                unread
            }
            None => false,
        };
        if unread {
            self.ready.push(serial);
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
                Some(f(&mut quic.conn))
            }
            _ => None,
        }
    }

    /// A connection, borrowing only the table.
    fn find_in(slots: &mut Slots<Conn>, shard: ShardId, conn: ConnId) -> Option<&mut Conn> {
        (conn.shard() == shard)
            .then(|| slots.get_mut(conn.serial()))
            .flatten()
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
                quic.conn
                    .abort(None, &self.config.clock, self.config.clock.now());
                !quic.conn.life_mut().take_report()
            }
            None => return,
        };
        if !reported {
            self.reports.push_back(Report::Closed(conn, cause));
        }
    }
}

/// Token of the source that is added next.
fn next_source(sources: &[Source]) -> Token {
    Token(SOURCE_BASE + sources.len())
}

fn quic_settings(config: &NetConfig) -> Result<QuicSettings, NetError> {
    let keys = EndpointKeys {
        shard: config.shard,
        shards: config.shards,
        cid: config.keys.cid,
        reset: &config.keys.reset,
        token: &config.keys.token,
        lb: config.lb.clone(),
    };
    let (used, tickets) = (&config.shared.used_tokens, config.tickets.clone());
    Ok(QuicSettings::new(
        &keys,
        config.limits.of_quic(),
        used,
        tickets,
    )?)
}

/// Lists a QUIC connection for transmission, once.
fn mark(dirty: &mut Vec<u64>, serial: u64, listed: &mut bool) {
    if !core::mem::replace(listed, true) {
        dirty.push(serial);
    }
}
