//! What the writer keeps in memory of the queues, so that acknowledging a
//! message reads nothing: who has which message, and how often each is had.
//!
//! 8 bytes for each place in a queue, up to twice that while a ring grows. A
//! ring is as long as one queue; counts are of all queues together and end
//! anywhere, so they are hashed. It mirrors the last commit plus
//! the group that is being written; after a failure it is read again.

use std::collections::HashMap;

use dunlin_store::Seq;

use crate::sorted::Sorted;

/// Whether a message still has targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Others still have it.
    Some,
    /// That was the last of several, so there may be marks.
    NoneOfSeveral,
    /// That was its only target ever.
    NoneOfOne,
}

/// Queues by session, and reference counts.
#[derive(Debug, Default)]
pub(crate) struct Index {
    queues: HashMap<u64, Sorted>,
    /// Messages that have, or had, more than one target. Those that are not
    /// here have one.
    counts: HashMap<u64, u32>,
    /// The largest sequence number seen of each shard: above it, a message is
    /// new without looking.
    newest: HashMap<u16, u64>,
}

impl Index {
    /// Makes sure that the session exists.
    pub(crate) fn create(&mut self, session: u64) {
        self.queues.entry(session).or_default();
    }

    /// Whether the session exists.
    pub(crate) fn exists(&self, session: u64) -> bool {
        self.queues.contains_key(&session)
    }

    /// Removes a session; its queue, oldest first.
    pub(crate) fn remove(&mut self, session: u64) -> Option<impl Iterator<Item = u64> + use<>> {
        self.queues.remove(&session).map(Sorted::into_keys)
    }

    /// Whether the message is in the session's queue.
    pub(crate) fn has(&self, session: u64, seq: u64) -> bool {
        self.queues.get(&session).is_some_and(|q| q.contains(seq))
    }

    /// Adds a place in a queue; `false` if the session does not exist or has
    /// it already. Counting it is separate.
    pub(crate) fn push(&mut self, session: u64, seq: u64) -> bool {
        self.queues.get_mut(&session).is_some_and(|q| q.insert(seq))
    }

    /// Removes a place in a queue; `false` if it was not there.
    pub(crate) fn pop(&mut self, session: u64, seq: u64) -> bool {
        self.queues.get_mut(&session).is_some_and(|q| q.remove(seq))
    }

    /// Whether a stored message can have this number: false without a doubt.
    pub(crate) fn may_be_stored(&self, seq: u64) -> bool {
        self.newest
            .get(&Seq(seq).shard().0)
            .is_some_and(|newest| seq <= *newest)
    }

    /// Counts the targets of a message that was not stored.
    pub(crate) fn add_message(&mut self, seq: u64, targets: u32) {
        let newest = self.newest.entry(Seq(seq).shard().0).or_default();
        *newest = seq.max(*newest);
        if targets > 1 {
            self.counts.insert(seq, targets);
        }
    }

    /// Counts `gained` more targets of a stored message, which may have marks
    /// from now on.
    pub(crate) fn add_targets(&mut self, seq: u64, gained: u32) {
        *self.counts.entry(seq).or_insert(1) += gained;
    }

    /// Counts a message that is found with this many targets left.
    pub(crate) fn recover_message(&mut self, seq: u64, targets: u32, has_marks: bool) {
        self.add_message(seq, targets);
        if has_marks {
            self.counts.insert(seq, targets);
        }
    }

    /// Counts one target less of a stored message.
    pub(crate) fn release(&mut self, seq: u64) -> Left {
        let Some(count) = self.counts.get_mut(&seq) else {
            return Left::NoneOfOne;
        };
        *count -= 1;
        if *count > 0 {
            return Left::Some;
        }
        self.counts.remove(&seq);
        Left::NoneOfSeveral
    }
}
