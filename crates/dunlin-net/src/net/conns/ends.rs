//! How many connections end in one turn. To end one takes some tens of microseconds,
//! its owner's part included; when thousands go at once, those that stay get turns in
//! between. Who comes waits until they have ended, so that a client that went and is
//! back finds what it sent before taken.

use std::collections::VecDeque;

use super::Cause;

/// Connections that end in a turn because of what came from the network, where a batch
/// of datagrams may end more, and as many whose time is over.
pub(crate) const ENDS_MAX: usize = 16;

/// Connections that end.
#[derive(Debug, Default)]
pub(in super::super) struct Ends {
    /// In this part of the turn.
    ended: usize,
    /// Connections whose peers have gone, for later turns; some have ended since.
    later: VecDeque<(u64, Cause)>,
}

impl Ends {
    /// A turn begins, or the part of it that runs timers: a crowd that goes does not
    /// hold up those.
    pub(in super::super) const fn begin(&mut self) {
        self.ended = 0;
    }

    /// One more was run, and ends or not.
    pub(super) fn count_if(&mut self, ends: bool) {
        self.ended += usize::from(ends);
    }

    /// Whether others have to wait for the next turn.
    pub(in super::super) const fn is_full(&self) -> bool {
        self.ended >= ENDS_MAX
    }

    /// Whether some wait.
    pub(in super::super) fn is_waiting(&self) -> bool {
        !self.later.is_empty()
    }

    /// The peer of this connection has gone. Returns whether it is to be run in a later
    /// turn: `connections` are there, and no more than that wait.
    pub(in super::super) fn wait(&mut self, serial: u64, cause: Cause, connections: usize) -> bool {
        let waits = self.is_full() && self.later.len() < connections;
        if waits {
            self.later.push_back((serial, cause));
        }
        waits
    }

    /// The next that waits, as long as this turn takes more.
    pub(in super::super) fn next(&mut self) -> Option<(u64, Cause)> {
        let next = match self.is_full() {
            true => None,
            false => self.later.pop_front(),
        };
        if self.later.is_empty() {
            self.later.shrink_to(ENDS_MAX);
        }
        next
    }
}
