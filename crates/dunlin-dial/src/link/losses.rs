//! Connections that the server accepted and that ended soon, each time for the
//! same reason and with nothing achieved: what is sent again on each of them is
//! then the likely cause, and another attempt will not help.

use core::time::Duration;

use dunlin_base::Instant;
use dunlin_base::transport::CloseCause;

use crate::error::Cause;

/// A connection that lasted this long does not count.
const SOON: Duration = Duration::from_secs(10);

/// Equal losses in a row.
pub(super) struct Losses {
    /// How many end the link; 0: none do.
    max: u32,
    count: u32,
    /// The cause that they share.
    cause: String,
    /// When the server accepted the present connection.
    accepted: Option<Instant>,
}

impl Losses {
    pub(super) const fn new(max: u32) -> Self {
        Self {
            max,
            count: 0,
            cause: String::new(),
            accepted: None,
        }
    }

    pub(super) const fn accepted(&mut self, now: Instant) {
        self.accepted = Some(now);
    }

    /// The connection is gone. `is_useful`: something was achieved on
    /// it. Tells whether it was a connection as it should be.
    pub(super) fn lost(&mut self, now: Instant, cause: &impl Cause, is_useful: bool) -> bool {
        let Some(accepted) = self.accepted.take() else {
            return false;
        };
        let gone = cause.transport() == Some(&CloseCause::AddressGone);
        let lasted = now.saturating_duration_since(accepted) >= SOON;
        if is_useful || gone || lasted {
            self.count = 0;
            return true;
        }
        let cause = format!("{cause:?}");
        if self.count == 0 || cause != self.cause {
            (self.count, self.cause) = (0, cause);
        }
        self.count += 1;
        false
    }

    /// Whether another attempt is of no use.
    pub(super) const fn are_enough(&self) -> bool {
        self.max > 0 && self.count >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DialError;

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    fn cause(text: &str) -> DialError {
        DialError::Transport(CloseCause::failed(text))
    }

    fn lose(losses: &mut Losses, seconds: u64, text: &str, is_useful: bool) -> bool {
        losses.accepted(at(0));
        losses.lost(at(seconds), &cause(text), is_useful);
        losses.are_enough()
    }

    #[test]
    fn only_equal_losses_in_a_row_count() {
        let mut losses = Losses::new(2);
        assert!(!lose(&mut losses, 1, "a", false));
        assert!(!lose(&mut losses, 1, "b", false));
        // Attempts that were not accepted change nothing.
        losses.lost(at(1), &cause("refused"), false);
        assert!(lose(&mut losses, 1, "b", false));
        for (seconds, is_useful) in [(10, false), (1, true)] {
            let mut losses = Losses::new(2);
            assert!(!lose(&mut losses, 1, "a", false));
            assert!(!lose(&mut losses, seconds, "a", is_useful));
            assert!(!lose(&mut losses, 1, "a", false));
        }
    }

    #[test]
    fn without_a_limit_there_is_always_another_attempt() {
        let mut losses = Losses::new(0);
        assert!((0..100).all(|_| !lose(&mut losses, 0, "a", false)));
    }
}
