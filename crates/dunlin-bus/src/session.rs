//! One life of a link, from its greetings to its loss: numbered, encrypted messages in order,
//! with batches, heartbeats and last words. Time and bytes come in, messages and batches go
//! out.
//!
//! The body of a message is its kind, how many messages of the peer were received, what was
//! taken of the peer's batches, and then a part of the stream of batches, or times, or the
//! cause of the end.

use core::time::Duration;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes};
use dunlin_base::Instant;

use crate::authority::{LinkKeys, Proof};
use crate::cause::Lost;
use crate::config::Timing;
use crate::flow::{Flow, Wake};
use crate::ids::NodeId;
use crate::limits::{ANNOUNCE_PACKETS, PACKETS_MAX};
use crate::seal::{NotOpened, Opener, Sealer};
use crate::stream::{Incoming, Outgoing};
use crate::wire::{Dropped, SEALED_HEAD_BYTES, Sealed, TAG_BYTES};

const BATCHES: u8 = 0;
const HEARTBEAT: u8 = 1;
const CLOSE: u8 = 2;

/// Kind, received, taken.
const BEGIN_BYTES: usize = 17;

/// What a message has besides its part of the stream of batches.
pub(crate) const OVERHEAD_BYTES: usize = SEALED_HEAD_BYTES + BEGIN_BYTES + TAG_BYTES;

/// Times in a heartbeat.
const TIMES_BYTES: usize = 24;

/// What a message was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// With a part of the stream of batches.
    Batches,
    /// With the time that a message and its answer took, if it is known.
    Heartbeat(Option<Duration>),
}

/// Why a message was not heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotHeard {
    Dropped(Dropped),
    Lost(Lost),
}

/// What heartbeats are about.
struct Times {
    /// When something was received last.
    heard: Instant,
    /// It was found out that nothing had come for too long; a while is left to what waits to
    /// be read, as this process may have stood still itself.
    suspected: Option<Instant>,
    beat_at: Instant,
    /// What the last heartbeat of the peer said its time is, and when it came.
    echo: Option<(u64, Instant)>,
}

