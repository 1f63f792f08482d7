//! The subscriptions of a session, and the streams that they belong to.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use dunlin_base::{StreamId, Text};
use dunlin_mqtt_codec::{ReasonCode, RetainHandling, SubscribeOptions};

use super::shapes::Shapes;

/// What a subscription takes in memory besides the bytes of its filter: its
/// entries in tables, and its nodes of the tree.
const FLAT_BYTES: usize = 384;

/// What the filter of a shared subscription begins with.
const SHARED: &str = "$share/";

/// How often the bytes of a filter are kept.
const COPIES: usize = 3;

/// What a subscription with this filter takes in memory, about.
const fn cost(filter: &str) -> usize {
    FLAT_BYTES + filter.len() * COPIES
}

/// One subscription of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// What SUBSCRIBE asked for.
    pub options: SubscribeOptions,
    /// Subscription identifier.
    pub identifier: Option<u32>,
    /// Stream that its messages go to.
    pub stream: StreamId,
    /// The flow that it was made on; 0: none.
    pub flow: u64,
}

impl Subscription {
    /// Whether retained messages are sent for it.
    #[must_use]
    pub const fn wants_retained(&self, is_new: bool) -> bool {
        //= mqtt5#[MQTT-3.3.1-9]
        //= mqtt5#[MQTT-3.3.1-10]
        //= mqtt5#[MQTT-3.3.1-11]
        match self.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::DoNotSend => false,
        }
    }

    /// Whether it may end before the session does.
    const fn is_apart(&self) -> bool {
        self.flow != 0 || self.stream.0 != StreamId::CONTROL.0
    }

    /// The reason code that grants it.
    #[must_use]
    pub const fn granted(&self) -> ReasonCode {
        match self.options.qos as u8 {
            0 => ReasonCode::Success,
            1 => ReasonCode::GrantedQos1,
            _ => ReasonCode::GrantedQos2,
        }
    }
}

/// Subscriptions by filter.
#[derive(Debug, Default)]
pub struct Subscriptions {
    by_filter: BTreeMap<Text, Subscription>,
    bytes: usize,
    /// How many are on streams of their own, or on flows.
    apart: usize,
    /// Kept once there are more than a message may match.
    shapes: Option<Box<Shapes>>,
}

impl Subscriptions {
    /// Subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_filter.len()
    }

    /// What they take in memory, with their places in the tree, about.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// As [`Subscriptions::bytes`], if one with this filter were added.
    #[must_use]
    pub fn bytes_with(&self, filter: &str) -> usize {
        self.bytes + cost(filter)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_filter.is_empty()
    }

    /// Whether there is one with this filter.
    #[must_use]
    pub fn contains(&self, filter: &str) -> bool {
        self.by_filter.contains_key(filter.as_bytes())
    }

    /// The one with this filter.
    #[must_use]
    pub fn get(&self, filter: &str) -> Option<&Subscription> {
        self.by_filter.get(filter.as_bytes())
    }

    /// Those after this filter, in the order of filters.
    pub fn after(&self, filter: &str) -> impl Iterator<Item = (&Text, &Subscription)> {
        let after = (Bound::Excluded(filter.as_bytes()), Bound::Unbounded);
        self.by_filter.range::<[u8], _>(after)
    }

    /// Whether one message could match more than `max` if a filter were added.
    pub fn overlaps(&mut self, filter: &str, max: usize) -> bool {
        if self.len() < max {
            self.shapes = None;
            return false;
        }
        let filters = self.by_filter.keys().map(Text::as_str);
        let shapes = || Box::new(Shapes::of(filters));
        self.shapes.get_or_insert_with(shapes).with(filter) > max
    }

    /// Adds one; one with the same filter is replaced [MQTT-3.8.4-3].
    pub fn insert(&mut self, filter: Text, subscription: Subscription) {
        if let Some(shapes) = &mut self.shapes
            && !self.by_filter.contains_key(filter.as_bytes())
        {
            shapes.add(&filter);
        }
        let bytes = cost(&filter);
        self.apart += usize::from(subscription.is_apart());
        match self.by_filter.insert(filter, subscription) {
            Some(old) => self.apart -= usize::from(old.is_apart()),
            None => self.bytes += bytes,
        }
    }

    /// Removes one; `false` if there is none [MQTT-3.10.4-1].
    pub fn remove(&mut self, filter: &str) -> bool {
        let Some(removed) = self.by_filter.remove(filter.as_bytes()) else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(cost(filter));
        self.apart -= usize::from(removed.is_apart());
        if let Some(shapes) = &mut self.shapes {
            shapes.remove(filter);
        }
        true
    }

    /// All of them, by filter.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Subscription)> {
        self.by_filter.iter()
    }

    /// Forgets at most `max` of them, shared ones first, and says which.
    pub fn take(&mut self, max: usize) -> Vec<Text> {
        self.shapes = None;
        let shared = self.after(SHARED).map(|(filter, _)| filter);
        let shared = shared.take_while(|filter| filter.starts_with(SHARED));
        let mut taken: Vec<Text> = shared.take(max).cloned().collect();
        for filter in &taken {
            self.remove(filter);
        }
        while taken.len() < max
            && let Some((filter, subscription)) = self.by_filter.pop_first()
        {
            self.bytes = self.bytes.saturating_sub(cost(&filter));
            self.apart -= usize::from(subscription.is_apart());
            taken.push(filter);
        }
        taken
    }

    /// Removes those on streams of their own, or on flows, that `which` names, and says which
    /// those were.
    pub fn end(&mut self, which: impl Fn(&Subscription) -> bool) -> Vec<Text> {
        if self.apart == 0 {
            return Vec::new();
        }
        let all = self.by_filter.iter();
        let ended: Vec<Text> = all
            .filter(|(_, it)| it.is_apart() && which(it))
            .map(|(filter, _)| filter.clone())
            .collect();
        for filter in &ended {
            self.remove(filter);
        }
        ended
    }

    /// Moves those on streams of their own, or on flows, that `which` names to a stream, and
    /// gives them.
    pub fn move_to(
        &mut self,
        stream: StreamId,
        which: impl Fn(&Subscription) -> bool,
    ) -> Vec<(Text, Subscription)> {
        if self.apart == 0 {
            return Vec::new();
        }
        let apart = &mut self.apart;
        let all = self.by_filter.iter_mut();
        let moved = all.filter(|(_, it)| it.is_apart() && which(it));
        moved
            .map(|(filter, subscription)| {
                subscription.stream = stream;
                *apart -= usize::from(!subscription.is_apart());
                (filter.clone(), *subscription)
            })
            .collect()
    }
}
