//! Clients, their sessions and subscriptions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::qlog::Range;

/// Which sessions are meant: those to which all that is given applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionFilter {
    /// What the client identifier begins with.
    pub client_id: String,
    /// The user.
    pub user: Option<String>,
    /// Whether the client is connected.
    pub connected: Option<bool>,
    /// Whether the session outlives its connection.
    pub persistent: Option<bool>,
    /// A filter to which it has subscribed, as in its SUBSCRIBE.
    pub subscribed: Option<String>,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscription {
    /// The filter, as in SUBSCRIBE.
    pub filter: String,
    /// Most QoS.
    pub qos: u8,
    /// Not what its own client publishes.
    pub no_local: bool,
    /// RETAIN stays as its publisher set it.
    pub retain_as_published: bool,
    /// Subscription identifier.
    pub identifier: Option<u32>,
}

/// Who gets a message, for one subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receiver {
    /// Client identifier, container id, or address of a queue.
    pub client_id: String,
    /// Most QoS.
    pub qos: u8,
    /// The shared subscription of which one member gets it.
    pub share: Option<String>,
    /// The rules let it have messages of this topic.
    pub allowed: bool,
    /// It is connected.
    pub connected: bool,
}

/// Which clients are meant: those to which all that is given applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientFilter {
    /// What the client identifier begins with.
    pub client_id: String,
    /// The user.
    pub user: Option<String>,
    /// Address, or range of addresses.
    pub address: Option<Range>,
    /// The protocol.
    pub protocol: Option<Protocol>,
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// MQTT, any version.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
}

/// A session of MQTT with its connection, or a connection of AMQP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// Client identifier, or container id.
    pub client_id: String,
    /// The user that it authenticated as.
    pub user: Option<String>,
    /// Its connection; none: the session waits for its client.
    pub connection: Option<String>,
    /// Its address.
    pub address: Option<String>,
    /// Its transport.
    pub transport: Option<String>,
    /// Number of the listener that accepted it.
    pub listener: Option<u16>,
    /// The name in its certificate.
    pub certificate: Option<String>,
    /// What it speaks.
    pub protocol: Protocol,
    /// The version of MQTT, if it is that.
    pub mqtt_version: Option<String>,
    /// Links, of AMQP.
    pub links: Option<usize>,
    /// How long the session outlives its connection; none: for ever.
    pub session_expiry_seconds: Option<u32>,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Messages that wait for it.
    pub queued_messages: usize,
    /// Bytes of those in memory.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages on their way to it.
    pub inflight_messages: usize,
    /// QoS 2 messages on their way from it.
    pub receiving_messages: usize,
    /// Bytes on their way to it.
    pub backlog_bytes: usize,
    /// What TLS has agreed on; its fields stand beside the others.
    #[serde(flatten)]
    pub tls: Tls,
    /// What is known of a QUIC connection, by name; times in microseconds.
    pub quic: Option<BTreeMap<String, u64>>,
}

/// What TLS has agreed on, if the connection has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tls {
    /// The protocol that both sides agreed on by ALPN.
    pub alpn: Option<String>,
    /// Cipher suite.
    pub cipher_suite: Option<String>,
    /// Key exchange.
    pub key_exchange: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: Option<bool>,
}
