//! The neutral application message: what MQTT and AMQP have in common, and
//! what the router, the store and other shards see.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use bytes::Bytes;

use crate::{Instant, Text};

/// Quality of service of a delivery (MQTT 5.0 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// QoS 0: at most once.
    #[default]
    AtMostOnce = 0,
    /// QoS 1: at least once.
    AtLeastOnce = 1,
    /// QoS 2: exactly once.
    ExactlyOnce = 2,
}

impl QoS {
    /// The QoS with this number, if there is one.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// An application message, independent of protocol and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Topic name; valid by [`crate::topic::validate_name`].
    pub topic: Text,
    /// Application payload, held once and shared.
    pub payload: Bytes,
    /// QoS it was published with.
    pub qos: QoS,
    /// The publisher asked for it to be retained.
    pub retain: bool,
    /// When it expires (MQTT 5.0 section 3.3.2.3.3); `None`: never.
    pub expires: Option<Instant>,
    /// Properties that travel with it unaltered; `None` when there are none.
    pub properties: Option<Box<MessageProperties>>,
    /// What MQTT does not know of it; `None` when there is nothing.
    pub extra: Option<Box<MessageExtra>>,
}

impl Message {
    /// Whether the message is past its expiry at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// Bytes counted against queue limits: topic, payload, properties, the form
    /// of another protocol, and a flat charge for bookkeeping.
    #[must_use]
    pub fn cost(&self) -> usize {
        /// What one queued message costs besides its bytes.
        const FLAT_BYTES: usize = 96;
        let properties = self.properties.as_ref().map_or(0, |p| p.cost());
        let extra = self.extra.as_ref().map_or(0, |e| e.cost(&self.payload));
        FLAT_BYTES + self.topic.as_bytes().len() + self.payload.len() + properties + extra
    }
}

/// What other protocols than MQTT know of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageExtra {
    /// Priority, from 0; 4 is usual (AMQP 1.0 section 3.2.1).
    pub priority: Option<u8>,
    /// When it was made, in milliseconds since 1970 (AMQP 1.0 section 3.2.4).
    pub created_ms: Option<i64>,
    /// Queues keep it back until then. The store has this with the place in a queue.
    pub deliver_at: Option<Instant>,
    /// A number for who sent it, for receivers that do not want their own messages.
    pub sender: Option<NonZeroU64>,
    /// It as its protocol wrote it, for receivers of the same protocol.
    pub encoded: Option<Encoded>,
}

/// A message in the form of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Which protocol's.
    pub form: Form,
    /// The bytes, of which the payload of the message may be a slice.
    pub bytes: Bytes,
}

/// A form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Form {
    /// Message annotations, if there are any, and the bare message of AMQP 1.0
    /// (section 3.2).
    Amqp = 1,
}

impl Form {
    /// The form with this number, if there is one.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Amqp),
            _ => None,
        }
    }
}

impl MessageExtra {
    /// Bytes counted against queue limits, besides those of the payload.
    fn cost(&self, payload: &Bytes) -> usize {
        let encoded = self.encoded.as_ref();
        encoded.map_or(0, |encoded| match encoded.offset_of(payload) {
            Some(_) => encoded.bytes.len() - payload.len(),
            None => encoded.bytes.len(),
        })
    }
}

impl Encoded {
    /// Where the payload is in the bytes, if it is a slice of them.
    #[must_use]
    pub fn offset_of(&self, payload: &Bytes) -> Option<usize> {
        let begin = self.bytes.as_ptr() as usize;
        let offset = (payload.as_ptr() as usize).checked_sub(begin)?;
        let end = offset.checked_add(payload.len())?;
        (end <= self.bytes.len()).then_some(offset)
    }
}

/// Properties that a server forwards unaltered (MQTT 5.0 section 3.3.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageProperties {
    /// Payload Format Indicator: `Some(true)` is UTF-8, `Some(false)` is
    /// explicitly unspecified bytes.
    pub payload_is_utf8: Option<bool>,
    /// Content Type.
    pub content_type: Option<Text>,
    /// Response Topic.
    pub response_topic: Option<Text>,
    /// Correlation Data.
    pub correlation_data: Option<Bytes>,
    /// User Properties, in order, repeats kept.
    pub user_properties: Vec<(Text, Text)>,
}

impl MessageProperties {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload_is_utf8.is_none()
            && self.content_type.is_none()
            && self.response_topic.is_none()
            && self.correlation_data.is_none()
            && self.user_properties.is_empty()
    }

    /// Bytes counted against queue limits.
    #[must_use]
    pub fn cost(&self) -> usize {
        let text = |t: &Option<Text>| t.as_ref().map_or(0, |t| t.as_bytes().len());
        text(&self.content_type)
            + text(&self.response_topic)
            + self.correlation_data.as_ref().map_or(0, Bytes::len)
            + self
                .user_properties
                .iter()
                .map(|(k, v)| 64 + k.as_bytes().len() + v.as_bytes().len())
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_within_its_encoding_is_counted_once() {
        let bytes = Bytes::from_static(b"\x00\x53\x75\xa0\x03abc");
        let with = |payload: Bytes| Message {
            payload,
            extra: Some(Box::new(MessageExtra {
                encoded: Some(Encoded {
                    form: Form::Amqp,
                    bytes: bytes.clone(),
                }),
                ..MessageExtra::default()
            })),
            ..Message::default()
        };
        let flat = Message::default().cost();
        assert_eq!(with(bytes.slice(5..)).cost(), flat + 8);
        assert_eq!(with(Bytes::from_static(b"json")).cost(), flat + 8 + 4);
    }
}
