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

/// A message with what a consumer adds to it, in the form of its protocol, unless that
/// is not possible or makes it longer than `bytes_max`.
#[cfg_attr(not(feature = "amqp"), allow(unused_variables))]
pub(crate) fn annotated(
    message: &Message,
    now: Instant,
    annotations: &[u8],
    bytes_max: usize,
) -> Option<Arc<Message>> {
    #[cfg(feature = "amqp")]
    return annotating::annotated(message, now, annotations, bytes_max);
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
