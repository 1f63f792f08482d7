//! Early data (0-RTT) of one accepted connection: whether there is any, what
//! TLS made of its ticket, and whether it still has to wait.

use dunlin_base::Instant;
use quinn_proto::Connection;

use super::answer::Answer;
use crate::Counters;
use crate::tickets::{Refusal, Verdict};

/// What is known of an accepted connection's early data.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// 0-RTT packets arrived.
    offered: bool,
    counted: bool,
    ticket: Ticket,
}

/// What became of the ticket.
#[derive(Clone, Copy, Debug, Default)]
enum Ticket {
    /// TLS has not asked the register.
    #[default]
    NotAsked,
    /// The register refused it.
    Refused(Refusal),
    /// The register took it, TLS does not take the early data.
    Unused,
    /// TLS takes the early data; the ticket's use is not stored yet.
    Held,
    /// TLS takes the early data.
    Taken,
}

impl Early {
    pub(super) const fn is_taken(&self) -> bool {
        self.offered && matches!(self.ticket, Ticket::Held | Ticket::Taken)
    }

    /// Whether nothing may be reported yet. A connection that brings early
    /// data after its handshake waits too: until its ticket is struck off for
    /// good, the same early data would be taken again after a crash.
    pub(super) const fn is_held(&self) -> bool {
        matches!(self.ticket, Ticket::Held)
    }

    /// Counts it once, when it is known what becomes of it.
    fn count(&mut self, switched_on: bool, confirmed: bool, counters: &mut Counters) {
        if !self.offered || self.counted {
            return;
        }
        let total = match self.ticket {
            _ if !switched_on => &mut counters.early_data_refused_off,
            Ticket::Held | Ticket::Taken => &mut counters.early_data_accepted,
            Ticket::Unused => &mut counters.early_data_refused_tls,
            Ticket::Refused(Refusal::Unknown) => &mut counters.early_data_refused_unknown,
            Ticket::Refused(Refusal::Used) => &mut counters.early_data_refused_used,
            Ticket::Refused(Refusal::Expired) => &mut counters.early_data_refused_expired,
            Ticket::Refused(Refusal::Scope) => &mut counters.early_data_refused_settings,
            Ticket::Refused(Refusal::Overflow) => &mut counters.early_data_refused_overflow,
            Ticket::NotAsked if confirmed => &mut counters.early_data_refused_tls,
            Ticket::NotAsked => return,
        };
        *total += 1;
        self.counted = true;
    }
}

/// Early data that a connection accepts.
pub struct EarlyMut<'a> {
    early: &'a mut Early,
    answer: &'a mut Answer,
    proto: &'a Connection,
    confirmed: bool,
}

dunlin_base::opaque_debug!(EarlyMut<'_>);

impl<'a> EarlyMut<'a> {
    pub(super) const fn new(
        early: &'a mut Early,
        answer: &'a mut Answer,
        proto: &'a Connection,
        confirmed: bool,
    ) -> Self {
        Self {
            early,
            answer,
            proto,
            confirmed,
        }
    }

    /// Whether TLS may still ask about tickets, or issue them.
    #[must_use]
    pub const fn may_use_tickets(&self) -> bool {
        !self.confirmed
    }

    /// More follows soon what is sent next: the answer waits for it.
    pub const fn expect_more(&mut self) {
        self.answer.expect_more();
    }

    /// Whether nothing is reported until a ticket's use has been kept.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.early.is_held()
    }

    /// TLS asked the register about a ticket, whose use `waits` to be kept.
    pub fn on_ticket(&mut self, verdict: Verdict, waits: bool) {
        let takes_early_data = || self.proto.crypto_session().early_crypto().is_some();
        self.early.ticket = match verdict {
            Err(refusal) => Ticket::Refused(refusal),
            Ok(_) if !takes_early_data() => Ticket::Unused,
            Ok(_) if waits => Ticket::Held,
            Ok(_) => Ticket::Taken,
        };
    }

    /// The ticket's use has been kept.
    pub const fn on_ticket_kept(&mut self) {
        if matches!(self.early.ticket, Ticket::Held) {
            self.early.ticket = Ticket::Taken;
        }
    }

    /// A datagram was handled, which brought early data or not: counts what
    /// becomes of it, and holds the answer back, once.
    pub fn on_datagram(&mut self, brought: bool, on: bool, now: Instant, counters: &mut Counters) {
        self.early.offered |= brought;
        self.early.count(on, self.confirmed, counters);
        if self.early.is_taken() {
            self.answer.hold(now);
        }
    }
}

