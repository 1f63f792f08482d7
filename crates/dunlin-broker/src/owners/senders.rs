//! Credit of the links that send to a node: together they may send what it has room for.
//!
//! Credit is counted as the receiving end of a link counts it, as the number of the last
//! message that may come. What a link has and has not used counts as room that is taken,
//! so that a link without credit waits for what the others send, or for a receiver. One
//! that sends nothing for [`IDLE_MAX`] while others wait keeps credit for one message,
//! which does not count: all of these together are what the node may be short of.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::Instant;

use crate::owners::room::Room;

/// Time after which credit is taken from a link that does not use it, if others wait for
/// credit.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(1);

/// What an idle link keeps.
const IDLE_CREDIT: u32 = 1;

/// The part of all room that has to be free before credit is given, so that a full node
/// does not give it one by one.
const STEP: usize = 256;

/// The links of a node that send to it, by their number there.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    all: BTreeMap<usize, Sender>,
    /// Those that wait for credit, in their turn.
    line: VecDeque<usize>,
    /// The sum of what counts.
    given: usize,
    /// When idle links are looked for, while others wait.
    look: Option<Instant>,
}

#[derive(Debug)]
struct Sender {
    /// Messages that it has sent, as far as it has said.
    sent: u32,
    /// The last message that it may send.
    limit: u32,
    /// Its credit that counts.
    counted: u32,
    /// It is in line.
    waits: bool,
    /// When it has last had credit, or said what it has sent.
    since: Instant,
}

impl Sender {
    fn credit(&self) -> u32 {
        let credit = self.limit.wrapping_sub(self.sent).cast_signed();
        u32::try_from(credit).unwrap_or(0)
    }
}

impl Senders {
    /// A link is attached. It is in line for credit.
    pub(crate) fn insert(&mut self, at: usize, now: Instant) {
        let sender = Sender {
            sent: 0,
            limit: 0,
            counted: 0,
            waits: true,
            since: now,
        };
        self.all.insert(at, sender);
        self.line.push_back(at);
    }

    /// A link has gone: what it has not used is for others.
    pub(super) fn remove(&mut self, at: usize) {
        if let Some(sender) = self.all.remove(&at) {
            self.given = self.given.saturating_sub(sender.counted as usize);
            if sender.waits {
                self.line.retain(|other| *other != at);
            }
        }
    }

    /// A link has sent so many messages, and wants credit for more.
    pub(crate) fn want(&mut self, at: usize, sent: u32, now: Instant) {
        let Some(sender) = self.all.get_mut(&at) else {
            return;
        };
        (sender.sent, sender.since) = (sent, now);
        let counted = core::mem::replace(&mut sender.counted, 0);
        sender.counted = sender.credit();
        self.given = self.given.saturating_sub(counted as usize) + sender.counted as usize;
        if !core::mem::replace(&mut sender.waits, true) {
            self.line.push_back(at);
        }
    }

    /// Whether some link waits for credit.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether this link is the one that gets credit next.
    pub(crate) fn is_first(&self, at: usize) -> bool {
        self.line.front() == Some(&at)
    }

    /// Gives the link that is first in line credit, for as many messages of `credit_max`
    /// as the room allows; the last message that it may send.
    pub(crate) fn next(
        &mut self,
        room: Room,
        credit_max: u32,
        now: Instant,
    ) -> Option<(usize, u32)> {
        while let Some(at) = self.line.front().copied() {
            let Some(sender) = self.all.get_mut(&at) else {
                self.line.pop_front();
                continue;
            };
            let wanted = credit_max.saturating_sub(sender.credit()) as usize;
            let (free, max) = room.in_messages();
            let free = free.saturating_sub(self.given);
            let step = (max / STEP).max(1).min(wanted);
            if free < step {
                self.look.get_or_insert(now + IDLE_MAX);
                return None;
            }
            // Something is left for those behind it, and for the next.
            let share = free / (self.line.len() + 1);
            let more = share.max(step).min(wanted);
            self.line.pop_front();
            sender.waits = false;
            if more == 0 {
                continue;
            }
            let credit = u32::try_from(more).unwrap_or(u32::MAX);
            sender.limit = match sender.credit() {
                0 => sender.sent.wrapping_add(credit),
                _ => sender.limit.wrapping_add(credit),
            };
            sender.counted += credit;
            sender.since = now;
            self.given += more;
            return Some((at, sender.limit));
        }
        self.look = None;
        None
    }

