//! Messages of topics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A retained message without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetainedTopic {
    /// Its topic.
    pub topic: String,
    /// Its QoS.
    pub qos: u8,
    /// Bytes of its payload.
    pub bytes: usize,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// Its payload, if that is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload, in Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Its QoS.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// Content Type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How long it is good, from when it is published; for good if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_seconds: Option<u32>,
}
