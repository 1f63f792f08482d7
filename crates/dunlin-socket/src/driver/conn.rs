//! One connection in the loop: how it comes about, what is asked of it, how it
//! ends. What its streams do is in [`super::streams`].

mod dialled;
mod wish;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant};
use dunlin_dial::{Context, Key, Resolved, Step};
use dunlin_net::{Move, MoveError};

use super::Counted;
use super::streams::Streams;
use crate::error::Error;
use crate::limits::OPENS_WAITING_MAX;
use crate::shared::{
    Command, ConnHandle, ConnShared, FIRST, Facts, ListenerShared, NewConn, Opened, Settings,
    StreamHandle,
};
use crate::stats::{EarlyData, Stats};
use crate::wait::Answer;
use dialled::{Dialled, Said};
use wish::Wish;

/// Pause before a move is tried again that the server's confirmation of the
/// handshake must precede.
const MOVE_PAUSE: Duration = Duration::from_millis(20);

/// Application error code of a normal end.
const CLOSE_NORMAL: u64 = 0;

/// A connection in the loop.
pub(crate) struct ConnTask {
    shared: Arc<ConnShared>,
    origin: Origin,
    conn: Option<ConnId>,
    phase: Phase,
    streams: Streams,
    /// Who waits for a stream.
    opens: VecDeque<Wish>,
    asks: Vec<Ask>,
    /// Who waits for the end of a move.
    moving: Option<Answer<SocketAddr>>,
    retry_at: Option<Instant>,
    _counted: Counted,
}

/// Where it is in its life.
enum Phase {
    Connecting,
    Open,
    /// This side ends it with this code.
    Leaving(u64),
    /// What was written leaves.
    Closing,
    /// The transport is gone.
    Gone(CloseCause),
    Ended,
}

/// Which side began.
enum Origin {
    Dialled(Box<Dialled>),
    /// Until it is given to its listener.
    Accepted(Option<Arrival>),
}

/// A connection that came in, and who is to accept it.
pub(super) struct Arrival {
    pub(super) listener: Arc<ListenerShared>,
    pub(super) handle: Arc<ConnHandle>,
}

enum Ask {
    Stats(Answer<Stats>),
    Move(Option<SocketAddr>, Move, Answer<SocketAddr>),
}

impl ConnTask {
    /// A connection that begins when it runs first.
    pub(super) fn dial(key: Key, new: NewConn) -> Self {
        let connecting = (new.handle, new.answer);
        let dialled = Dialled::new(key, new.new, new.place, connecting);
        let origin = Origin::Dialled(Box::new(dialled));
        Self::new(
            new.shared,
            origin,
            Phase::Connecting,
            Streams::new(new.settings, false),
        )
    }

    /// A connection that came in.
    pub(super) fn accepted(
        shared: Arc<ConnShared>,
        arrival: Arrival,
        conn: ConnId,
        peer: &Peer,
        settings: Settings,
    ) -> Self {
        let mut streams = Streams::new(settings, true);
        let first = streams.await_first();
        shared.change(|state| {
            state.facts = facts(peer, String::new());
            state.first = Some(first);
            if peer.early_data {
                state.early = EarlyData::Pending;
            }
        });
        let origin = Origin::Accepted(Some(arrival));
        let mut task = Self::new(shared, origin, Phase::Open, streams);
        task.conn = Some(conn);
        task
    }

