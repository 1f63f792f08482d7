//! What can be wrong with a packet, one variant per fault, and the reason code
//! that answers it. Knows no session rule.

use dunlin_base::SinkFull;
use dunlin_base::topic::TopicError;

use crate::{PropertyId, ReasonCode};

/// Why bytes are not an MQTT packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Authentication Data without Authentication Method (section 3.1.2.11.10).
    #[error("authentication data without an authentication method")]
    AuthenticationDataWithoutMethod,
    /// AUTH with properties but without a method (section 3.15.2.2.2).
    #[error("AUTH without an authentication method")]
    AuthenticationMethodMissing,
    /// Bits 7-1 of the Connect Acknowledge Flags are not 0 [MQTT-3.2.2-1].
    #[error("reserved CONNACK flags are set")]
    ConnAckFlags,
    /// The reserved Connect Flag is set [MQTT-3.1.2-3].
    #[error("the reserved CONNECT flag is set")]
    ConnectFlags,
    /// DUP is set on a QoS 0 message [MQTT-3.3.1-2].
    #[error("DUP on a QoS 0 message")]
    DupWithoutQos,
    /// Fixed header flags differ from the reserved value [MQTT-2.1.3-1].
    #[error("invalid fixed header flags")]
    FixedHeaderFlags,
    /// No Local on a shared subscription [MQTT-3.8.3-4].
    #[error("No Local on a shared subscription")]
    NoLocalOnShared,
    /// SUBACK or UNSUBACK without a reason code (section 3.9.3).
    #[error("no reason code")]
    NoReasonCode,
    /// SUBSCRIBE or UNSUBSCRIBE without a filter [MQTT-3.8.3-2, MQTT-3.10.3-2].
    #[error("no topic filter")]
    NoTopicFilter,
    /// A string contains U+0000 [MQTT-1.5.4-2].
    #[error("a string contains the null character")]
    NullCharacter,
    /// Packet Identifier 0 [MQTT-2.2.1-3].
    #[error("packet identifier 0")]
    PacketIdZero,
    /// More bytes than the receiver accepts [MQTT-3.1.2-24].
    #[error("packet larger than the limit")]
    PacketTooLarge,
    /// Password without User Name, which 3.1.1 does not allow.
    #[error("password without a user name in MQTT 3.1.1")]
    PasswordWithoutUsername,
    /// A payload declared as UTF-8 is not; see [`crate::Publish::check_payload_format`].
    #[error("the payload is not the UTF-8 that it is declared to be")]
    PayloadFormat,
    /// A property appears more than once.
    #[error("repeated property {0:?}")]
    PropertyDuplicate(PropertyId),
    /// A property that does not belong in this packet (section 2.2.2.2).
    #[error("property {0:?} is not allowed in this packet")]
    PropertyNotAllowed(PropertyId),
    /// Not the identifier of any property.
    #[error("unknown property {0:#04x}")]
    PropertyUnknown(u8),
    /// A property has a value outside of its range.
    #[error("value of property {0:?} out of range")]
    PropertyValue(PropertyId),
    /// The protocol name is not `MQTT` [MQTT-3.1.2-1].
    #[error("unsupported protocol name")]
    ProtocolName,
    /// The protocol level is neither 4 nor 5 [MQTT-3.1.2-2].
    #[error("unsupported protocol version {0}")]
    ProtocolVersion(u8),
    /// QoS 3 in PUBLISH or in the Will [MQTT-3.3.1-4, MQTT-3.1.2-12].
    #[error("QoS 3")]
    QosReserved,
    /// A reason code that does not exist or does not belong in this packet.
    #[error("invalid reason code {0:#04x}")]
    ReasonCode(u8),
    /// Packet type 0, or AUTH in 3.1.1.
    #[error("reserved packet type")]
    ReservedPacketType,
    /// Response Topic is not a topic name [MQTT-3.3.2-14].
    #[error("invalid response topic: {0}")]
    ResponseTopic(TopicError),
    /// Retain Handling 3 (section 3.8.3.1).
    #[error("retain handling 3")]
    RetainHandling,
    /// Session Present together with an error [MQTT-3.2.2-6].
    #[error("session present in a refusing CONNACK")]
    SessionPresent,
    /// Reserved bits of the Subscription Options are set [MQTT-3.8.3-5].
    #[error("reserved subscription options are set")]
    SubscribeOptions,
    /// Maximum QoS 3 in Subscription Options (section 3.8.3.1).
    #[error("subscription with QoS 3")]
    SubscribeQos,
    /// Topic Alias 0 [MQTT-3.3.2-8].
    #[error("topic alias 0")]
    TopicAliasZero,
    /// A topic filter is invalid (section 4.7).
    #[error("invalid topic filter: {0}")]
    TopicFilter(TopicError),
    /// PUBLISH with neither topic nor alias (section 3.3.2.1).
    #[error("neither topic nor topic alias")]
    TopicMissing,
    /// A topic name is invalid (section 4.7).
    #[error("invalid topic name: {0}")]
    TopicName(TopicError),
    /// Bytes remain after the last field.
    #[error("bytes after the end of the packet")]
    TrailingBytes,
    /// A field reaches beyond the end.
    #[error("the packet ends too early")]
    Truncated,
    /// The other side does not send such packets.
    #[error("a packet that only this side sends")]
    UnexpectedPacket,
    /// A string is not well-formed UTF-8 [MQTT-1.5.4-1].
    #[error("a string is not UTF-8")]
    Utf8,
    /// A Variable Byte Integer is longer than needed [MQTT-1.5.5-1].
    #[error("a variable byte integer is longer than needed")]
    VarintNotMinimal,
    /// A Variable Byte Integer has more than four bytes.
    #[error("a variable byte integer is too long")]
    VarintTooLong,
    /// Will QoS or Will Retain without a Will [MQTT-3.1.2-11, MQTT-3.1.2-13].
    #[error("will QoS or will retain without a will")]
    WillFlags,
}

