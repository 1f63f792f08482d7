//! One QUIC connection: what quinn-proto reports becomes events of
//! [`dunlin_base::transport`], and deadlines that the protocol does not know
//! are kept here. It knows no socket, no timer and no table.
//!
//! Each part of its state is a type in a file of its own, which works on
//! quinn-proto's connection as an argument and knows no other part.

mod ack_wait;
mod acks;
mod answer;
mod binding;
mod datagrams;
mod early;
mod keys;
mod path;
mod phase;
mod reading;
mod repeat;
mod stats;
mod streams;
mod transmit;

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{
    BindingType, CloseCause, NetEvent, NetEventKind, Peer, Transport, plain_addr,
};
use dunlin_base::{ConnId, Instant, Repeat, SendBuf, StreamId, Text};
use quinn_proto::{Connection, ConnectionError, ConnectionHandle, Dir, Event, StreamEvent};
use rustls::pki_types::CertificateDer;

use ack_wait::AckWait;
pub use ack_wait::AcksMut;
use acks::AckTail;
use answer::{Answer, TicketWait};
pub use binding::BindingMut;
use datagrams::DatagramQueue;
pub(crate) use datagrams::READY_BYTES_MAX;
pub use datagrams::{DatagramError, DatagramsMut};
use early::Early;
pub use early::EarlyMut;
pub(crate) use early::carries_early_data;
use keys::KeyAge;
use path::{Credit, Path};
pub use path::{Due, Moves, PathMut, PathRef, Probe};
pub use phase::Life;
use reading::ReadMut;
pub use reading::Reading;
use repeat::Repeats;
pub use stats::{peer_certificate, peer_parameters};
use streams::Streams;
pub use streams::StreamsMut;
pub(crate) use streams::{BIDI_STREAMS_FIRST, UNI_STREAMS_FIRST, varint};
pub use transmit::Transmitted;

use crate::endpoint::{Begun, QuicEndpoint};
use crate::limits::QuicLimits;
use crate::qlog::{ConnLog, LogMut};
use crate::{CertName, Clock, Counters, session, tls};

/// What a connection needs of its loop while it runs.
pub struct Cx<'a> {
    /// The present.
    pub now: Instant,
    /// The clock that it was read from.
    pub clock: &'a Clock,
    /// Limits and deadlines.
    pub limits: &'a QuicLimits,
    /// Totals of the loop.
    pub counters: &'a mut Counters,
    /// An empty buffer for stream data of several datagrams.
    pub gather: &'a mut Vec<u8>,
    /// Takes events.
    pub out: &'a mut dyn FnMut(NetEvent<&[u8]>),
}

impl Cx<'_> {
    fn emit(&mut self, conn: ConnId, kind: NetEventKind<&[u8]>) {
        (self.out)(NetEvent::new(conn, kind));
    }
}