    fn new(shared: Arc<ConnShared>, origin: Origin, phase: Phase, streams: Streams) -> Self {
        Self {
            shared,
            origin,
            conn: None,
            phase,
            streams,
            opens: VecDeque::new(),
            asks: Vec::new(),
            moving: None,
            retry_at: None,
            _counted: Counted::new(),
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let link = match &self.origin {
            Origin::Dialled(dialled) => dialled.link.deadline(),
            Origin::Accepted(_) => None,
        };
        // The first stream of a connection is wanted before all others.
        let first = self.opens.front().and_then(Wish::until);
        link.into_iter().chain(self.retry_at).chain(first).min()
    }

    pub(super) fn on_resolved(&mut self, attempt: u64, resolved: Resolved) {
        if let Origin::Dialled(dialled) = &mut self.origin {
            dialled.link.resolved(attempt, resolved);
        }
    }

    /// Something happened on the connection, or on an attempt.
    pub(super) fn on_event(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        if let Origin::Dialled(dialled) = &mut self.origin {
            dialled.on_event(now, conn, &kind);
            if self.conn.is_none() {
                dialled.hear(conn, &kind);
            }
        }
        if self.conn != Some(conn) {
            return;
        }
        match kind {
            NetEventKind::Bytes { stream, data } => {
                self.streams.on_bytes(stream, data, &self.shared);
            }
            NetEventKind::StreamFinished { stream } => {
                self.streams.on_finished(stream, &self.shared);
            }
            NetEventKind::StreamReset { stream, code } => {
                self.streams.on_reset(stream, code, &self.shared);
            }
            NetEventKind::StreamDelivered { stream } => self.streams.on_delivered(stream),
            NetEventKind::Sent { stream, bytes } => self.streams.on_sent(stream, bytes),
            NetEventKind::EarlyData { accepted } => self.on_verdict(accepted),
            NetEventKind::Migrated { addr } => self.shared.change(|state| {
                state.facts.peer = addr;
                state.address_changes += 1;
            }),
            NetEventKind::Moved { to, .. } => self.on_moved(to),
            NetEventKind::MoveFailed { .. } => {
                if let Some(answer) = self.moving.take() {
                    answer.give(Err(Error::NoPath));
                }
            }
            NetEventKind::Closed { cause } => self.phase = Phase::Gone(cause),
            _ => {}
        }
    }

    fn on_verdict(&self, accepted: bool) {
        self.shared.change(|state| {
            state.early = match accepted {
                true => EarlyData::Accepted,
                false => EarlyData::Refused,
            };
        });
    }

    fn on_moved(&mut self, to: SocketAddr) {
        self.shared.change(|state| {
            state.facts.local = to;
            state.address_changes += 1;
        });
        if let Some(answer) = self.moving.take() {
            answer.give(Ok(to));
        }
    }

    /// The application asks for something.
    pub(super) fn on_command(&mut self, command: Command) {
        match command {
            Command::Touch(stream) => self.streams.touch(stream),
            Command::Release(stream) => self.streams.release(stream),
            Command::Reset(stream, code) => self.streams.abandon(stream, code),
            Command::Open(handle, answer) => {
                if self.opens.len() >= OPENS_WAITING_MAX {
                    self.opens.retain(Wish::is_awaited);
                }
                if self.opens.len() < OPENS_WAITING_MAX {
                    self.opens.push_back(Wish::Stream(handle, answer));
                } else {
                    answer.give(Err(Error::TooManyWaiting(OPENS_WAITING_MAX)));
                }
            }
            Command::Stats(answer) => self.asks.push(Ask::Stats(answer)),
            Command::Move { to, how, answer } => self.asks.push(Ask::Move(to, how, answer)),
            Command::Close(code) => self.leave(code),
            Command::Dropped => self.leave(CLOSE_NORMAL),
        }
    }

    fn leave(&mut self, code: u64) {
        if matches!(self.phase, Phase::Connecting | Phase::Open) {
            self.phase = Phase::Leaving(code);
        }
    }

    /// Does everything that has become possible.
    pub(super) fn run(&mut self, context: &mut Context<'_>) {
        if let Some(end) = self.run_link(context) {
            return self.fail(&end);
        }
        if let (Phase::Open | Phase::Leaving(_), Some(conn)) = (&self.phase, self.conn) {
            self.arrive(context, conn);
            self.run_asks(context, conn);
            self.run_opens(context, conn);
            self.replay(context, conn);
            self.streams.run(context.net, conn, &self.shared);
        }
        match core::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Leaving(code) => self.close(context, code),
            Phase::Gone(cause) => {
                let pending = self.shared.lock().early == EarlyData::Pending;
                let error = match cause {
                    // Nothing answered what was sent with the handshake.
                    CloseCause::Local if pending => Error::HandshakeTimeout,
                    cause => Error::of_end(cause),
                };
                self.fail(&error);
            }
            other => self.phase = other,
        }
    }

    /// Goes on towards a connection; why there will be none.
    fn run_link(&mut self, context: &mut Context<'_>) -> Option<Error> {
        let Origin::Dialled(dialled) = &mut self.origin else {
            return None;
        };
        let until = context.now + dialled.connect_timeout;
        let until = *dialled.connect_until.get_or_insert(until);
        dialled.drop_excess(context);
        match dialled.link.run(context) {
            Step::Rest if self.conn.is_none() => dialled.hold(context),
            Step::Rest => {}
            Step::End(cause) => return Some(Error::of_dial(cause)),
            Step::Begin(conn) => {
                let early = dialled.begin(context, conn, &self.shared);
                self.conn = Some(conn);
                if matches!(self.phase, Phase::Connecting) {
                    self.phase = Phase::Open;
                }
                if early {
                    self.shared.lock().early = EarlyData::Pending;
                }
                match (dialled.connecting.take(), dialled.with_stream) {
                    (Some((handle, answer)), true) => {
                        self.opens.push_front(Wish::Connect(handle, answer, until));
                    }
                    (Some((conn, answer)), false) => {
                        answer.give(Ok(Opened { conn, stream: None }));
                    }
                    (None, _) => {}
                }
            }
        }
        if matches!(self.phase, Phase::Open) {
            dialled.link.measure(context, false);
        }
        None
    }

    /// What came in is given to its listener.
    fn arrive(&mut self, context: &mut Context<'_>, conn: ConnId) {
        if let Origin::Accepted(arrival) = &mut self.origin
            && let Some(Arrival { listener, handle }) = arrival.take()
        {
            context.net.conn(conn).accept();
            let local = context.net.local_addr(conn);
            if let Some(local) = local {
                self.shared.change(|state| state.facts.local = local);
            }
            listener.put(handle);
        }
    }