impl DecodeError {
    /// The reason code for the CONNACK or DISCONNECT that ends the connection.
    #[must_use]
    pub const fn reason(&self) -> ReasonCode {
        match self {
            Self::PacketTooLarge => ReasonCode::PacketTooLarge,
            Self::PayloadFormat => ReasonCode::PayloadFormatInvalid,
            Self::ProtocolName | Self::ProtocolVersion(_) => ReasonCode::UnsupportedProtocolVersion,
            Self::TopicAliasZero => ReasonCode::TopicAliasInvalid,
            Self::TopicFilter(_) => ReasonCode::TopicFilterInvalid,
            Self::ResponseTopic(_) | Self::TopicName(_) => ReasonCode::TopicNameInvalid,
            Self::AuthenticationDataWithoutMethod
            | Self::AuthenticationMethodMissing
            | Self::NoLocalOnShared
            | Self::NoReasonCode
            | Self::NoTopicFilter
            | Self::PacketIdZero
            | Self::PropertyDuplicate(_)
            | Self::PropertyValue(_)
            | Self::ReasonCode(_)
            | Self::RetainHandling
            | Self::SessionPresent
            | Self::SubscribeQos
            | Self::TopicMissing
            | Self::UnexpectedPacket => ReasonCode::ProtocolError,
            _ => ReasonCode::MalformedPacket,
        }
    }
}

/// Why a packet cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A string or binary field is longer than 65,535 bytes.
    #[error("a field is longer than 65,535 bytes")]
    FieldTooLong,
    /// A list that must have an element is empty.
    #[error("a list that must not be empty is empty")]
    ListEmpty,
    /// The packet does not exist in this version of MQTT.
    #[error("not expressible in this version of MQTT")]
    NotInVersion,
    /// A PUBLISH has a packet identifier exactly when its QoS is not 0
    /// [MQTT-2.2.1-2].
    #[error("a packet identifier goes with QoS 1 and 2 only")]
    PacketId,
    /// The packet is longer than MQTT can express.
    #[error("the packet is longer than MQTT can express")]
    PacketTooLarge,
    /// The sink has no room; what it took before is not a whole packet.
    #[error(transparent)]
    SinkFull(#[from] SinkFull),
    /// A value is outside of its range.
    #[error("a value is out of range")]
    ValueOutOfRange,
}
