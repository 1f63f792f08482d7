//! The fifth owner of a shard: what it keeps for clients, in bytes and by part,
//! against limits that all shards share.
//!
//! Counts are plain integers. Once a turn the shard tells the others how much
//! it keeps, if that has changed by a thousandth of a limit, and looks at what
//! they keep. An eighth of most parts is left to clients that have taken
//! little, so that one that takes all it gets costs no other.

use core::time::Duration;

use dunlin_base::Instant;

use crate::memory::{Kept, Memory, Part, Parts};
use crate::owners::end::ScanBudget;
use crate::owners::holders::Holders;
use crate::owners::walks::Waiting;

/// The part of a limit that is left to clients that have taken little.
const LEFT: usize = 8;

/// What a session takes in tables besides its own struct.
pub(crate) const TABLES_BYTES: usize = 512;

/// What has not been reported is at most this part of a limit, all shards together.
const GRAIN: usize = 1024;

/// The part of a limit after which queues are looked through again.
const LOOK_AGAIN: usize = 16;

/// Time between two lines of the log about one part.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// What a shard keeps, and may keep.
#[derive(Debug)]
pub(crate) struct Budget {
    memory: Memory,
    alone: bool,
    limits: Parts<usize>,
    grains: Parts<usize>,
    here: Kept,
    reported: Kept,
    others: Kept,
    version: usize,
    queues: Queues,
    /// When the log was last reported that there is no room.
    full: Parts<Option<Instant>>,
    /// Likewise that a holder has all that it may have.
    full_holder: Option<Instant>,
    pub(crate) holders: Holders,
    pub(crate) scan: ScanBudget,
    /// Whose walks go on when there is memory for queues.
    pub(crate) walks: Waiting,
}

/// Messages in queues. One that waits for several sessions is in memory once,
/// so that the sum over all queues is too high.
#[derive(Debug)]
struct Queues {
    /// The sum.
    sum: usize,
    /// What they take at most: what they took at the last look through them, and
    /// what came since.
    ceiling: usize,
    /// What came since.
    since: usize,
    /// What comes now is one more copy of a message that has been counted.
    copies: bool,
}

impl Budget {
    /// `shards`: in this process, and all of them.
    pub(crate) fn new(memory: Memory, shards: (u16, usize), counts_sessions: bool) -> Self {
        let (shards, members) = shards;
        let (limits, grains) = limits(&memory, shards);
        Self {
            alone: shards <= 1,
            limits,
            grains,
            here: Kept::default(),
            reported: Kept::default(),
            others: Kept::default(),
            version: 0,
            queues: Queues {
                sum: 0,
                ceiling: 0,
                since: 0,
                copies: false,
            },
            full: Parts::default(),
            full_holder: None,
            holders: Holders::new(&memory, members, counts_sessions),
            scan: ScanBudget::default(),
            walks: Waiting::default(),
            memory,
        }
    }

    /// Other limits are in force; who has more than they allow keeps it.
    pub(crate) fn set_memory(&mut self, memory: &Memory, shards: u16) {
        (self.limits, self.grains) = limits(memory, shards);
        self.holders.set_bytes(memory);
        self.memory = Memory {
            totals: self.memory.totals.clone(),
            ..memory.clone()
        };
    }

    /// Bytes that a part has, on all shards.
    pub(crate) const fn used(&self, part: Part) -> usize {
        let here = *self.here.bytes.get(part);
        here.saturating_add(*self.others.bytes.get(part))
    }

    /// Bytes that a part has on this shard.
    pub(crate) const fn here(&self, part: Part) -> usize {
        *self.here.bytes.get(part)
    }

    /// Bytes that a part may have.
    pub(crate) const fn limit(&self, part: Part) -> usize {
        *self.limits.get(part)
    }

    /// Bytes that a part may have more.
    pub(crate) const fn room(&self, part: Part) -> usize {
        self.limit(part).saturating_sub(self.used(part))
    }

    /// Whether a client may take so much more of a part of which it then has
    /// `then`: what it likes until little is left, and its fair share of that.
    pub(crate) const fn has_room(&self, part: Part, more: usize, then: usize) -> bool {
        self.used(part).saturating_add(more) <= self.common(part) || self.is_fair(part, then)
    }

    /// As [`Budget::has_room`] for what a connection has before it has a session:
    /// there are so many connections, on all shards.
    pub(crate) const fn has_room_for_conn(&self, part: Part, then: usize, conns: usize) -> bool {
        let conns = if conns == 0 { 1 } else { conns };
        self.used(part) <= self.common(part) || then <= self.limit(part) / LEFT / conns
    }

    /// The part of a limit that goes to who comes first.
    const fn common(&self, part: Part) -> usize {
        self.limit(part) - self.limit(part) / LEFT
    }

    /// Bytes that are left of that.
    pub(crate) const fn common_room(&self, part: Part) -> usize {
        self.common(part).saturating_sub(self.used(part))
    }

    /// Whether `then` bytes of a part are a client's fair share of what is left.
    pub(crate) const fn is_fair(&self, part: Part, then: usize) -> bool {
        then <= self.fair_share(part)
    }

