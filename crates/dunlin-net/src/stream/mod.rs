//! One connection over TCP: its life from connect to close, its deadlines, and
//! the way of its bytes through TLS and WebSocket, which are layers. What comes
//! in is kept in `input`, what leaves in `output`.

mod cx;
mod input;
mod output;
mod read;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use bytes::Bytes;
pub(crate) use cx::{Cx, Scratch, Step, UDP_BATCH, UDP_BYTES};
use dunlin_base::transport::{
    BindingType, CloseCause, NetEvent, NetEventKind, Peer, Transport, plain_addr,
};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId, Text};
use dunlin_quic::{ConnStats, Counters};
use input::Input;
use mio::net::TcpStream;
use output::{Line, Output};

use crate::config::Protocols;
use crate::proxy::Awaited;
use crate::strangers::Ticket;
use crate::timers::Armed;
use crate::tls::TlsLayer;
use crate::ws::{CLOSE_NORMAL, WsLayer};
use crate::{NetLimits, tcp};

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
    origin: Arc<Origin>,
    phase: Phase,
    /// Its address is that of a proxy, which is not counted, and that of its client is
    /// not known; or it comes from this process.
    pub(crate) is_proxy: bool,
    /// Its place among the peers that are not known yet.
    pub(crate) stranger: Option<Ticket>,
    /// Its end needs no report: reported before, or never opened and never
    /// asked for.
    pub(crate) reported: bool,
    pub(crate) input: Input,
    output: Output,
    /// Deadline of the current phase.
    deadline: Instant,
    /// Earliest armed timer.
    pub(crate) armed: Armed,
}

/// Where a connection comes from; those of a listener share it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) transport: Transport,
    /// The listener that accepted it; `None`: dialled.
    pub(crate) listener: Option<u16>,
    /// What may be spoken on it.
    pub(crate) protocols: Protocols,
    /// Accepted: what SASL on it may be bound by.
    pub(crate) end_point: Option<Bytes>,
}

/// What stands between TCP and the application's bytes.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) tls: Option<Box<TlsLayer>>,
    pub(crate) ws: Option<Box<WsLayer>>,
    pub(crate) first: First,
    /// Name in the peer's certificate.
    pub(crate) identity: Option<Text>,
}

/// What goes before the bytes of the layers.
#[derive(Debug)]
pub(crate) enum First {
    /// First bytes of a client of the topmost layer.
    Greeting(String),
    /// The header of a proxy in front of this server.
    Header(Box<Awaited>),
}

impl Default for First {
    fn default() -> Self {
        Self::Greeting(String::new())
    }
}

impl Layers {
    /// Whether there is anything that bytes pass through, or that is known.
    const fn is_needed(&self) -> bool {
        let awaits = matches!(self.first, First::Header(_));
        self.tls.is_some() || self.ws.is_some() || self.identity.is_some() || awaits
    }
}

impl First {
    /// The greeting, once.
    fn take_greeting(&mut self) -> String {
        match self {
            Self::Greeting(greeting) => core::mem::take(greeting),
            Self::Header(_) => String::new(),
        }
    }
}

/// How a connection comes to be.
pub(crate) struct NewStream {
    pub(crate) id: ConnId,
    pub(crate) sock: TcpStream,
    pub(crate) addr: SocketAddr,
    pub(crate) origin: Arc<Origin>,
    pub(crate) layers: Option<Box<Layers>>,
    /// Its address is that of a trusted proxy, or of this process.
    pub(crate) is_proxy: bool,
    pub(crate) handshake_deadline: Instant,
}

impl StreamConn {
    pub(crate) fn new(new: NewStream, now: Instant, limits: &NetLimits) -> Self {
        let accepted = new.origin.listener.is_some();
        Self {
            id: new.id,
            sock: new.sock,
            addr: new.addr,
            layers: new.layers,
            phase: Phase::Connecting,
            is_proxy: new.is_proxy,
            stranger: None,
            reported: accepted,
            origin: new.origin,
            input: Input::new(now, limits.idle_timeout_max),
            output: Output::default(),
            deadline: new.handshake_deadline,
            armed: Armed::NEVER,
        }
    }

    /// Accepted, not dialled.
    pub(crate) fn is_accepted(&self) -> bool {
        self.origin.listener.is_some()
    }

    /// Bytes given to `send` that `Sent` has not announced.
    pub(crate) const fn owed(&self) -> usize {
        self.output.owed()
    }

