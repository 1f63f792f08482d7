//! One client within the loop: wires its connection, its engine and its links,
//! and ends it.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_amqp::codec::{Error, condition};
use dunlin_amqp::{Event, LinkId, Phase, Reason};
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId};
use dunlin_dial::{Context, Key, Link, Resolved, SessionFacts, Standing, Step, Task};
use tokio::sync::oneshot;

use super::exchange::Exchange;
use super::links::{End, Links};
use super::sending::Left;
use crate::command::{Command, Reply, Sent};
use crate::error::{DisconnectCause, LinkError, SendError};
use crate::events::ConnectionEvent;
use crate::limits::BACKLOG_MAX;
use crate::options::Options;
use crate::outcome::{Condition, Outcome};
use crate::shared::{NewClient, Shared};

/// One client.
pub(super) struct ClientTask {
    shared: Arc<Shared>,
    options: Arc<Options>,
    link: Link<Shared>,
    /// On the transport that is open.
    exchange: Option<Exchange>,
    links: Links,
    outlet: Outlet,
    /// Who waits for the first connection.
    connecting: Option<oneshot::Sender<Result<(), DisconnectCause>>>,
    /// Why this side ends the connection.
    fault: Option<DisconnectCause>,
    /// The application ends the client.
    ending: Option<Vec<oneshot::Sender<()>>>,
    /// Something was settled or received on this connection.
    is_useful: bool,
    /// Links that are gone; the session may be, too.
    detached: Vec<(LinkId, Option<Reason>)>,
}

/// What was given to the transport.
#[derive(Default)]
struct Outlet {
    given: u64,
    left: u64,
    /// Settled messages, and how much has been given when all of them has.
    settled: VecDeque<(u64, Sent)>,
}

impl Outlet {
    /// Bytes left for the network.
    fn note_left(&mut self, bytes: usize) {
        self.left += bytes as u64;
        while let Some((at, _)) = self.settled.front()
            && *at <= self.left
            && let Some((_, sent)) = self.settled.pop_front()
        {
            sent.tell(Ok(Reply::Outcome(Outcome::Settled)));
        }
    }

    /// Bytes that may be given.
    fn room(&self) -> u64 {
        BACKLOG_MAX.saturating_sub(self.given.saturating_sub(self.left))
    }

    /// The transport is gone, and what waits with it.
    fn forget(&mut self) {
        for (_, sent) in core::mem::take(self).settled {
            sent.tell(Err(SendError::Lost));
        }
    }
}

impl Task for ClientTask {
    type New = NewClient;
    type Command = Command;

    fn new(key: Key, new: NewClient) -> Self {
        let NewClient {
            shared,
            options,
            connected,
        } = new;
        let watch = Arc::clone(&shared);
        let dial = Arc::clone(&options.link);
        Self {
            link: Link::new(watch, key, dial, options.tickets_of()),
            shared,
            options,
            exchange: None,
            links: Links::default(),
            outlet: Outlet::default(),
            connecting: Some(connected),
            fault: None,
            ending: None,
            is_useful: false,
            detached: Vec::new(),
        }
    }

    fn handle_net(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        let is_ours = self.link.open_conn() == Some(conn);
        match kind {
            NetEventKind::Opened { peer } => self.link.opened(now, conn, peer.early_data),
            NetEventKind::EarlyData { accepted } if self.link.verdict(now, conn) => {
                self.shared.emit(ConnectionEvent::EarlyData { accepted });
            }
            NetEventKind::Closed { cause } => self.link.closed(now, conn, cause),
            NetEventKind::StreamFinished {
                stream: StreamId::CONTROL,
            }
            | NetEventKind::StreamReset {
                stream: StreamId::CONTROL,
                ..
            } => self.link.finished(conn),
            NetEventKind::Bytes {
                stream: StreamId::CONTROL,
                data,
            } if is_ours => self.receive(now, data),
            NetEventKind::Sent { bytes, .. } if is_ours => self.outlet.note_left(bytes),
            _ => {}
        }
    }

    fn handle_command(&mut self, _now: Instant, command: Command) {
        match command {
            Command::Sender(key, new) => self.links.add_sender(key, *new),
            Command::Receiver(key, new) => self.links.add_receiver(key, *new),
            Command::Send(key, outgoing) => {
                // Without the link it is dropped, which its sender notices.
                if let Some(sender) = self.links.sender(key) {
                    sender.enqueue(outgoing);
                }
            }
            Command::Settle(key, settle) => {
                let engine = self.exchange.as_mut().map(|exchange| &mut exchange.engine);
                if let Some((receiver, _)) = self.links.receiver(key) {
                    receiver.settle(engine, settle);
                }
            }
            // Running follows, which gives credit.
            Command::Taken => {}
            Command::Drain(key, done) => {
                let engine = self.exchange.as_mut().map(|exchange| &mut exchange.engine);
                if let Some((receiver, link)) = self.links.receiver(key) {
                    receiver.drain(engine.zip(link), done);
                }
            }
            Command::Detach { link, closed, done } => self.links.detach(link, closed, done),
            Command::Close(done) => self.ending.get_or_insert_default().push(done),
            Command::Release => {
                self.ending.get_or_insert_default();
            }
        }
    }

