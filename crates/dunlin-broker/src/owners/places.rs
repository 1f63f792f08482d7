//! The places of sessions, which stand for them in the subscription tree: also of those that
//! have ended, until their subscriptions are out of it.

use alloc::collections::BTreeMap;

use slab::Slab;

use crate::ids::SessionIdx;
use crate::owners::leaving::{LEAVE_MAX, Rest};
use crate::owners::session::Session;

/// The places of a shard's sessions. That of a session which has ended is not given to
/// another while something is left of it; how many such there are is bounded by the memory
/// of subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// None: something is left of it.
    table: Slab<Option<Session>>,
    /// What is left, by place.
    leaving: BTreeMap<SessionIdx, Rest>,
    /// Subscriptions that were taken out in this call.
    taken: usize,
}

impl Places {
    pub(crate) fn get(&self, s: SessionIdx) -> Option<&Session> {
        self.table.get(s)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, s: SessionIdx) -> Option<&mut Session> {
        self.table.get_mut(s)?.as_mut()
    }

    pub(crate) fn insert(&mut self, session: Session) -> SessionIdx {
        self.table.insert(Some(session))
    }

    /// Takes a session out, of which this is left.
    pub(crate) fn remove(&mut self, s: SessionIdx, rest: Option<Rest>) -> Option<Session> {
        let session = self.table.get_mut(s)?.take()?;
        match rest {
            Some(rest) => _ = self.leaving.insert(s, rest),
            None => _ = self.table.try_remove(s),
        }
        Some(session)
    }

    /// Nothing is left of the session that had this place.
    pub(crate) fn free(&mut self, s: SessionIdx) -> Option<Rest> {
        let rest = self.leaving.remove(&s)?;
        self.table.try_remove(s);
        Some(rest)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionIdx, &Session)> {
        let all = self.table.iter();
        all.filter_map(|(s, session)| Some((s, session.as_ref()?)))
    }

    /// Places up to this one may be in use.
    pub(crate) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Sessions that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.leaving.len()
    }

    pub(crate) fn shrink(&mut self) {
        self.table.shrink_to_fit();
    }

    /// A call of the shard begins.
    pub(crate) const fn begin_call(&mut self) {
        self.taken = 0;
    }

    /// How many subscriptions may be taken out in this call.
    pub(crate) const fn room(&self) -> usize {
        LEAVE_MAX.saturating_sub(self.taken)
    }

    pub(crate) const fn note_taken(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count);
    }

    /// What is left of the session that had this place.
    pub(crate) fn rest(&self, s: SessionIdx) -> Option<&Rest> {
        self.leaving.get(&s)
    }

    /// The next one to be taken out.
    pub(crate) fn next_leaving(&mut self) -> Option<(SessionIdx, &mut Rest)> {
        let (s, rest) = self.leaving.iter_mut().next()?;
        Some((*s, rest))
    }

    /// Whether something is left of sessions that have ended.
    pub(crate) fn are_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// What the budget counts for what is left.
    pub(crate) fn leaving_bytes(&self) -> usize {
        self.leaving.values().map(|rest| rest.bytes).sum()
    }
}
