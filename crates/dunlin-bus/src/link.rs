//! The link to one membership of another node: greetings, then a [`Session`], then its loss
//! and greetings again. No socket, no clock: bytes and time come in, bytes, events and
//! deadlines go out.
//!
//! Call `handle_packet` for what arrived, `handle_timeout` when `poll_timeout` is reached, and
//! after each of them, or after batches were handed over, `poll_transmit` and `poll_event`
//! until they give nothing.
//!
//! The node with the lower number greets. A greeting changes nothing before its sender has
//! proved that it knows a nonce that was drawn here for it: a recorded one has no effect on
//! a link that lives.

use core::mem;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::Instant;

use crate::authority::{Authority, NONCE_BYTES, Nonce, Proof};
use crate::cause::Lost;
use crate::config::Timing;
use crate::flow::{Flow, Wake};
use crate::ids::{Incarnation, NodeId};
use crate::limits::{CONFIRM_WAIT, GREETINGS_MAX, HELLO_EVERY, RELINK_AFTER};
use crate::member::Encoding;
use crate::session::{Heard, NotHeard, Session};
use crate::wire::{Dropped, Greeting, Kind, Packet, Sealed};

/// Draws a nonce; `None`: the system has no randomness.
pub(crate) type Draw = Box<dyn FnMut() -> Option<Nonce> + Send>;

/// What all links of a node share.
pub(crate) struct Own {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) encoding: Encoding,
    pub(crate) authority: Authority,
    pub(crate) timing: Timing,
    pub(crate) wake: Wake,
}

/// What becomes of a link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// With its number.
    Linked(u64, Arc<Flow>),
    Batch(Bytes),
    /// A message and its answer took so long.
    RoundTrip(Duration),
    Lost(u64, Lost),
}

enum State {
    /// The node that greets does so at this time; the other one waits.
    Idle(Instant),
    /// It has greeted with this nonce, and does so again.
    Greeting {
        nonce: Nonce,
        again: Instant,
    },
    /// It has proved itself, and waits for the first message of the link.
    Confirming {
        session: Box<Session>,
        confirm: Bytes,
        again: Instant,
        until: Instant,
    },
    Linked(Box<Session>),
}

/// The link to one membership of another node.
pub(crate) struct Link {
    own: Arc<Own>,
    peer: NodeId,
    incarnation: Incarnation,
    draw: Draw,
    state: State,
    /// Where the other node greets: what this one answers with, until it was proved once.
    answer: Option<Nonce>,
    greetings: VecDeque<Bytes>,
    events: VecDeque<LinkEvent>,
    /// Since when there is no link.
    unlinked: Option<Instant>,
}

impl Link {
    pub(crate) fn new(
        now: Instant,
        own: Arc<Own>,
        (peer, incarnation): (NodeId, Incarnation),
        draw: Draw,
    ) -> Self {
        Self {
            own,
            peer,
            incarnation,
            draw,
            state: State::Idle(now),
            answer: None,
            greetings: VecDeque::new(),
            events: VecDeque::new(),
            unlinked: Some(now),
        }
    }

    pub(crate) const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Since when there is no link; `None`: there is one.
    pub(crate) const fn unlinked(&self) -> Option<Instant> {
        self.unlinked
    }

    fn greets(&self) -> bool {
        self.own.node < self.peer
    }