dunlin_base::opaque_debug!(Cx<'_>);

/// A connection over QUIC.
///
/// Call order: [`QuicConn::on_input`] for each datagram, then
/// [`QuicConn::run`]; commands at any time; [`QuicConn::exchange`] and
/// [`QuicConn::transmit`] after all of them; [`QuicConn::on_timer`] at
/// [`QuicConn::next_deadline`].
pub struct QuicConn {
    id: ConnId,
    handle: ConnectionHandle,
    proto: Connection,
    /// The listener that accepted it; `None`: dialled.
    listener: Option<u16>,
    cert_name: CertName,
    life: Life,
    path: Path,
    early: Early,
    answer: Answer,
    /// Dialled: the ticket for the next connection.
    ticket: TicketWait,
    streams: Streams,
    reading: Reading,
    datagrams: DatagramQueue,
    repeats: Repeats,
    log: Option<Box<ConnLog>>,
    ack_tail: AckTail,
    ack_wait: AckWait,
    keys: KeyAge,
}

impl fmt::Debug for QuicConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicConn")
            .field("id", &self.id)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl QuicConn {
    /// A connection that quinn-proto has begun.
    #[must_use]
    pub fn new(
        begun: Begun,
        id: ConnId,
        now: Instant,
        handshake_until: Instant,
        limits: &QuicLimits,
    ) -> Self {
        let accepted = begun.listener.is_some();
        let remote = plain_addr(begun.proto.remote_address());
        let log = begun.log.map(|start| Box::new(start.watch(remote, limits)));
        Self {
            id,
            handle: begun.handle,
            path: Path::new(begun.proto.remote_address(), begun.first),
            streams: Streams::new(accepted, limits),
            proto: begun.proto,
            listener: begun.listener,
            cert_name: begun.cert_name,
            life: Life::new(accepted, handshake_until),
            early: Early::default(),
            answer: Answer::default(),
            ticket: TicketWait::new(begun.tickets),
            reading: Reading::new(now, limits.idle_timeout_max),
            datagrams: DatagramQueue::default(),
            repeats: Repeats::new(begun.tuning.repeat),
            log,
            ack_tail: AckTail::default(),
            ack_wait: AckWait::default(),
            keys: KeyAge::new(&begun.tuning, now),
        }
    }

    /// Its id among the loop's connections.
    #[must_use]
    pub const fn id(&self) -> ConnId {
        self.id
    }

    /// Whether a listener accepted it; else it was dialled.
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        self.listener.is_some()
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life {
        &self.life
    }

    /// As [`QuicConn::life`], to change.
    pub const fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    /// Its streams.
    pub fn streams(&mut self) -> StreamsMut<'_> {
        StreamsMut::new(&mut self.streams, &mut self.proto, self.log.as_deref())
    }

    /// Its datagrams (RFC 9221).
    pub fn datagrams(&mut self) -> DatagramsMut<'_> {
        let is_open = self.life.is_open();
        DatagramsMut::new(&mut self.datagrams, &mut self.proto, is_open)
    }

    /// Where it goes, and how it moves.
    #[must_use]
    pub const fn path(&self) -> PathRef<'_> {
        PathRef::new(&self.path, &self.proto, self.life.is_open())
    }

    /// As [`QuicConn::path`], to change.
    pub const fn path_mut(&mut self) -> PathMut<'_> {
        PathMut::new(&mut self.path, &mut self.proto)
    }

    /// How the owner reads, and what has not been read.
    const fn read(&mut self) -> ReadMut<'_> {
        ReadMut {
            id: self.id,
            life: &mut self.life,
            reading: &mut self.reading,
            accepted: self.listener.is_some(),
            streams: &mut self.streams,
            proto: &mut self.proto,
            log: &self.log,
        }
    }

    /// How the owner reads.
    pub const fn reading_mut(&mut self) -> &mut Reading {
        &mut self.reading
    }

    /// Its log.
    pub fn log_mut(&mut self) -> LogMut<'_> {
        LogMut::new(&mut self.log, self.path.addr(), self.listener.is_some())
    }

    /// Early data that it accepts.
    pub fn early_data(&mut self) -> EarlyMut<'_> {
        let confirmed = self.life.is_confirmed();
        EarlyMut::new(&mut self.early, &mut self.answer, &self.proto, confirmed)
    }

    /// Takes all of `data`; returns how many bytes left at once.
    ///
    /// # Errors
    /// More waits than may: the connection is to be ended with this cause.
    pub fn send(
        &mut self,
        stream: StreamId,
        data: &mut SendBuf,
        limits: &QuicLimits,
        counters: &mut Counters,
    ) -> Result<usize, CloseCause> {
        let takes = self.life.takes_bytes();
        let Some(id) = takes.then(|| self.streams().sending(stream)).flatten() else {
            let all = data.len();
            data.clear();
            return Ok(all);
        };
        self.answer.on_written();
        self.streams().send(id, data, limits, counters)
    }

    /// What an exchange of SASL on it is bound by.
    pub const fn binding(&mut self) -> BindingMut<'_> {
        let confirmed = self.life.is_confirmed();
        BindingMut::new(&mut self.life.binding, &self.proto, confirmed)
    }

    /// Says when small packets are sent twice from now on.
    pub fn set_repeat(&mut self, when: Repeat, now: Instant) {
        self.repeats.set(when, &self.proto, now);
    }

    /// Takes new keys, if the handshake is confirmed (RFC 9001 section 6.1);
    /// returns whether it did.
    pub fn update_keys(&mut self, now: Instant) -> bool {
        self.life.is_open()
            && self
                .keys
                .update(&mut self.proto, self.listener.is_some(), now)
    }

    /// A datagram for this connection was taken by its endpoint.
    /// `local_ip` is where it arrived, if it came by the path in use.
    pub fn on_input(
        &mut self,
        input: crate::endpoint::Input,
        local_ip: Option<Option<IpAddr>>,
        now: Instant,
    ) {
        let (used, rtt) = (self.proto.remote_address(), self.proto.rtt());
        let remote = input.remote;
        self.path.before_datagram(remote, input.bytes);
        let timer = self.proto.poll_timeout();
        self.proto.handle_event(input.event);
        self.ack_wait
            .note(input.at, timer, self.proto.poll_timeout());
        if self.proto.remote_address() != used {
            self.ack_wait.moved();
        }
        let credit = Credit {
            to: input.to,
            at: input.at,
        };
        self.path
            .after_datagram(remote, (used, rtt), credit, &mut self.proto, now);
        self.reading.on_datagram(now);
        self.path.on_datagram(&self.proto, local_ip, now);
        if input.is_congested {
            self.path.count_congested();
        }
        if let Some(log) = &self.log {
            log.udp_received(input.bytes);
        }
    }

    /// Lets the connection and its endpoint say to each other what they have
    /// to; whether the connection is gone for good.
    pub fn exchange(&mut self, endpoint: &mut QuicEndpoint) -> bool {
        if let Some(credit) = self.path.take_credit() {
            let remote = self.proto.remote_address();
            if let Some((event, bytes)) = endpoint.credit(credit.to, remote, credit.at) {
                self.proto.handle_event(event);
                self.path.count_credit(bytes);
            }
        }
        let mut drained = false;
        while let Some(event) = self.proto.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(event) = endpoint.handle_event(self.handle, event) {
                self.proto.handle_event(event);
            }
        }
        drained
    }

    /// Whether nothing must be sent yet, because the owner does not know that
    /// it may add to the first datagram.
    #[must_use]
    pub const fn awaits_owner(&self) -> bool {
        self.life.is_new() && self.streams.is_in_flight()
    }

    /// Reports what happened, and reads what has arrived; whether there is more
    /// to read at once.
    pub fn run(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.early.is_held() {
            return false;
        }
        if self.awaits_owner() {
            self.open(cx);
        }
        self.read().check_waiting(cx);
        let mut budget = cx.limits.read_budget_bytes;
        self.read().unread(&mut budget, cx);
        self.read().datagrams(cx);
        while let Some(event) = self.proto.poll() {
            self.on_event(event, &mut budget, cx);
        }
        self.streams().count_open(cx.limits);
        let left = self.streams().write_writable();
        self.report_sent(left, cx);
        self.report_address(cx);
        self.read().check_waiting(cx);
        self.life.is_open() && !self.reading.is_held() && self.streams.has_unread()
    }

    fn on_event(&mut self, event: Event, budget: &mut usize, cx: &mut Cx<'_>) {
        match event {
            Event::Connected => self.on_connected(cx),
            Event::ConnectionLost { reason } => self.on_lost(reason, cx),
            Event::Stream(event) => self.on_stream_event(event, budget, cx),
            Event::DatagramReceived => self.read().datagrams(cx),
            // The queue is fed before each transmission.
            Event::HandshakeDataReady | Event::DatagramsUnblocked => {}
        }
    }

    fn on_connected(&mut self, cx: &mut Cx<'_>) {
        self.life.confirm();
        self.ticket.begin(self.proto.rtt(), cx.now);
        self.open(cx);
        if let Some(data) = self.life.binding.confirm(&self.proto) {
            cx.emit(self.id, NetEventKind::ChannelBinding { data });
        }
        match self.streams().end_flight(cx.counters) {
            Err(cause) => {
                self.abort(None, cx.clock, cx.now);
                return self.report(cause, cx.out);
            }
            Ok(Some((accepted, left))) => {
                self.report_sent(left, cx);
                if !self.life.is_reported() {
                    cx.emit(self.id, NetEventKind::EarlyData { accepted });
                }
            }
            Ok(None) => {}
        }
        if self.early.is_taken() && self.life.is_open() {
            cx.emit(self.id, NetEventKind::EarlyData { accepted: true });
        }
    }

    fn open(&mut self, cx: &mut Cx<'_>) {
        if !self.life.is_new() {
            return;
        }
        self.life.open(
            self.listener
                .map(|_| cx.now + cx.limits.first_bytes_timeout),
        );
        cx.counters.opened += 1;
        if self.listener.is_some() {
            match session::is_resumed(&self.proto) {
                true => cx.counters.quic_handshakes_resumed += 1,
                false => cx.counters.quic_handshakes_full += 1,
            }
        }
        if let Some(log) = &self.log {
            log.opened(protocol(&self.proto).as_deref(), !self.life.is_confirmed());
        }
        let certs = self.proto.crypto_session().peer_identity();
        let certs = certs.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        let peer = Peer {
            addr: plain_addr(self.path.addr()),
            transport: Transport::Quic,
            listener: self.listener.unwrap_or(0),
            identity: certs.and_then(|certs| tls::identity(&certs, self.cert_name)),
            protocol: protocol(&self.proto)
                .and_then(|name| Text::from_utf8(name.into()).ok())
                .unwrap_or_default(),
            early_data: self.early.is_taken() || self.streams.is_in_flight(),
            binding: self.listener.map(|_| BindingType::TlsExporter),
        };
        cx.emit(self.id, NetEventKind::Opened { peer });
    }

    fn on_lost(&mut self, reason: ConnectionError, cx: &mut Cx<'_>) {
        // What arrived before the end is delivered before it, paused or not;
        // the receive window bounds it.
        self.reading.end();
        self.streams.read_all();
        let mut unbounded = usize::MAX;
        self.read().unread(&mut unbounded, cx);
        self.read().datagrams(cx);
        let by_peer = matches!(
            reason,
            ConnectionError::ApplicationClosed(_) | ConnectionError::ConnectionClosed(_)
        );
        let handshaking = !self.life.is_confirmed();
        if handshaking {
            tracing::debug!(addr = %self.path.addr(), %reason, "a handshake failed");
            cx.counters.handshake_failures += 1;
        }
        self.over(by_peer);
        self.report(cause_of(reason, handshaking), cx.out);
    }

    fn on_stream_event(&mut self, event: StreamEvent, budget: &mut usize, cx: &mut Cx<'_>) {
        // Streams before the handshake ends carry 0-RTT data.
        self.open(cx);
        match event {
            StreamEvent::Opened { dir } => {
                self.streams().widen(dir, cx.limits);
                while let Some(id) = self.streams().accept(dir) {
                    self.read().stream(id, budget, cx);
                }
            }
            StreamEvent::Readable { id } => self.read().stream(id, budget, cx),
            // Not that stream alone: another may be more important.
            StreamEvent::Writable { .. } => self.streams.set_writable(),
            StreamEvent::Finished { id } => {
                self.streams.delivered(id);
                if self.life.is_open() {
                    let stream = StreamId(id.into());
                    cx.emit(self.id, NetEventKind::StreamDelivered { stream });
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                let dropped = self.streams().stopped(id, error_code);
                self.report_sent([(StreamId(id.into()), dropped)], cx);
                if self.life.is_open() {
                    let (stream, code) = (StreamId(id.into()), error_code.into_inner());
                    cx.emit(self.id, NetEventKind::StreamReset { stream, code });
                }
            }
            StreamEvent::Available { dir } => {
                if self.streams.was_refused(dir) && self.life.is_open() {
                    let bidirectional = dir == Dir::Bi;
                    cx.emit(self.id, NetEventKind::StreamsAvailable { bidirectional });
                }
            }
        }
    }

    fn report_address(&mut self, cx: &mut Cx<'_>) {
        let news = self.path.take_news();
        cx.counters.migrations_unproved += u64::from(news.unproved);
        if news.moved {
            cx.counters.migrations += 1;
            let addr = plain_addr(self.path.addr());
            if let Some(log) = &self.log {
                log.migrated(addr);
            }
            if self.life.is_open() {
                cx.emit(self.id, NetEventKind::Migrated { addr });
            }
        }
    }

    fn report_sent(&self, left: impl IntoIterator<Item = (StreamId, usize)>, cx: &mut Cx<'_>) {
        for (stream, bytes) in left {
            if bytes > 0 && self.life.is_open() {
                cx.emit(self.id, NetEventKind::Sent { stream, bytes });
            }
        }
    }

    /// Begins to close: ends all streams and waits until they arrived. A peer
    /// that is closed to promptly has ended the conversation: that it is
    /// closed says more to it than how everything else ends.
    pub fn close(&mut self, code: u64, promptly: bool, now: Instant, limits: &QuicLimits) {
        let until = now + limits.close_linger;
        if !self.life.close(varint(code), until, promptly) {
            return;
        }
        // The end of the connection says more than the ends of its streams.
        if !self.life.has_parted() {
            self.streams().finish_all();
        }
    }

    /// Ends a connection that is done: closed by this side, and waiting for
    /// nothing any more. The end itself is to be sent then. Returns whether it
    /// did.
    fn leave(&mut self, clock: &Clock, now: Instant) -> bool {
        let waits = !self.streams.has_arrived() || self.ticket.is_awaited(now);
        let done = self.life.is_closing() && (self.life.has_parted() || !waits);
        if done {
            self.abort(None, clock, now);
        }
        done
    }

    /// Ends it without waiting for anything; `None`: with the code that it is
    /// being closed with.
    pub fn abort(&mut self, code: Option<u64>, clock: &Clock, now: Instant) {
        if let Some(code) = code {
            self.life.set_close_code(varint(code));
        }
        let code = self.life.close_code();
        self.proto.close(clock.to_std(now), code, Bytes::new());
        self.over(false);
    }

    fn over(&mut self, by_peer: bool) {
        self.life.end(by_peer);
        // quinn-proto keeps it until the peer may be forgotten.
        for id in self.streams.clear() {
            let _ = self.proto.recv_stream(id).stop(varint(0));
        }
        self.datagrams = DatagramQueue::default();
        self.repeats = Repeats::new(Repeat::Never);
    }

    /// Reports the end, once.
    pub fn report(&mut self, cause: CloseCause, out: &mut dyn FnMut(NetEvent<&[u8]>)) {
        if let Some(log) = &mut self.log {
            log.closed(&cause);
        }
        if self.life.take_report() {
            out(NetEvent::new(self.id, NetEventKind::Closed { cause }));
        }
    }

    /// When the connection must be run, if nothing happens before.
    pub fn next_deadline(&mut self, clock: &Clock) -> Instant {
        // Rounded up, so that quinn-proto agrees that it is time.
        let proto = self.proto.poll_timeout();
        let proto = proto.map_or(Instant::FAR_FUTURE, |at| {
            clock.from_std(at) + Duration::from_micros(1)
        });
        self.own_deadline()
            .min(proto)
            .min(self.path.deadline())
            .min(self.repeats.next().unwrap_or(Instant::FAR_FUTURE))
            .min(self.answer.deadline(self.early.is_held()))
    }

    fn own_deadline(&self) -> Instant {
        self.life
            .deadline(self.reading.deadline(), self.ticket.deadline())
    }

    /// A deadline may be over; as [`QuicConn::run`].
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) -> bool {
        let used = self.proto.remote_address();
        let now = cx.clock.to_std(cx.now);
        self.ack_wait.on_timer(now, self.proto.poll_timeout());
        self.proto.handle_timeout(now);
        self.path.on_timer(used, &mut self.proto, cx.now);
        self.answer.on_timer(cx.now);
        self.ticket.on_timer(cx.now);
        if self.own_deadline() <= cx.now {
            let cause = self.life.time_out(cx.now, cx.counters);
            self.abort(None, cx.clock, cx.now);
            self.report(cause, cx.out);
        }
        self.run(cx)
    }
}

