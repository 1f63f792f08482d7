//! Tokens that were found to be signed, so that a client which comes back with its token
//! costs no second check of the same signature. Knows no key and nothing of what a token
//! says: that is read, and compared with the time, whenever it comes.

use std::collections::HashSet;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// Tokens that are known; with one more, the half of them goes that came, or came back,
/// longest ago.
pub const VERIFIED_MAX: usize = 200_000;

/// The whole text of a token, its signature included, or of a key set, as SHA-256.
pub(super) type Fingerprint = [u8; SHA256_OUTPUT_LEN];

/// The fingerprint of a token, or of a key set. It is never `None`, as SHA-256 has this
/// length; if it were, what it is of would be like nothing that is known.
pub(super) fn fingerprint(text: &[u8]) -> Option<Fingerprint> {
    digest(&SHA256, text).as_ref().try_into().ok()
}

/// Tokens that one of the keys in force has signed.
pub(super) struct Verified {
    /// Most in one half.
    half: usize,
    new: HashSet<Fingerprint>,
    old: HashSet<Fingerprint>,
}

impl Default for Verified {
    fn default() -> Self {
        Self::new(VERIFIED_MAX)
    }
}

impl Verified {
    fn new(max: usize) -> Self {
        Self {
            half: max / 2,
            new: HashSet::new(),
            old: HashSet::new(),
        }
    }

    /// Whether this token is one of them, which keeps it one.
    pub(super) fn has(&mut self, token: &Fingerprint) -> bool {
        if self.new.contains(token) {
            return true;
        }
        let is_old = self.old.remove(token);
        if is_old {
            self.insert(*token);
        }
        is_old
    }

    /// A token is signed by a key in force.
    pub(super) fn insert(&mut self, token: Fingerprint) {
        if self.new.len() >= self.half {
            self.old = core::mem::take(&mut self.new);
        }
        self.new.insert(token);
    }

    /// Other keys are in force.
    pub(super) fn clear(&mut self) {
        self.new = HashSet::new();
        self.old = HashSet::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: usize) -> Fingerprint {
        fingerprint(number.to_string().as_bytes()).expect("of this length")
    }

    #[test]
    fn no_more_are_known_than_the_limit_and_those_that_come_back_stay() {
        const MAX: usize = 100;
        let mut verified = Verified::new(MAX);
        for at in 0..10 * MAX {
            verified.insert(number(at));
            assert!(verified.new.len() + verified.old.len() <= MAX);
            assert!(verified.has(&number(at)) && verified.has(&number(0)));
        }
        let last = 10 * MAX - 1;
        assert!(verified.has(&number(last + 1 - MAX / 2)));
        assert!(!verified.has(&number(1)) && !verified.has(&number(last - MAX)));
        assert!(!verified.has(&number(last + 1)), "it never came");
        verified.clear();
        assert!(!verified.has(&number(0)) && !verified.has(&number(last)));
    }
}
