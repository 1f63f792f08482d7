//! Learns how many messages the broker sends before it waits for acknowledgements: a batch
//! that holds the last of them is not kept for others, which cannot come. The broker does
//! not say its limit, which may be lower than the Receive Maximum of the sink. Reads no
//! clock.

/// Fewer messages than these that are held do not show a limit: a source may be slow.
const MESSAGES_MIN: u64 = 8;

/// Batches that a limit ends before one waits again, and shows whether it is one still: what
/// looked like a limit may have been devices that publish together.
const BATCHES_MAX: u32 = 256;

/// What is known of the limit of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Receive Maximum of the sink: the broker's own limit is no higher.
    receive_maximum: u64,
    /// How many were held when a batch last became old and nothing more came.
    stalled: u64,
    /// The same twice in a row: the limit.
    limit: Option<u64>,
    /// Batches that the limit has ended.
    ended: u32,
}

impl Window {
    pub(crate) const fn new(receive_maximum: u16) -> Self {
        Self {
            receive_maximum: receive_maximum as u64,
            stalled: 0,
            limit: None,
            ended: 0,
        }
    }

    /// So many are held, now that another has come.
    pub(crate) fn took(&mut self, held: u64) {
        if self.limit.is_some_and(|limit| held > limit) {
            (self.stalled, self.limit) = (0, None);
        }
    }

    /// A batch is old. `quiet`: nothing has come for long.
    pub(crate) fn is_old(&mut self, held: u64, quiet: bool) {
        if !quiet || held < MESSAGES_MIN {
            self.stalled = 0;
        } else if held == self.stalled {
            (self.limit, self.ended) = (Some(held), 0);
        } else {
            self.stalled = held;
        }
    }

    /// A batch ended, since nothing could come.
    pub(crate) fn ended(&mut self) {
        self.ended = self.ended.saturating_add(1);
        if self.ended >= BATCHES_MAX {
            // One that becomes old at the same number confirms it.
            self.limit = None;
        }
    }

    /// Whether nothing can come before an acknowledgement, as far as is known.
    pub(crate) fn is_full(&self, held: u64) -> bool {
        self.limit == Some(held) || held >= self.receive_maximum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stalls_at_one_number_are_a_limit() {
        let mut window = Window::new(2048);
        window.is_old(1024, true);
        assert!(!window.is_full(1024), "once may be the end of a burst");
        window.is_old(1024, true);
        assert!(window.is_full(1024));
        assert!(!window.is_full(1023), "another may come");
        window.took(1024);
        assert!(window.is_full(1024));
        window.took(1025);
        assert!(!window.is_full(1024), "it is no limit");
        assert!(
            window.is_full(2048),
            "Receive Maximum is one from the beginning"
        );
        window.is_old(1024, true);
        assert!(!window.is_full(1024), "and is learned from the beginning");
    }

    #[test]
    fn a_limit_is_found_again_or_forgotten_after_some_batches() {
        let learned = || {
            let mut window = Window::new(2048);
            window.is_old(8, true);
            window.is_old(8, true);
            window
        };
        let mut window = learned();
        for _ in 1..BATCHES_MAX {
            window.ended();
            assert!(window.is_full(8));
        }
        window.ended();
        assert!(!window.is_full(8), "the next one waits");
        let mut other = window;
        window.is_old(8, true);
        assert!(window.is_full(8), "one batch confirms it");
        window.ended();
        assert!(window.is_full(8), "for as many batches");
        other.is_old(30, true);
        other.is_old(8, true);
        assert!(!other.is_full(8), "it was none");
    }

    #[test]
    fn a_source_without_a_limit_has_none() {
        let mut window = Window::new(2048);
        for held in [50, 51, 50, 52] {
            window.is_old(held, true);
            assert!(!window.is_full(held), "not the same twice in a row");
        }
        for _ in 0..3 {
            window.is_old(50, false);
            assert!(!window.is_full(50), "more was coming");
        }
        for _ in 0..3 {
            window.is_old(MESSAGES_MIN - 1, true);
            assert!(!window.is_full(MESSAGES_MIN - 1), "too few");
        }
    }
}
