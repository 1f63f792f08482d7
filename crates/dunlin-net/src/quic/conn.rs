//! One QUIC connection: events of quinn-proto become events of this crate,
//! bytes that a stream does not take wait in its backlog, and deadlines that
//! the protocol does not know are kept here.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant, StreamId, Text};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, Dir, Event, ReadError, ReadableError,
    StreamEvent, StreamId as QuicStreamId, VarInt,
};
use rustls::pki_types::CertificateDer;

use super::acks::AckTail;
use super::datagrams::DatagramQueue;
use super::early::Early;
use super::flight::Flight;
use super::isolate::Turn;
use super::keys::KeyAge;
use super::moves::Moves;
use super::repeat::Repeats;
use super::stats::{Marks, Noted};
use super::streams::{StreamBacklog, varint};
use super::validation::PeerAddr;
use crate::config::plain_addr;
use crate::qlog::ConnLog;
use crate::resume::Counted;
use crate::stream::{Cx, GATHER_BYTES, Step, failure};
use crate::tickets::Verdict;
use crate::timers::Armed;
use crate::{CertName, Clock, Counters, NetLimits, QuicTuning, tls};

/// Streams that a peer may open at once, to begin with: what clients of EMQX
/// expect, control included. quinn-proto keeps an entry for each.
pub(super) const BIDI_STREAMS_FIRST: u32 = 10;
pub(super) const UNI_STREAMS_FIRST: u32 = 3;

/// How long an accepted connection's handshake waits for the use of a ticket to
/// be stored. Longer would look like loss to a client.
const HOLD_MAX: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Phase {
    Handshake,
    Open,
    /// Closed by us; waits until the peer has acknowledged all streams.
    Flushing,
    /// Over; kept until quinn-proto has drained it.
    Over,
}

/// A connection over QUIC.
pub(crate) struct QuicConn {
    pub(crate) id: ConnId,
    /// Index of its socket among the loop's sources.
    pub(crate) source: usize,
    /// Index of the socket that it sends from; another one after it moved.
    pub(crate) via: usize,
    pub(crate) handle: ConnectionHandle,
    pub(crate) proto: Connection,
    pub(super) addr: PeerAddr,
    /// Of a dialled connection.
    pub(crate) moves: Option<Box<Moves>>,
    pub(super) admitted_ip: IpAddr,
    listener: u16,
    pub(super) phase: Phase,
    pub(crate) accepted: bool,
    pub(crate) pending: bool,
    /// Its end needs no report: reported before, or never opened and never
    /// asked for.
    pub(crate) reported: bool,
    /// Listed for transmission.
    pub(crate) dirty: bool,
    /// Listed to be run after datagrams.
    pub(crate) touched: bool,
    /// The handshake is complete.
    confirmed: bool,
    pub(super) early: Early,
    /// Dialled: what was sent before the handshake, until its end.
    pub(super) flight: Option<Box<Flight>>,
    /// Dialled: where tickets go.
    pub(crate) tickets: Option<Arc<Counted>>,
    /// When a connection that is otherwise done waits for no ticket any more.
    pub(super) ticket_deadline: Instant,
    /// Accepted: until when nothing is sent, so that the answers to early data
    /// leave with the handshake; `None`: it was not held yet.
    hold_until: Option<Instant>,
    /// The owner wrote something since the last transmission.
    pub(super) wrote: bool,
    /// What the owner writes next is not all of its answer.
    pub(crate) more: bool,
    /// What it wrote last is not.
    pub(super) unfinished: bool,
    /// Something was sent since the handshake, and tickets with it.
    told: bool,
    /// Closed by us, and the peer waits for nothing but that.
    prompt: bool,
    /// The peer has closed the connection, and needs no answer.
    quiet: bool,
    pub(super) spoke: bool,
    pub(super) paused: bool,
    /// We opened a bidirectional stream, the first of which is control.
    pub(super) opened_control: bool,
    /// Streams that the peer may have open.
    granted_bidi: u32,
    granted_uni: u32,
    close_code: VarInt,
    /// Streams that we may send on and have not ended.
    pub(super) sending: Vec<QuicStreamId>,
    /// Streams that we have ended and the peer has not fully acknowledged.
    pub(super) ending: Vec<QuicStreamId>,
    /// Bytes that streams did not take.
    pub(super) backlogs: Vec<StreamBacklog>,
    /// Streams that the peer takes no more of, or takes again.
    pub(super) blocked_news: Vec<(StreamId, usize)>,
    /// Bytes of different streams leave in different packets.
    pub(crate) isolate: bool,
    pub(super) turn: Turn,
    /// Small packets are sent twice.
    pub(super) repeats: Option<Box<Repeats>>,
    /// Some stream takes bytes again.
    writable: bool,
    /// Datagrams that quinn-proto has not taken.
    pub(super) datagrams: DatagramQueue,
    /// Kinds of streams (bidirectional, unidirectional) of which the peer
    /// allowed no more when one was asked for.
    pub(super) wanted: [bool; 2],
    /// Streams that were not read to their end, for want of budget or because
    /// reading is paused.
    pub(super) unread: Vec<QuicStreamId>,
    /// Its log, when somebody wants to see it.
    pub(crate) log: Option<Box<ConnLog>>,
    pub(super) ack_tail: AckTail,
    /// What is in the loop's totals.
    pub(super) noted: Noted,
    /// Address changes of the peer.
    pub(super) moved: u32,
    /// What is known of ECN on its path.
    pub(crate) marks: Marks,
    last_read: Instant,
    idle: Duration,
    deadline: Instant,
    /// Counts until the handshake is complete, which early data precedes.
    handshake_deadline: Instant,
    pub(crate) armed: Armed,
    pub(super) keys: KeyAge,
    /// Which name in the peer's certificate to tell.
    pub(crate) cert_name: CertName,
}

