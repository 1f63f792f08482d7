//! One connection over TCP: its life from connect to close and its deadlines.
//! How bytes come in is in `input`, how they leave in `output`; TLS and
//! WebSocket are layers that both pass through.

mod cx;
mod input;
mod output;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::net::Shutdown;
use std::sync::Arc;

pub(crate) use cx::{Cx, Scratch, Step, UDP_BATCH, UDP_BYTES};
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Peer, Transport, plain_addr};
use dunlin_base::{ConnId, Instant, StreamId, Text};
use dunlin_quic::Backlog;
use mio::net::TcpStream;

use crate::timers::Armed;
use crate::tls::TlsLayer;
use crate::ws::{CLOSE_NORMAL, WsLayer};
use crate::{ConnStats, Counters, NetLimits, tcp};

/// Time for which a closed connection still discards what the peer sends, so
/// that the kernel does not answer with RST and destroy what we sent last.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Phase {
    /// TCP connect is under way.
    Connecting,
    /// The layers above TCP are not ready.
    Handshake,
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
    pub(crate) id: ConnId,
    sock: TcpStream,
    addr: SocketAddr,
    /// What bytes pass through; `None` on plain TCP.
    layers: Option<Box<Layers>>,
    origin: Origin,
    phase: Phase,
    /// Accepted, not dialled.
    pub(crate) accepted: bool,
    /// Counted as a pending handshake.
    pub(crate) pending: bool,
    /// Its end needs no report: reported before, or never opened and never
    /// asked for.
    pub(crate) reported: bool,
    /// We end, or ended, our side; the peer's may go on.
    finished: bool,
    /// The peer will send no more.
    pub(crate) peer_finished: bool,
    /// Something arrived since it opened.
    spoke: bool,
    paused: bool,
    /// The kernel said readable while paused.
    readable: bool,
    /// The kernel said that the peer's side ended: read until that shows.
    hup: bool,
    /// The kernel took less than it was offered: it will say when it takes
    /// more.
    blocked: bool,
    /// Writing failed; reported once everything that arrived is read.
    broken: Option<CloseCause>,
    /// Bytes that have not left, before TLS.
    backlog: Backlog,
    /// Bytes taken by `send` that `Sent` has not announced.
    pub(crate) owed: usize,
    last_read: Instant,
    idle: Duration,
    /// Deadline of the current phase.
    deadline: Instant,
    /// Earliest armed timer.
    pub(crate) armed: Armed,
}

/// Application protocols, by preference.
pub(crate) type Protocols = Arc<[Text]>;

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) transport: Transport,
    /// The listener that accepted it; `None`: dialled.
    pub(crate) listener: Option<u16>,
    /// What may be spoken on it.
    pub(crate) protocols: Protocols,
}

/// What stands between TCP and the application's bytes.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) tls: Option<TlsLayer>,
    pub(crate) ws: Option<WsLayer>,
    /// First bytes of a client of the topmost layer.
    pub(crate) greeting: String,
    /// Name in the peer's certificate.
    pub(crate) identity: Option<Text>,
}

/// How a connection comes to be.
pub(crate) struct NewStream {
    pub(crate) id: ConnId,
    pub(crate) sock: TcpStream,
    pub(crate) addr: SocketAddr,
    pub(crate) origin: Origin,
    pub(crate) layers: Option<Box<Layers>>,
    pub(crate) handshake_deadline: Instant,
}

impl StreamConn {
    pub(crate) fn new(new: NewStream, now: Instant, limits: &NetLimits) -> Self {
        Self {
            id: new.id,
            sock: new.sock,
            addr: new.addr,
            layers: new.layers,
            phase: Phase::Connecting,
            accepted: new.origin.listener.is_some(),
            pending: new.origin.listener.is_some(),
            reported: new.origin.listener.is_some(),
            origin: new.origin,
            finished: false,
            peer_finished: false,
            spoke: false,
            paused: false,
            readable: false,
            hup: false,
            blocked: false,
            broken: None,
            backlog: Backlog::default(),
            owed: 0,
            last_read: now,
            idle: limits.idle_timeout_max,
            deadline: new.handshake_deadline,
            armed: Armed::NEVER,
        }
    }