    /// Reads a message that says that it is of this node.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Dropped> {
        match packet {
            Packet::Greeting(greeting, proof) => self.handle_greeting(now, greeting, proof),
            Packet::Sealed(sealed) => self.handle_sealed(now, sealed),
        }
    }

    fn handle_greeting(
        &mut self,
        now: Instant,
        greeting: &Greeting,
        proof: &Proof,
    ) -> Result<(), Dropped> {
        let is_between = greeting.to == self.own.node
            && greeting.from == self.peer
            && greeting.to_incarnation == self.own.incarnation
            && greeting.from_incarnation == self.incarnation;
        if !greeting.is_proved(proof, &self.own.authority) {
            return Err(Dropped::Secret);
        }
        if !is_between || self.greets() != (greeting.kind == Kind::Answer) {
            return Err(Dropped::Unknown);
        }
        match greeting.kind {
            Kind::Hello => self.on_hello(greeting),
            Kind::Answer => self.on_answer(now, greeting),
            Kind::Confirm => self.on_confirm(now, greeting),
        }
    }

    /// Answers, and remembers nothing of it but the nonce.
    fn on_hello(&mut self, hello: &Greeting) -> Result<(), Dropped> {
        let answer = match self.answer {
            Some(nonce) => nonce,
            None => (self.draw)().ok_or(Dropped::Stale)?,
        };
        self.answer = Some(answer);
        self.greet(Kind::Answer, hello.first, answer);
        Ok(())
    }

    fn on_answer(&mut self, now: Instant, answer: &Greeting) -> Result<(), Dropped> {
        match self.state {
            State::Greeting { nonce, .. } if nonce == answer.first => {}
            _ => return Err(Dropped::Stale),
        }
        let session = Box::new(self.session(now, answer));
        let confirm = self.greet(Kind::Confirm, answer.first, answer.second);
        self.state = State::Confirming {
            session,
            confirm,
            again: now + HELLO_EVERY,
            until: now + CONFIRM_WAIT,
        };
        Ok(())
    }

    fn on_confirm(&mut self, now: Instant, confirm: &Greeting) -> Result<(), Dropped> {
        if self.answer != Some(confirm.second) {
            return Err(Dropped::Stale);
        }
        self.answer = None;
        self.lose(now, Lost::Replaced);
        let session = self.session(now, confirm);
        self.linked(Box::new(session));
        Ok(())
    }

    fn session(&self, now: Instant, greeting: &Greeting) -> Session {
        let keys = self.own.authority.link(&greeting.link_fields());
        let own = (self.own.node, self.greets());
        Session::new(now, own, keys, Arc::clone(&self.own.wake))
    }

    fn linked(&mut self, session: Box<Session>) {
        let (number, flow) = (session.number, Arc::clone(&session.flow));
        self.events.push_back(LinkEvent::Linked(number, flow));
        self.unlinked = None;
        self.state = State::Linked(session);
    }

    fn greet(&mut self, kind: Kind, first: Nonce, second: Nonce) -> Bytes {
        let greeting = Greeting {
            kind,
            from: self.own.node,
            to: self.peer,
            from_incarnation: self.own.incarnation,
            to_incarnation: self.incarnation,
            first,
            second,
        };
        let bytes = Bytes::from(greeting.encode(&self.own.authority));
        self.queue(bytes.clone());
        bytes
    }

    /// Lets a greeting wait to be sent, instead of the oldest if too many wait.
    fn queue(&mut self, bytes: Bytes) {
        if self.greetings.len() >= GREETINGS_MAX {
            self.greetings.pop_front();
        }
        self.greetings.push_back(bytes);
    }

    fn handle_sealed(&mut self, now: Instant, sealed: &Sealed<'_>) -> Result<(), Dropped> {
        let events = &mut self.events;
        let (session, confirms) = match &mut self.state {
            State::Linked(session) => (session, false),
            State::Confirming { session, .. } => (session, true),
            State::Idle(_) | State::Greeting { .. } => return Err(Dropped::Stale),
        };
        if !session.is_of(sealed) {
            return Err(Dropped::Stale);
        }
        // Behind the event that there is a link.
        let mut batches = VecDeque::new();
        let heard = session.handle(now, sealed, |batch| {
            if confirms {
                batches.push_back(LinkEvent::Batch(batch));
            } else {
                events.push_back(LinkEvent::Batch(batch));
            }
        });
        match heard {
            Ok(heard) => {
                if confirms {
                    self.confirmed(now);
                }
                self.events.append(&mut batches);
                if let Heard::Heartbeat(Some(took)) = heard {
                    self.events.push_back(LinkEvent::RoundTrip(took));
                }
                Ok(())
            }
            Err(NotHeard::Dropped(cause)) => Err(cause),
            Err(NotHeard::Lost(cause)) => {
                self.lose(now, cause);
                Ok(())
            }
        }
    }

    fn confirmed(&mut self, now: Instant) {
        match mem::replace(&mut self.state, State::Idle(now)) {
            State::Confirming { session, .. } => self.linked(session),
            other => self.state = other,
        }
    }

    /// Ends the link, if there is one, or the attempt to make one.
    pub(crate) fn lose(&mut self, now: Instant, cause: Lost) {
        let state = mem::replace(&mut self.state, State::Idle(now + RELINK_AFTER));
        let State::Linked(mut session) = state else {
            return;
        };
        session.flow.close();
        // The peer has a new end already, or none.
        if !matches!(cause, Lost::Replaced | Lost::Closed)
            && let Some(bytes) = session.last_words()
        {
            self.queue(bytes);
        }
        self.unlinked = Some(now);
        self.events
            .push_back(LinkEvent::Lost(session.number, cause));
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let greets = self.greets();
        match &mut self.state {
            State::Idle(at) if greets && now >= *at => self.begin(now),
            State::Greeting { nonce, again } if now >= *again => {
                *again = now + HELLO_EVERY;
                let nonce = *nonce;
                self.greet(Kind::Hello, nonce, [0; NONCE_BYTES]);
            }
            State::Confirming { until, .. } if now >= *until => {
                self.state = State::Idle(now + RELINK_AFTER);
            }
            State::Confirming { confirm, again, .. } if now >= *again => {
                *again = now + HELLO_EVERY;
                let bytes = confirm.clone();
                self.queue(bytes);
            }
            State::Linked(session) => {
                if let Some(cause) = session.handle_timeout(now, &self.own.timing) {
                    self.lose(now, cause);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, now: Instant) {
        match (self.draw)() {
            Some(nonce) => {
                self.state = State::Greeting {
                    nonce,
                    again: now + HELLO_EVERY,
                };
                self.greet(Kind::Hello, nonce, [0; NONCE_BYTES]);
            }
            None => self.state = State::Idle(now + HELLO_EVERY),
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Instant {
        match &self.state {
            State::Idle(at) if self.greets() => *at,
            State::Idle(_) => Instant::FAR_FUTURE,
            State::Greeting { again, .. } => *again,
            State::Confirming { again, until, .. } => (*again).min(*until),
            State::Linked(session) => session.poll_timeout(&self.own.timing),
        }
    }

    /// What to send next, at most so many bytes, and how many batches end in it.
    pub(crate) fn poll_transmit(&mut self, now: Instant, bytes_max: usize) -> Option<(Bytes, u64)> {
        if let Some(bytes) = self.greetings.pop_front() {
            return Some((bytes, 0));
        }
        let State::Linked(session) = &mut self.state else {
            return None;
        };
        let lost = match session.flow.has_overflowed() {
            true => Lost::Overflow,
            false => match session.poll_transmit(now, bytes_max, &self.own.timing) {
                Ok(next) => return next,
                Err(cause) => cause,
            },
        };
        self.lose(now, lost);
        self.greetings.pop_front().map(|bytes| (bytes, 0))
    }

    /// What became of the link.
    pub(crate) fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }
}