    fn run_asks(&mut self, context: &mut Context<'_>, conn: ConnId) {
        self.retry_at = None;
        for ask in core::mem::take(&mut self.asks) {
            match ask {
                Ask::Stats(answer) => {
                    let stats = context.net.conn(conn).stats();
                    let changes = self.shared.lock().address_changes;
                    let quic = stats.and_then(|stats| stats.quic);
                    let stats = quic.map(|quic| Stats::new(&quic, changes));
                    answer.give(stats.ok_or(Error::NotQuic));
                }
                Ask::Move(_, _, answer) if self.moving.is_some() => {
                    answer.give(Err(MoveError::Busy.into()));
                }
                Ask::Move(to, how, answer) => match context.net.migrate(conn, to, how) {
                    Ok(()) => self.moving = Some(answer),
                    Err(MoveError::Handshaking) => {
                        self.retry_at = Some(context.now + MOVE_PAUSE);
                        self.asks.push(Ask::Move(to, how, answer));
                    }
                    Err(error) => answer.give(Err(error.into())),
                },
            }
        }
    }

    /// Opens as many streams as are wanted and the peer allows.
    fn run_opens(&mut self, context: &mut Context<'_>, conn: ConnId) {
        let is_quic = self.shared.lock().facts.transport == Transport::Quic;
        while let Some(wish) = self.opens.pop_front() {
            let Some(handle) = wish.handle() else {
                continue;
            };
            let stream = match (is_quic, &wish) {
                (true, _) => context.net.conn(conn).open_stream(true),
                (false, Wish::Connect(..)) => Some(FIRST),
                (false, Wish::Stream(..)) => {
                    wish.refuse(Error::NotQuic);
                    continue;
                }
            };
            match stream {
                Some(stream) => {
                    let pipe = self.streams.opened(stream);
                    wish.grant(StreamHandle::new(pipe, Arc::clone(&handle)), handle);
                }
                None if wish.until().is_some_and(|until| until <= context.now) => {
                    wish.refuse(Error::HandshakeTimeout);
                }
                None => return self.opens.push_front(wish),
            }
        }
    }

    /// What the server said before the connection was chosen reaches the streams,
    /// of which the first is there now.
    fn replay(&mut self, context: &mut Context<'_>, conn: ConnId) {
        let Origin::Dialled(dialled) = &mut self.origin else {
            return;
        };
        let said = core::mem::take(&mut dialled.said).into_iter();
        for (_, said) in said.filter(|(on, _)| *on == conn) {
            match said {
                Said::Verdict(accepted) => self.on_verdict(accepted),
                Said::Bytes(at, data) => {
                    context.net.conn(conn).pause_stream(at, false);
                    self.streams.on_bytes(at, &data, &self.shared);
                }
                Said::End(at) => self.streams.on_finished(at, &self.shared),
                Said::Reset(at, code) => self.streams.on_reset(at, code, &self.shared),
            }
        }
    }

    /// Ends the connection after what was written.
    fn close(&mut self, context: &mut Context<'_>, code: u64) {
        let Some(conn) = self.conn else {
            if let Origin::Dialled(dialled) = &self.origin {
                dialled.link.give_up(context);
            }
            return self.fail(&Error::ClosedHere);
        };
        match &mut self.origin {
            Origin::Dialled(dialled) if code == CLOSE_NORMAL => dialled.link.close(context, conn),
            _ => context.net.close(conn, code),
        }
        self.fail(&Error::ClosedHere);
        self.phase = Phase::Closing;
    }

    /// Nothing more happens on it, for this reason.
    fn fail(&mut self, error: &Error) {
        self.phase = Phase::Ended;
        self.retry_at = None;
        self.shared.change(|state| {
            state.end.get_or_insert_with(|| error.clone());
        });
        self.streams.fail(error);
        for wish in self.opens.drain(..) {
            wish.refuse(error.clone());
        }
        for ask in self.asks.drain(..) {
            match ask {
                Ask::Stats(answer) => answer.give(Err(error.clone())),
                Ask::Move(_, _, answer) => answer.give(Err(error.clone())),
            }
        }
        if let Some(answer) = self.moving.take() {
            answer.give(Err(error.clone()));
        }
        match &mut self.origin {
            Origin::Dialled(dialled) => {
                dialled.link.end();
                if let Some((_, answer)) = dialled.connecting.take() {
                    answer.give(Err(error.clone()));
                }
            }
            Origin::Accepted(arrival) => {
                if let Some(Arrival { listener, handle }) = arrival.take() {
                    listener.put(handle);
                }
            }
        }
    }
}

/// `protocol` counts until the handshake names one.
fn facts(peer: &Peer, protocol: String) -> Facts {
    let negotiated = peer.protocol.as_str();
    Facts {
        peer: peer.addr,
        transport: peer.transport,
        protocol: match negotiated.is_empty() {
            true => protocol,
            false => negotiated.to_owned(),
        },
        identity: peer.identity.as_ref().map(ToString::to_string),
        ..Facts::default()
    }
}
