//! What `pub`, `sub`, `rr`, `send` and `receive` say of a connection that is lost and
//! comes back.

use core::error::Error;

use crate::causes::sentence;

/// Losses of the connection, and failed attempts to have it again: each cause is said
/// once, however many attempts fail for it.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The last one.
    last: String,
    /// The one that was said since there was a connection.
    said: String,
}

impl Losses {
    pub(super) fn lost(&mut self, cause: &(dyn Error + 'static)) {
        self.last = sentence(cause);
    }

    /// What is to be said before another attempt.
    pub(super) fn news(&mut self) -> Option<&str> {
        if self.last == self.said {
            return None;
        }
        self.said.clone_from(&self.last);
        Some(&self.said)
    }

    /// There is a connection; whether the one before was said to be lost.
    pub(super) fn over(&mut self) -> bool {
        self.last.clear();
        !core::mem::take(&mut self.said).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_cause_is_said_once_until_there_is_a_connection() {
        let (reset, refused) = (io::Error::other("reset"), io::Error::other("refused"));
        let mut losses = Losses::default();
        assert!(!losses.over());
        losses.lost(&reset);
        assert_eq!(losses.news(), Some("reset"));
        losses.lost(&refused);
        assert_eq!(losses.news(), Some("refused"));
        losses.lost(&refused);
        assert_eq!(losses.news(), None);
        assert!(losses.over());
        assert!(!losses.over());
        losses.lost(&refused);
        assert_eq!(losses.news(), Some("refused"));
    }
}
