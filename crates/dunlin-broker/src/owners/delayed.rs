//! Messages that a node keeps back until their time.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use dunlin_base::{Instant, Message};
use dunlin_queue::Delivery;

/// Messages by the time of their delivery; those of one time in their order.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    all: BTreeMap<(Instant, u64), Delivery>,
    last: u64,
    bytes: usize,
    all_bytes: usize,
    /// They are published when their time comes, and not queued.
    pub(crate) publishes: bool,
}

impl Delayed {
    pub(crate) fn new(publishes: bool) -> Self {
        Self {
            publishes,
            ..Self::default()
        }
    }

    /// Keeps a message back; of one that is in the store not more than that.
    pub(crate) fn insert(&mut self, until: Instant, mut delivery: Delivery) {
        delivery.shed();
        self.bytes += cost(&delivery);
        self.all_bytes += delivery.held_cost();
        self.last += 1;
        self.all.insert((until, self.last), delivery);
    }

    /// The time of the first one.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.all.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes the first one, if its time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Delivery> {
        self.next().filter(|until| *until <= now)?;
        self.take_first()
    }

    /// Takes the first one.
    pub(crate) fn take_first(&mut self) -> Option<Delivery> {
        let (_, delivery) = self.all.pop_first()?;
        self.bytes = self.bytes.saturating_sub(cost(&delivery));
        self.all_bytes = self.all_bytes.saturating_sub(delivery.held_cost());
        Some(delivery)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Of messages in memory.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of all, also of those that are only in the store.
    pub(crate) const fn all_bytes(&self) -> usize {
        self.all_bytes
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.all.values().filter_map(Delivery::held)
    }
}

/// Bytes that a delivery takes in memory.
fn cost(delivery: &Delivery) -> usize {
    delivery.held().map_or(0, |message| message.cost())
}
