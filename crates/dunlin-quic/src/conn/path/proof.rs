//! Which address of a client is believed (RFC 9000 sections 8 and 9.3).
//!
//! quinn-proto sends to a new address from the first datagram that comes from
//! there, and counts any rest of three times its bytes as room for a whole
//! packet. Here the address that counts stays the one that proved
//! itself last, and everything is sent there: a copied packet, or a forged
//! address, diverts nothing. The new address gets a challenge without padding
//! until it has answered that, and nothing beyond three times what it sent.
//!
//! quinn-proto, which believes that it has moved, makes two challenges: one
//! alone in a packet for the address that it left, one in each packet for the
//! new one. The former goes to the new address instead, where it fits what may
//! be sent; the latter is left out until the new address has answered that.
//! Then it gets everything, the second challenge at full size included. That
//! quinn-proto goes on meanwhile, although it got little from the address
//! that it believes to send to, it is given [`Credit`].

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use dunlin_base::Instant;
use quinn_proto::ConnectionId;

use crate::datagram::Transmit;
use crate::endpoint::CREDIT_BYTES;
use crate::inspect::{Inspector, Sealed};

/// Bytes that may be sent to an address that is not proved, for each that came
/// from there (RFC 9000 section 8).
const AMPLIFICATION_MAX: usize = 3;

/// Addresses of one connection, not proved, whose bytes are counted. One that
/// is forgotten begins again with nothing in both directions.
const UNPROVED_MAX: usize = 8;

/// A challenge is repeated after two round trips, and then after twice as long
/// each time, within these bounds.
const REPEAT: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(2);

/// How long an address may take to prove itself.
const TRIAL: Duration = Duration::from_secs(10);

/// Bytes of datagrams kept that went to the proved address meanwhile: if that
/// is gone, they go again to the new one.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Kept free for repeated challenges of what may be sent: a header with the
/// longest connection id, the frame and the tag, twice.
const CHALLENGES_BYTES: usize = 2 * (1 + 20 + 4 + 9 + 16);

/// The addresses of a client that are not proved, and the one that is tried.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// The oldest first.
    budgets: Vec<Budget>,
    trial: Option<Trial>,
    /// The address that counted before.
    former: Option<SocketAddr>,
    /// What goes again to the address that has just been proved.
    again: Vec<Kept>,
    credit: Option<Credit>,
    /// The first address has not answered in the handshake.
    is_first_unproved: bool,
}

/// Bytes of an address that is not proved.
#[derive(Debug)]
struct Budget {
    addr: SocketAddr,
    received: usize,
    sent: usize,
}

impl Budget {
    const fn room(&self) -> usize {
        (self.received.saturating_mul(AMPLIFICATION_MAX)).saturating_sub(self.sent)
    }
}

/// The connection id and the time of a datagram whose address quinn-proto has
/// begun to use.
#[derive(Clone, Copy, Debug)]
pub(in crate::conn) struct Credit {
    pub(in crate::conn) to: ConnectionId,
    pub(in crate::conn) at: StdInstant,
}

/// Datagrams that were sent.
#[derive(Debug)]
pub(in crate::conn) struct Kept {
    pub(in crate::conn) transmit: Transmit,
    pub(in crate::conn) contents: Box<[u8]>,
}

/// An address that is to prove itself.
#[derive(Debug)]
struct Trial {
    addr: SocketAddr,
    inspector: Arc<Inspector>,
    /// The datagram with its challenge, once that was sent.
    challenge: Option<Box<[u8]>>,
    repeat: Duration,
    next: Instant,
    end: Instant,
    /// The proved address was heard since.
    is_proved_heard: bool,
    /// quinn-proto uses another address again.
    is_given_up: bool,
    /// What went to the proved address since.
    kept: Vec<Kept>,
    /// What quinn-proto is given, and the bytes that it has used of it.
    credit: Credit,
    used: usize,
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.inspector.end();
    }
}

impl Proof {
    /// Of a client whose first datagram, which did not prove its address, had
    /// so many bytes.
    pub(super) fn of_handshake(addr: SocketAddr, bytes: usize) -> Self {
        let mut proof = Self::default();
        proof.received(addr, bytes);
        proof.is_first_unproved = true;
        proof
    }

    pub(super) const fn is_first_unproved(&self) -> bool {
        self.is_first_unproved
    }

    /// The client has answered in the handshake.
    pub(super) fn first_is_proved(&mut self, addr: SocketAddr) {
        self.is_first_unproved = false;
        self.budgets.retain(|b| b.addr != addr);
    }

    /// Whether there is nothing to remember.
    pub(super) const fn is_empty(&self) -> bool {
        self.budgets.is_empty() && self.trial.is_none() && self.former.is_none()
    }

