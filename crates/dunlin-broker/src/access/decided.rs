//! What a server has said of topics and filters of one client.

use alloc::collections::VecDeque;

use dunlin_base::{Instant, Text};

use super::{Action, named};

/// Most answers of a client that are kept, once the packet that needed them is handled.
pub const DECIDED_MAX: usize = 64;

/// Most bytes of their topics.
pub const DECIDED_BYTES_MAX: usize = 16 * 1024;

/// What is done where the server gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// It is forbidden.
    #[default]
    Deny,
    /// It is allowed.
    Allow,
    /// As the server said last, while that is remembered; else it is forbidden.
    Last,
}

/// What the rules say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    Denied,
    /// The server decides.
    Open,
}

#[derive(Debug)]
struct Known {
    action: Action,
    topic: Text,
    allowed: bool,
    until: Instant,
    /// A packet waited for it.
    fresh: bool,
}

/// Answers about one client, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Decided(VecDeque<Known>);

impl Decided {
    fn find(&self, action: Action, topic: &str) -> Option<&Known> {
        let topic = named(action, topic);
        let mut known = self.0.iter();
        known.find(|it| it.action == action && *it.topic == *topic)
    }

    /// What was said last, however long ago.
    pub(crate) fn says(&self, action: Action, topic: &str) -> Option<bool> {
        self.find(action, topic).map(|known| known.allowed)
    }

    /// Whether an answer counts still: for the packet that waited for it in any case.
    pub(crate) fn is_valid(&self, action: Action, topic: &str, now: Instant) -> bool {
        let known = self.find(action, topic);
        known.is_some_and(|known| known.fresh || known.until > now)
    }

    pub(crate) fn set(&mut self, action: Action, topic: &str, allowed: bool, until: Instant) {
        let topic = named(action, topic);
        self.0
            .retain(|it| it.action != action || *it.topic != *topic);
        self.0.push_back(Known {
            action,
            topic: Text::from(topic),
            allowed,
            until,
            fresh: true,
        });
    }

    /// The packet that waited is handled: what is too much goes.
    pub(crate) fn settle(&mut self) {
        self.0.iter_mut().for_each(|known| known.fresh = false);
        let mut bytes = self.0.iter().map(|known| known.topic.len()).sum::<usize>();
        while self.0.len() > DECIDED_MAX || bytes > DECIDED_BYTES_MAX {
            let Some(oldest) = self.0.pop_front() else {
                return;
            };
            bytes -= oldest.topic.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    #[test]
    fn answers_end_and_are_bounded() {
        let mut decided = Decided::default();
        decided.set(Action::Subscribe, "$share/g/a/#", true, at(5));
        decided.set(Action::Publish, "a/#", false, at(5));
        // A packet that waits for many has them all.
        for number in 0..200 {
            decided.set(Action::Publish, &format!("t/{number}"), true, at(1));
        }
        assert!(decided.is_valid(Action::Publish, "t/0", at(9)));
        assert_eq!(decided.says(Action::Subscribe, "a/#"), Some(true));
        assert_eq!(decided.says(Action::Publish, "a/#"), Some(false));
        decided.settle();
        assert_eq!(decided.0.len(), DECIDED_MAX);
        assert_eq!(decided.says(Action::Subscribe, "a/#"), None);
        let last = "t/199";
        assert!(decided.is_valid(Action::Publish, last, at(0)));
        assert!(!decided.is_valid(Action::Publish, last, at(1)));
        assert_eq!(decided.says(Action::Publish, last), Some(true));
        // One that is said again is not there twice.
        decided.set(Action::Publish, last, false, at(9));
        assert_eq!(decided.0.len(), DECIDED_MAX);
        assert_eq!(decided.says(Action::Publish, last), Some(false));
        let long = "x".repeat(DECIDED_BYTES_MAX + 1);
        decided.set(Action::Publish, &long, true, at(9));
        assert!(decided.is_valid(Action::Publish, &long, at(99)));
        decided.settle();
        assert_eq!(decided.0.len(), 0);
    }
}
