//! What is known of a home that was gone and is back, and that it has not said again: what
//! its sessions want, and retained messages of its topics.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};

use super::Routing;
use crate::io::InterestChange;

/// Of homes that are saying what they have.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<ShardId, Suspect>);

#[derive(Debug, Default)]
struct Suspect {
    /// Plain ones and those of shared subscriptions.
    filters: BTreeSet<Text>,
    topics: BTreeSet<Text>,
}

impl Suspects {
    /// A home has said something of this.
    pub(super) fn clear_interest(&mut self, from: ShardId, change: &InterestChange) {
        if let Some(suspect) = self.0.get_mut(&from) {
            let (InterestChange::Add(filter)
            | InterestChange::Remove(filter)
            | InterestChange::Share(filter, _)
            | InterestChange::Queue(filter, _)) = change;
            suspect.filters.remove(filter.as_bytes());
        }
    }
}

impl Routing {
    /// A home is there again, or for the first time; what it does not say of what is
    /// known has ended. `is_its`: it owns the retained message of a topic.
    pub(crate) fn suspect(&mut self, home: ShardId, is_its: impl Fn(&str) -> bool) {
        let topics = self.retained.topics().filter(|topic| is_its(topic));
        let suspect = Suspect {
            filters: self.others.get(&home).cloned().unwrap_or_default(),
            topics: topics.map(Text::from).collect(),
        };
        self.suspects.0.insert(home, suspect);
    }

    /// Another shard says what the retained message of a topic is.
    pub(crate) fn handle_retained(&mut self, from: ShardId, message: &Arc<Message>) {
        self.retained.set(message);
        if let Some(suspect) = self.suspects.0.get_mut(&from) {
            suspect.topics.remove(message.topic.as_bytes());
        }
    }

    /// A home has said everything: forgets what it has not said again. The `$share`
    /// filters of that come out.
    pub(crate) fn forget_suspect(&mut self, home: ShardId) -> Vec<Text> {
        let Suspect { filters, topics } = self.suspects.0.remove(&home).unwrap_or_default();
        let mut shares = Vec::new();
        for filter in filters {
            if filter.starts_with("$share/") {
                self.handle_interest_of_edge(home, &InterestChange::Share(filter.clone(), 0));
                shares.push(filter);
            } else {
                self.handle_interest_of_edge(home, &InterestChange::Remove(filter));
            }
        }
        for topic in topics {
            let removed = Message {
                topic,
                ..Message::default()
            };
            self.retained.set(&Arc::new(removed));
        }
        shares
    }
}