    fn handle_resolved(&mut self, attempt: u64, resolved: Resolved) {
        self.link.resolved(attempt, resolved);
    }

    fn run(&mut self, context: &mut Context<'_>) {
        if self.ending.is_some() && self.link.give_up(context) {
            return self.end(&DisconnectCause::Local);
        }
        let step = self.link.run(context);
        self.follow(context, step);
        self.link.measure(context, false);
        let facts = SessionFacts {
            is_connected: self.exchange.as_ref().is_some_and(Exchange::is_open),
            // Links come back on a new connection, not on another transport.
            is_kept: false,
            has_left: true,
        };
        let _ = self.link.run_upgrade(context, facts);
        self.run_engine(context.now);
        self.write(context);
        self.finish(context);
    }

    fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    fn deadline(&self) -> Option<Instant> {
        let engine = self.exchange.as_ref().and_then(|it| it.engine.deadline());
        let deadlines = [self.link.deadline(), engine];
        deadlines.into_iter().flatten().min()
    }
}

impl ClientTask {
    fn follow(&mut self, context: &Context<'_>, step: Step<DisconnectCause>) {
        match step {
            Step::Rest => {}
            Step::Begin(conn) => self.begin(context.now, conn),
            Step::End(cause) => self.end(&cause),
        }
    }

    /// A transport is open.
    fn begin(&mut self, now: Instant, conn: ConnId) {
        let ahead = self.link.may_run_ahead(conn);
        self.exchange = Some(Exchange::new(now, &self.options, ahead));
        if ahead {
            self.link.ran_ahead(now);
        }
    }

    /// Bytes of the server.
    fn receive(&mut self, now: Instant, mut data: &[u8]) {
        while let Some(exchange) = &mut self.exchange
            && let Some(event) = exchange.engine.poll_event(now, &mut data)
        {
            if let Err(fault) = self.handle(now, event) {
                self.fault.get_or_insert(fault);
            }
        }
        for (link, error) in core::mem::take(&mut self.detached) {
            self.links.handle_detached(link, error.as_ref());
        }
    }

    /// What is due and what was left over.
    fn run_engine(&mut self, now: Instant) {
        if let Some(exchange) = &mut self.exchange
            && exchange.engine.deadline().is_some_and(|due| due <= now)
        {
            exchange.engine.on_deadline(now);
        }
        self.receive(now, &[]);
    }

    fn handle(&mut self, now: Instant, event: Event<'_>) -> Result<(), DisconnectCause> {
        let Some(exchange) = &mut self.exchange else {
            return Ok(());
        };
        let is_opened = exchange.engine.phase() == Phase::Opened;
        match event {
            // This side is ending the connection.
            other if self.fault.is_some() && !matches!(other, Event::Closed { .. }) => {}
            Event::SaslMechanisms(body) => exchange.handle_mechanisms(&body)?,
            Event::SaslChallenge(challenge) => exchange.handle_challenge(&challenge)?,
            Event::SaslOutcome { code, data } => exchange.handle_outcome(code, data.as_deref())?,
            Event::Opened(_) => {
                exchange.handle_open();
                self.connected(now);
            }
            Event::Ended { error, .. } if is_opened => {
                // Its links are attached again on the next connection.
                self.detached.clear();
                let condition = error.map(|error| Condition::from(error.get()));
                return Err(DisconnectCause::Session(condition));
            }
            Event::Closed { error, by_peer } => {
                if let Some(cause) = exchange.handle_closed(error.as_ref(), by_peer) {
                    return Err(cause);
                }
            }
            Event::Attach { link, .. } => {
                let text = "this client takes no links";
                let error = Error::new(condition::NOT_ALLOWED, text);
                let _ = exchange.engine.refuse_attach(link, &error);
            }
            Event::Attached { link, attach } => self.links.handle_attached(link, &attach),
            // Those of a connection that ends are attached again.
            Event::Detached { link, error, .. } if is_opened => self.detached.push((link, error)),
            other => self.handle_link(other),
        }
        Ok(())
    }

    /// What concerns one link.
    fn handle_link(&mut self, event: Event<'_>) {
        let Some(link) = link_of(&event) else {
            return;
        };
        let (Some(exchange), Some(end)) = (&mut self.exchange, self.links.end(link)) else {
            return;
        };
        let engine = &mut exchange.engine;
        match (event, end) {
            (Event::Credit { drain, .. }, End::Sender(sender)) => sender.set_drain(drain),
            (
                Event::Disposition {
                    delivery,
                    tag,
                    state,
                    settled,
                },
                End::Sender(sender),
            ) => {
                self.is_useful = true;
                sender.handle_disposition(engine, delivery, tag, state.as_ref(), settled);
            }
            (
                Event::Disposition {
                    tag, settled: true, ..
                },
                End::Receiver(receiver),
            ) => receiver.handle_settled(tag),
            (Event::Message(message), End::Receiver(receiver)) => {
                self.is_useful = true;
                receiver.handle_message(engine, message);
            }
            (Event::Aborted { tag, .. }, End::Receiver(receiver)) => receiver.handle_aborted(tag),
            (
                Event::Flow {
                    credit, drained, ..
                },
                End::Receiver(receiver),
            ) => receiver.handle_flow(credit, drained),
            _ => {}
        }
    }

