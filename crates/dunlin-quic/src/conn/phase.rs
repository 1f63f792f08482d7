//! The life of a connection: its phases, each with what only it needs, and the
//! deadlines of each. Whether the handshake is complete is apart from the
//! phases: with early data a connection is open before.

use dunlin_base::Instant;
use dunlin_base::transport::CloseCause;
use quinn_proto::VarInt;

use super::binding::Binding;
use crate::Counters;

/// Where a connection is in its life.
#[derive(Debug)]
enum Phase {
    /// Nothing was reported yet.
    Handshake,
    /// Bytes flow both ways.
    Open(Open),
    /// Closed by this side; waits until the peer has acknowledged all streams.
    Closing(Closing),
    /// Over; kept until quinn-proto has drained it.
    Over(Over),
}

#[derive(Debug)]
struct Open {
    /// Accepted: when something must have arrived; `None`: something has.
    first_bytes_until: Option<Instant>,
}

#[derive(Debug)]
struct Closing {
    until: Instant,
    /// The peer waits for nothing but the end.
    promptly: bool,
}

#[derive(Debug)]
struct Over {
    /// The peer has closed the connection, and needs no answer.
    is_quiet: bool,
}

/// The life of one connection.
#[derive(Debug)]
pub struct Life {
    phase: Phase,
    /// When the handshake must be complete; `None`: it is.
    handshake_until: Option<Instant>,
    /// Its end needs no report: reported before, or never opened and never
    /// asked for.
    reported: bool,
    /// Here, where it takes no room of its own.
    pub(super) binding: Binding,
    close_code: VarInt,
}

impl Life {
    pub(super) const fn new(accepted: bool, handshake_until: Instant) -> Self {
        Self {
            phase: Phase::Handshake,
            handshake_until: Some(handshake_until),
            reported: accepted,
            binding: Binding::Unasked,
            close_code: VarInt::from_u32(0),
        }
    }

    /// Whether bytes flow both ways.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Whether nothing follows but its end, which the owner may not know yet.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Whether the handshake goes on.
    #[must_use]
    pub const fn is_handshaking(&self) -> bool {
        self.handshake_until.is_some() && self.takes_bytes()
    }

    /// Whether its end needs no report.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        self.reported
    }

    /// Whether its end is still to be reported; it is not after this call.
    pub const fn take_report(&mut self) -> bool {
        !core::mem::replace(&mut self.reported, true)
    }

    /// Whether nothing was reported yet.
    pub(super) const fn is_new(&self) -> bool {
        matches!(self.phase, Phase::Handshake)
    }

    /// Whether the owner may still send.
    pub(super) const fn takes_bytes(&self) -> bool {
        matches!(self.phase, Phase::Handshake | Phase::Open(_))
    }

    pub(super) const fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    /// Whether the handshake is complete.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.handshake_until.is_none()
    }

    /// Whether the peer waits for nothing but the end.
    pub(super) const fn has_parted(&self) -> bool {
        self.is_confirmed() && matches!(&self.phase, Phase::Closing(c) if c.promptly)
    }

    /// Whether there is nothing to send any more. A peer that closed the
    /// connection may be answered (RFC 9000 section 10.2.2), but it may be
    /// asleep, and then something on the way answers that it is not there.
    pub(super) const fn is_quiet(&self) -> bool {
        matches!(&self.phase, Phase::Over(over) if over.is_quiet)
    }

    pub(super) const fn close_code(&self) -> VarInt {
        self.close_code
    }

    pub(super) const fn set_close_code(&mut self, code: VarInt) {
        self.close_code = code;
    }

    pub(super) const fn confirm(&mut self) {
        self.handshake_until = None;
    }

    /// Something must arrive until then, if anything.
    pub(super) const fn open(&mut self, first_bytes_until: Option<Instant>) {
        self.phase = Phase::Open(Open { first_bytes_until });
        self.reported = false;
    }

    /// The peer has said something.
    pub(super) const fn on_spoke(&mut self) {
        if let Phase::Open(open) = &mut self.phase {
            open.first_bytes_until = None;
        }
    }

    /// Begins to close; whether it did not before.
    pub(super) const fn close(&mut self, code: VarInt, until: Instant, promptly: bool) -> bool {
        match &mut self.phase {
            Phase::Closing(closing) => {
                closing.promptly |= promptly;
                false
            }
            Phase::Over(_) => false,
            Phase::Handshake | Phase::Open(_) => {
                self.close_code = code;
                self.phase = Phase::Closing(Closing { until, promptly });
                true
            }
        }
    }

    pub(super) const fn end(&mut self, by_peer: bool) {
        let is_quiet = by_peer || self.is_quiet();
        self.phase = Phase::Over(Over { is_quiet });
    }

    /// When the phase must be over; `idle` and `ticket` are deadlines of an
    /// open and of a closing connection besides.
    pub(super) fn deadline(&self, idle: Instant, ticket: Instant) -> Instant {
        let far = Instant::FAR_FUTURE;
        let handshake = self.handshake_until.unwrap_or(far);
        match &self.phase {
            Phase::Handshake => handshake,
            Phase::Open(open) => {
                let first_bytes = open.first_bytes_until.unwrap_or(far);
                first_bytes.min(handshake).min(idle)
            }
            Phase::Closing(closing) => closing.until.min(ticket),
            Phase::Over(_) => far,
        }
    }

    /// The deadline is over: counts and returns why that ends the connection.
    pub(super) fn time_out(&self, now: Instant, counters: &mut Counters) -> CloseCause {
        let late = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        match &self.phase {
            Phase::Handshake | Phase::Open(_) if late(self.handshake_until) => {
                counters.handshake_timeouts += 1;
                CloseCause::HandshakeTimeout
            }
            Phase::Open(open) if late(open.first_bytes_until) => {
                counters.silent_timeouts += 1;
                CloseCause::IdleTimeout
            }
            Phase::Handshake | Phase::Open(_) => {
                counters.idle_timeouts += 1;
                CloseCause::IdleTimeout
            }
            Phase::Closing(_) | Phase::Over(_) => CloseCause::Local,
        }
    }
}
