//! When rows of a table with keys are copied straight into it, which costs half of what the
//! way over a temporary table does, and fails where one of the keys is there. Talks to no
//! database.

/// Batches that go over the temporary table after one that failed; doubled with each that
/// fails after them.
const BATCHES_MIN: u32 = 16;
/// Most of them: where keys come again and again, one batch of so many is written in vain.
const BATCHES_MAX: u32 = 4096;

/// Which way the next batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Direct {
    /// Batches that go the other way before.
    left: u32,
    /// How many do after the next failure.
    next: u32,
}

impl Direct {
    pub(super) const fn new() -> Self {
        Self {
            left: 0,
            next: BATCHES_MIN,
        }
    }

    /// Whether the next batch goes straight into the table.
    pub(super) const fn take(&mut self) -> bool {
        let now = self.left == 0;
        self.left = self.left.saturating_sub(1);
        now
    }

    /// It was stored.
    pub(super) const fn succeeded(&mut self) {
        self.next = BATCHES_MIN;
    }

    /// The table did not take it.
    pub(super) fn failed(&mut self) {
        self.left = self.next;
        self.next = (self.next * 2).min(BATCHES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of the next `count` that go straight into the table.
    fn tries(direct: &mut Direct, count: u32, mut stored: impl FnMut(u32) -> bool) -> u32 {
        let mut tries = 0;
        for batch in 0..count {
            if direct.take() {
                tries += 1;
                match stored(batch) {
                    true => direct.succeeded(),
                    false => direct.failed(),
                }
            }
        }
        tries
    }

    #[test]
    fn what_fails_is_tried_ever_less() {
        let mut direct = Direct::new();
        assert_eq!(tries(&mut direct, 100, |_| true), 100, "no key is there");
        assert_eq!(tries(&mut direct, 17, |_| false), 1, "one, and 16 after it");
        assert_eq!(tries(&mut direct, 33, |_| false), 1);
        let many = 100 * BATCHES_MAX;
        assert!(tries(&mut direct, many, |_| false) <= 100 + 8);
    }

    #[test]
    fn after_a_conflict_the_short_way_comes_back() {
        let mut direct = Direct::new();
        // What a sink that was killed had stored, and did not acknowledge.
        let again = tries(&mut direct, 1_000, |batch| batch > 3);
        assert_eq!(again, 1_000 - BATCHES_MIN);
    }
}