const LONG_HEADER: u8 = 0x80;
const TYPE_BITS: u8 = 0x30;
const INITIAL: u8 = 0x00;
const ZERO_RTT: u8 = 0x10;
const RETRY: u8 = 0x30;
/// Flags and version (RFC 9000 section 17.2).
const VERSION_END: usize = 5;
/// Packets looked at in one datagram: Initial, 0-RTT, and one to spare.
const PACKETS_MAX: usize = 3;

/// Whether a datagram of a client carries a 0-RTT packet, alone or after
/// others (RFC 9000 section 12.2). Reads no further than headers; whether the
/// packet is genuine is for others to find out.
pub(crate) fn carries_early_data(mut datagram: &[u8]) -> bool {
    for _ in 0..PACKETS_MAX {
        match datagram.first() {
            Some(first) if first & LONG_HEADER != 0 => match first & TYPE_BITS {
                ZERO_RTT => return true,
                RETRY => return false,
                _ => {}
            },
            _ => return false,
        }
        match after_first_packet(datagram) {
            Some(rest) => datagram = rest,
            None => return false,
        }
    }
    false
}

/// What follows the first packet, which has a long header.
fn after_first_packet(datagram: &[u8]) -> Option<&[u8]> {
    let is_initial = datagram.first()? & TYPE_BITS == INITIAL;
    let rest = datagram.get(VERSION_END..)?;
    // Destination and source connection id.
    let rest = skip_short(skip_short(rest)?)?;
    let rest = if is_initial { skip_long(rest)? } else { rest };
    skip_long(rest)
}

fn skip_short(bytes: &[u8]) -> Option<&[u8]> {
    let (&len, rest) = bytes.split_first()?;
    rest.get(usize::from(len)..)
}

/// Skips what a variable-length integer announces (RFC 9000 section 16).
fn skip_long(bytes: &[u8]) -> Option<&[u8]> {
    let (&first, _) = bytes.split_first()?;
    let width = 1_usize << (first >> 6);
    let (number, rest) = bytes.split_at_checked(width)?;
    let len = number
        .iter()
        .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    // The two top bits are the width.
    let len = len & (u64::MAX >> (66 - 8 * width as u32));
    rest.get(usize::try_from(len).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, body: usize) -> Vec<u8> {
        let mut bytes = vec![LONG_HEADER | 0x40 | kind, 0, 0, 0, 1];
        bytes.extend([8; 9]);
        bytes.extend([0]);
        if kind == INITIAL {
            bytes.extend([2, 9, 9]);
        }
        bytes.extend([0x40 | (body >> 8) as u8, body as u8]);
        bytes.extend(vec![0xaa; body]);
        bytes
    }

    #[test]
    fn early_packets_are_found_behind_others() {
        const HANDSHAKE: u8 = 0x20;
        let initial = packet(INITIAL, 300);
        let early = packet(ZERO_RTT, 40);
        assert!(carries_early_data(&early));
        assert!(carries_early_data(
            &[initial.clone(), early.clone()].concat()
        ));
        assert!(!carries_early_data(&initial));
        assert!(!carries_early_data(&packet(HANDSHAKE, 20)));
        assert!(!carries_early_data(&[0x40; 30]));
        let both = [initial.clone(), early].concat();
        for cut in 0..=initial.len() {
            assert!(!carries_early_data(&both[..cut]), "cut at {cut}");
        }
    }

    #[test]
    fn lengths_of_every_width_are_skipped() {
        for (number, len) in [
            (&[0x03][..], 3),
            (&[0x40, 0x03], 3),
            (&[0x80, 0, 0, 3], 3),
            (&[0xc0, 0, 0, 0, 0, 0, 0, 3], 3),
        ] {
            let bytes = [number, &[1; 3], &[7]].concat();
            assert_eq!(skip_long(&bytes), Some(&[7][..]), "{number:?} is {len}");
        }
        assert_eq!(skip_long(&[0xff; 8]), None);
    }
}
