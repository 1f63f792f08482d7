//! Application messages as the library's users see them: what they publish,
//! what they receive, their will. Knows no packet.

use core::fmt;
use core::num::NonZeroU16;
use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::{MessageProperties, QoS, Text};
use dunlin_mqtt::client::Receipt;

use crate::arguments::{Payload, TextArg};

/// Takes the acknowledgements of received messages.
pub(crate) trait Acknowledge: Send + Sync {
    /// The application is done with the message.
    fn acknowledge(&self, receipt: Receipt);
}

/// The right to acknowledge one message.
pub(crate) struct Claim {
    pub(crate) client: Arc<dyn Acknowledge>,
    pub(crate) receipt: Receipt,
}

/// A message to publish.
///
/// # Examples
/// ```
/// use dunlin_client::{Publish, QoS};
///
/// let publish = Publish::new("plant/7/temperature", "21.5")
///     .qos(QoS::AtLeastOnce)
///     .retain(true)
///     .user_property("unit", "°C");
/// assert_eq!(publish.topic(), "plant/7/temperature");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "does nothing until it is published"]
pub struct Publish {
    pub(crate) topic: Text,
    pub(crate) payload: Bytes,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) expiry: Option<Duration>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) properties: Option<Box<MessageProperties>>,
}

impl Publish {
    /// A message of QoS 0 that is not retained.
    pub fn new(topic: impl Into<TextArg>, payload: impl Into<Payload>) -> Self {
        Self {
            topic: topic.into().0,
            payload: payload.into().0,
            ..Self::default()
        }
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.topic.as_str()
    }

    /// Its payload.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Replaces the payload: one message can be the template of many.
    pub fn with_payload(mut self, payload: impl Into<Payload>) -> Self {
        self.payload = payload.into().0;
        self
    }

    /// Sets the quality of service. Default: at most once.
    pub fn qos(mut self, qos: QoS) -> Self {
        self.qos = qos;
        self
    }

    /// Asks the server to keep the message for later subscribers.
    pub fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// Lets the server forget the message after this time, in whole seconds.
    /// Ignored in MQTT 3.1.1, as are all properties below.
    pub fn expires_in(mut self, expiry: Duration) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Gives up a message of QoS 0 that has not arrived after this time: it is
    /// of no use any more, and only holds up what follows. What this does
    /// beyond dropping messages that have not left this machine is described at
    /// [`Builder::max_age`](crate::Builder::max_age), which sets it for all.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// Adds a user property. Order and repetitions are kept.
    pub fn user_property(mut self, name: impl Into<TextArg>, value: impl Into<TextArg>) -> Self {
        let property = (name.into().0, value.into().0);
        self.properties_mut().user_properties.push(property);
        self
    }

    /// Describes the payload, usually as a MIME type.
    pub fn content_type(mut self, content_type: impl Into<TextArg>) -> Self {
        self.properties_mut().content_type = Some(content_type.into().0);
        self
    }

    /// Asks for an answer on this topic.
    pub fn response_topic(mut self, topic: impl Into<TextArg>) -> Self {
        self.properties_mut().response_topic = Some(topic.into().0);
        self
    }

    /// What the answer shall carry, to be known among others.
    pub fn correlation_data(mut self, data: impl Into<Payload>) -> Self {
        self.properties_mut().correlation_data = Some(data.into().0);
        self
    }

    /// Declares the payload to be UTF-8 (or not to be).
    pub fn payload_is_utf8(mut self, utf8: bool) -> Self {
        self.properties_mut().payload_is_utf8 = Some(utf8);
        self
    }

    /// Sets all properties at once.
    pub fn properties(mut self, properties: MessageProperties) -> Self {
        self.properties = (!properties.is_empty()).then(|| Box::new(properties));
        self
    }

    fn properties_mut(&mut self) -> &mut MessageProperties {
        self.properties.get_or_insert_default()
    }
}

/// The message that the server publishes if this client vanishes.
///
/// # Examples
/// ```
/// use dunlin_client::{Publish, QoS, Will};
/// use std::time::Duration;
///
/// let will = Will::new(Publish::new("plant/7/online", "0").qos(QoS::AtLeastOnce).retain(true))
///     .delay(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Will {
    pub(crate) publish: Publish,
    pub(crate) delay: Duration,
}

impl Will {
    /// A will that the server publishes at once.
    pub fn new(publish: Publish) -> Self {
        Self {
            publish,
            delay: Duration::ZERO,
        }
    }

    /// Lets the server wait this long, in whole seconds, for the client to
    /// come back. MQTT 5.0.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// A message from the server.
#[non_exhaustive]
pub struct Message {
    /// Its topic.
    pub topic: Text,
    /// Its payload.
    pub payload: Bytes,
    /// QoS of this delivery.
    pub qos: QoS,
    /// It was stored by the server before, or, with Retain As Published,
    /// published with the flag.
    pub retain: bool,
    /// It may have been delivered before, on an earlier connection.
    pub dup: bool,
    /// Time left until it expires, as the server saw it.
    pub expires_in: Option<Duration>,
    /// Its packet identifier; `None` for QoS 0. Only good for logs.
    pub packet_id: Option<NonZeroU16>,
    /// Identifiers of the subscriptions that it matches.
    pub subscription_ids: Vec<u32>,
    /// Properties that its publisher gave it.
    pub properties: Option<Box<MessageProperties>>,
    pub(crate) claim: Option<Claim>,
}

impl Message {
    /// Tells the server that this message has been dealt with, where the
    /// client was built with
    /// [`manual_acknowledgement`](crate::Builder::manual_acknowledgement);
    /// otherwise that has happened already, and this does nothing. A message
    /// dropped without it is delivered again after the next reconnection.
    pub fn acknowledge(self) {
        if let Some(claim) = self.claim {
            claim.client.acknowledge(claim.receipt);
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload", &self.payload)
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("dup", &self.dup)
            .finish_non_exhaustive()
    }
}
