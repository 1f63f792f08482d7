//! Retained messages of a shard, and the order of their changes while the store
//! is asked.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use dunlin_base::{Message, Text};
use dunlin_router::{Page, RetainedTree};
use hashbrown::HashMap;

/// Retained messages taken from the index at a time.
const PAGE_MAX: usize = 128;

/// Bytes after which no more are taken at a time: well below what a QoS 0
/// message needs to be dropped for a slow client.
const PAGE_BYTES: usize = 64 * 1024;

/// Topics looked at for one page.
const STEPS_MAX: usize = 4096;

/// Changes of one topic's retained message.
#[derive(Debug, Default)]
struct TopicChanges {
    /// How many wait for the store.
    waiting: usize,
    /// Place of the last.
    last: u64,
}

/// The index of retained messages.
#[derive(Debug)]
pub(crate) struct Retained {
    tree: RetainedTree<Arc<Message>>,
    /// Topics with a retained message on its way to the store.
    changes: HashMap<Text, TopicChanges>,
    last_change: u64,
}

impl Retained {
    pub(super) fn new() -> Self {
        Self {
            tree: RetainedTree::new(),
            changes: HashMap::new(),
            last_change: 0,
        }
    }

    /// Puts a retained message into the index, or takes one with an empty
    /// payload out.
    pub(crate) fn set(&mut self, message: &Arc<Message>) {
        if message.payload.is_empty() {
            self.tree.remove(&message.topic);
        } else {
            //= mqtt5#[MQTT-3.3.1-5]
            self.tree.set(&message.topic, Arc::clone(message));
        }
    }

    /// The retained message of a topic.
    pub(crate) fn get(&self, topic: &str) -> Option<&Arc<Message>> {
        self.tree.get(topic)
    }

    /// Topics with a retained message, in order.
    pub(super) fn topics(&self) -> impl Iterator<Item = &str> {
        self.tree.iter_after(None).map(|(topic, _)| topic)
    }

    /// Retained messages.
    pub(crate) fn len(&self) -> usize {
        self.tree.len()
    }

    /// Gives a change of a retained message its place in the order of its
    /// topic. With `waits`, [`Retained::end_change`] follows.
    pub(crate) fn begin_change(&mut self, topic: &Text, waits: bool) -> u64 {
        self.last_change += 1;
        let order = self.last_change;
        if waits {
            let changes = self.changes.entry(topic.clone()).or_default();
            changes.waiting += 1;
            changes.last = order;
        } else if let Some(changes) = self.changes.get_mut(topic.as_bytes()) {
            changes.last = order;
        }
        order
    }

    /// A change was stored or refused; whether it is the last of its topic. `None` if it
    /// was not begun.
    pub(crate) fn end_change(&mut self, topic: &Text, order: u64) -> Option<bool> {
        let changes = self.changes.get_mut(topic.as_bytes())?;
        let is_last = order == changes.last;
        changes.waiting -= 1;
        if changes.waiting == 0 {
            self.changes.remove(topic.as_bytes());
        }
        Some(is_last)
    }

    /// Topics whose retained message is on its way to the store.
    pub(crate) fn changing(&self) -> usize {
        self.changes.len()
    }

    /// One page of those that `is_here` accepts, of all topics, from `after` on, and
    /// where the next page begins.
    pub(crate) fn page_of_all(
        &self,
        after: Option<&str>,
        is_here: impl Fn(&str) -> bool,
    ) -> (Vec<Arc<Message>>, Option<Text>) {
        let (mut page, mut last, mut bytes) = (Vec::new(), None, 0);
        for (steps, (topic, message)) in self.tree.iter_after(after).enumerate() {
            if steps >= STEPS_MAX || page.len() >= PAGE_MAX || bytes >= PAGE_BYTES {
                return (page, last);
            }
            last = Some(Text::from(topic));
            if is_here(topic) {
                bytes += message.cost();
                page.push(Arc::clone(message));
            }
        }
        (page, None)
    }

    /// One page of at most `max` retained messages that match a filter, from `after`
    /// on, and where the next page begins.
    pub(crate) fn page(
        &self,
        filter: &str,
        after: Option<&str>,
        max: usize,
    ) -> (Vec<Arc<Message>>, Option<Text>) {
        let mut page: Vec<Arc<Message>> = Vec::new();
        let mut bytes = 0;
        let end = self
            .tree
            .visit_steps(filter, after, STEPS_MAX, |_, message| {
                page.push(Arc::clone(message));
                bytes += message.cost();
                if page.len() < max.min(PAGE_MAX) && bytes < PAGE_BYTES {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
        let next = match end {
            Page::Stopped => page.last().map(|message| message.topic.clone()),
            Page::Paused { after } => Some(Text::from(after)),
            _ => None,
        };
        (page, next)
    }
}
