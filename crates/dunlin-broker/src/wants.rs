//! What consumers and subscriptions want of the messages of a node.

use alloc::sync::Arc;
use core::num::NonZeroU64;

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
    /// Whose messages it does not want.
    #[cfg(feature = "amqp")]
    not_of: Option<NonZeroU64>,
    /// The form that is kept.
    kept: Arc<[u8]>,
}

/// Filters from an encoded map of them.
#[cfg(feature = "amqp")]
fn decode(bytes: &[u8]) -> Option<Filters> {
    let Ok(Value::Map(map)) = Value::decode(bytes) else {
        return None;
    };
    Filters::of(&map).ok().map(|(filters, _)| filters)
}

/// What filters take for a byte of their form that is kept.
const WANTS_FACTOR: usize = 8;

impl Wants {
    /// From the form that is kept, for a client that is `own` as a sender; `None`:
    /// everything.
    #[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
    pub(crate) fn parse(kept: &[u8], own: Option<NonZeroU64>) -> Option<Self> {
        #[cfg(feature = "amqp")]
        {
            let filters = decode(kept)?;
            let not_of = own.filter(|_| filters.no_local);
            let wants = Self {
                filters: Arc::new(filters),
                not_of,
                kept: kept.into(),
            };
            let wants_all = !wants.filters.needs_subject() && not_of.is_none();
            (!wants_all).then_some(wants)
        }
        #[cfg(not(feature = "amqp"))]
        None
    }

    /// The form that is kept, and the client as a sender, if its own messages are not
    /// wanted: what [`Wants::parse`] reads it from.
    pub(crate) fn parts(&self) -> (&[u8], Option<NonZeroU64>) {
        #[cfg(feature = "amqp")]
        let not_of = self.not_of;
        #[cfg(not(feature = "amqp"))]
        let not_of = None;
        (&self.kept, not_of)
    }

    /// Whether a message is wanted, and the steps that it took to know.
    #[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
    pub(crate) fn look(&self, message: &Message, now: Instant) -> (bool, usize) {
        #[cfg(feature = "amqp")]
        return match self.is_local(message) {
            true => (false, 0),
            false => self.filters.look(message, now),
        };
        #[cfg(not(feature = "amqp"))]
        (true, 0)
    }

    /// Whether its client has sent a message itself and does not want it.
    #[cfg(feature = "amqp")]
    pub(crate) fn is_local(&self, message: &Message) -> bool {
        let sender = message.extra.as_ref().and_then(|extra| extra.sender);
        self.not_of.is_some() && self.not_of == sender
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        WANTS_FACTOR * self.kept.len()
    }
}
