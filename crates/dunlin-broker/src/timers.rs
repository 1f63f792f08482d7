//! Deadlines, in one heap. An entry is only a reminder to look: the deadline
//! itself stands with the connection or session, so moving it costs nothing.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use dunlin_base::{ConnId, Instant};

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// CONNECT deadline or keep alive.
    Conn(ConnId),
    /// Will delay or session expiry, by session key.
    Session(u64),
    /// `$SYS`.
    Sys,
}

/// The heap: one entry a connection and one or two a session.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let &Reverse((at, timer)) = self.0.peek()?;
        if at > now {
            return None;
        }
        self.0.pop();
        Some(timer)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|&Reverse((at, _))| at)
    }
}
