//! PUBACK, PUBREC, PUBREL and PUBCOMP (MQTT 5.0 sections 3.4 to 3.7), which
//! have one form.

use dunlin_base::ByteSink;

use crate::property::properties;
use crate::reader::Reader;
use crate::writer::{packet_len, put_header_and_u16, varint_len};
use crate::{DecodeError, EncodeError, PacketId, PacketType, ReasonCode, UserProperties, Version};

properties! {
    /// Properties of an acknowledgement.
    pub struct ReasonProperties<'a> {
        /// The reason for people and logs.
        reason_string: &'a str = ReasonString,
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}

/// An acknowledgement of a QoS 1 or QoS 2 message.
///
/// 3.1.1 has only the packet identifier and leaves out the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Ack<'a> {
    /// The message that it is about.
    pub packet_id: PacketId,
    /// What became of it.
    pub reason: ReasonCode,
    /// Properties.
    pub properties: ReasonProperties<'a>,
}

impl<'a> Ack<'a> {
    /// An acknowledgement without properties.
    #[must_use]
    pub fn new(packet_id: PacketId, reason: ReasonCode) -> Self {
        Self {
            packet_id,
            reason,
            properties: ReasonProperties::default(),
        }
    }

    pub(crate) fn decode(
        body: &'a [u8],
        version: Version,
        allowed: fn(u8) -> bool,
    ) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let mut ack = Self::new(r.packet_id()?, ReasonCode::Success);
        if version == Version::V5 && !r.is_empty() {
            ack.reason = read_reason(&mut r, allowed)?;
            if !r.is_empty() {
                ack.properties = ReasonProperties::decode(&mut r)?;
            }
        }
        r.finish()?;
        Ok(ack)
    }

    /// Remaining length and length of the properties.
    fn lengths(&self, version: Version) -> Result<(usize, usize), EncodeError> {
        if version == Version::V311 {
            return Ok((2, 0));
        }
        let properties = self.properties.len()?;
        let remaining = match (self.reason, properties) {
            (ReasonCode::Success, 0) => 2,
            (_, 0) => 3,
            (_, len) => 3 + varint_len(len) + len,
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

    /// Writes the packet as `packet_type`, which is one of the four; where
    /// only some packets are ever sent, less code than [`crate::Packet::encode`].
    ///
    /// # Errors
    /// As [`crate::Packet::encode`].
    pub fn encode(
        &self,
        packet_type: PacketType,
        version: Version,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        let (remaining, properties) = self.lengths(version)?;
        put_header_and_u16(
            out,
            packet_type.first_byte(),
            remaining,
            self.packet_id.get(),
        )?;
        if remaining > 2 {
            out.put_u8(self.reason.to_u8())?;
        }
        if remaining > 3 {
            self.properties.encode(properties, out)?;
        }
        Ok(())
    }
}

/// Reads a reason code that the packet may carry.
pub(crate) fn read_reason(
    r: &mut Reader<'_>,
    allowed: fn(u8) -> bool,
) -> Result<ReasonCode, DecodeError> {
    let byte = r.u8()?;
    ReasonCode::from_u8(byte)
        .filter(|_| allowed(byte))
        .ok_or(DecodeError::ReasonCode(byte))
}