    /// A client's fair share of what is left when a part is used up.
    ///
    /// Clients that came while they were fewer may have had larger shares, so that all of
    /// them together may have more than what was left. Beyond the limit a share is
    /// therefore as much smaller as the shares of all can be together at most.
    const fn fair_share(&self, part: Part) -> usize {
        let sessions = self.here.sessions.saturating_add(self.others.sessions);
        let sessions = if sessions == 0 { 1 } else { sessions };
        let share = self.limit(part) / LEFT / sessions;
        match self.used(part) <= self.limit(part) {
            true => share,
            false => share / self.shares_max(),
        }
    }

    /// At least the sum of 1/n for each session that there may be, if the n-th comes while
    /// there are n: of the first all, of the next two at most a half each, and so on.
    const fn shares_max(&self) -> usize {
        let by_bytes = self.limit(Part::Sessions) / TABLES_BYTES;
        let most = match by_bytes < self.memory.sessions_max {
            true => by_bytes,
            false => self.memory.sessions_max,
        };
        match most.checked_ilog2() {
            Some(doublings) => doublings as usize + 1,
            None => 1,
        }
    }

    /// Unsent bytes at which a connection gets no more, if it is `limit` while
    /// there is memory.
    pub(crate) fn unsent_limit(&self, limit: usize) -> usize {
        let part = Part::Unsent;
        match self.used(part) <= self.common(part) {
            true => limit,
            false => limit.min(self.fair_share(part)).max(1),
        }
    }

    /// Whether there may be one session more.
    pub(crate) const fn has_room_for_session(&self) -> bool {
        let sessions = self.here.sessions.saturating_add(self.others.sessions);
        sessions < self.memory.sessions_max && self.room(Part::Sessions) > 0
    }

    /// Bytes that the subscriptions of a session may have which have `now`.
    pub(crate) fn subscription_bytes_max(&self, now: usize) -> usize {
        let part = Part::Subscriptions;
        let more = now.saturating_add(self.common_room(part));
        let shared = more.max(self.fair_share(part));
        shared.min(self.memory.subscription_bytes_max)
    }

    /// What was `from` bytes of a part is `to` bytes.
    pub(crate) fn change(&mut self, part: Part, from: usize, to: usize) {
        let here = self.here.bytes.get_mut(part);
        *here = here.saturating_add(to).saturating_sub(from);
    }

    /// As [`Budget::change`] of [`Part::Queued`].
    pub(crate) fn change_queue(&mut self, from: usize, to: usize) {
        let queues = &mut self.queues;
        queues.sum = queues.sum.saturating_add(to).saturating_sub(from);
        let more = match queues.copies {
            true => 0,
            false => to.saturating_sub(from),
        };
        queues.since = queues.since.saturating_add(more);
        queues.ceiling = queues.ceiling.saturating_add(more);
        *self.here.bytes.get_mut(Part::Queued) = queues.sum.min(queues.ceiling);
    }

    /// Whether further copies of one message go to queues now.
    pub(crate) const fn set_copies(&mut self, copies: bool) {
        self.queues.copies = copies;
    }

    /// As [`Budget::set_copies`] has it.
    pub(crate) const fn are_copies(&self) -> bool {
        self.queues.copies
    }

    /// What all queues hold, each for itself.
    pub(crate) const fn queued_sum(&self) -> usize {
        self.queues.sum
    }

    /// Whether it is worth a look what the queues really take.
    pub(crate) const fn is_look_due(&self) -> bool {
        self.queues.since > self.limit(Part::Queued) / LOOK_AGAIN
    }

    /// What the queues really take now.
    pub(crate) fn note_look(&mut self, bytes: usize) {
        self.queues.ceiling = bytes;
        self.queues.since = 0;
        self.change_queue(0, 0);
    }

    /// The number of sessions has changed by one.
    pub(crate) const fn count_session(&mut self, begins: bool) {
        self.here.sessions = match begins {
            true => self.here.sessions.saturating_add(1),
            false => self.here.sessions.saturating_sub(1),
        };
    }

    /// Something was refused to a holder that has all that it may have; whether the
    /// log has not had one for a while.
    pub(crate) fn note_full_holder(&mut self, now: Instant) -> bool {
        let reported = self.full_holder;
        let is_due = reported.is_none_or(|last| now >= last + REPORT_EVERY);
        if is_due {
            self.full_holder = Some(now);
        }
        is_due
    }

    /// Something was refused for want of room in a part; whether the log has not
    /// been reported for a while.
    pub(crate) fn note_full(&mut self, part: Part, now: Instant) -> bool {
        let reported = self.full.get(part);
        let reported = reported.is_some_and(|last| now < last + REPORT_EVERY);
        if reported || self.has_plenty(part) {
            return false;
        }
        *self.full.get_mut(part) = Some(now);
        true
    }

    /// Whether more is left than what is shared fairly, and as much again.
    pub(crate) const fn has_plenty(&self, part: Part) -> bool {
        self.room(part) > self.limit(part) / LEFT * 2
    }