    pub(crate) const fn transport(&self) -> Transport {
        self.origin.transport
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it is sent from, as far as that is known.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        let ip = self.sock.local_addr().ok()?.ip();
        (!ip.is_unspecified()).then_some(ip)
    }

    pub(crate) fn sock_mut(&mut self) -> &mut TcpStream {
        &mut self.sock
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.phase < Phase::Open
    }

    pub(crate) fn stats(&self) -> ConnStats {
        let addr = plain_addr(self.addr);
        let mut stats = ConnStats::new(self.origin.transport, addr, self.accepted, self.owed);
        if let Some(tls) = self.layers.as_ref().and_then(|l| l.tls.as_ref()) {
            stats.protocol = tls.protocol();
            tls.describe(&mut stats);
        }
        stats
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

    /// `Gone` once writing failed and reading found nothing more, or our FIN
    /// is sent and the peer's has come.
    fn step(&mut self) -> Step {
        if let Some(cause) = self.broken.take() {
            return Step::Gone(cause);
        }
        if self.is_over() {
            Step::Gone(CloseCause::Local)
        } else {
            Step::Wait
        }
    }

    /// TCP is connected: begins what is above it.
    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.last_read = cx.now;
        self.phase = Phase::Handshake;
        let Some(mut layers) = self.layers.take() else {
            self.open(None, cx);
            return;
        };
        if layers.tls.is_none() {
            self.backlog.put_slice(layers.greeting.as_bytes());
            layers.greeting = String::new();
        }
        self.layers = Some(layers);
        // A TLS client's first flight comes out of no input.
        let result = self.feed(&mut [], cx);
        if let Err(cause) = result {
            self.fail(cause, cx);
        }
        self.write_and_announce(cx);
    }

    /// All layers are ready.
    fn open(&mut self, identity: Option<Text>, cx: &mut Cx<'_>) {
        self.phase = Phase::Open;
        self.reported = false;
        self.deadline = if self.accepted {
            cx.now + cx.limits.first_bytes_timeout
        } else {
            Instant::FAR_FUTURE
        };
        cx.counters.opened += 1;
        let peer = peer(self, identity);
        (cx.out)(NetEvent::new(self.id, NetEventKind::Opened { peer }));
    }

    /// A layer failed: reports it, and lets what explains it to the peer leave
    /// before the connection does.
    fn fail(&mut self, cause: CloseCause, cx: &mut Cx<'_>) {
        if self.phase < Phase::Open {
            cx.counters.handshake_failures += 1;
        }
        self.report(cause, cx.out);
        if self.phase < Phase::Flushing {
            self.phase = Phase::Flushing;
            self.deadline = cx.now + cx.limits.close_linger;
        }
        self.write_and_announce(cx);
    }