    pub(crate) fn transport(&self) -> Transport {
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
        let (accepted, owed) = (self.is_accepted(), self.owed());
        let mut stats = ConnStats::new(self.origin.transport, addr, accepted, owed);
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
        self.input.hup |= hup;
        if writable && let Err(cause) = self.on_writable(cx) {
            return Step::Gone(cause);
        }
        let waiting = self.output.backlog.len();
        let relieved = self.input.choked && waiting <= cx.limits.unread_answers_bytes_max / 2;
        if readable || hup || relieved {
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
        if let Some(cause) = self.output.take_failure() {
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
        self.input.last_read = cx.now;
        self.phase = Phase::Handshake;
        let Some(mut layers) = self.layers.take() else {
            self.open(None, cx);
            return;
        };
        let awaits_header = matches!(layers.first, First::Header(_));
        if layers.tls.is_none() && layers.ws.is_none() && !awaits_header {
            let identity = layers.identity.clone();
            self.layers = Some(layers);
            self.open(identity, cx);
            return;
        }
        if layers.tls.is_none() {
            let greeting = layers.first.take_greeting();
            self.output.backlog.put_slice(greeting.as_bytes());
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
        self.deadline = if self.is_accepted() {
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
                self.input.finish();
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

    /// Takes all of `data`; returns how many bytes left at once.
    pub(crate) fn send(
        &mut self,
        data: &mut SendBuf,
        limits: &NetLimits,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> Result<usize, CloseCause> {
        let total = data.len();
        if self.phase > Phase::Open || !self.output.is_open() {
            data.clear();
            return Ok(total);
        }
        if total == 0 {
            return Ok(0);
        }
        let direct = self.phase == Phase::Open;
        let layers = self.layers.as_ref();
        let role = layers.and_then(|l| l.ws.as_deref()).map(WsLayer::role);
        let (output, mut line) = self.parts(counters, scratch);
        output.put(data, role, direct, &mut line);
        let left = self.write(counters, scratch);
        let wire = self.layers.as_ref().and_then(|l| l.tls.as_ref());
        let kept = self.output.backlog.len() + wire.map_or(0, |tls| tls.wire.len());
        if kept > limits.backlog_bytes_max {
            counters.backlog_overflows += 1;
            return Err(CloseCause::failed(
                "the peer reads too slowly: backlog limit reached",
            ));
        }
        Ok(left)
    }

    /// Whether the connection must be run although the kernel said nothing.
    pub(crate) const fn wants_run(&self) -> bool {
        self.output.has_failed()
    }

    /// The output half and where its bytes go.
    fn parts<'a>(
        &'a mut self,
        counters: &'a mut Counters,
        scratch: &'a mut Scratch,
    ) -> (&'a mut Output, Line<'a>) {
        let line = Line {
            sock: &self.sock,
            tls: self.layers.as_mut().and_then(|l| l.tls.as_deref_mut()),
            counters,
            scratch,
        };
        (&mut self.output, line)
    }

    /// Writes what waits until the kernel takes no more; returns the credit
    /// that this frees.
    fn write(&mut self, counters: &mut Counters, scratch: &mut Scratch) -> usize {
        if self.phase == Phase::Connecting {
            return 0;
        }
        let (output, mut line) = self.parts(counters, scratch);
        output.write(&mut line)
    }

    /// Writes what waits, announces the credit, and ends what was only waiting
    /// for that.
    fn write_and_announce(&mut self, cx: &mut Cx<'_>) {
        let left = self.write(cx.counters, cx.scratch);
        if left > 0 && self.phase == Phase::Open {
            let (stream, bytes) = (StreamId::CONTROL, left);
            (cx.out)(NetEvent::new(self.id, NetEventKind::Sent { stream, bytes }));
        }
        if let Some(cause) = self.end_if_flushed(cx.now, cx.counters, cx.scratch) {
            self.report(cause, cx.out);
        }
    }

    fn on_writable(&mut self, cx: &mut Cx<'_>) -> Result<(), CloseCause> {
        self.output.on_writable();
        if self.phase == Phase::Connecting {
            match connect_result(&self.sock) {
                Ok(true) => self.connected(cx),
                Ok(false) => return Ok(()),
                Err(e) => return Err(CloseCause::failed(&format!("cannot connect: {e}"))),
            }
        }
        self.write_and_announce(cx);
        Ok(())
    }

    /// Ends our side after the backlog; the connection stays. Returns the
    /// credit that this frees.
    pub(crate) fn finish(
        &mut self,
        now: Instant,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> usize {
        if self.phase != Phase::Open || !self.output.finish() {
            return 0;
        }
        self.put_ws_close();
        let left = self.write(counters, scratch);
        self.end_if_flushed(now, counters, scratch);
        left
    }

    fn put_ws_close(&mut self) {
        if let Some(ws) = self.layers.as_mut().and_then(|l| l.ws.as_mut()) {
            let mut frame = Vec::new();
            ws.close(CLOSE_NORMAL, &mut frame);
            self.output.backlog.put_slice(&frame);
        }
    }

    /// Once everything has left, the end of TLS included: sends FIN if our side
    /// ends. Returns why the connection ended, if it was only waiting for that.
    fn end_if_flushed(
        &mut self,
        now: Instant,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> Option<CloseCause> {
        let closing = self.phase == Phase::Flushing;
        if !closing && !self.output.is_finished() {
            return None;
        }
        let (output, mut line) = self.parts(counters, scratch);
        if !output.is_flushed(&mut line) {
            return None;
        }
        if closing {
            return Some(self.end_writing(now));
        }
        let _ = self.sock.shutdown(Shutdown::Write);
        None
    }

    fn end_writing(&mut self, now: Instant) -> CloseCause {
        let cause = if self.input.is_finished() {
            CloseCause::Peer { code: 0 }
        } else {
            CloseCause::Local
        };
        if self.sock.shutdown(Shutdown::Write).is_err() {
            self.input.finish();
        }
        self.phase = Phase::Draining;
        self.deadline = now + DRAIN;
        cause
    }

    /// Whether a closed connection has nothing left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Draining && self.input.is_finished()
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

    /// When the connection must be looked at, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.phase == Phase::Open && !self.input.is_paused() {
            self.deadline.min(self.input.idle_deadline())
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
            Phase::Open if self.input.is_finished() => CloseCause::Peer { code: 0 },
            Phase::Open if self.input.is_silent() && self.deadline <= cx.now => {
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

    /// The peer will send no more.
    fn on_finished(&mut self, cx: &mut Cx<'_>) {
        if self.input.finish() && self.phase == Phase::Open {
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

fn connect_result(sock: &TcpStream) -> io::Result<bool> {
    if let Some(error) = sock.take_error()? {
        return Err(error);
    }
    // The address of one of a pair is none of TCP.
    match socket2::SockRef::from(sock).peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}

/// What an exchange of SASL on a connection is bound by, once TLS is ready.
pub(crate) fn end_point(conn: &StreamConn) -> Option<Bytes> {
    match conn.is_accepted() {
        true => conn.origin.end_point.clone(),
        false => conn.layers.as_ref()?.tls.as_ref()?.end_point(),
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
        binding: (conn.origin.end_point.as_ref()).map(|_| BindingType::TlsServerEndPoint),
    }
}

/// What was agreed on, or what alone may be spoken; empty if the first bytes
/// decide.
fn protocol(conn: &StreamConn) -> Text {
    let layers = conn.layers.as_deref();
    let by_ws = layers.and_then(|layers| layers.ws.as_ref());
    if let Some(ws) = by_ws {
        return ws.protocol().clone();
    }
    let by_tls = layers.and_then(|layers| layers.tls.as_ref()?.protocol());
    by_tls
        .and_then(|name| Text::from_utf8(name.into()).ok())
        .or_else(|| match &*conn.origin.protocols {
            [alone] => Some(alone.clone()),
            _ => None,
        })
        .unwrap_or_default()
}

/// The other side of a connection that can go to another loop, as `Opened`
/// described it: it is open and was accepted.
pub(crate) fn detachable(conn: &StreamConn) -> Option<Peer> {
    let layers = conn.layers.as_ref();
    (conn.phase == Phase::Open && conn.is_accepted() && !conn.reported)
        .then(|| peer(conn, layers.and_then(|layers| layers.identity.clone())))
}

/// The certificate that the peer of a connection presented, in DER.
pub(crate) fn peer_certificate(conn: &StreamConn) -> Option<Vec<u8>> {
    let tls = conn.layers.as_ref().and_then(|l| l.tls.as_ref());
    tls?.peer_certificate()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        let sizes = [size_of::<StreamConn>(), size_of::<Layers>()];
        assert!(sizes[0] <= 216 && sizes[1] <= 72, "{sizes:?}");
    }
}
