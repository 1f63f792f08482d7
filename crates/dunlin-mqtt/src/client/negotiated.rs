//! What a CONNACK says about the server (MQTT 5.0 section 3.2.2.3).

use core::time::Duration;

use dunlin_base::QoS;
use dunlin_base::limits::MQTT_PACKET_BYTES_MAX;

/// The limits that hold on a connection: what the server said, or what the
/// specification says where it said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Negotiated {
    /// PUBLISHes of QoS 1 and 2 that the server takes at a time.
    pub receive_maximum: u16,
    /// Largest packet that the server takes.
    pub packet_bytes_max: u32,
    /// Highest QoS that the server takes.
    pub maximum_qos: QoS,
    /// Whether the server keeps messages for later subscribers.
    pub retain_available: bool,
    /// Highest topic alias that the server takes; 0 for none.
    pub topic_alias_maximum: u16,
    /// Whether filters may have wildcards.
    pub wildcards_available: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_ids_available: bool,
    /// Whether subscriptions may be shared.
    pub shared_available: bool,
    /// The keep alive that holds; zero for none.
    pub keep_alive: Duration,
    /// How long the session outlives the connection, in seconds; `u32::MAX`
    /// for ever.
    pub session_expiry_seconds: u32,
    /// The server resumed the session.
    pub session_present: bool,
}

impl Negotiated {
    /// What the next connection is likely to allow, while its CONNACK has not
    /// come. Topic aliases need its word [MQTT-3.2.2-17].
    pub(super) fn expected(self) -> Self {
        Self {
            topic_alias_maximum: 0,
            keep_alive: Duration::ZERO,
            session_expiry_seconds: 0,
            session_present: false,
            ..self
        }
    }
}

impl Default for Negotiated {
    /// What holds while CONNACK has not come, and what absent properties mean.
    fn default() -> Self {
        Self {
            receive_maximum: u16::MAX,
            packet_bytes_max: MQTT_PACKET_BYTES_MAX,
            maximum_qos: QoS::ExactlyOnce,
            retain_available: true,
            topic_alias_maximum: 0,
            wildcards_available: true,
            subscription_ids_available: true,
            shared_available: true,
            keep_alive: Duration::ZERO,
            session_expiry_seconds: 0,
            session_present: false,
        }
    }
}
