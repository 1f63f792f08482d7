//! DISCONNECT (MQTT 5.0 section 3.14).

use dunlin_base::ByteSink;

use crate::ack::read_reason;
use crate::property::properties;
use crate::reader::Reader;
use crate::reason::allowed;
use crate::writer::{packet_len, put_header, varint_len};
use crate::{DecodeError, EncodeError, PacketType, ReasonCode, UserProperties, Version};

/// The last packet of a connection.
///
/// In 3.1.1 it is the client's normal end and nothing else: another reason
/// cannot be encoded, the sender closes the connection instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disconnect<'a> {
    /// Why.
    pub reason: ReasonCode,
    /// Properties.
    pub properties: DisconnectProperties<'a>,
}

properties! {
    /// Properties of DISCONNECT (section 3.14.2.2).
    pub struct DisconnectProperties<'a> {
        /// Seconds that the session outlives the connection.
        session_expiry_interval: u32 = SessionExpiryInterval,
        /// The reason for people and logs.
        reason_string: &'a str = ReasonString,
        /// Another server to use.
        server_reference: &'a str = ServerReference,
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}

impl<'a> Disconnect<'a> {
    pub(crate) fn decode(body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let mut disconnect = Self::default();
        if version == Version::V5 && !r.is_empty() {
            disconnect.reason = read_reason(&mut r, allowed::disconnect)?;
            if !r.is_empty() {
                disconnect.properties = DisconnectProperties::decode(&mut r)?;
            }
        }
        r.finish()?;
        Ok(disconnect)
    }

    /// Remaining length and length of the properties.
    fn lengths(&self, version: Version) -> Result<(usize, usize), EncodeError> {
        if version == Version::V311 {
            return match self.reason {
                ReasonCode::Success => Ok((0, 0)),
                _ => Err(EncodeError::NotInVersion),
            };
        }
        let properties = self.properties.len()?;
        let remaining = match (self.reason, properties) {
            (ReasonCode::Success, 0) => 0,
            (_, 0) => 1,
            (_, len) => 1 + varint_len(len) + len,
        };
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
        put_header(out, PacketType::Disconnect, remaining)?;
        if remaining > 0 {
            out.put_u8(self.reason.to_u8())?;
        }
        if remaining > 1 {
            self.properties.encode(properties, out)?;
        }
        Ok(())
    }
}
