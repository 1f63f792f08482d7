//! Message annotations that consumers and the broker add to messages.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_amqp::codec::{Map, Message as Scanned, Symbol, Value};
use dunlin_amqp::message::annotate;
use dunlin_base::{Instant, Message};

use crate::queues::addresses::QUEUES;
use crate::queues::calls::Death;

/// Most bytes that a consumer adds to a message at a time.
pub(crate) const ANNOTATIONS_BYTES_MAX: usize = 4096;

/// What RabbitMQ says of a dead message, in AMQP 1.0 and 0-9-1: the queue that it was
/// dead in first and last, and why: rejected, expired, delivery_limit.
const FIRST_QUEUE: &str = "x-first-death-queue";
const FIRST_REASON: &str = "x-first-death-reason";
const LAST_QUEUE: &str = "x-last-death-queue";
const LAST_REASON: &str = "x-last-death-reason";

/// What ActiveMQ Artemis says: the address that it was sent to.
const ORIGINAL_ADDRESS: &str = "x-opt-ORIG-ADDRESS";

/// A message with an encoded map of annotations added, unless that is not possible or
/// it gets longer than `bytes_max`.
pub(crate) fn annotated(
    message: &Message,
    now: Instant,
    annotations: &[u8],
    bytes_max: usize,
) -> Option<Arc<Message>> {
    let Ok(Value::Map(map)) = Value::decode(annotations) else {
        return None;
    };
    let entries: Vec<_> = map.iter().collect();
    let message = annotate(message, now, &entries)?;
    (message.cost() <= bytes_max).then(|| Arc::new(message))
}

/// Two encoded maps of annotations as one, in which the new ones hold; `None`: they are
/// too long together.
pub(crate) fn merged(old: Option<&[u8]>, new: &[u8]) -> Option<Arc<[u8]>> {
    let Ok(Value::Map(new)) = Value::decode(new) else {
        return None;
    };
    let old = old.and_then(|old| Value::decode(old).ok());
    let old = match old {
        Some(Value::Map(old)) => old,
        _ => Map::default(),
    };
    let is_new = |name: &Value<'_>| new.iter().any(|(it, _)| it.as_str() == name.as_str());
    let kept = old.iter().filter(|(name, _)| !is_new(name));
    let all: Vec<_> = kept.chain(new.iter()).collect();
    let all = Value::Map(Map::new(&all)).to_vec().ok()?;
    (all.len() <= ANNOTATIONS_BYTES_MAX).then(|| all.into())
}

/// A message that is dead, with what is said of that; as it was if it cannot be said.
pub(crate) fn dead(message: &Message, now: Instant, address: &str, death: Death) -> Message {
    let queue = address.strip_prefix(QUEUES).unwrap_or(address);
    let is_first = !has(message, FIRST_REASON);
    let first = [(FIRST_QUEUE, queue), (FIRST_REASON, death.name())];
    let original = [(ORIGINAL_ADDRESS, &*message.topic)];
    let last = [(LAST_QUEUE, queue), (LAST_REASON, death.name())];
    let once = first.iter().chain(&original).filter(|_| is_first);
    let entries = once.chain(&last).map(|(name, value)| {
        let name = Value::Symbol(Symbol::from_static(name));
        (name, Value::String(value))
    });
    let entries: Vec<_> = entries.collect();
    annotate(message, now, &entries).unwrap_or_else(|| message.clone())
}

/// Whether a message has this annotation.
fn has(message: &Message, name: &str) -> bool {
    let extra = message.extra.as_ref();
    let encoded = extra.and_then(|extra| extra.encoded.as_ref());
    let scanned = encoded.and_then(|encoded| Scanned::scan(&encoded.bytes).ok());
    let annotations = scanned.and_then(|it| it.message_annotations().ok().flatten());
    annotations.is_some_and(|map| map.get(name).is_some())
}
