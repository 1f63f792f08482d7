//! One message on its way to one receiver.

use alloc::sync::Arc;

use dunlin_base::{Instant, Message, QoS, StreamId};
use smallvec::SmallVec;

/// Subscription identifiers that a delivery carries; most carry none or one.
pub type Identifiers = SmallVec<[u32; 2]>;

/// A message in memory, or where to load it from.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory, shared with every other receiver.
    Held(Arc<Message>),
    /// In the store under the delivery's sequence number.
    Stored {
        /// Bytes it will cost when held.
        cost: u32,
        /// When it expires.
        expires: Option<Instant>,
    },
}

/// One message on its way to one receiver, which acknowledges it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub content: Content,
    /// Its place in the store, if it is durable for this receiver.
    pub seq: Option<u64>,
    /// QoS of this delivery: the lower of publisher's and subscription's.
    /// Exactly once is settled in two steps.
    pub qos: QoS,
    /// RETAIN flag of this delivery.
    pub retain: bool,
    /// Subscription identifiers of all matching subscriptions.
    pub identifiers: Identifiers,
    /// The `$share` filter that it came through, if any: on
    /// [`crate::Outcome::Released`] it goes back to that group.
    pub share: Option<Arc<str>>,
    /// Stream of the SUBSCRIBE.
    pub stream: StreamId,
    /// Priority: it is sent before those of a lower level that wait. All
    /// messages of a topic have the same, or their order would be lost.
    pub level: u8,
    /// It may have been sent before, by an earlier process or without success:
    /// the first transmission says so (DUP).
    pub maybe_sent: bool,
    /// Attempts to deliver it that failed.
    pub failed: u16,
    /// What its receivers have added to it, in a form of its protocol.
    pub added: Option<Arc<[u8]>>,
}

impl Delivery {
    /// Lets go of the message, if the store has it.
    pub fn shed(&mut self) {
        if let (Content::Held(message), Some(_)) = (&self.content, self.seq) {
            self.content = Content::Stored {
                cost: u32::try_from(message.cost()).unwrap_or(u32::MAX),
                expires: message.expires,
            };
        }
    }

    /// The message, if it is in memory.
    #[must_use]
    pub const fn held(&self) -> Option<&Arc<Message>> {
        match &self.content {
            Content::Held(message) => Some(message),
            Content::Stored { .. } => None,
        }
    }

    /// Whether its message has to be loaded from the store.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        matches!(self.content, Content::Stored { .. })
    }

    /// Bytes that its message takes once it is in memory.
    #[must_use]
    pub fn held_cost(&self) -> usize {
        match &self.content {
            Content::Held(message) => message.cost(),
            Content::Stored { cost, .. } => *cost as usize,
        }
    }

    /// Bytes that it takes in memory.
    pub(crate) fn cost(&self) -> usize {
        match &self.content {
            Content::Held(message) => message.cost(),
            Content::Stored { .. } => 0,
        }
    }

    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        match &self.content {
            Content::Held(message) => message.is_expired(now),
            Content::Stored { expires, .. } => expires.is_some_and(|at| at <= now),
        }
    }
}
