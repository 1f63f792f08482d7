//! AUTH (MQTT 5.0 section 3.15), which 3.1.1 does not have.

use dunlin_base::ByteSink;

use crate::ack::read_reason;
use crate::property::properties;
use crate::reader::Reader;
use crate::reason::allowed;
use crate::writer::{packet_len, put_header, varint_len};
use crate::{DecodeError, EncodeError, PacketType, ReasonCode, UserProperties, Version};

/// A step of extended authentication.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auth<'a> {
    /// What the step is.
    pub reason: ReasonCode,
    /// Properties.
    pub properties: AuthProperties<'a>,
}

properties! {
    /// Properties of AUTH (section 3.15.2.2).
    pub struct AuthProperties<'a> {
        /// Method of extended authentication; needed unless the packet is
        /// `Success` without any property.
        authentication_method: &'a str = AuthenticationMethod,
        /// Data of extended authentication.
        authentication_data: &'a [u8] = AuthenticationData,
        /// The reason for people and logs.
        reason_string: &'a str = ReasonString,
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}

impl<'a> Auth<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        if r.is_empty() {
            return Ok(Self::default());
        }
        let auth = Self {
            reason: read_reason(&mut r, allowed::auth)?,
            properties: AuthProperties::decode(&mut r)?,
        };
        r.finish()?;
        if auth.properties.authentication_method.is_none() {
            return Err(DecodeError::AuthenticationMethodMissing);
        }
        Ok(auth)
    }

    /// Remaining length and length of the properties.
    fn lengths(&self, version: Version) -> Result<(usize, usize), EncodeError> {
        if version == Version::V311 {
            return Err(EncodeError::NotInVersion);
        }
        let properties = self.properties.len()?;
        let remaining = match (self.reason, properties) {
            (ReasonCode::Success, 0) => 0,
            (_, len) => 1 + varint_len(len) + len,
        };
        if remaining > 0 && self.properties.authentication_method.is_none() {
            return Err(EncodeError::ValueOutOfRange);
        }
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
        put_header(out, PacketType::Auth, remaining)?;
        if remaining > 0 {
            out.put_u8(self.reason.to_u8())?;
            self.properties.encode(properties, out)?;
        }
        Ok(())
    }
}
