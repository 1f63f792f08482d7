//! The subscription tree, and what the last topic matched: a device sends runs
//! of messages on one topic, which are matched once.

use alloc::string::String;
use alloc::vec::Vec;

use dunlin_base::{ShardId, StreamId};
use dunlin_router::{Match, SubscriptionTree};

/// Longest topic that is kept.
const TOPIC_BYTES_MAX: usize = 256;

/// Most matches that are kept.
const MATCHES_MAX: usize = 8;

/// Who is behind a subscription in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subscriber {
    /// A session of this shard.
    Session(u32),
    /// Some session of another shard.
    Shard(ShardId),
}

/// What the tree keeps with a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscribed {
    pub(crate) options: u8,
    /// The rules in force do not allow all that it matches: each message is
    /// checked.
    pub(crate) restricted: bool,
    /// Subscription identifier; 0: none.
    pub(crate) identifier: u32,
    pub(crate) stream: StreamId,
}

/// Subscriptions of this shard's sessions and the interest of other shards.
#[derive(Debug)]
pub(super) struct Subscribers {
    tree: SubscriptionTree<Subscriber, Subscribed>,
    /// The last topic.
    topic: String,
    kept: Kept,
    matches: Vec<(Subscriber, Subscribed)>,
}

/// What is known of the last topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    /// It came once.
    Topic,
    /// `matches` is all that it matches.
    All,
    /// It matches shared subscriptions, which take turns, or too much.
    Unfit,
}

impl Subscribers {
    pub(super) fn new(hash_key: u64) -> Self {
        Self {
            tree: SubscriptionTree::new(hash_key),
            topic: String::new(),
            kept: Kept::Nothing,
            matches: Vec::new(),
        }
    }

    pub(super) const fn tree(&self) -> &SubscriptionTree<Subscriber, Subscribed> {
        &self.tree
    }

    /// The tree, to change it.
    pub(super) fn tree_mut(&mut self) -> &mut SubscriptionTree<Subscriber, Subscribed> {
        self.kept = Kept::Nothing;
        &mut self.tree
    }

    /// As [`SubscriptionTree::matches`]. What a topic matches is kept when it
    /// comes for the second time in a row.
    pub(super) fn matches(
        &mut self,
        topic: &str,
        mut visit: impl FnMut(Match<'_, Subscriber, Subscribed>),
    ) {
        let again = self.kept != Kept::Nothing && self.topic == topic;
        match self.kept {
            Kept::All if again => {
                for (key, value) in &self.matches {
                    visit(Match::Subscriber { key: *key, value });
                }
            }
            Kept::Topic if again => self.keep(topic, visit),
            _ => {
                if !again {
                    self.note(topic);
                }
                self.tree.matches(topic, visit);
            }
        }
    }

    fn note(&mut self, topic: &str) {
        self.kept = Kept::Nothing;
        if topic.len() <= TOPIC_BYTES_MAX {
            self.topic.clear();
            self.topic.push_str(topic);
            self.kept = Kept::Topic;
        }
    }

    fn keep(&mut self, topic: &str, mut visit: impl FnMut(Match<'_, Subscriber, Subscribed>)) {
        let matches = &mut self.matches;
        matches.clear();
        let mut is_all = true;
        self.tree.matches(topic, |found| {
            match &found {
                Match::Subscriber { key, value } if matches.len() < MATCHES_MAX => {
                    matches.push((*key, **value));
                }
                _ => is_all = false,
            }
            visit(found);
        });
        self.kept = if is_all { Kept::All } else { Kept::Unfit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed(options: u8) -> Subscribed {
        Subscribed {
            options,
            restricted: false,
            identifier: 0,
            stream: StreamId::CONTROL,
        }
    }

    /// Options of plain matches, and the number of shared groups.
    fn matches(of: &mut Subscribers, topic: &str) -> (Vec<u8>, usize) {
        let (mut plain, mut shared) = (Vec::new(), 0);
        of.matches(topic, |found| match found {
            Match::Subscriber { value, .. } => plain.push(value.options),
            Match::Shared(_) => shared += 1,
        });
        (plain, shared)
    }

    #[test]
    fn a_run_of_one_topic_matches_as_each_by_itself() {
        let mut of = Subscribers::new(7);
        let key = Subscriber::Session;
        of.tree_mut().insert("a/+", key(1), subscribed(1));
        for _ in 0..4 {
            assert_eq!(matches(&mut of, "a/b"), (alloc::vec![1], 0));
        }
        assert_eq!(of.kept, Kept::All);
        assert_eq!(matches(&mut of, "b"), (Vec::new(), 0));
        for _ in 0..3 {
            assert_eq!(matches(&mut of, "a/b"), (alloc::vec![1], 0));
        }
    }

    #[test]
    fn a_change_of_the_tree_counts_at_once() {
        let mut of = Subscribers::new(7);
        let key = Subscriber::Session;
        of.tree_mut().insert("a", key(1), subscribed(1));
        (0..3).for_each(|_| _ = matches(&mut of, "a"));
        of.tree_mut().insert("#", key(2), subscribed(2));
        for _ in 0..3 {
            let (mut plain, _) = matches(&mut of, "a");
            plain.sort_unstable();
            assert_eq!(plain, [1, 2]);
        }
        of.tree_mut().remove("a", key(1));
        assert_eq!(matches(&mut of, "a"), (alloc::vec![2], 0));
    }

    #[test]
    fn shared_groups_and_crowds_are_not_kept() {
        let mut of = Subscribers::new(7);
        let key = Subscriber::Session;
        of.tree_mut()
            .insert_shared("g", "a", key(1), subscribed(0), 1);
        for _ in 0..4 {
            assert_eq!(matches(&mut of, "a"), (Vec::new(), 1));
        }
        assert_eq!(of.kept, Kept::Unfit);
        for at in 0..=MATCHES_MAX as u32 {
            of.tree_mut().insert("b", key(at), subscribed(1));
        }
        for _ in 0..4 {
            assert_eq!(matches(&mut of, "b").0.len(), MATCHES_MAX + 1);
        }
        assert_eq!(of.kept, Kept::Unfit);
        let long = "x".repeat(TOPIC_BYTES_MAX + 1);
        (0..3).for_each(|_| _ = matches(&mut of, &long));
        assert_eq!(of.kept, Kept::Nothing);
    }
}
