//! A message of one protocol for a receiver of another, and what a protocol has room
//! for that is said of a message.

use alloc::sync::Arc;

#[cfg(feature = "amqp")]
use dunlin_amqp::message::to_mqtt;
use dunlin_base::{Form, Instant, Message};

#[cfg(feature = "amqp")]
use crate::amqp::annotating;
use crate::queues::calls::Death;

/// A message as MQTT has it, where its publisher wrote it in the form of AMQP.
/// `None`: it is that already, or its bytes cannot be read.
pub(crate) fn for_mqtt(message: &Message) -> Option<Arc<Message>> {
    let encoded = message.extra.as_ref()?.encoded.as_ref()?;
    match encoded.form {
        #[cfg(feature = "amqp")]
        Form::Amqp => to_mqtt(message).ok().map(Arc::new),
        _ => None,
    }
}

/// A message with what its receivers have added to it, in the form of its protocol,
/// unless that is not possible or makes it too long.
#[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
pub(crate) fn with_added(
    message: &Arc<Message>,
    added: Option<&[u8]>,
    now: Instant,
    bytes_max: u32,
) -> Arc<Message> {
    #[cfg(feature = "amqp")]
    if let Some(added) = added {
        let annotated = annotating::annotated(message, now, added, bytes_max as usize);
        return annotated.unwrap_or_else(|| Arc::clone(message));
    }
    Arc::clone(message)
}

/// What receivers have added to a message, and what one adds now; `None`: that would be
/// too much.
#[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
pub(crate) fn merged(old: Option<&[u8]>, new: &[u8]) -> Option<Arc<[u8]>> {
    #[cfg(feature = "amqp")]
    return annotating::merged(old, new);
    #[cfg(not(feature = "amqp"))]
    None
}

/// A message that is dead in the queue with this address, with what is said of that.
#[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
pub(crate) fn dead(message: &Message, now: Instant, address: &str, death: Death) -> Message {
    #[cfg(feature = "amqp")]
    return annotating::dead(message, now, address, death);
    #[cfg(not(feature = "amqp"))]
    message.clone()
}
