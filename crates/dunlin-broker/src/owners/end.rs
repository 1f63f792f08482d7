//! A link at its node: what it may take, what it has, how far it has scanned.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{Instant, Message, ShardId};
use dunlin_queue::{Ahead, Consumer, Next, Place, Queue, Scanned};

use crate::ids::SessionRef;
use crate::queues::calls::{Keep, Use};
use crate::wants::Wants;

/// Messages that a link sees at most, if it takes nothing.
pub(super) const BROWSED_MAX: usize = 4096;

/// What looking for messages that consumers with filters want may cost a shard at a
/// time, in steps of filters.
const SCAN_STEPS_MAX: usize = 65_536;

/// What a look at a message costs besides.
const SCAN_STEPS_MIN: usize = 32;

/// Time until a shard may look for so much again.
pub(crate) const SCAN_PAUSE: Duration = Duration::from_millis(1);

/// What a shard may still look at.
#[derive(Debug, Default)]
pub(crate) struct ScanBudget {
    since: Option<Instant>,
    left: usize,
}

impl ScanBudget {
    /// Whether there is something left.
    fn may(&mut self, now: Instant) -> bool {
        // Clocks go back, too.
        let is_over = |since| now < since || since + SCAN_PAUSE <= now;
        if self.since.is_none_or(is_over) {
            self.since = Some(now);
            self.left = SCAN_STEPS_MAX;
        }
        self.left > 0
    }

    /// Whether a consumer wants a message.
    fn look(&mut self, wants: &Wants, message: &Message, now: Instant) -> bool {
        let (wanted, steps) = wants.look(message, now);
        self.left = self.left.saturating_sub(steps + SCAN_STEPS_MIN);
        wanted
    }
}

/// What a consumer wants of its queue, and how far it has scanned.
#[derive(Debug)]
pub(crate) struct Search {
    wants: Wants,
    pub(super) scanned: Scanned,
    /// It goes on looking after a while.
    pub(super) paused: bool,
}

impl Search {
    pub(super) fn new(wants: Wants) -> Self {
        Self {
            wants,
            scanned: Scanned::default(),
            paused: false,
        }
    }

    /// Whether the consumer wants a message; `None`: it may not look now.
    pub(super) fn look(
        &mut self,
        budget: &mut ScanBudget,
        message: &Message,
        now: Instant,
    ) -> Option<bool> {
        self.paused = !budget.may(now);
        (!self.paused).then(|| budget.look(&self.wants, message, now))
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.wants.bytes()
    }
}

/// What a consumer with a filter finds.
pub(super) enum Found {
    Next(Next<u32>),
    /// Nothing now.
    Nothing,
    /// It has looked at a message that came back to this place.
    Back(Place),
}

/// Keys from the oldest delivery that a link has not settled to the last one: which of
/// two is earlier is known for half of all keys at most.
const KEYS_MAX: u32 = 1 << 30;

/// Deliveries for which a link keeps memory when it has none: the next one comes soon,
/// and allocating for each takes longer than all else that becomes of it here.
const KEPT_MAX: usize = 16;

/// A link at its node.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) shard: ShardId,
    pub(crate) link: SessionRef,
    pub(crate) wants: Use,
    pub(super) consumer: Consumer<u32>,
    pub(super) last_key: u32,
    /// It takes messages up to this key.
    pub(super) limit: u32,
    /// It is among those that may have credit.
    pub(super) waits: bool,
    pub(crate) drain: bool,
    /// What it has still to see, if it takes nothing.
    pub(super) browsed: VecDeque<Browsed>,
    /// It does not want every message.
    pub(crate) search: Option<Box<Search>>,
    /// It is gone but for outcomes that are still to come; whether it was closed,
    /// and whether the time of the node runs.
    pub(crate) left: Option<(bool, bool)>,
    /// What it has not settled stays its own when it is detached.
    pub(crate) keep: Option<Keep>,
    /// It is detached.
    pub(super) away: Option<Away>,
    /// Keys of messages that it wants once more.
    pub(super) again: Vec<u32>,
    /// Keys that the store was being asked to keep when it was detached.
    pub(super) late: Vec<u32>,
}

/// A link that is detached and may come back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Away {
    /// When what it has is given to others; `None`: not by time.
    pub(super) expires: Option<Instant>,
}

/// A message that a link sees, how often its delivery has failed, and what its
/// receivers have added to it.
pub(crate) type Seen = (Arc<Message>, u16, Option<Arc<[u8]>>);

/// As [`Seen`], as long as it is there.
pub(super) type Browsed = (Weak<Message>, u16, Option<Arc<[u8]>>);

impl End {
    pub(super) fn new(
        (shard, link): (ShardId, SessionRef),
        wants: Use,
        search: Option<Wants>,
    ) -> Self {
        Self {
            shard,
            link,
            wants,
            consumer: Consumer::keeping(KEPT_MAX),
            last_key: 0,
            limit: 0,
            waits: false,
            drain: false,
            browsed: VecDeque::new(),
            search: search.map(|wants| Box::new(Search::new(wants))),
            left: None,
            keep: None,
            away: None,
            again: Vec::new(),
            late: Vec::new(),
        }
    }

