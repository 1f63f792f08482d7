//! One AMQP connection of a client: a byte stream of its transport, with the
//! engine and the links on it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{Error, condition};
use dunlin_amqp::{Connection, Event, LinkId, Phase, Reason};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId};
use dunlin_dial::{Channel, Context};

use super::exchange::Exchange;
use super::links::{End, Links};
use super::sending::Left;
use crate::command::{Reply, Sent};
use crate::error::{DisconnectCause, LinkError, SendError};
use crate::limits::BACKLOG_MAX;
use crate::options::Options;
use crate::outcome::{Condition, Outcome};

/// An AMQP connection and its links, which outlive it.
#[derive(Default)]
pub(super) struct Lane {
    /// The stream of this transport that it is on.
    pub(super) stream: Option<StreamId>,
    exchange: Option<Exchange>,
    pub(super) links: Links,
    outlet: Outlet,
    /// Links that are gone; the session may be, too.
    detached: Vec<(LinkId, Option<Reason>)>,
    /// Why this side ends the connection.
    pub(super) fault: Option<DisconnectCause>,
    pub(super) news: News,
}

/// What has happened since it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// The server has opened.
    pub(super) opened: bool,
    /// Something was settled or received.
    pub(super) useful: bool,
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

impl Lane {
    /// A stream is there: the connection begins. `ahead`: without waiting for
    /// answers.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        stream: StreamId,
        options: &Arc<Options>,
        channel: Channel,
        ahead: bool,
    ) {
        self.stream = Some(stream);
        self.exchange = Some(Exchange::new(now, options, channel, ahead));
    }

    /// The client is over.
    pub(super) fn end(&mut self, why: &LinkError) {
        self.exchange = None;
        self.outlet.forget();
        self.links.end_all(why);
    }

    /// The transport is gone.
    pub(super) fn forget_transport(&mut self) {
        self.stream = None;
        self.exchange = None;
        self.detached.clear();
        self.links.forget_attachments();
        self.outlet.forget();
        self.fault = None;
    }

    /// The server has opened, and nothing closes.
    pub(super) fn is_open(&self) -> bool {
        self.exchange.as_ref().is_some_and(Exchange::is_open)
    }

    /// There is no connection, or its end was said by one side.
    pub(super) fn is_closed(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_closed)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.exchange.as_ref().and_then(|it| it.engine.deadline())
    }

    /// The engine, and the links that it drives.
    pub(super) fn parts(&mut self) -> (Option<&mut Connection>, &mut Links) {
        let engine = self.exchange.as_mut().map(|exchange| &mut exchange.engine);
        (engine, &mut self.links)
    }

    /// Bytes left for the network.
    pub(super) fn note_left(&mut self, bytes: usize) {
        self.outlet.note_left(bytes);
    }

    /// The transport says what SASL is bound by.
    pub(super) fn bind(&mut self, data: Bytes) {
        if let Some(exchange) = &mut self.exchange {
            exchange.bind(data);
        }
    }

    /// Bytes of the server.
    pub(super) fn receive(&mut self, now: Instant, mut data: &[u8]) {
        while let Some(exchange) = &mut self.exchange
            && let Some(event) = exchange.engine.poll_event(now, &mut data)
        {
            if let Err(fault) = self.handle(event) {
                self.fault.get_or_insert(fault);
            }
        }
        for (link, error) in core::mem::take(&mut self.detached) {
            self.links.handle_detached(link, error.as_ref());
        }
    }

    /// What is due and what was left over.
    pub(super) fn run_engine(&mut self, now: Instant) {
        if let Some(exchange) = &mut self.exchange
            && exchange.engine.deadline().is_some_and(|due| due <= now)
        {
            exchange.engine.on_deadline(now);
        }
        self.receive(now, &[]);
    }

    fn handle(&mut self, event: Event<'_>) -> Result<(), DisconnectCause> {
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
                self.news.opened = true;
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
                self.news.useful = true;
                sender.handle_disposition(engine, delivery, tag, state.as_ref(), settled);
            }
            (
                Event::Disposition {
                    tag, settled: true, ..
                },
                End::Receiver(receiver),
            ) => receiver.handle_settled(tag),
            (Event::Message(message), End::Receiver(receiver)) => {
                self.news.useful = true;
                receiver.handle_message(engine, message);
            }
            (Event::Aborted { tag, .. }, End::Receiver(receiver)) => receiver.handle_aborted(tag),
            (Event::Void { .. }, End::Receiver(receiver)) => receiver.handle_void(),
            (
                Event::Flow {
                    credit, drained, ..
                },
                End::Receiver(receiver),
            ) => receiver.handle_flow(credit, drained),
            _ => {}
        }
    }

    /// Writes everything that may go, as long as the transport takes it.
    pub(super) fn write(&mut self, context: &mut Context<'_>, conn: ConnId) {
        while self.fault.is_none()
            && let Some(exchange) = &mut self.exchange
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
    pub(super) fn flush(&mut self, context: &mut Context<'_>, conn: ConnId, left: Left) {
        let (Some(exchange), Some(stream)) = (&mut self.exchange, self.stream) else {
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
            false => context.net.send(conn, stream, &mut out),
        };
        self.outlet.note_left(gone);
    }

    /// Says the end of the connection; whether the server's answer is awaited,
    /// for as long as the engine says.
    pub(super) fn close(&mut self, context: &mut Context<'_>, conn: ConnId) -> bool {
        let exchange = self.exchange.as_mut();
        let waits = exchange.is_some_and(|it| it.close(context.now));
        self.flush(context, conn, Left::new());
        self.receive(context.now, &[]);
        waits && !self.is_closed()
    }
}

/// The link that an event is about.
const fn link_of(event: &Event<'_>) -> Option<LinkId> {
    match event {
        Event::Credit { link, .. }
        | Event::Flow { link, .. }
        | Event::Aborted { link, .. }
        | Event::Void { link } => Some(*link),
        Event::Message(message) => Some(message.delivery.link),
        Event::Disposition { delivery, .. } => Some(delivery.link),
        _ => None,
    }
}