    /// Tells the other shards, and looks at what they have reported.
    pub(crate) fn turn(&mut self) {
        if !self.alone {
            let totals = &self.memory.totals;
            totals.tell(&self.here, &mut self.reported, &self.grains);
            self.look();
        }
    }

    /// Looks at what the other shards have reported, before a decision that is rare.
    pub(crate) fn look(&mut self) {
        let totals = &self.memory.totals;
        if let Some(others) = totals.others(&self.reported, &mut self.version) {
            self.others = others;
        }
    }
}

/// What each part may have, and what of it need not be reported.
fn limits(memory: &Memory, shards: u16) -> (Parts<usize>, Parts<usize>) {
    let (mut limits, mut grains) = (Parts::default(), Parts::default());
    for part in Part::ALL {
        let limit = memory.limit(part);
        *limits.get_mut(part) = limit;
        *grains.get_mut(part) = limit / GRAIN / usize::from(shards.max(1));
    }
    (limits, grains)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes: usize) -> Budget {
        let memory = Memory {
            bytes,
            sessions_max: 3,
            subscription_bytes_max: 1_000,
            ..Memory::default()
        };
        Budget::new(memory, (1, 1), false)
    }

    #[test]
    fn what_is_left_is_shared_fairly() {
        let mut budget = budget(16_000);
        for _ in 0..3 {
            assert!(budget.has_room_for_session());
            budget.count_session(true);
        }
        assert!(!budget.has_room_for_session());
        // Of 2,000 bytes 250 are left to those that have little.
        budget.change(Part::Unsent, 0, 1_700);
        assert!(budget.has_room(Part::Unsent, 50, 1_750));
        assert_eq!(budget.unsent_limit(9_000), 9_000);
        assert!(!budget.has_room(Part::Unsent, 51, 1_751));
        assert!(budget.has_room(Part::Unsent, 51, 83));
        budget.change(Part::Unsent, 0, 100);
        assert_eq!(budget.unsent_limit(9_000), 83);
        assert_eq!(budget.unsent_limit(40), 40);
        budget.change(Part::Unsent, 1_800, 0);
        assert_eq!(budget.used(Part::Unsent), 0);
        assert_eq!(budget.subscription_bytes_max(0), 1_000);
        budget.change(Part::Subscriptions, 0, 2_525);
        assert_eq!(budget.subscription_bytes_max(700), 800);
        budget.change(Part::Subscriptions, 0, 300);
        assert_eq!(budget.subscription_bytes_max(700), 700);
        assert_eq!(budget.subscription_bytes_max(10), 125);
    }

    /// Each takes all it gets, while there are as many as have come.
    #[test]
    fn clients_that_come_one_by_one_have_an_eighth_beyond_a_limit_at_most() {
        const STEP: usize = 16;
        let memory = Memory {
            bytes: 1 << 24,
            sessions_max: 1_000,
            ..Memory::default()
        };
        let mut budget = Budget::new(memory, (1, 1), false);
        let limit = budget.limit(Part::Unsent);
        for number in 0..1_000 {
            budget.count_session(true);
            let mut held = 0;
            while budget.has_room(Part::Unsent, STEP, held + STEP) {
                budget.change(Part::Unsent, 0, STEP);
                held += STEP;
            }
            assert!(held > 0, "client {number}");
        }
        let used = budget.used(Part::Unsent);
        assert!(used <= limit + limit / LEFT + STEP, "{used} of {limit}");
    }

    #[test]
    fn a_message_for_many_queues_counts_once() {
        let mut budget = budget(16_000);
        for copy in 0..50 {
            budget.set_copies(copy > 0);
            budget.change_queue(0, 100);
        }
        budget.set_copies(false);
        assert_eq!(
            (budget.here(Part::Queued), budget.queued_sum()),
            (100, 5_000)
        );
        // What comes counts, though as much may have left.
        for _ in 0..5 {
            budget.change_queue(100, 0);
            budget.change_queue(0, 100);
        }
        assert_eq!(budget.here(Part::Queued), 600);
        assert!(budget.is_look_due());
        budget.note_look(200);
        assert_eq!(budget.here(Part::Queued), 200);
        assert!(!budget.is_look_due());
        for _ in 0..49 {
            budget.change_queue(100, 0);
        }
        assert_eq!(budget.here(Part::Queued), 100);
        budget.change_queue(100, 0);
        assert_eq!(budget.here(Part::Queued), 0);
    }

    #[test]
    fn a_full_part_is_reported_once_in_a_while() {
        let mut budget = budget(16_000);
        budget.change(Part::Wills, 0, 1_000);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert!(budget.note_full(Part::Wills, at(1)));
        assert!(!budget.note_full(Part::Wills, at(60)));
        assert!(!budget.note_full(Part::Retained, at(1)), "there is room");
        assert!(budget.note_full(Part::Wills, at(61)));
        budget.change(Part::Wills, 1_000, 500);
        assert!(!budget.note_full(Part::Wills, at(200)), "there is room");
    }
}