/// How a connection comes to be.
pub(crate) struct NewQuic {
    pub(crate) id: ConnId,
    pub(crate) source: usize,
    pub(crate) handle: ConnectionHandle,
    pub(crate) proto: Connection,
    /// The listener that accepted it; `None`: dialled.
    pub(crate) listener: Option<u16>,
    pub(crate) handshake_deadline: Instant,
}

impl fmt::Debug for QuicConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicConn")
            .field("id", &self.id)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl QuicConn {
    pub(crate) fn new(new: NewQuic, now: Instant, limits: &NetLimits) -> Self {
        Self {
            id: new.id,
            source: new.source,
            via: new.source,
            handle: new.handle,
            addr: PeerAddr::new(new.proto.remote_address()),
            moves: new.listener.is_none().then(|| Box::new(Moves::new())),
            admitted_ip: plain_addr(new.proto.remote_address()).ip(),
            proto: new.proto,
            listener: new.listener.unwrap_or(0),
            phase: Phase::Handshake,
            accepted: new.listener.is_some(),
            pending: new.listener.is_some(),
            reported: new.listener.is_some(),
            dirty: false,
            touched: false,
            confirmed: false,
            early: Early::default(),
            flight: None,
            tickets: None,
            ticket_deadline: Instant::FAR_FUTURE,
            hold_until: None,
            wrote: false,
            more: false,
            unfinished: false,
            told: false,
            prompt: false,
            quiet: false,
            spoke: false,
            paused: false,
            opened_control: false,
            granted_bidi: limits.quic_bidi_streams.min(BIDI_STREAMS_FIRST),
            granted_uni: limits.quic_uni_streams.min(UNI_STREAMS_FIRST),
            close_code: VarInt::from_u32(0),
            sending: Vec::new(),
            ending: Vec::new(),
            backlogs: Vec::new(),
            blocked_news: Vec::new(),
            isolate: false,
            turn: Turn::default(),
            repeats: None,
            writable: false,
            datagrams: DatagramQueue::default(),
            wanted: [false; 2],
            unread: Vec::new(),
            log: None,
            ack_tail: AckTail::default(),
            noted: Noted::default(),
            moved: 0,
            marks: Marks::default(),
            last_read: now,
            idle: limits.idle_timeout_max,
            deadline: new.handshake_deadline,
            handshake_deadline: new.handshake_deadline,
            armed: Armed::NEVER,
            keys: KeyAge::new(&QuicTuning::default(), now),
            cert_name: CertName::Any,
        }
    }

    /// The address under which limits count it.
    pub(crate) const fn admitted_ip(&self) -> IpAddr {
        self.admitted_ip
    }

    pub(super) const fn id(&self) -> ConnId {
        self.id
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether nothing follows but its end, which the owner may not know yet.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        !self.confirmed && self.phase <= Phase::Open
    }

    /// Whether TLS may still ask about tickets, or issue them.
    pub(crate) const fn may_use_tickets(&self) -> bool {
        self.accepted && !self.confirmed
    }

    /// Whether nothing is reported until a ticket's use has been kept.
    pub(crate) const fn is_held(&self) -> bool {
        self.early.is_held()
    }

    pub(crate) fn on_ticket(&mut self, verdict: Verdict, waits: bool) {
        self.early.on_ticket(verdict, waits, &self.proto);
    }

    /// Holds the answer to early data back, once.
    pub(crate) fn hold(&mut self, now: Instant) {
        if self.early.is_taken() {
            self.hold_until.get_or_insert(now + HOLD_MAX);
        }
    }

    /// Whether to send nothing yet: one datagram then takes the handshake and
    /// the answer to what came with it.
    pub(crate) fn holds_back(&self) -> bool {
        let waits = self.is_held() || !self.wrote || self.unfinished;
        waits && self.hold_until.is_some_and(|at| at != Instant::ZERO)
    }

    /// Something was sent, or could not be; what comes later is not held back.
    pub(crate) fn flushed(&mut self, transmits: usize) {
        (self.wrote, self.unfinished) = (false, false);
        self.told |= self.confirmed && transmits > 0;
        if self.hold_until.is_some() {
            self.hold_until = Some(Instant::ZERO);
        }
    }

    /// Whether there is nobody to send to. A peer that closed the connection
    /// may be told that this was heard (RFC 9000 section 10.2.2), but it may be
    /// asleep, and then something on the way answers that it is not there.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) const fn on_ticket_kept(&mut self) {
        self.early.on_kept();
    }

    pub(crate) fn count_early_data(&mut self, seen: bool, on: bool, counters: &mut Counters) {
        if seen {
            self.early.offer();
        }
        self.early.count(on, self.confirmed, counters);
    }

    pub(crate) fn set_close_code(&mut self, code: u64) {
        self.close_code = varint(code);
    }

    pub(super) fn protocol(&self) -> Option<Vec<u8>> {
        let data = self.proto.crypto_session().handshake_data()?;
        let data = data
            .downcast::<quinn_proto::crypto::rustls::HandshakeData>()
            .ok()?;
        data.protocol
    }

    fn unusual_protocol(&self) -> Option<Text> {
        let protocol = self.protocol()?;
        (protocol != tls::ALPN_MQTT)
            .then(|| core::str::from_utf8(&protocol).ok().map(Text::from))
            .flatten()
    }

    /// A datagram for this connection was handed to quinn-proto.
    pub(crate) fn on_datagram(&mut self, via: usize, local_ip: Option<IpAddr>, now: Instant) {
        self.last_read = now;
        if let Some(moves) = &mut self.moves {
            if via == self.via {
                moves.local_ip = local_ip;
            }
            if moves.counts_frames() {
                let frames = self.proto.stats().frame_rx;
                moves.on_frames(frames.stream + frames.datagram, now);
            }
        }
    }

    /// Where datagrams must come from.
    pub(crate) fn pinned_ip(&self) -> Option<IpAddr> {
        self.moves.as_ref().and_then(|moves| moves.pinned_ip())
    }

    /// Reports what happened, and reads what has arrived.
    pub(crate) fn run(&mut self, cx: &mut Cx<'_>) -> Step {
        if self.is_held() {
            return Step::Wait;
        }
        if self.awaits_owner() {
            self.open(cx);
        }
        let mut budget = cx.limits.read_budget_bytes;
        self.read_unread(&mut budget, cx);
        self.read_datagrams(cx);
        while let Some(event) = self.proto.poll() {
            self.on_event(event, &mut budget, cx);
        }
        if core::mem::take(&mut self.writable) && !self.isolate {
            let left = self.write_by_priority();
            self.report_sent(left, cx);
        }
        self.check_address(cx);
        if self.phase == Phase::Open && !self.paused && !self.unread.is_empty() {
            Step::Again
        } else {
            Step::Wait
        }
    }

    fn on_event(&mut self, event: Event, budget: &mut usize, cx: &mut Cx<'_>) {
        match event {
            Event::Connected => self.on_connected(cx),
            Event::ConnectionLost { reason } => self.on_lost(reason, cx),
            Event::Stream(event) => self.on_stream_event(event, budget, cx),
            Event::DatagramReceived => self.read_datagrams(cx),
            // The queue is fed before each transmission.
            Event::HandshakeDataReady | Event::DatagramsUnblocked => {}
        }
    }

    fn on_connected(&mut self, cx: &mut Cx<'_>) {
        self.confirmed = true;
        self.ticket_deadline = cx.now + self.ticket_wait();
        self.open(cx);
        if let Err(cause) = self.end_flight(cx) {
            self.abort(cx.clock, cx.now);
            return self.report(cause, cx.out);
        }
        if self.early.is_taken() && self.phase == Phase::Open {
            (cx.out)(NetEvent::new(
                self.id,
                NetEventKind::EarlyData { accepted: true },
            ));
        }
    }

    fn open(&mut self, cx: &mut Cx<'_>) {
        if self.phase != Phase::Handshake {
            return;
        }
        self.phase = Phase::Open;
        self.reported = false;
        self.deadline = if self.accepted {
            cx.now + cx.limits.first_bytes_timeout
        } else {
            Instant::FAR_FUTURE
        };
        cx.counters.opened += 1;
        if let Some(log) = &self.log {
            log.opened(self.protocol().as_deref(), !self.confirmed);
        }
        let certs = self.proto.crypto_session().peer_identity();
        let certs = certs.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        (cx.out)(NetEvent::new(
            self.id,
            NetEventKind::Opened {
                peer: Peer {
                    addr: plain_addr(self.addr.get()),
                    transport: Transport::Quic,
                    listener: self.listener,
                    identity: certs.and_then(|certs| tls::identity(&certs, self.cert_name)),
                    protocol: self.unusual_protocol(),
                    early_data: self.early.is_taken() || self.flight.is_some(),
                },
            },
        ));
    }

    fn on_lost(&mut self, reason: ConnectionError, cx: &mut Cx<'_>) {
        // What arrived before the end is delivered before it, paused or not;
        // the receive window bounds it.
        self.paused = false;
        let mut unbounded = usize::MAX;
        self.read_unread(&mut unbounded, cx);
        self.read_datagrams(cx);
        self.quiet = matches!(
            reason,
            ConnectionError::ApplicationClosed(_) | ConnectionError::ConnectionClosed(_)
        );
        let handshaking = !self.confirmed;
        if handshaking {
            tracing::debug!(addr = %self.addr.get(), %reason, "a handshake failed");
            cx.counters.handshake_failures += 1;
        }
        self.end(cause_of(reason, handshaking), cx);
    }

    fn on_stream_event(&mut self, event: StreamEvent, budget: &mut usize, cx: &mut Cx<'_>) {
        // Streams before the handshake ends carry 0-RTT data.
        self.open(cx);
        match event {
            StreamEvent::Opened { dir } => {
                self.widen(dir, cx.limits);
                while let Some(id) = self.proto.streams().accept(dir) {
                    if dir == Dir::Bi {
                        self.sending.push(id);
                    }
                    if let Some(log) = &self.log {
                        log.stream_opened(StreamId(id.into()), false);
                    }
                    self.read_stream(id, budget, cx);
                }
            }
            StreamEvent::Readable { id } => self.read_stream(id, budget, cx),
            // Not that stream alone: another may be more important.
            StreamEvent::Writable { .. } => self.writable = true,
            StreamEvent::Finished { id } => {
                self.ending.retain(|e| *e != id);
                if self.phase == Phase::Open {
                    (cx.out)(NetEvent::new(
                        self.id,
                        NetEventKind::StreamDelivered {
                            stream: StreamId(id.into()),
                        },
                    ));
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                let dropped = self.forget_sending(id);
                let _ = self.proto.send_stream(id).reset(error_code);
                self.report_sent(dropped, cx);
                self.report_reset(id, error_code, cx);
            }
            StreamEvent::Available { dir } => {
                let wanted = self.wanted.get_mut(dir as usize);
                if wanted.is_some_and(core::mem::take) && self.phase == Phase::Open {
                    (cx.out)(NetEvent::new(
                        self.id,
                        NetEventKind::StreamsAvailable {
                            bidirectional: dir == Dir::Bi,
                        },
                    ));
                }
            }
        }
    }

    /// Lets a peer that uses its streams open more of them, up to the limit;
    /// all others do not pay for it.
    fn widen(&mut self, dir: Dir, limits: &NetLimits) {
        let (max, granted) = match dir {
            Dir::Bi => (limits.quic_bidi_streams, &mut self.granted_bidi),
            Dir::Uni => (limits.quic_uni_streams, &mut self.granted_uni),
        };
        let open = self.proto.streams().remote_open_streams(dir);
        if *granted < max && open * 2 >= u64::from(*granted) {
            *granted = granted.saturating_mul(2).min(max);
            self.proto
                .set_max_concurrent_streams(dir, VarInt::from_u32(*granted));
        }
    }

    pub(super) fn report_sent(&self, bytes: usize, cx: &mut Cx<'_>) {
        if bytes > 0 && self.phase == Phase::Open {
            (cx.out)(NetEvent::new(self.id, NetEventKind::Sent { bytes }));
        }
    }

    fn report_reset(&self, id: QuicStreamId, code: VarInt, cx: &mut Cx<'_>) {
        if self.phase == Phase::Open {
            (cx.out)(NetEvent::new(
                self.id,
                NetEventKind::StreamReset {
                    stream: StreamId(id.into()),
                    code: code.into_inner(),
                },
            ));
        }
    }

    fn read_unread(&mut self, budget: &mut usize, cx: &mut Cx<'_>) {
        if self.paused || self.unread.is_empty() {
            return;
        }
        for id in core::mem::take(&mut self.unread) {
            self.read_stream(id, budget, cx);
        }
    }

    fn read_stream(&mut self, id: QuicStreamId, budget: &mut usize, cx: &mut Cx<'_>) {
        if self.phase != Phase::Open {
            return;
        }
        if self.paused || *budget == 0 {
            if !self.unread.contains(&id) {
                self.unread.push(id);
            }
            return;
        }
        let (conn, stream) = (self.id, StreamId(id.into()));
        let mut read = 0;
        let mut recv = self.proto.recv_stream(id);
        let mut chunks = match recv.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return,
        };
        // Datagrams bring little each: what has arrived together is reported
        // together, so that packets are cut at the ends of many datagrams and
        // not of each. A lone chunk is lent as it is.
        let gather = &mut cx.scratch.gather;
        let mut lone: Option<Bytes> = None;
        let end = loop {
            if *budget == 0 {
                self.unread.push(id);
                break None;
            }
            match chunks.next(*budget) {
                Ok(Some(chunk)) => {
                    *budget = budget.saturating_sub(chunk.bytes.len());
                    read += chunk.bytes.len();
                    self.spoke = true;
                    if gather.len() + chunk.bytes.len() > GATHER_BYTES {
                        let data = gather.as_slice();
                        (cx.out)(NetEvent::new(conn, NetEventKind::Bytes { stream, data }));
                        gather.clear();
                    }
                    match lone.take() {
                        None if gather.is_empty() => lone = Some(chunk.bytes),
                        first => {
                            gather.extend_from_slice(&first.unwrap_or_default());
                            gather.extend_from_slice(&chunk.bytes);
                        }
                    }
                }
                Ok(None) => break Some(NetEventKind::StreamFinished { stream }),
                Err(ReadError::Blocked) => break None,
                Err(ReadError::Reset(code)) => {
                    let code = code.into_inner();
                    break Some(NetEventKind::StreamReset { stream, code });
                }
            }
        };
        let data = lone.as_deref().unwrap_or(gather);
        if !data.is_empty() {
            (cx.out)(NetEvent::new(conn, NetEventKind::Bytes { stream, data }));
        }
        gather.clear();
        // Whether credit frames wait is found out when flushing.
        let _ = chunks.finalize();
        if let Some(log) = &self.log {
            log.read(stream, read, end.as_ref());
        }
        if let Some(end) = end {
            (cx.out)(NetEvent::new(conn, end));
        }
        if self.spoke && self.deadline != Instant::FAR_FUTURE {
            self.deadline = Instant::FAR_FUTURE;
        }
    }

    /// Begins to close: ends all streams and waits until they arrived.
    pub(crate) fn close(&mut self, code: u64, now: Instant, limits: &NetLimits) {
        if self.phase > Phase::Open {
            return;
        }
        self.close_code = varint(code);
        self.phase = Phase::Flushing;
        self.deadline = now + limits.close_linger;
        // The end of the connection says more than the ends of its streams.
        if !self.has_parted() {
            for id in self.sending.clone() {
                self.finish_stream(StreamId(id.into()));
            }
        }
    }

    /// The peer said goodbye: to be told that this was heard is cheaper for it
    /// than to acknowledge how everything else ends.
    pub(crate) const fn set_prompt(&mut self) {
        self.prompt = true;
    }

    /// Whether a connection closed by us waits for nothing any more.
    fn is_done(&self, now: Instant) -> bool {
        let arrived = self.ending.is_empty() && self.backlogs.is_empty();
        self.phase == Phase::Flushing && (self.has_parted() || arrived && !self.awaits_ticket(now))
    }

    const fn has_parted(&self) -> bool {
        self.prompt && self.confirmed
    }

    /// As [`Self::leave`], if nothing else would be sent but acknowledgements,
    /// which the end carries too.
    pub(crate) fn leave_early(&mut self, clock: &Clock, now: Instant) -> bool {
        let all = self.has_parted() && self.told && !self.wrote && self.backlogs.is_empty();
        all && self.leave(clock, now)
    }

    /// Ends a connection that is done, once everything else has been sent; the
    /// end itself is to be sent then. Returns whether it did.
    pub(crate) fn leave(&mut self, clock: &Clock, now: Instant) -> bool {
        let done = self.is_done(now);
        if done {
            self.abort(clock, now);
        }
        done
    }

    /// Ends it without waiting for anything.
    pub(crate) fn abort(&mut self, clock: &Clock, now: Instant) {
        self.proto
            .close(clock.to_std(now), self.close_code, Bytes::new());
        self.over();
    }

    fn end(&mut self, cause: CloseCause, cx: &mut Cx<'_>) {
        self.over();
        self.report(cause, cx.out);
    }

    fn over(&mut self) {
        self.phase = Phase::Over;
        self.deadline = Instant::FAR_FUTURE;
        self.backlogs = Vec::new();
        self.unread = Vec::new();
        self.datagrams = DatagramQueue::default();
        self.repeats = None;
    }

    pub(crate) fn report(&mut self, cause: CloseCause, out: &mut dyn FnMut(NetEvent<&[u8]>)) {
        if let Some(log) = &mut self.log {
            log.closed(&cause);
        }
        if !core::mem::replace(&mut self.reported, true) {
            out(NetEvent::new(self.id, NetEventKind::Closed { cause }));
        }
    }

    pub(crate) fn set_idle_timeout(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Returns whether there is something to read now. A peer that is not read
    /// is not idle.
    pub(crate) fn pause(&mut self, paused: bool, now: Instant) -> bool {
        let resumed = self.paused && !paused;
        if resumed {
            self.last_read = now;
        }
        self.paused = paused;
        resumed
    }

    /// When the connection must be looked at, if nothing happens before.
    pub(crate) fn next_deadline(&mut self, clock: &Clock) -> Instant {
        // Rounded up, so that quinn-proto agrees that it is time.
        let proto = self.proto.poll_timeout();
        let proto = proto.map_or(Instant::FAR_FUTURE, |at| {
            clock.from_std(at) + Duration::from_micros(1)
        });
        let moves = self.moves.as_ref();
        let moves = moves.map_or(Instant::FAR_FUTURE, |moves| moves.deadline());
        let held = self.hold_until.filter(|_| self.holds_back());
        self.own_deadline()
            .min(proto)
            .min(moves)
            .min(self.next_repeat())
            .min(held.unwrap_or(Instant::FAR_FUTURE))
    }

    fn own_deadline(&self) -> Instant {
        let mut at = self.deadline;
        if self.phase == Phase::Open && !self.paused {
            at = at.min(self.last_read + self.idle);
        }
        if self.is_handshaking() {
            at = at.min(self.handshake_deadline);
        }
        if self.phase == Phase::Flushing && self.tickets.is_some() {
            at = at.min(self.ticket_deadline);
        }
        at
    }

    fn is_handshake_late(&self, now: Instant) -> bool {
        self.is_handshaking() && self.handshake_deadline <= now
    }

    /// A deadline may be over.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) -> Step {
        let used = self.proto.remote_address();
        self.proto.handle_timeout(cx.clock.to_std(cx.now));
        self.check_returned(used, cx);
        if self.hold_until.is_some_and(|at| at <= cx.now) {
            self.hold_until = Some(Instant::ZERO);
        }
        if self.ticket_deadline <= cx.now {
            self.tickets = None;
        }
        if self.own_deadline() <= cx.now {
            let cause = match self.phase {
                Phase::Handshake | Phase::Open if self.is_handshake_late(cx.now) => {
                    cx.counters.handshake_timeouts += 1;
                    CloseCause::HandshakeTimeout
                }
                Phase::Open if !self.spoke && self.deadline <= cx.now => {
                    cx.counters.silent_timeouts += 1;
                    CloseCause::IdleTimeout
                }
                Phase::Handshake | Phase::Open => {
                    cx.counters.idle_timeouts += 1;
                    CloseCause::IdleTimeout
                }
                Phase::Flushing | Phase::Over => CloseCause::Local,
            };
            self.abort(cx.clock, cx.now);
            self.report(cause, cx.out);
        }
        self.run(cx)
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
        ConnectionError::Reset => failure("the peer does not know the connection any more"),
        ConnectionError::TransportError(error) => failure(&describe(&error)),
        ConnectionError::ConnectionClosed(close) => {
            failure(&format!("QUIC: closed by the peer: {close}"))
        }
        other => failure(&format!("QUIC: {other}")),
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