    pub(super) fn credit(&self, unsettled_max: usize) -> usize {
        let oldest = self.consumer.keys().next();
        if oldest.is_some_and(|oldest| self.last_key.wrapping_sub(oldest) >= KEYS_MAX) {
            return 0;
        }
        let credit = self.limit.wrapping_sub(self.last_key).cast_signed();
        let credit = usize::try_from(credit).unwrap_or(0);
        credit.min(unsettled_max.saturating_sub(self.consumer.len()))
    }

    /// Whether it has used up all its credit.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.limit.wrapping_sub(self.last_key).cast_signed() <= 0
    }

    /// Credit that was not used is gone.
    pub(crate) const fn use_up(&mut self) {
        self.limit = self.last_key;
        self.drain = false;
    }

    /// Whether there is nothing more for it in its queue.
    pub(crate) fn has_seen_all(&mut self, queue: &Queue) -> bool {
        match (self.wants, &mut self.search) {
            (Use::Browse, _) => self.browsed.is_empty(),
            (_, Some(search)) => !queue.has_ahead(&mut search.scanned),
            (_, None) => queue.is_empty(),
        }
    }

    /// What comes next from a queue.
    pub(super) fn poll(
        &mut self,
        queue: &mut Queue,
        now: Instant,
        credit: usize,
    ) -> Option<Next<u32>> {
        let key = self.last_key.wrapping_add(1);
        let next = self.consumer.poll(queue, now, credit, |_| Some(key))?;
        let taken = match &next {
            Next::Send(transfer) => transfer.key,
            Next::Store { key, .. } => *key,
            _ => return Some(next),
        };
        // What is due has its key already.
        if taken == key {
            self.last_key = key;
        }
        Some(next)
    }

    /// The last key that was used for it.
    pub(crate) const fn last_key(&self) -> u32 {
        self.last_key
    }

    /// Its keys begin after this one.
    pub(crate) const fn begin_at(&mut self, key: u32) {
        (self.last_key, self.limit) = (key, key);
    }

    /// Whether it is detached and may come back.
    pub(crate) const fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The next message that it wants, if it does not want all.
    pub(super) fn search(
        &mut self,
        queue: &mut Queue,
        budget: &mut ScanBudget,
        now: Instant,
        buries: bool,
    ) -> Found {
        let Some(search) = &mut self.search else {
            return Found::Nothing;
        };
        loop {
            search.paused = !budget.may(now);
            if search.paused {
                return Found::Nothing;
            }
            let (place, back) = match queue.ahead(&mut search.scanned, now, buries) {
                Ahead::Message { place, back } => (place, back),
                Ahead::Load => return Found::Next(Next::Load),
                Ahead::Expired(delivery) => return Found::Next(Next::Expired(delivery)),
                Ahead::Nothing => return Found::Nothing,
            };
            let message = queue.message_at(place);
            if message.is_some_and(|message| budget.look(&search.wants, message, now)) {
                let key = self.last_key.wrapping_add(1);
                let taken = queue.take_at(place);
                let next = taken.and_then(|(turn, it)| self.consumer.take(key, turn, it));
                self.last_key = key;
                return next.map_or(Found::Nothing, Found::Next);
            }
            queue.pass(place);
            if back {
                return Found::Back(place);
            }
        }
    }

    /// The next message that it sees, if it takes nothing.
    pub(super) fn see(&mut self, budget: &mut ScanBudget, now: Instant) -> Option<Seen> {
        if self.is_used_up() {
            return None;
        }
        loop {
            let (message, ..) = self.browsed.front()?;
            let message = message.upgrade().filter(|message| !message.is_expired(now));
            let wanted = match (&mut self.search, &message) {
                (Some(search), Some(message)) => search.look(budget, message, now)?,
                _ => true,
            };
            let (_, failed, added) = self.browsed.pop_front()?;
            if let Some(message) = message.filter(|_| wanted) {
                self.last_key = self.last_key.wrapping_add(1);
                return Some((message, failed, added));
            }
        }
    }

    pub(crate) const fn takes_settled(&self) -> bool {
        matches!(self.wants, Use::Take { settled: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_base::{QoS, StreamId};

    #[test]
    fn keys_of_what_is_not_settled_are_not_used_again() {
        let unknown = SessionRef {
            key: dunlin_store::SessionKey(0),
            at: 0,
        };
        let wants = Use::Take { settled: false };
        let mut end = End::new((ShardId(0), unknown), wants, None);
        let mut queue = Queue::default();
        end.begin_at(u32::MAX - 1);
        end.consumer
            .note_sent(&mut queue, u32::MAX, QoS::AtLeastOnce, StreamId::CONTROL);
        end.last_key = u32::MAX;
        let mut given = |last: u32| {
            end.last_key = last;
            end.limit = last.wrapping_add(10);
            end.credit(100)
        };
        assert_eq!((given(u32::MAX), given(100_000)), (10, 10));
        // Half of what tells earlier keys from later ones.
        assert_eq!(given(KEYS_MAX - 2), 10);
        assert_eq!(given(KEYS_MAX - 1), 0);
        end.consumer
            .settle(&mut queue, u32::MAX, dunlin_queue::Outcome::Rejected);
        assert_eq!(end.credit(100), 10);
    }
}