    /// The server has opened.
    fn connected(&mut self, now: Instant) {
        self.link.connected(now);
        let transport = self.link.transport();
        self.shared.set_transport(Some(transport));
        self.shared.emit(ConnectionEvent::Connected { transport });
        if let Some(connecting) = self.connecting.take() {
            let _ = connecting.send(Ok(()));
        }
    }

    /// Writes everything that may go, as long as the transport takes it.
    fn write(&mut self, context: &mut Context<'_>) {
        while self.fault.is_none()
            && let (Some(conn), Some(exchange)) = (self.link.open_conn(), &mut self.exchange)
        {
            if let Err(fault) = exchange.advance(context.now) {
                self.fault = Some(fault);
            }
            let mut room = self.outlet.room();
            let (session, is_open) = (exchange.session(), exchange.is_open());
            let engine = &mut exchange.engine;
            let left = self.links.run(engine, session, is_open, &mut room);
            let before = self.outlet.given;
            self.flush(context, conn, left);
            if self.outlet.given == before || self.outlet.room() == 0 {
                return;
            }
        }
    }

    /// Hands the engine's bytes to the transport; `left` are in them.
    fn flush(&mut self, context: &mut Context<'_>, conn: ConnId, left: Left) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        let mut out = SendBuf::new();
        exchange.engine.poll_output(context.now, &mut out);
        self.outlet.given += out.len() as u64;
        let at = self.outlet.given;
        self.outlet
            .settled
            .extend(left.into_iter().map(|sent| (at, sent)));
        let gone = match out.is_empty() {
            true => 0,
            false => context.net.send(conn, StreamId::CONTROL, &mut out),
        };
        self.outlet.note_left(gone);
    }

    /// Ends the connection or the client where that is due.
    fn finish(&mut self, context: &mut Context<'_>) {
        let (conn, is_gone) = match self.link.standing() {
            Standing::None => return self.finish_closing(context),
            Standing::Gone(conn) => (conn, true),
            Standing::Open(conn) => (conn, false),
        };
        let is_closed = self.exchange.as_ref().is_none_or(Exchange::is_closed);
        let done = is_closed || self.link.is_finished();
        if !is_gone && !done {
            if self.fault.is_none() && self.ending.is_none() {
                return;
            }
            let waits = self
                .exchange
                .as_mut()
                .is_some_and(|it| it.close(context.now));
            self.flush(context, conn, Left::new());
            self.receive(context.now, &[]);
            let is_closed = self.exchange.as_ref().is_none_or(Exchange::is_closed);
            // The server has as long to answer as the engine says.
            if waits && !is_closed && self.fault.is_none() {
                return;
            }
        }
        self.link.close(context, conn);
        self.finish_closing(context);
    }

    fn finish_closing(&mut self, context: &mut Context<'_>) {
        if let Some(cause) = self.link.take_closed() {
            self.connection_lost(context, cause);
        }
    }

    /// The transport is gone.
    fn connection_lost(&mut self, context: &mut Context<'_>, cause: CloseCause) {
        self.exchange = None;
        self.links.forget_attachments();
        self.outlet.forget();
        self.shared.set_transport(None);
        let fault = self.fault.take();
        let is_last = self.ending.is_some();
        let is_useful = core::mem::take(&mut self.is_useful);
        // A probe of another transport, which is not made.
        let _ = self.link.switch(context, false);
        let step = self.link.lost(context, fault, cause, is_last, is_useful);
        self.follow(context, step);
    }

    /// The client is over.
    fn end(&mut self, cause: &DisconnectCause) {
        self.link.end();
        self.exchange = None;
        self.outlet.forget();
        self.shared.end(cause);
        self.links.end_all(&LinkError::Client(cause.clone()));
        if let Some(connecting) = self.connecting.take() {
            let _ = connecting.send(Err(cause.clone()));
        }
        for done in self.ending.take().into_iter().flatten() {
            let _ = done.send(());
        }
    }
}

/// The link that an event is about.
const fn link_of(event: &Event<'_>) -> Option<LinkId> {
    match event {
        Event::Credit { link, .. } | Event::Flow { link, .. } | Event::Aborted { link, .. } => {
            Some(*link)
        }
        Event::Message(message) => Some(message.delivery.link),
        Event::Disposition { delivery, .. } => Some(delivery.link),
        _ => None,
    }
}