    /// Ends the connection after its backlog; returns the cause when that is
    /// already so.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        limits: &NetLimits,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> Option<CloseCause> {
        match self.phase {
            Phase::Connecting | Phase::Handshake => {
                self.peer_finished = true;
                self.end_writing(now);
                Some(CloseCause::Local)
            }
            Phase::Open => {
                self.phase = Phase::Flushing;
                self.deadline = now + limits.close_linger;
                self.put_ws_close();
                self.write(counters, scratch);
                self.end_if_flushed(now, counters, scratch)
            }
            Phase::Flushing | Phase::Draining => None,
        }
    }

    /// Ends our side after the backlog; the connection stays. Returns the
    /// credit that this frees.
    pub(crate) fn finish(&mut self, counters: &mut Counters, scratch: &mut Scratch) -> usize {
        if self.phase != Phase::Open || core::mem::replace(&mut self.finished, true) {
            return 0;
        }
        self.put_ws_close();
        let left = self.write(counters, scratch);
        self.shutdown_if_flushed(counters, scratch);
        left
    }

    fn put_ws_close(&mut self) {
        if let Some(ws) = self.layers.as_mut().and_then(|l| l.ws.as_mut()) {
            let mut frame = Vec::new();
            ws.close(CLOSE_NORMAL, &mut frame);
            self.backlog.put_slice(&frame);
        }
    }

    fn shutdown_if_flushed(&mut self, counters: &mut Counters, scratch: &mut Scratch) {
        if self.finished && self.is_flushed(counters, scratch) {
            let _ = self.sock.shutdown(Shutdown::Write);
        }
    }

    /// In `Flushing`: sends FIN once everything has left, and returns why the
    /// connection ended.
    fn end_if_flushed(
        &mut self,
        now: Instant,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> Option<CloseCause> {
        if self.phase != Phase::Flushing || !self.is_flushed(counters, scratch) {
            return None;
        }
        Some(self.end_writing(now))
    }

    fn end_writing(&mut self, now: Instant) -> CloseCause {
        let cause = if self.peer_finished {
            CloseCause::Peer { code: 0 }
        } else {
            CloseCause::Local
        };
        if self.sock.shutdown(Shutdown::Write).is_err() {
            self.peer_finished = true;
        }
        self.phase = Phase::Draining;
        self.deadline = now + DRAIN;
        cause
    }

    /// Whether a closed connection has nothing left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Draining && self.peer_finished
    }

    pub(crate) fn report(&mut self, cause: CloseCause, out: &mut dyn FnMut(NetEvent<&[u8]>)) {
        if core::mem::replace(&mut self.reported, true) {
            if self.phase < Phase::Open {
                tracing::debug!(addr = %self.addr, %cause, "a handshake failed");
            }
            return;
        }
        out(NetEvent::new(self.id, NetEventKind::Closed { cause }));
    }

    pub(crate) fn reset(&self) {
        tcp::reset_on_drop(&self.sock);
    }

    pub(crate) fn set_idle_timeout(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Returns whether there is something to read now. A peer that is not read
    /// is not idle.
    pub(crate) fn pause(&mut self, paused: bool, now: Instant) -> bool {
        if self.paused && !paused {
            self.last_read = now;
        }
        self.paused = paused;
        !paused && self.readable
    }

    /// When the connection must be looked at, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.phase == Phase::Open && !self.paused {
            self.deadline.min(self.last_read + self.idle)
        } else {
            self.deadline
        }
    }

    /// A deadline may be over.
    pub(crate) fn on_timer(&self, cx: &mut Cx<'_>) -> Step {
        if cx.now < self.next_deadline() {
            return Step::Wait;
        }
        let cause = match self.phase {
            Phase::Connecting | Phase::Handshake => {
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

    fn on_spoke(&mut self) {
        if !self.spoke {
            self.spoke = true;
            self.deadline = Instant::FAR_FUTURE;
        }
    }

    /// The peer will send no more.
    fn on_finished(&mut self, cx: &mut Cx<'_>) {
        if !core::mem::replace(&mut self.peer_finished, true) && self.phase == Phase::Open {
            self.deadline = cx.now + cx.limits.half_close_linger;
            (cx.out)(NetEvent::new(
                self.id,
                NetEventKind::StreamFinished {
                    stream: StreamId::CONTROL,
                },
            ));
        }
    }
}

/// The other side of a connection.
fn peer(conn: &StreamConn, identity: Option<Text>) -> Peer {
    Peer {
        addr: conn.addr,
        transport: conn.origin.transport,
        listener: conn.origin.listener.unwrap_or(0),
        identity,
        protocol: protocol(conn),
        early_data: false,
    }
}

/// What was agreed on, or the first of what may be spoken.
fn protocol(conn: &StreamConn) -> Text {
    let layers = conn.layers.as_deref();
    let by_ws = layers.and_then(|layers| layers.ws.as_ref());
    if let Some(ws) = by_ws {
        return ws.protocol().clone();
    }
    let by_tls = layers.and_then(|layers| layers.tls.as_ref()?.protocol());
    by_tls
        .and_then(|name| Text::from_utf8(name.into()).ok())
        .or_else(|| conn.origin.protocols.first().cloned())
        .unwrap_or_default()
}

/// The other side of a connection that can go to another loop, as `Opened`
/// described it: it is open and was accepted.
pub(crate) fn detachable(conn: &StreamConn) -> Option<Peer> {
    let layers = conn.layers.as_ref();
    (conn.phase == Phase::Open && conn.accepted && !conn.reported)
        .then(|| peer(conn, layers.and_then(|layers| layers.identity.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(
            size_of::<StreamConn>() <= 320,
            "{}",
            size_of::<StreamConn>()
        );
    }
}