    /// When [`Senders::take_idle`] finds something, while a link waits for credit.
    pub(crate) const fn look(&self) -> Option<Instant> {
        self.look
    }

    /// Takes credit from links that do not use it, if others wait; the last message that
    /// each of them may send.
    pub(crate) fn take_idle(&mut self, now: Instant) -> Vec<(usize, u32)> {
        let mut idle = Vec::new();
        if self.look.is_none_or(|look| look > now) {
            return idle;
        }
        self.look = None;
        for (at, sender) in &mut self.all {
            if sender.counted == 0 || sender.since + IDLE_MAX > now {
                continue;
            }
            self.given = self.given.saturating_sub(sender.counted as usize);
            sender.counted = 0;
            if sender.credit() > IDLE_CREDIT {
                sender.limit = sender.sent.wrapping_add(IDLE_CREDIT);
                idle.push((*at, sender.limit));
            }
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(1);

    fn room(free: usize, max: usize) -> Room {
        Room {
            messages: (max - free, max),
            bytes: (0, usize::MAX),
        }
    }

    /// What each of the links gets, in turn.
    fn given(senders: &mut Senders, room: Room, max: u32) -> Vec<(usize, u32)> {
        core::iter::from_fn(|| senders.next(room, max, NOW)).collect()
    }

    #[test]
    fn links_share_the_room_and_never_have_more() {
        let mut senders = Senders::default();
        for at in 0..4 {
            senders.insert(at, NOW);
        }
        let all = given(&mut senders, room(100, 100), 64);
        assert_eq!(all, [(0, 20), (1, 20), (2, 20), (3, 20)]);
        // Each has used half of it: so much is in the node.
        for at in 0..4 {
            senders.want(at, 10, NOW);
        }
        let all = given(&mut senders, room(60, 100), 64);
        let sum: u32 = all.iter().map(|(_, limit)| limit - 20).sum();
        assert_eq!((all.len(), sum, senders.given), (4, 16, 56));
        // The others have what there is: a link waits for one of them.
        senders.want(2, 21, NOW);
        assert!(given(&mut senders, room(45, 100), 64).is_empty());
        senders.remove(0);
        assert_eq!(given(&mut senders, room(45, 100), 64), [(2, 31)]);
        assert_eq!((senders.given, senders.is_waiting()), (38, false));
    }

    #[test]
    fn a_full_node_does_not_give_credit_one_by_one() {
        let mut senders = Senders::default();
        senders.insert(7, NOW);
        assert_eq!(senders.next(room(9, 2560), 64, NOW), None);
        assert_eq!(senders.next(room(10, 2560), 64, NOW), Some((7, 10)));
        // A small one does.
        senders.want(7, 10, NOW);
        assert_eq!(senders.next(room(0, 255), 64, NOW), None);
        assert_eq!(senders.next(room(1, 255), 64, NOW), Some((7, 11)));
        // The client never has more than the most.
        senders.want(7, 11, NOW);
        assert_eq!(senders.next(Room::UNLIMITED, 64, NOW), Some((7, 75)));
        senders.want(7, 43, NOW);
        assert_eq!(senders.next(Room::UNLIMITED, 64, NOW), Some((7, 107)));
    }

    #[test]
    fn credit_that_is_not_used_goes_to_those_that_wait() {
        let mut senders = Senders::default();
        senders.insert(0, NOW);
        senders.insert(1, NOW);
        assert_eq!(senders.next(room(9, 9), 64, NOW), Some((0, 3)));
        assert_eq!(senders.next(room(9, 9), 64, NOW), Some((1, 3)));
        senders.want(1, 3, NOW);
        assert_eq!(senders.next(room(6, 9), 64, NOW), Some((1, 4)));
        senders.want(1, 4, NOW);
        assert_eq!(senders.next(room(3, 9), 64, NOW), None);
        let look = senders.look().expect("one waits");
        assert!(senders.take_idle(NOW).is_empty());
        assert_eq!(senders.take_idle(look), [(0, 1)]);
        assert_eq!(senders.next(room(3, 9), 64, look), Some((1, 5)));
        // It has used what it had kept, and what it is not known to have.
        senders.want(0, 2, look);
        assert_eq!(senders.given, 1);
        assert_eq!(senders.next(room(3, 9), 64, look), Some((0, 3)));
    }
}
