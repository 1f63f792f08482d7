//! UNSUBSCRIBE (MQTT 5.0 section 3.10).

use dunlin_base::ByteSink;

use crate::property::properties;
use crate::reader::Reader;
use crate::writer::{packet_len, put_header_and_u16, varint_len};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, UnsubscribeFilters, UserProperties, Version,
};

/// The client unsubscribes.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsubscribe<'a> {
    /// Comes back in the UNSUBACK.
    pub packet_id: PacketId,
    /// Names and values of the application; 3.1.1 has none and leaves them out.
    pub user_properties: UserProperties<'a>,
    /// What to unsubscribe from; at least one.
    pub filters: UnsubscribeFilters<'a>,
}

properties! {
    /// Properties of UNSUBSCRIBE (section 3.10.2.1).
    struct UnsubscribeProperties<'a> {
        ;
        user_properties: UserProperties<'a> = UserProperty
    }
}

impl<'a> Unsubscribe<'a> {
    pub(crate) fn decode(body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let packet_id = r.packet_id()?;
        let properties = match version {
            Version::V311 => UnsubscribeProperties::default(),
            Version::V5 => UnsubscribeProperties::decode(&mut r)?,
        };
        Ok(Self {
            packet_id,
            user_properties: properties.user_properties,
            filters: UnsubscribeFilters::decode(&mut r)?,
        })
    }

    fn properties(&self) -> UnsubscribeProperties<'a> {
        UnsubscribeProperties {
            user_properties: self.user_properties,
        }
    }

    /// Remaining length and length of the properties.
    fn lengths(&self, version: Version) -> Result<(usize, usize), EncodeError> {
        let (properties, section) = match version {
            Version::V311 => (0, 0),
            Version::V5 => {
                let len = self.properties().len()?;
                (len, varint_len(len) + len)
            }
        };
        let remaining = 2 + section + self.filters.wire_len()?;
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
        put_header_and_u16(
            out,
            PacketType::Unsubscribe.first_byte(),
            remaining,
            self.packet_id.get(),
        )?;
        if version == Version::V5 {
            self.properties().encode(properties, out)?;
        }
        self.filters.write(out)
    }
}
