//! Retained messages still to be delivered for subscriptions of a session.
//!
//! A filter has one walk at most, however often it is subscribed. A walk goes
//! on as the session drains, so that a `#` over a million retained messages
//! needs no memory; QoS, identifier and stream are those of the subscription
//! at that moment.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use dunlin_base::Text;

/// By filter the topic that a walk goes on after.
type ByFilter = BTreeMap<Text, Option<Text>>;

/// The walks of a session; in a box, as most have none.
#[derive(Debug, Default)]
pub(crate) struct Walks(Option<Box<ByFilter>>);

impl Walks {
    /// Starts the walk of a filter, from the beginning if there is one.
    pub(crate) fn start(&mut self, filter: Text) {
        self.by_filter().insert(filter, None);
    }

    /// Takes the walk that is next.
    pub(crate) fn take(&mut self) -> Option<(Text, Option<Text>)> {
        let walk = self.0.as_mut()?.pop_first();
        self.0.take_if(|walks| walks.is_empty());
        walk
    }

    /// Puts a walk back, to go on after a topic.
    pub(crate) fn put_back(&mut self, filter: Text, after: Text) {
        self.by_filter().insert(filter, Some(after));
    }

    /// The subscription has ended.
    pub(crate) fn end(&mut self, filter: &str) {
        if let Some(walks) = &mut self.0 {
            walks.remove(filter.as_bytes());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |walks| walks.len())
    }

    fn by_filter(&mut self) -> &mut ByFilter {
        self.0.get_or_insert_default()
    }
}
