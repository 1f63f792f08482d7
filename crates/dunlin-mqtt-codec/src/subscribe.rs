//! SUBSCRIBE (MQTT 5.0 section 3.8).

use core::num::NonZeroU32;

use dunlin_base::ByteSink;

use crate::property::properties;
use crate::reader::Reader;
use crate::writer::{packet_len, put_header_and_u16, varint_len};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, SubscribeFilters, UserProperties, Version,
};

/// The client subscribes.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe<'a> {
    /// Comes back in the SUBACK.
    pub packet_id: PacketId,
    /// Number that marks the messages of these subscriptions; at most
    /// 268,435,455. 3.1.1 has none and leaves it out.
    pub subscription_identifier: Option<NonZeroU32>,
    /// Names and values of the application; 3.1.1 has none and leaves them out.
    pub user_properties: UserProperties<'a>,
    /// What to subscribe to; at least one.
    pub filters: SubscribeFilters<'a>,
}

properties! {
    /// Properties of SUBSCRIBE (section 3.8.2.1).
    struct SubscribeProperties<'a> {
        subscription_identifier: NonZeroU32 = SubscriptionIdentifier,
        ;
        user_properties: UserProperties<'a> = UserProperty
    }
}

impl<'a> Subscribe<'a> {
    pub(crate) fn decode(body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let packet_id = r.packet_id()?;
        let properties = match version {
            Version::V311 => SubscribeProperties::default(),
            Version::V5 => SubscribeProperties::decode(&mut r)?,
        };
        Ok(Self {
            packet_id,
            subscription_identifier: properties.subscription_identifier,
            user_properties: properties.user_properties,
            filters: SubscribeFilters::decode(&mut r, version)?,
        })
    }

    fn properties(&self) -> SubscribeProperties<'a> {
        SubscribeProperties {
            subscription_identifier: self.subscription_identifier,
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
            PacketType::Subscribe.first_byte(),
            remaining,
            self.packet_id.get(),
        )?;
        if version == Version::V5 {
            self.properties().encode(properties, out)?;
        }
        self.filters.write(version, out)
    }
}
