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

/// Topics looked at for one page: of a million, with a search for each, in about half a
/// millisecond.
const STEPS_MAX: usize = 1024;

/// Changes of one topic's retained message.
#[derive(Debug, Default)]
struct TopicChanges {
    /// Those that wait for the store, in their order.
    waiting: Vec<Change>,
    /// Place of the one in force.
    last: u64,
    /// Place of the last that did not wait: nothing before it comes back.
    fixed: u64,
}

/// A change that waits for the store.
#[derive(Debug)]
struct Change {
    order: u64,
    /// What is retained if it is off.
    previous: Option<Arc<Message>>,
    /// The store may have an earlier one that it has refused.
    is_unsure: bool,
}

/// What follows when a change was stored, or is off.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Nothing,
    /// What is in force is written once more.
    Again,
    /// This is in force again, and written if the store may have another one.
    Back {
        previous: Option<Arc<Message>>,
        writes: bool,
    },
}

/// The index of retained messages.
#[derive(Debug)]
pub(crate) struct Retained {
    tree: RetainedTree<Arc<Message>>,
    /// Topics with a retained message on its way to the store.
    changes: HashMap<Text, TopicChanges>,
    last_change: u64,
}

impl TopicChanges {
    fn end(&mut self, at: usize, stored: bool, is_unsure: bool) -> Ended {
        let Change {
            order,
            previous,
            is_unsure: before,
        } = self.waiting.remove(at);
        let is_unsure = is_unsure || before;
        match (stored, order == self.last) {
            (true, true) => Ended::Nothing,
            (true, false) => Ended::Again,
            (false, true) => {
                // An earlier one that is in force again may be off as well.
                let earlier = self.waiting.get(at.wrapping_sub(1));
                let earlier = earlier.map_or(0, |it| it.order);
                self.last = earlier.max(self.fixed);
                Ended::Back {
                    previous,
                    writes: is_unsure,
                }
            }
            (false, false) => {
                // The next one does not bring it back.
                if let Some(later) = self.waiting.get_mut(at)
                    && !(order..later.order).contains(&self.fixed)
                {
                    later.previous = previous;
                    later.is_unsure |= is_unsure;
                }
                Ended::Nothing
            }
        }
    }
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
            let previous = self.tree.get(topic).map(Arc::clone);
            let changes = self.changes.entry(topic.clone()).or_default();
            changes.waiting.push(Change {
                order,
                previous,
                is_unsure: false,
            });
            changes.last = order;
        } else if let Some(changes) = self.changes.get_mut(topic.as_bytes()) {
            (changes.last, changes.fixed) = (order, order);
        }
        order
    }

    /// A change was stored, or is off: then the store may have it all the same if
    /// `is_unsure`. `None` if it was not begun.
    pub(crate) fn end_change(
        &mut self,
        topic: &Text,
        order: u64,
        stored: bool,
        is_unsure: bool,
    ) -> Option<Ended> {
        let changes = self.changes.get_mut(topic.as_bytes())?;
        let at = changes.waiting.iter().position(|it| it.order == order)?;
        let ended = changes.end(at, stored, is_unsure);
        if changes.waiting.is_empty() {
            self.changes.remove(topic.as_bytes());
        }
        Some(ended)
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