    /// So many bytes came from an address that is not proved.
    pub(super) fn received(&mut self, addr: SocketAddr, bytes: usize) {
        match self.budget_mut(addr) {
            Some(budget) => budget.received += bytes,
            None => {
                if self.budgets.len() >= UNPROVED_MAX {
                    self.budgets.remove(0);
                }
                self.budgets.push(Budget {
                    addr,
                    received: bytes,
                    sent: 0,
                });
            }
        }
    }

    fn budget_mut(&mut self, addr: SocketAddr) -> Option<&mut Budget> {
        self.budgets.iter_mut().find(|b| b.addr == addr)
    }

    /// Bytes that may be sent to an address that is not proved.
    pub(super) fn room(&self, addr: SocketAddr) -> usize {
        let budget = self.budgets.iter().find(|b| b.addr == addr);
        budget.map_or(0, Budget::room)
    }

    /// Counts bytes that are sent to such an address, if they may be.
    pub(super) fn take_room(&mut self, addr: SocketAddr, bytes: usize) -> bool {
        match self.budget_mut(addr) {
            Some(budget) if budget.room() >= bytes => {
                budget.sent += bytes;
                true
            }
            _ => false,
        }
    }

    /// The proved address was heard.
    pub(super) const fn proved_heard(&mut self) {
        if let Some(trial) = &mut self.trial {
            trial.is_proved_heard = true;
        }
    }

    /// Begins to try an address; whether another was given up for it.
    pub(super) fn begin(
        &mut self,
        addr: SocketAddr,
        inspector: Arc<Inspector>,
        rtt: Duration,
        credit: Credit,
        now: Instant,
    ) -> bool {
        self.credit = Some(credit);
        if let Some(trial) = self.trial.as_mut().filter(|t| t.addr == addr) {
            // quinn-proto makes another challenge; an answer to the former
            // one is as good.
            trial.inspector.expect_alone(true);
            trial.is_given_up = false;
            return false;
        }
        let given_up = self.end();
        inspector.begin();
        inspector.expect_alone(true);
        self.trial = Some(Trial {
            addr,
            inspector,
            challenge: None,
            repeat: (rtt * 2).clamp(*REPEAT.start(), *REPEAT.end()),
            next: Instant::FAR_FUTURE,
            end: now + TRIAL,
            is_proved_heard: false,
            is_given_up: false,
            kept: Vec::new(),
            credit,
            used: 0,
        });
        given_up
    }

    /// quinn-proto sends bytes by the path that it is validating, and is to
    /// believe that more came than did.
    pub(super) const fn uses_credit(&mut self, bytes: usize) {
        if let Some(trial) = &mut self.trial {
            trial.used += bytes;
            if trial.used >= CREDIT_BYTES {
                trial.used = 0;
                self.credit = Some(trial.credit);
            }
        }
    }

    pub(super) const fn take_credit(&mut self) -> Option<Credit> {
        self.credit.take()
    }

    /// Gives the address up that is tried; whether that is news.
    pub(super) fn end(&mut self) -> bool {
        let trial = self.trial.take();
        trial.is_some_and(|trial| !trial.is_given_up)
    }

    /// quinn-proto has given `from` up; whether that is news. It is still
    /// tried while the proved address is silent.
    pub(super) fn give_up(&mut self, from: SocketAddr) -> bool {
        match self.trial.as_mut().filter(|trial| trial.addr == from) {
            Some(trial) if !trial.is_proved_heard => {
                !core::mem::replace(&mut trial.is_given_up, true)
            }
            _ => self.end(),
        }
    }

    /// Whether quinn-proto is to give the tried address up now, so that the
    /// next datagram from there makes another challenge: no answer came to the
    /// first, and the proved address is silent.
    pub(super) fn wants_another(&self, now: Instant) -> bool {
        let trial = self.trial.as_ref();
        trial.is_some_and(|t| t.next <= now && !t.is_proved_heard && !t.is_given_up)
    }

    /// The address that is tried.
    pub(super) fn tried(&self) -> Option<SocketAddr> {
        self.trial.as_ref().map(|trial| trial.addr)
    }

    /// The tried address, once it has answered its challenge; `counted` has
    /// counted until now.
    pub(super) fn take_proved(&mut self, counted: SocketAddr) -> Option<SocketAddr> {
        let answered = |trial: &mut Trial| trial.inspector.is_answered();
        let mut trial = self.trial.take_if(answered)?;
        if !trial.is_proved_heard {
            self.again = core::mem::take(&mut trial.kept);
        }
        self.former = Some(counted);
        self.budgets.retain(|b| b.addr != trial.addr);
        Some(trial.addr)
    }

