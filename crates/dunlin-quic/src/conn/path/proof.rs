//! Which address of a client is believed (RFC 9000 sections 8 and 9.3).
//!
//! quinn-proto sends to a new address from the first datagram that comes from
//! there, and counts any rest of three times its bytes as room for a whole
//! packet. Here the address that counts is the one that proved itself last, and
//! everything goes there; what three times its bytes allow goes to the address
//! that the newest packet came from, too. So neither a copied packet nor a
//! forged address diverts anything, and a client that moves before it has
//! answered is still sent to.
//!
//! Challenges are those of quinn-proto: one alone in a packet for the address
//! that it left, which goes to the new one instead, and one in each packet for
//! the new one. That stays in packets that fit what may be sent there, and is
//! left out of the others ([`crate::inspect`]). Each address is proved by the
//! answer to its own challenge, also when another is newer by then. That
//! quinn-proto goes on meanwhile, although it got little from the address that
//! it believes to send to, it is given [`Credit`].

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use dunlin_base::Instant;
use quinn_proto::ConnectionId;

use crate::datagram::Transmit;
use crate::endpoint::CREDIT_BYTES;
use crate::inspect::{Expected, Inspector, Sealed};

/// Bytes that may be sent to an address that is not proved, for each that came
/// from there (RFC 9000 section 8).
const AMPLIFICATION_MAX: usize = 3;

/// Addresses of one connection, not proved, whose bytes are counted. One that
/// is forgotten begins again with nothing in both directions.
const UNPROVED_MAX: usize = 8;

/// Challenges of one address whose answers are waited for.
const AWAITED_MAX: usize = 4;

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
    /// The one that is tried last, those that are forgotten next first.
    unproved: Vec<Unproved>,
    trial: Option<Trial>,
    /// The address that counted before.
    former: Option<SocketAddr>,
    /// What goes again to the address that has just been proved.
    again: Vec<Kept>,
    credit: Option<Credit>,
    /// The first address has not answered in the handshake.
    is_first_unproved: bool,
}

/// An address that is not proved.
#[derive(Debug)]
struct Unproved {
    addr: SocketAddr,
    received: usize,
    sent: usize,
    /// The last challenges that were sent there.
    awaited: Vec<u64>,
}

impl Unproved {
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

/// What an address that is to prove itself still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// An answer.
    Answer,
    /// A challenge.
    Challenge,
    /// One now: if there is no new one, the last one again.
    Repeat,
    /// A new one: the last one was repeated, and all packets are too large to
    /// carry one.
    New,
}