/// A link that both ends have agreed on.
pub(crate) struct Session {
    own: NodeId,
    /// Number of the link.
    pub(crate) number: u64,
    pub(crate) flow: Arc<Flow>,
    tx: Sealer,
    rx: Opener,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Messages of the peer that it was informed of.
    announced: u64,
    /// Messages that the peer says that it received.
    received_by_peer: u64,
    times: Times,
    collected: Vec<Bytes>,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        (own, is_first): (NodeId, bool),
        keys: LinkKeys,
        wake: Wake,
    ) -> Self {
        let LinkKeys {
            from_first,
            from_second,
            number,
        } = keys;
        let (tx, rx): (Proof, Proof) = match is_first {
            true => (from_first, from_second),
            false => (from_second, from_first),
        };
        Self {
            own,
            number,
            flow: Flow::new(wake),
            tx: Sealer::new(tx),
            rx: Opener::new(rx),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            announced: 0,
            received_by_peer: 0,
            times: Times {
                heard: now,
                suspected: None,
                beat_at: now,
                echo: None,
            },
            collected: Vec::new(),
        }
    }

    /// Whether a message is of this link.
    pub(crate) const fn is_of(&self, sealed: &Sealed<'_>) -> bool {
        self.number == sealed.link
    }

    /// Reads a message; its batches go to `give`.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        sealed: &Sealed<'_>,
        give: impl FnMut(Bytes),
    ) -> Result<Heard, NotHeard> {
        let body = self.rx.open(sealed).map_err(|error| match error {
            NotOpened::Repeated => NotHeard::Dropped(Dropped::Repeated),
            NotOpened::Forged => NotHeard::Dropped(Dropped::Secret),
            NotOpened::Hole => NotHeard::Lost(Lost::Hole),
        })?;
        self.times.heard = now;
        self.times.suspected = None;
        let mut body = Bytes::from(body);
        let violation = NotHeard::Lost(Lost::Violation);
        if body.len() < BEGIN_BYTES {
            return Err(violation);
        }
        let kind = body.get_u8();
        let (received, taken) = (body.get_u64(), body.get_u64());
        if received < self.received_by_peer || received > self.tx.next() {
            return Err(violation);
        }
        self.received_by_peer = received;
        let news = self.outgoing.note_taken(taken);
        self.flow
            .lessen(news.ok_or(NotHeard::Lost(Lost::Violation))?);
        match kind {
            BATCHES => match self.incoming.take(body, give) {
                Ok(()) => Ok(Heard::Batches),
                Err(_) => Err(violation),
            },
            HEARTBEAT if body.len() == TIMES_BYTES => {
                let (stamp, echo, held) = (body.get_u64(), body.get_u64(), body.get_u64());
                self.times.echo = Some((stamp, now));
                let took = now.as_micros().checked_sub(echo).filter(|_| echo > 0);
                let took = took.and_then(|took| took.checked_sub(held));
                let took = took.map(Duration::from_micros);
                if let Some(took) = took {
                    self.flow.note_round_trip(took);
                }
                Ok(Heard::Heartbeat(took))
            }
            CLOSE => Err(NotHeard::Lost(Lost::Closed)),
            _ => Err(violation),
        }
    }

    /// Whether this link is lost by now.
    pub(crate) fn handle_timeout(&mut self, now: Instant, timing: &Timing) -> Option<Lost> {
        if self.flow.has_overflowed() {
            return Some(Lost::Overflow);
        }
        match self.times.suspected {
            Some(at) if now >= at + timing.heartbeat => Some(Lost::Silence),
            Some(_) => None,
            None => {
                let silent = now >= self.times.heard + timing.silence;
                self.times.suspected = silent.then_some(now);
                None
            }
        }
    }

    pub(crate) fn poll_timeout(&self, timing: &Timing) -> Instant {
        let silent = match self.times.suspected {
            Some(at) => at + timing.heartbeat,
            None => self.times.heard + timing.silence,
        };
        silent.min(self.times.beat_at)
    }

    /// The next message, of at most so many bytes, and how many batches end in it. An error
    /// is the loss of the link.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        bytes_max: usize,
        timing: &Timing,
    ) -> Result<Option<(Bytes, u64)>, Lost> {
        if self.flow.has_mail() {
            self.flow.collect(&mut self.collected);
            for batch in self.collected.drain(..) {
                self.outgoing.push(batch);
            }
        }
        let is_due = now >= self.times.beat_at;
        let in_flight = self.tx.next() - self.received_by_peer;
        if !is_due && in_flight < PACKETS_MAX && self.outgoing.may_send() {
            return self.batches(bytes_max).map(Some);
        }
        let unannounced = self.rx.next() - self.announced;
        if is_due || unannounced >= ANNOUNCE_PACKETS || self.flow.has_news() {
            if is_due {
                self.times.beat_at = now + timing.heartbeat;
            }
            return self.heartbeat(now).map(|bytes| Some((bytes, 0)));
        }
        Ok(None)
    }

    fn batches(&mut self, bytes_max: usize) -> Result<(Bytes, u64), Lost> {
        let room = bytes_max.saturating_sub(OVERHEAD_BYTES);
        let about = BEGIN_BYTES + self.outgoing.len_hint(room);
        let begin = self.begin(BATCHES);
        let (outgoing, mut ended) = (&mut self.outgoing, 0);
        let sealed = self.tx.seal((self.own, self.number), about, |out| {
            out.put_slice(&begin);
            ended = outgoing.fill(out, room);
        });
        let bytes = sealed.ok_or(Lost::Violation)?;
        Ok((Bytes::from(bytes), ended))
    }

    fn heartbeat(&mut self, now: Instant) -> Result<Bytes, Lost> {
        let begin = self.begin(HEARTBEAT);
        let (echo, held) = match self.times.echo {
            Some((stamp, at)) => (stamp, (now - at).as_micros()),
            None => (0, 0),
        };
        let about = BEGIN_BYTES + TIMES_BYTES;
        let sealed = self.tx.seal((self.own, self.number), about, |out| {
            out.put_slice(&begin);
            out.put_u64(now.as_micros());
            out.put_u64(echo);
            out.put_u64(u64::try_from(held).unwrap_or(u64::MAX));
        });
        sealed.map(Bytes::from).ok_or(Lost::Violation)
    }

    /// The last message: the link is lost.
    pub(crate) fn last_words(&mut self) -> Option<Bytes> {
        let begin = self.begin(CLOSE);
        let put = |out: &mut Vec<u8>| out.put_slice(&begin);
        let sealed = self.tx.seal((self.own, self.number), BEGIN_BYTES, put);
        sealed.map(Bytes::from)
    }

    fn begin(&mut self, kind: u8) -> [u8; BEGIN_BYTES] {
        let (received, taken) = (self.rx.next(), self.flow.taken());
        self.announced = received;
        self.flow.announce(taken);
        let mut out = [0; BEGIN_BYTES];
        let mut to = &mut out[..];
        to.put_u8(kind);
        to.put_u64(received);
        to.put_u64(taken);
        out
    }
}
