//! Retained messages still to be delivered for subscriptions of a session.
//!
//! A filter has one walk at most, however often it is subscribed. A walk goes
//! on as the session drains, so that a `#` over a million retained messages
//! needs no memory; QoS, identifier and stream are those of the subscription
//! at that moment.

use alloc::collections::BTreeMap;

use dunlin_base::Text;

/// The walks of a session, by filter, each with the topic that it goes on
/// after.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    by_filter: BTreeMap<Text, Option<Text>>,
}

impl Walks {
    /// Starts the walk of a filter, from the beginning if there is one.
    pub(crate) fn start(&mut self, filter: Text) {
        self.by_filter.insert(filter, None);
    }

    /// Takes the walk that is next.
    pub(crate) fn take(&mut self) -> Option<(Text, Option<Text>)> {
        self.by_filter.pop_first()
    }

    /// Puts a walk back, to go on after a topic.
    pub(crate) fn put_back(&mut self, filter: Text, after: Text) {
        self.by_filter.insert(filter, Some(after));
    }

    /// The subscription has ended.
    pub(crate) fn end(&mut self, filter: &str) {
        self.by_filter.remove(filter.as_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.by_filter.len()
    }
}
