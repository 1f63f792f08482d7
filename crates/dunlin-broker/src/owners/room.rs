//! What a node has of what it may have.

/// Messages and bytes of them, each with the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) messages: (usize, usize),
    pub(crate) bytes: (usize, usize),
}

impl Room {
    /// Of a node that refuses nothing.
    pub(crate) const UNLIMITED: Self = Self {
        messages: (0, usize::MAX),
        bytes: (0, usize::MAX),
    };

    /// Whether so many copies of a message of `cost` bytes fit.
    pub(crate) fn fits(&self, copies: usize, cost: usize) -> bool {
        let ((messages, messages_max), (bytes, bytes_max)) = (self.messages, self.bytes);
        let more = copies.saturating_mul(cost);
        messages + copies <= messages_max && bytes.saturating_add(more) <= bytes_max
    }

    /// How many messages fit now, and when there are none, if further ones are about as
    /// large as those that are there.
    pub(crate) fn in_messages(&self) -> (usize, usize) {
        let ((messages, messages_max), (bytes, bytes_max)) = (self.messages, self.bytes);
        let free = messages_max.saturating_sub(messages);
        match bytes.checked_div(messages).filter(|size| *size > 0) {
            Some(size) => (
                free.min(bytes_max.saturating_sub(bytes) / size),
                messages_max.min(bytes_max / size),
            ),
            None => (free, messages_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(messages: usize, bytes: usize) -> Room {
        Room {
            messages: (messages, 100),
            bytes: (bytes, 1000),
        }
    }

    #[test]
    fn messages_that_come_are_about_as_large_as_those_that_are_there() {
        assert_eq!(of(0, 0).in_messages(), (100, 100));
        assert_eq!(of(10, 100).in_messages(), (90, 100));
        assert_eq!(of(4, 800).in_messages(), (1, 5));
        assert_eq!(of(5, 1000).in_messages(), (0, 5));
        assert_eq!(of(200, 10).in_messages(), (0, 100));
    }

    #[test]
    fn messages_fit_by_number_and_bytes() {
        assert!(of(99, 900).fits(1, 100));
        assert!(!of(99, 900).fits(1, 101));
        assert!(!of(99, 0).fits(2, 1));
        assert!(!of(100, 0).fits(1, 0));
    }
}
