//! CONNACK (MQTT 5.0 section 3.2).

use core::num::{NonZeroU16, NonZeroU32};

use dunlin_base::{ByteSink, QoS};

use crate::ack::read_reason;
use crate::property::properties;
use crate::reader::Reader;
use crate::reason::allowed;
use crate::writer::{packet_len, put_header, varint_len};
use crate::{DecodeError, EncodeError, PacketType, ReasonCode, UserProperties, Version};

/// Answer to CONNECT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnAck<'a> {
    /// The server had a session and continues it.
    pub session_present: bool,
    /// Accepted, or why not; to 3.1.1 the nearest return code.
    pub reason: ReasonCode,
    /// Properties; 3.1.1 has none and leaves them out.
    pub properties: ConnAckProperties<'a>,
}

properties! {
    /// Properties of CONNACK (section 3.2.2.3).
    pub struct ConnAckProperties<'a> {
        /// Seconds that the session outlives the connection.
        session_expiry_interval: u32 = SessionExpiryInterval,
        /// QoS 1 and 2 messages that the server takes at a time.
        receive_maximum: NonZeroU16 = ReceiveMaximum,
        /// Highest QoS of the server if it is not 2.
        maximum_qos: QoS = MaximumQos,
        /// Whether the server retains messages.
        retain_available: bool = RetainAvailable,
        /// Largest packet that the server takes.
        maximum_packet_size: NonZeroU32 = MaximumPacketSize,
        /// Client identifier that the server chose.
        assigned_client_identifier: &'a str = AssignedClientIdentifier,
        /// Highest topic alias that the server takes.
        topic_alias_maximum: u16 = TopicAliasMaximum,
        /// The reason for people and logs.
        reason_string: &'a str = ReasonString,
        /// Whether the server has wildcard subscriptions.
        wildcard_subscription_available: bool = WildcardSubscriptionAvailable,
        /// Whether the server has subscription identifiers.
        subscription_identifiers_available: bool = SubscriptionIdentifierAvailable,
        /// Whether the server has shared subscriptions.
        shared_subscription_available: bool = SharedSubscriptionAvailable,
        /// Keep alive in seconds that the client must use instead of its own.
        server_keep_alive: u16 = ServerKeepAlive,
        /// Basis for a response topic.
        response_information: &'a str = ResponseInformation,
        /// Another server to use.
        server_reference: &'a str = ServerReference,
        /// Method of extended authentication.
        authentication_method: &'a str = AuthenticationMethod,
        /// Data of extended authentication.
        authentication_data: &'a [u8] = AuthenticationData,
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}

impl<'a> ConnAck<'a> {
    pub(crate) fn decode(body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let flags = r.u8()?;
        if flags > 1 {
            return Err(DecodeError::ConnAckFlags);
        }
        let session_present = flags == 1;
        let (reason, properties) = match version {
            Version::V311 => {
                let code = r.u8()?;
                let reason =
                    ReasonCode::from_connack_v3_code(code).ok_or(DecodeError::ReasonCode(code))?;
                (reason, ConnAckProperties::default())
            }
            Version::V5 => (
                read_reason(&mut r, allowed::connack)?,
                ConnAckProperties::decode(&mut r)?,
            ),
        };
        r.finish()?;
        if session_present && reason.is_error() {
            return Err(DecodeError::SessionPresent);
        }
        Ok(Self {
            session_present,
            reason,
            properties,
        })
    }

    /// Remaining length and length of the properties.
    fn lengths(&self, version: Version) -> Result<(usize, usize), EncodeError> {
        if self.session_present && self.reason.is_error() {
            return Err(EncodeError::ValueOutOfRange);
        }
        if version == Version::V311 {
            return Ok((2, 0));
        }
        let properties = self.properties.len()?;
        let remaining = 2 + varint_len(properties) + properties;
        packet_len(remaining)?;
        Ok((remaining, properties))
    }

    /// Bytes that encoding takes.
    ///
    /// # Errors
    /// As [`crate::Packet::encoded_len`].
    pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
        packet_len(self.lengths(version)?.0)
    }

    /// Writes the packet; where only some packets are ever sent, less code
    /// than [`crate::Packet::encode`].
    ///
    /// # Errors
    /// As [`crate::Packet::encode`].
    pub fn encode(
        &self,
        version: Version,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        let (remaining, properties) = self.lengths(version)?;
        put_header(out, PacketType::ConnAck, remaining)?;
        out.put_u8(u8::from(self.session_present))?;
        match version {
            Version::V311 => Ok(out.put_u8(self.reason.connack_v3_code())?),
            Version::V5 => {
                out.put_u8(self.reason.to_u8())?;
                self.properties.encode(properties, out)
            }
        }
    }
}