/// The application protocol that both sides agreed on.
fn protocol(proto: &Connection) -> Option<Vec<u8>> {
    use quinn_proto::crypto::rustls::HandshakeData;
    let data = proto.crypto_session().handshake_data()?;
    match data.downcast::<HandshakeData>() {
        Ok(dialled) => dialled.protocol,
        Err(accepted) => accepted.downcast::<session::Accepted>().ok()?.protocol,
    }
}

fn cause_of(reason: ConnectionError, handshaking: bool) -> CloseCause {
    match reason {
        ConnectionError::ApplicationClosed(close) => CloseCause::Peer {
            code: close.error_code.into_inner(),
        },
        ConnectionError::TimedOut if handshaking => CloseCause::HandshakeTimeout,
        ConnectionError::TimedOut => CloseCause::IdleTimeout,
        ConnectionError::LocallyClosed => CloseCause::Local,
        ConnectionError::Reset => {
            CloseCause::failed("the peer does not know the connection any more")
        }
        ConnectionError::TransportError(error) => CloseCause::failed(&describe(&error)),
        ConnectionError::ConnectionClosed(close) => {
            CloseCause::failed(&format!("QUIC: closed by the peer: {close}"))
        }
        other => CloseCause::failed(&format!("QUIC: {other}")),
    }
}

/// quinn-proto keeps only the text of a TLS error.
fn describe(error: &quinn_proto::TransportError) -> String {
    if error.reason.contains("UnknownIssuer") {
        let error = rustls::CertificateError::UnknownIssuer;
        return tls::describe(&rustls::Error::InvalidCertificate(error));
    }
    format!("QUIC: {error}")
}
