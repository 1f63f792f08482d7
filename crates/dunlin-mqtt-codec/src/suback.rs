//! SUBACK and UNSUBACK (MQTT 5.0 sections 3.9 and 3.11).

use dunlin_base::ByteSink;

use crate::reader::Reader;
use crate::reason::allowed;
use crate::writer::{packet_len, put_header_and_u16, varint_len};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, ReasonCode, ReasonCodes, ReasonProperties,
    Version,
};

/// Answer to SUBSCRIBE, one reason code per filter, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct SubAck<'a> {
    /// That of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties; 3.1.1 has none and leaves them out.
    pub properties: ReasonProperties<'a>,
    /// Granted QoS or failure; to 3.1.1 every failure is 0x80.
    pub reasons: ReasonCodes<'a>,
}

/// Answer to UNSUBSCRIBE, one reason code per filter, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct UnsubAck<'a> {
    /// That of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties; 3.1.1 has none and leaves them out.
    pub properties: ReasonProperties<'a>,
    /// What became of each; 3.1.1 has none and leaves them out.
    pub reasons: ReasonCodes<'a>,
}

impl<'a> SubAck<'a> {
    pub(crate) fn decode(body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let packet_id = r.packet_id()?;
        let (properties, allowed): (_, fn(u8) -> bool) = match version {
            Version::V311 => (ReasonProperties::default(), allowed::suback_v3),
            Version::V5 => (ReasonProperties::decode(&mut r)?, allowed::suback),
        };
        let reasons = decode_reasons(&mut r, allowed)?;
        Ok(Self {
            packet_id,
            properties,
            reasons,
        })
    }

    /// Bytes that encoding takes.
    ///
    /// # Errors
    /// As [`crate::Packet::encoded_len`].
    pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
        packet_len(lengths(&self.properties, self.reasons, version)?.0)
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
        let (remaining, properties) = lengths(&self.properties, self.reasons, version)?;
        put_header_and_u16(
            out,
            PacketType::SubAck.first_byte(),
            remaining,
            self.packet_id.get(),
        )?;
        if version == Version::V5 {
            self.properties.encode(properties, out)?;
        }
        for reason in self.reasons.iter() {
            out.put_u8(match version {
                Version::V311 if reason.is_error() => ReasonCode::UnspecifiedError.to_u8(),
                _ => reason.to_u8(),
            })?;
        }
        Ok(())
    }
}

impl<'a> UnsubAck<'a> {
    pub(crate) fn decode(body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let mut ack = Self {
            packet_id: r.packet_id()?,
            properties: ReasonProperties::default(),
            reasons: ReasonCodes::default(),
        };
        if version == Version::V5 {
            ack.properties = ReasonProperties::decode(&mut r)?;
            ack.reasons = decode_reasons(&mut r, allowed::unsuback)?;
        }
        r.finish()?;
        Ok(ack)
    }

    /// Bytes that encoding takes.
    ///
    /// # Errors
    /// As [`crate::Packet::encoded_len`].
    pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
        packet_len(self.lengths(version)?.0)
    }

    fn lengths(&self, version: Version) -> Result<(usize, usize), EncodeError> {
        match version {
            Version::V311 => Ok((2, 0)),
            Version::V5 => lengths(&self.properties, self.reasons, version),
        }
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
        put_header_and_u16(
            out,
            PacketType::UnsubAck.first_byte(),
            remaining,
            self.packet_id.get(),
        )?;
        if version == Version::V5 {
            self.properties.encode(properties, out)?;
            for reason in self.reasons.iter() {
                out.put_u8(reason.to_u8())?;
            }
        }
        Ok(())
    }
}

fn decode_reasons<'a>(
    r: &mut Reader<'a>,
    allowed: fn(u8) -> bool,
) -> Result<ReasonCodes<'a>, DecodeError> {
    let bytes = r.take_rest();
    if bytes.is_empty() {
        return Err(DecodeError::NoReasonCode);
    }
    match bytes.iter().find(|&&byte| !allowed(byte)) {
        Some(&byte) => Err(DecodeError::ReasonCode(byte)),
        None => Ok(ReasonCodes::from_wire(bytes)),
    }
}

/// Remaining length and length of the properties.
fn lengths(
    properties: &ReasonProperties<'_>,
    reasons: ReasonCodes<'_>,
    version: Version,
) -> Result<(usize, usize), EncodeError> {
    if reasons.is_empty() {
        return Err(EncodeError::ListEmpty);
    }
    let (properties, section) = match version {
        Version::V311 => (0, 0),
        Version::V5 => {
            let len = properties.len()?;
            (len, varint_len(len) + len)
        }
    };
    let remaining = 2 + section + reasons.len();
    packet_len(remaining)?;
    Ok((remaining, properties))
}
