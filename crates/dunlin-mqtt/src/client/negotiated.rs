//! What CONNECT and CONNACK agree on (MQTT 5.0 sections 3.1.2.11, 3.2.2.3), and
//! whether a packet keeps to it.

use core::time::Duration;

use dunlin_base::QoS;
use dunlin_base::limits::MQTT_PACKET_BYTES_MAX;
use dunlin_base::topic::{Filter, validate_name};
use dunlin_mqtt_codec::{ConnAck, Connect, Publish, Subscribe, Version};

use super::error::CommandError;

/// Largest packet before CONNACK: what servers take by default or more.
const EARLY_PACKET_BYTES_MAX: u32 = 64 << 10;

/// What CONNECT allows the server, and how the session begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) version: Version,
    pub(super) clean_start: bool,
    /// Packets may follow CONNECT without waiting for CONNACK (section 3.1.4).
    pub(super) pipelined: bool,
    /// Largest packet from the server.
    pub(super) packet_bytes_max: u32,
    pub(super) topic_alias_maximum: u16,
    /// `None` in 3.1.1.
    pub(super) receive_maximum: Option<u16>,
    pub(super) session_expiry_seconds: u32,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            version: Version::V5,
            clean_start: true,
            pipelined: false,
            packet_bytes_max: MQTT_PACKET_BYTES_MAX,
            topic_alias_maximum: 0,
            receive_maximum: None,
            session_expiry_seconds: 0,
        }
    }
}

impl Offer {
    pub(super) fn of(connect: &Connect<'_>, pipelined: bool) -> Self {
        let properties = &connect.properties;
        let is_v5 = connect.version == Version::V5;
        let receive_maximum = properties.receive_maximum.map_or(u16::MAX, |max| max.get());
        Self {
            version: connect.version,
            clean_start: connect.clean_start,
            pipelined,
            packet_bytes_max: properties
                .maximum_packet_size
                .map_or(MQTT_PACKET_BYTES_MAX, |max| max.get()),
            topic_alias_maximum: properties.topic_alias_maximum.unwrap_or(0),
            receive_maximum: is_v5.then_some(receive_maximum),
            session_expiry_seconds: properties.session_expiry_interval.unwrap_or(0),
        }
    }
}

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
    /// What a CONNACK says, where CONNECT asked for this keep alive and this
    /// session expiry.
    pub(super) fn of(
        connack: &ConnAck<'_>,
        keep_alive: Duration,
        session_expiry_seconds: u32,
    ) -> Self {
        let properties = &connack.properties;
        let absent = Self::default();
        Self {
            receive_maximum: properties
                .receive_maximum
                .map_or(absent.receive_maximum, |max| max.get()),
            packet_bytes_max: properties
                .maximum_packet_size
                .map_or(absent.packet_bytes_max, |max| max.get()),
            maximum_qos: properties.maximum_qos.unwrap_or(absent.maximum_qos),
            retain_available: properties.retain_available.unwrap_or(true),
            topic_alias_maximum: properties.topic_alias_maximum.unwrap_or(0),
            wildcards_available: properties.wildcard_subscription_available.unwrap_or(true),
            subscription_ids_available: properties
                .subscription_identifiers_available
                .unwrap_or(true),
            shared_available: properties.shared_subscription_available.unwrap_or(true),
            keep_alive: properties
                .server_keep_alive
                .map_or(keep_alive, |seconds| Duration::from_secs(seconds.into())),
            session_expiry_seconds: properties
                .session_expiry_interval
                .unwrap_or(session_expiry_seconds),
            session_present: connack.session_present,
        }
    }

    /// What the next connection is likely to allow, while its CONNACK has not
    /// come. Topic aliases need its word [MQTT-3.2.2-17], and so do large packets:
    /// one that is too large ends the connection.
    pub(super) fn expected(self) -> Self {
        Self {
            packet_bytes_max: self.packet_bytes_max.min(EARLY_PACKET_BYTES_MAX),
            topic_alias_maximum: 0,
            keep_alive: Duration::ZERO,
            session_expiry_seconds: 0,
            session_present: false,
            ..self
        }
    }

    /// Whether the server takes a PUBLISH, its size aside.
    pub(super) fn check_publish(&self, publish: &Publish<'_>) -> Result<(), CommandError> {
        validate_name(publish.topic)?;
        if publish.qos > self.maximum_qos {
            return Err(CommandError::QosNotSupported);
        }
        if publish.retain && !self.retain_available {
            return Err(CommandError::RetainNotSupported);
        }
        Ok(())
    }

    /// Whether the server takes a SUBSCRIBE, its size aside.
    pub(super) fn check_subscribe(&self, subscribe: &Subscribe<'_>) -> Result<(), CommandError> {
        let has_id = subscribe.subscription_identifier.is_some();
        if has_id && !self.subscription_ids_available {
            return Err(CommandError::SubscriptionIdNotSupported);
        }
        for filter in subscribe.filters.iter() {
            let parsed = Filter::parse(filter.filter)?;
            if parsed.has_wildcard() && !self.wildcards_available {
                return Err(CommandError::WildcardNotSupported);
            }
            if parsed.share.is_some() && !self.shared_available {
                return Err(CommandError::SharedNotSupported);
            }
        }
        Ok(())
    }

    /// Whether the server takes a packet of this length [MQTT-3.2.2-15].
    pub(super) fn check_size(&self, len: usize) -> Result<(), CommandError> {
        match len > self.packet_bytes_max as usize {
            true => Err(CommandError::PacketTooLarge),
            false => Ok(()),
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