    /// The address that counted before, if it is this.
    pub(super) fn take_former(&mut self, addr: SocketAddr) -> bool {
        self.former.take_if(|former| *former == addr).is_some()
    }

    /// Keeps what goes to the proved address while another one is tried.
    pub(super) fn keep(&mut self, transmit: &Transmit, contents: &[u8]) {
        let Some(trial) = self.trial.as_mut().filter(|t| !t.is_proved_heard) else {
            return;
        };
        let held: usize = trial.kept.iter().map(|kept| kept.transmit.size).sum();
        if let Some(contents) = contents.get(..transmit.size)
            && held + transmit.size <= KEPT_BYTES_MAX
        {
            trial.kept.push(Kept {
                transmit: transmit.clone(),
                contents: contents.into(),
            });
        }
    }

    /// What goes again to the address that has just been proved.
    pub(super) fn take_again(&mut self) -> Vec<Kept> {
        core::mem::take(&mut self.again)
    }

    /// The challenge that was sealed with the last packet.
    pub(super) fn take_sealed(&self) -> Option<Sealed> {
        let trial = self.trial.as_ref()?;
        let sealed = trial.inspector.take_sealed();
        // quinn-proto sends what is alone before anything else.
        trial.inspector.expect_alone(false);
        sealed
    }

    /// Whether the next packet is to be alone in its buffer.
    pub(super) fn wants_one(&self) -> bool {
        self.trial
            .as_ref()
            .is_some_and(|t| t.inspector.expects_alone())
    }

    /// This challenge goes to the address that is tried.
    pub(super) fn challenged(&mut self, sealed: Sealed, datagram: &[u8], now: Instant) {
        if let Some(trial) = &mut self.trial {
            trial.inspector.await_answer(sealed.challenge);
            trial.challenge = Some(datagram.into());
            trial.next = now + trial.repeat;
        }
    }

    /// A challenge that is due again, and where to.
    pub(super) fn due(&mut self, now: Instant) -> Option<(SocketAddr, &[u8])> {
        let trial = self.trial.as_mut().filter(|trial| trial.next <= now)?;
        trial.repeat = (trial.repeat * 2).min(*REPEAT.end());
        trial.next = now + trial.repeat;
        let (addr, bytes) = (trial.addr, trial.challenge.as_ref()?.len());
        if !self.take_room(addr, bytes) {
            return None;
        }
        let trial = self.trial.as_ref()?;
        Some((addr, trial.challenge.as_deref()?))
    }

    /// Where a copy of what goes to the proved address is sent: to the tried
    /// one while the other is silent, as far as there is room.
    pub(super) fn copies_to(&mut self, bytes: usize) -> Option<SocketAddr> {
        let trial = self.trial.as_ref().filter(|t| !t.is_proved_heard)?;
        let addr = trial.addr;
        let fits = self.room(addr) >= bytes + CHALLENGES_BYTES;
        (fits && self.take_room(addr, bytes)).then_some(addr)
    }

    pub(super) fn deadline(&self) -> Instant {
        let trial = self.trial.as_ref();
        trial.map_or(Instant::FAR_FUTURE, |trial| trial.next.min(trial.end))
    }

    /// Gives up an address that took too long; whether there was one. While
    /// the proved one is silent the other gets what it may.
    pub(super) fn on_timer(&mut self, now: Instant) -> bool {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.end <= now) else {
            return false;
        };
        if trial.is_proved_heard {
            return self.end();
        }
        trial.end = now + TRIAL;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], n))
    }

    #[test]
    fn an_address_gets_three_times_what_it_sent() {
        let mut proof = Proof::of_handshake(addr(1), 1200);
        assert!(proof.take_room(addr(1), 2400));
        assert!(!proof.take_room(addr(1), 1201));
        assert!(proof.take_room(addr(1), 1200));
        assert!(!proof.take_room(addr(1), 1));
        assert!(!proof.take_room(addr(2), 1), "it sent nothing");
        proof.received(addr(1), 1);
        assert_eq!(proof.room(addr(1)), 3);
        proof.first_is_proved(addr(1));
        assert!(proof.is_empty());
    }

    #[test]
    fn more_addresses_than_are_counted_get_no_more() {
        let mut proof = Proof::default();
        let mut sent = 0;
        for round in 0..4 {
            for n in 0..100 {
                proof.received(addr(n), 10);
                sent += usize::from(proof.take_room(addr(n), 30)) * 30;
                assert!(!proof.take_room(addr(n), 1), "round {round}");
            }
        }
        assert_eq!(proof.budgets.len(), UNPROVED_MAX);
        assert_eq!(sent, 4 * 100 * 30);
    }
}