/// An address that is to prove itself: the newest packet came from there.
#[derive(Debug)]
struct Trial {
    addr: SocketAddr,
    inspector: Arc<Inspector>,
    wants: Wants,
    /// The datagram with its last challenge.
    challenge: Option<Box<[u8]>>,
    repeat: Duration,
    /// When a packet from there causes another challenge.
    sooner: Instant,
    next: Instant,
    end: Instant,
    /// The proved address was heard since the newest packet.
    is_proved_heard: bool,
    /// quinn-proto uses another address again.
    is_given_up: bool,
    /// What went to the proved address since the first of several trials.
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
        self.forget(addr);
    }

    /// Whether there is nothing to remember.
    pub(super) const fn is_empty(&self) -> bool {
        self.unproved.is_empty() && self.trial.is_none() && self.former.is_none()
    }

    fn forget(&mut self, addr: SocketAddr) {
        self.unproved.retain(|u| u.addr != addr);
    }

    /// So many bytes came from an address that is not proved.
    pub(super) fn received(&mut self, addr: SocketAddr, bytes: usize) {
        match self.unproved_mut(addr) {
            Some(unproved) => unproved.received += bytes,
            None => {
                if self.unproved.len() >= UNPROVED_MAX {
                    self.unproved.remove(0);
                }
                // Before the one that is tried.
                let at = self.unproved.len() - usize::from(self.trial.is_some());
                let unproved = Unproved {
                    addr,
                    received: bytes,
                    sent: 0,
                    awaited: Vec::new(),
                };
                self.unproved.insert(at, unproved);
            }
        }
    }

    fn unproved_mut(&mut self, addr: SocketAddr) -> Option<&mut Unproved> {
        self.unproved.iter_mut().find(|u| u.addr == addr)
    }

    /// Bytes that may be sent to an address that is not proved.
    pub(super) fn room(&self, addr: SocketAddr) -> usize {
        let unproved = self.unproved.iter().find(|u| u.addr == addr);
        unproved.map_or(0, Unproved::room)
    }

    /// Counts bytes that are sent to such an address, if they may be.
    pub(super) fn take_room(&mut self, addr: SocketAddr, bytes: usize) -> bool {
        match self.unproved_mut(addr) {
            Some(unproved) if unproved.room() >= bytes => {
                unproved.sent += bytes;
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

    /// A packet was opened that came from there; whether it is to cause
    /// another challenge.
    pub(super) fn heard(&mut self, from: SocketAddr, now: Instant) -> bool {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.addr == from) else {
            return false;
        };
        if !trial.inspector.take_newer() {
            return false;
        }
        trial.is_proved_heard = false;
        let wants = trial.sooner <= now && !trial.is_given_up;
        if wants && trial.wants == Wants::Answer {
            trial.wants = Wants::Challenge;
        }
        wants
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
        let before = self.trial.take();
        let is_same = before.as_ref().is_some_and(|trial| trial.addr == addr);
        let given_up = before.as_ref().is_some_and(|t| !t.is_given_up) && !is_same;
        let kept = before.map_or_else(Vec::new, |mut t| core::mem::take(&mut t.kept));
        if let Some(at) = self.unproved.iter().position(|u| u.addr == addr) {
            let tried = self.unproved.remove(at);
            self.unproved.push(tried);
        }
        inspector.begin();
        let repeat = (rtt * 2).clamp(*REPEAT.start(), *REPEAT.end());
        self.trial = Some(Trial {
            addr,
            inspector,
            wants: Wants::Challenge,
            challenge: None,
            repeat,
            sooner: now + repeat / 2,
            next: now + repeat,
            end: now + TRIAL,
            is_proved_heard: false,
            is_given_up: false,
            kept,
            credit,
            used: 0,
        });
        given_up
    }

    /// quinn-proto is to believe that more came from the address that it uses
    /// than did.
    pub(super) const fn give_credit(&mut self, credit: Credit) {
        self.credit = Some(credit);
    }

    /// quinn-proto sends bytes by the path that it is validating.
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

    /// Whether quinn-proto is to give the path up that it is validating, so that
    /// the next packet from there causes a new challenge.
    pub(super) fn wants_new(&self) -> bool {
        let trial = self.trial.as_ref();
        trial.is_some_and(|t| t.wants == Wants::New && !t.is_proved_heard && !t.is_given_up)
    }

    /// Gives the address up that is tried; whether that is news. Late answers
    /// of those that were tried prove nothing: another is newer.
    pub(super) fn end(&mut self) -> bool {
        for unproved in &mut self.unproved {
            unproved.awaited.clear();
        }
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
            Some(_) => self.end(),
            None => false,
        }
    }

    /// An address that has answered its challenge; `counted` has counted until
    /// now.
    pub(super) fn take_proved(&mut self, counted: SocketAddr) -> Option<SocketAddr> {
        let trial = self.trial.as_mut()?;
        let answers = trial.inspector.take_answers();
        let answered = |u: &Unproved| answers.iter().any(|data| u.awaited.contains(data));
        let at = self.unproved.iter().rposition(answered)?;
        let addr = self.unproved.remove(at).addr;
        if trial.addr == addr {
            if !trial.is_proved_heard {
                self.again = core::mem::take(&mut trial.kept);
            }
            let _ = self.end();
        }
        self.former = Some(counted);
        Some(addr)
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

    /// Whether packets are made one by one, because an address is tried: says
    /// which of them may carry its challenge.
    pub(super) fn expect(&self) -> bool {
        let Some(trial) = &self.trial else {
            return false;
        };
        let wants = trial.wants != Wants::Answer;
        trial.inspector.expect(wants.then(|| Expected {
            room: self.room(trial.addr),
            with_data: trial.wants == Wants::Repeat && !trial.is_proved_heard,
        }));
        true
    }

    /// What is to be known of the last packet.
    pub(super) fn take_sealed(&self) -> Option<Sealed> {
        self.trial.as_ref()?.inspector.take_sealed()
    }

    /// The datagram goes to the address that is tried, because it has this
    /// challenge.
    pub(super) fn challenged(
        &mut self,
        challenge: u64,
        datagram: &[u8],
        now: Instant,
    ) -> Option<SocketAddr> {
        let trial = self.trial.as_mut()?;
        trial.wants = Wants::Answer;
        trial.challenge = Some(datagram.into());
        trial.sooner = now + trial.repeat / 2;
        trial.next = now + trial.repeat;
        let addr = trial.addr;
        if let Some(unproved) = self.unproved_mut(addr)
            && !unproved.awaited.contains(&challenge)
        {
            if unproved.awaited.len() >= AWAITED_MAX {
                unproved.awaited.remove(0);
            }
            unproved.awaited.push(challenge);
        }
        Some(addr)
    }

    /// The last challenge, if it is due again and no new one was made, and
    /// where to.
    pub(super) fn due(&mut self) -> Option<(SocketAddr, &[u8])> {
        let trial = self.trial.as_mut()?;
        if trial.wants != Wants::Repeat {
            return None;
        }
        trial.wants = Wants::New;
        let (addr, bytes) = (trial.addr, trial.challenge.as_ref()?.len());
        if !self.take_room(addr, bytes) {
            return None;
        }
        let trial = self.trial.as_ref()?;
        Some((addr, trial.challenge.as_deref()?))
    }

    /// Where a copy of what goes to the proved address is sent.
    pub(super) fn copies_to(&mut self, bytes: usize) -> Option<SocketAddr> {
        let addr = self.trial.as_ref()?.addr;
        let fits = self.room(addr) >= bytes + CHALLENGES_BYTES;
        (fits && self.take_room(addr, bytes)).then_some(addr)
    }

    pub(super) fn deadline(&self) -> Instant {
        let trial = self.trial.as_ref();
        trial.map_or(Instant::FAR_FUTURE, |trial| trial.next.min(trial.end))
    }

    /// Gives up an address that took too long; whether there was one. While
    /// the proved one is silent the other gets what it may.
    pub(super) fn end_when_due(&mut self, now: Instant) -> bool {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.end <= now) else {
            return false;
        };
        if trial.is_proved_heard {
            return self.end();
        }
        trial.end = now + TRIAL;
        false
    }

    /// Whether a challenge is to be repeated now.
    pub(super) fn repeats(&mut self, now: Instant) -> bool {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.next <= now) else {
            return false;
        };
        trial.repeat = (trial.repeat * 2).min(*REPEAT.end());
        trial.next = now + trial.repeat;
        trial.wants = Wants::Repeat;
        true
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
        assert_eq!(proof.unproved.len(), UNPROVED_MAX);
        assert_eq!(sent, 4 * 100 * 30);
    }
}
