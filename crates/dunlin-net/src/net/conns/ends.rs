//! How many connections end in one turn. To end one takes some tens of microseconds,
//! its owner's part included; when thousands go at once, those that stay get turns in
//! between.

use std::collections::VecDeque;

use super::Cause;

/// Connections that end in a turn; a batch of datagrams may end more.
pub(crate) const ENDS_MAX: usize = 16;

/// Connections that end.
#[derive(Debug, Default)]
pub(in super::super) struct Ends {
    in_turn: usize,
    /// Connections whose peers have gone, for later turns. A peer goes once, so that
    /// there are about as many as connections.
    later: VecDeque<(u64, Cause)>,
}

impl Ends {
    pub(in super::super) const fn begin_turn(&mut self) {
        self.in_turn = 0;
    }

    /// One more has ended.
    pub(super) const fn count(&mut self) {
        self.in_turn += 1;
    }

    /// Whether others have to wait for the next turn.
    pub(in super::super) const fn is_full(&self) -> bool {
        self.in_turn >= ENDS_MAX
    }

    /// Whether some wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.later.is_empty()
    }

    /// The peer of this connection has gone: it is run in a later turn.
    pub(in super::super) fn wait(&mut self, serial: u64, cause: Cause) {
        self.later.push_back((serial, cause));
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
