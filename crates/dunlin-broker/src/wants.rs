//! What consumers and subscriptions want of the messages of a node.

#[cfg(feature = "amqp")]
use alloc::sync::Arc;

#[cfg(feature = "amqp")]
use dunlin_amqp::codec::Value;
#[cfg(feature = "amqp")]
use dunlin_amqp::filter::Filters;
use dunlin_base::{Instant, Message};

/// What a consumer or a subscription wants of the messages of a node, in the terms of
/// its protocol.
#[derive(Clone, Debug)]
pub(crate) struct Wants {
    #[cfg(feature = "amqp")]
    pub(crate) filters: Arc<Filters>,
    /// In the form that is kept.
    len: usize,
}

/// Filters from an encoded map of them.
#[cfg(feature = "amqp")]
fn decode(bytes: &[u8]) -> Option<Filters> {
    let Ok(Value::Map(map)) = Value::decode(bytes) else {
        return None;
    };
    let (filters, _) = Filters::of(&map).ok()?;
    Some(filters).filter(Filters::needs_subject)
}

/// What filters take for a byte of their form that is kept.
const WANTS_FACTOR: usize = 8;

impl Wants {
    /// From the form that is kept; `None`: everything.
    #[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
    pub(crate) fn parse(kept: &[u8]) -> Option<Self> {
        #[cfg(feature = "amqp")]
        return Some(Self {
            filters: Arc::new(decode(kept)?),
            len: kept.len(),
        });
        #[cfg(not(feature = "amqp"))]
        None
    }

    /// Whether a message is wanted, and the steps that it took to know.
    #[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
    pub(crate) fn look(&self, message: &Message, now: Instant) -> (bool, usize) {
        #[cfg(feature = "amqp")]
        return self.filters.look(message, now);
        #[cfg(not(feature = "amqp"))]
        (true, 0)
    }

    /// Bytes that it takes, about.
    pub(crate) const fn bytes(&self) -> usize {
        WANTS_FACTOR * self.len
    }
}
