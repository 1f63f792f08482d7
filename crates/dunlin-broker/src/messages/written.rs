//! A message as its publisher wrote it. Another protocol whose bytes can go on
//! without a copy is a variant here.

use dunlin_base::{Instant, Message, QoS, ShardId};

#[cfg(feature = "mqtt")]
use crate::mqtt::crossing;
#[cfg(feature = "mqtt")]
use crate::mqtt::form::Form;
use crate::owners::outbox::Outbox;

/// Where the parts of a message are.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it is on the stack while one message is routed"
)]
pub(crate) enum Written<'a> {
    /// In a PUBLISH.
    #[cfg(feature = "mqtt")]
    Mqtt(Form<'a>),
    /// In a message that is held.
    Held(&'a Message),
}

#[cfg(feature = "mqtt")]
impl<'a> From<Form<'a>> for Written<'a> {
    fn from(form: Form<'a>) -> Self {
        Self::Mqtt(form)
    }
}

impl<'a> Written<'a> {
    pub(crate) fn payload(&self) -> &'a [u8] {
        match self {
            #[cfg(feature = "mqtt")]
            Self::Mqtt(form) => form.payload(),
            Self::Held(message) => message.payload.as_ref(),
        }
    }

    pub(crate) fn topic(&self) -> &'a str {
        match self {
            #[cfg(feature = "mqtt")]
            Self::Mqtt(form) => form.topic(),
            Self::Held(message) => &message.topic,
        }
    }

    pub(crate) fn qos(&self) -> QoS {
        match self {
            #[cfg(feature = "mqtt")]
            Self::Mqtt(form) => form.qos(),
            Self::Held(message) => message.qos,
        }
    }

    pub(crate) fn retain(&self) -> bool {
        match self {
            #[cfg(feature = "mqtt")]
            Self::Mqtt(form) => form.retain(),
            Self::Held(message) => message.retain,
        }
    }

    /// The message as something that can be kept.
    pub(crate) fn message(&self, now: Instant) -> Message {
        match self {
            #[cfg(feature = "mqtt")]
            Self::Mqtt(form) => form.message(now),
            Self::Held(message) => Message::clone(message),
        }
    }

    /// Adds it to the messages for another shard; `false`: it has no form for that.
    pub(crate) fn gather(&self, outbox: &mut Outbox, to: ShardId, token: Option<u64>) -> bool {
        match self {
            #[cfg(feature = "mqtt")]
            Self::Mqtt(form) => {
                let bytes = form.payload().len();
                outbox.message(to, bytes, |out| crossing::put(out, token, form))
            }
            Self::Held(_) => false,
        }
    }

    /// The message as PUBLISH, with what is left of its time at `now`.
    #[cfg(feature = "mqtt")]
    pub(crate) fn publish_form(&mut self, now: Instant) -> &mut Form<'a> {
        match self {
            Self::Mqtt(form) => form,
            Self::Held(message) => {
                *self = Self::Mqtt(Form::of_message(message, now));
                self.publish_form(now)
            }
        }
    }
}
