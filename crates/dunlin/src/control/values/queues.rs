//! Queues of AMQP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most messages of one look into a queue.
pub const PEEKED_MAX: usize = dunlin_broker::control::values::PEEKED_MAX;

/// Messages of a look into a queue, where the request does not say.
pub(super) const fn peeked_default() -> usize {
    10
}

/// What a queue is to be like; what is not given stays, or is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueOptions {
    /// Topic filters that bring it messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// Most messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<usize>,
    /// Most bytes of them in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// What happens to a message when it is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<Full>,
    /// Longest time that a message stays, in seconds; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Levels that the priorities 0 to 9 are sorted into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// Failed deliveries after which a message is dead; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_deliveries: Option<u16>,
    /// The queue that dead messages go to; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    /// Whether it and its messages outlive a restart; for a new queue only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
}

/// What happens to a message for a queue that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Full {
    /// Its sender is refused.
    Reject,
    /// The queue goes without.
    DropNewest,
    /// The oldest messages make room.
    DropOldest,
}

/// A queue of AMQP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Its name; its address is `/queues/` and this.
    pub name: String,
    /// It is of the configuration, which alone changes it.
    pub configured: bool,
    /// It and its messages outlive a restart.
    pub durable: bool,
    /// Topic filters that bring it messages.
    pub topics: Vec<String>,
    /// Messages that wait.
    pub messages: usize,
    /// Messages that consumers have and have not settled.
    pub unsettled: usize,
    /// Bytes of all of them in memory.
    pub bytes: usize,
    /// Links that take from it.
    pub consumers: usize,
    /// Age of the message that leaves first, by the time that its sender gave it.
    pub oldest_seconds: Option<u64>,
    /// The queue that dead messages go to.
    pub dead_letter: Option<String>,
    /// Most messages.
    pub max_messages: usize,
    /// Most bytes of them in memory.
    pub max_bytes: usize,
    /// What happens to a message when it is full.
    pub full: Full,
    /// Longest time that a message stays, in seconds.
    pub ttl_seconds: Option<u64>,
    /// Levels that the priorities 0 to 9 are sorted into.
    pub levels: u8,
    /// Failed deliveries after which a message is dead; 0: no limit.
    pub max_deliveries: u16,
}

/// A message of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueuedMessage {
    /// Its topic, or the address that it was sent to.
    pub topic: String,
    /// Its payload, if that is text and there is room for it in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload in Base64, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Bytes of its payload.
    pub bytes: usize,
    /// Content type.
    pub content_type: Option<String>,
    /// Deliveries that have failed.
    pub failed_deliveries: u16,
    /// Its priority, if it has one.
    pub priority: Option<u8>,
    /// How long it is good.
    pub expiry_seconds: Option<u64>,
}
