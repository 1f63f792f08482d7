//! A message of one protocol for a receiver of another.

use alloc::sync::Arc;

#[cfg(feature = "amqp")]
use dunlin_amqp::message::to_mqtt;
use dunlin_base::{Form, Message};

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
