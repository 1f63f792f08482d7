//! What is sent when, as far as it depends on the owner: the answer to early
//! data leaves with the handshake, and a connection that is closed waits for
//! the ticket of the next.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Instant;

use crate::resume::Counted;

/// How long an accepted connection's handshake waits for the use of a ticket to
/// be stored. Longer would look like loss to a client.
const HOLD_MAX: Duration = Duration::from_millis(25);

/// The owner's answer, and how long transmissions wait for it.
#[derive(Debug, Default)]
pub(super) struct Answer {
    hold: Hold,
    /// The owner wrote something since the last transmission.
    wrote: bool,
    /// What the owner writes next is not all of its answer.
    more: bool,
    /// What it wrote last is not.
    unfinished: bool,
    /// Something was sent since the handshake, and tickets with it.
    sent_confirmed: bool,
}

/// Whether the first transmissions are held back, once in a connection.
#[derive(Debug, Default)]
enum Hold {
    #[default]
    NotYet,
    Until(Instant),
    Over,
}

impl Answer {
    pub(super) const fn expect_more(&mut self) {
        self.more = true;
    }

    /// The owner writes.
    pub(super) const fn on_written(&mut self) {
        self.unfinished = core::mem::replace(&mut self.more, false);
        self.wrote = true;
    }

    /// Holds the answer back from now on, once.
    pub(super) fn hold(&mut self, now: Instant) {
        if matches!(self.hold, Hold::NotYet) {
            self.hold = Hold::Until(now + HOLD_MAX);
        }
    }

    /// Whether to send nothing yet: one datagram then takes the handshake and
    /// the answer to what came with it.
    pub(super) const fn holds_back(&self, ticket_waits: bool) -> bool {
        let waits = ticket_waits || !self.wrote || self.unfinished;
        waits && matches!(self.hold, Hold::Until(_))
    }

    pub(super) const fn deadline(&self, ticket_waits: bool) -> Instant {
        match self.hold {
            Hold::Until(at) if self.holds_back(ticket_waits) => at,
            _ => Instant::FAR_FUTURE,
        }
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        if matches!(self.hold, Hold::Until(at) if at <= now) {
            self.hold = Hold::Over;
        }
    }

    /// So much was sent, or could not be; what comes later is not held back.
    pub(super) const fn flushed(&mut self, transmits: usize, confirmed: bool) {
        (self.wrote, self.unfinished) = (false, false);
        self.sent_confirmed |= confirmed && transmits > 0;
        if matches!(self.hold, Hold::Until(_)) {
            self.hold = Hold::Over;
        }
    }

    /// Whether nothing of the owner waits, and tickets have left.
    pub(super) const fn has_left(&self) -> bool {
        self.sent_confirmed && !self.wrote
    }
}

/// The wait for a ticket for the next connection. A client that connects only
/// to say something is done before its server can give one.
#[derive(Debug)]
pub(super) struct TicketWait {
    /// Where tickets go; `None`: not wanted, or not waited for any more.
    tickets: Option<Arc<Counted>>,
    until: Instant,
}

impl TicketWait {
    pub(super) const fn new(tickets: Option<Arc<Counted>>) -> Self {
        Self {
            tickets,
            until: Instant::FAR_FUTURE,
        }
    }

    /// The handshake is complete. Servers give tickets when they know that,
    /// a round trip after the client does.
    pub(super) fn begin(&mut self, rtt: Duration, now: Instant) {
        /// Beside the round trips; as much as an acknowledgement may be late.
        const MARGIN: Duration = Duration::from_millis(25);
        const ROUND_TRIPS: u32 = 3;
        self.until = now + rtt * ROUND_TRIPS + MARGIN;
    }

    /// Whether one may still come.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.tickets.as_ref().is_some_and(|t| t.came() == 0) && now < self.until
    }

    pub(super) fn deadline(&self) -> Instant {
        let waits = self.tickets.is_some();
        if waits {
            self.until
        } else {
            Instant::FAR_FUTURE
        }
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.until <= now {
            self.tickets = None;
        }
    }
}
