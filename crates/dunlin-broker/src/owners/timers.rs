//! Deadlines, in one ordered set: one entry a connection and one a session,
//! so that a peer that comes and goes leaves nothing behind.
//!
//! An entry is only a reminder to look. The deadline itself stands with the
//! connection or session; [`Alarm`] says for when its reminder is set, and
//! moving a deadline back costs nothing: the reminder comes early and is set
//! again.

use alloc::collections::BTreeSet;

use dunlin_base::{ConnId, Instant};

use crate::ids::SessionRef;

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// CONNECT deadline or keep alive.
    Conn(ConnId),
    /// Will delay or session expiry.
    Session(SessionRef),
    /// A publisher has been held up long enough.
    Release(ConnId),
    /// What a client has sent is paid for.
    Pace(ConnId),
    /// Publishers that are held for the store may go on.
    Unstored,
    /// What is kept of a link that sent.
    Termini,
    /// `$SYS`.
    Sys,
    /// A count of what the shard keeps goes on.
    Count,
    /// What the store refused and must have.
    Retry,
    /// Messages that no member of a group had room for.
    Loans,
    /// Walks over retained messages that wait for memory.
    Walks,
    /// Subscriptions of sessions that have ended.
    Leaving,
}

/// For when the reminder of a connection or session is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm(Instant);

impl Default for Alarm {
    /// It is not set.
    fn default() -> Self {
        Self(Instant::FAR_FUTURE)
    }
}

/// All reminders.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// Makes sure that there is a reminder at `at` or before.
    pub(crate) fn remind(&mut self, at: Instant, timer: Timer, alarm: &mut Alarm) {
        if alarm.0 <= at {
            return;
        }
        self.cancel(timer, alarm);
        alarm.0 = at;
        self.0.insert((at, timer));
    }

    /// The reminder came.
    pub(crate) fn came(alarm: &mut Alarm) {
        *alarm = Alarm::default();
    }

    /// Takes a reminder out.
    pub(crate) fn cancel(&mut self, timer: Timer, alarm: &mut Alarm) {
        let Alarm(set) = core::mem::take(alarm);
        if set < Instant::FAR_FUTURE {
            self.0.remove(&(set, timer));
        }
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let &(at, timer) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(timer)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
