//! Messages that a node keeps back until their time.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::num::NonZeroU64;

use dunlin_base::{Instant, Message};
use dunlin_queue::Delivery;

/// Messages by the time of their delivery; those of one time in their order.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    all: BTreeMap<(Instant, u64), (Delivery, Option<NonZeroU64>)>,
    /// Messages and bytes by the number of their sender, those that are being stored
    /// included; not of those that were there before a restart.
    of: BTreeMap<NonZeroU64, (usize, usize)>,
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

    /// A message of a sender is on its way here.
    pub(crate) fn begin(&mut self, delivery: &Delivery) {
        if let Some(sender) = self.sender(delivery) {
            let (messages, bytes) = self.of.entry(sender).or_default();
            *messages += 1;
            *bytes += delivery.held_cost();
        }
    }

    /// It does not come after all, or has left.
    pub(crate) fn end(&mut self, delivery: &Delivery, sender: Option<NonZeroU64>) {
        let Some(sender) = sender.or_else(|| self.sender(delivery)) else {
            return;
        };
        let Some((messages, bytes)) = self.of.get_mut(&sender) else {
            return;
        };
        *messages = messages.saturating_sub(1);
        *bytes = bytes.saturating_sub(delivery.held_cost());
        if *messages == 0 {
            self.of.remove(&sender);
        }
    }

    /// What of its messages and bytes a sender has here.
    pub(crate) fn of(&self, sender: NonZeroU64) -> (usize, usize) {
        self.of.get(&sender).copied().unwrap_or_default()
    }

    /// Who sent a message that is published when its time comes.
    fn sender(&self, delivery: &Delivery) -> Option<NonZeroU64> {
        let message = delivery.held().filter(|_| self.publishes)?;
        message.extra.as_ref()?.sender
    }

    /// Keeps a message back; of one that is in the store not more than that.
    pub(crate) fn insert(&mut self, until: Instant, mut delivery: Delivery) {
        let sender = self.sender(&delivery);
        delivery.shed();
        self.bytes += cost(&delivery);
        self.all_bytes += delivery.held_cost();
        self.last += 1;
        self.all.insert((until, self.last), (delivery, sender));
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
        let (_, (delivery, sender)) = self.all.pop_first()?;
        if sender.is_some() {
            self.end(&delivery, sender);
        }
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
        self.all.values().filter_map(|(it, _)| it.held())
    }
}

/// Bytes that a delivery takes in memory.
fn cost(delivery: &Delivery) -> usize {
    delivery.held().map_or(0, |message| message.cost())
}
