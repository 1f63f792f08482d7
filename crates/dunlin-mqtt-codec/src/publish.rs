//! PUBLISH (MQTT 5.0 section 3.3). Knows nothing of topic aliases beyond their
//! number: a topic may be empty here when there is an alias.

use core::num::NonZeroU16;

use dunlin_base::{ByteSink, QoS};

use crate::property::properties;
use crate::reader::Reader;
use crate::writer::{packet_len, prefixed_len, put_header_and_u16, put_u16, varint_len};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, SubscriptionIdentifiers, UserProperties,
    Version,
};

const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;

/// An application message on its way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publish<'a> {
    /// It may have been sent before.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// Retain it; or, to a subscriber, that it was retained.
    pub retain: bool,
    /// Topic name; empty only with a topic alias.
    pub topic: &'a str,
    /// Present exactly when the QoS is not 0.
    pub packet_id: Option<PacketId>,
    /// Application payload.
    pub payload: &'a [u8],
    /// Properties; 3.1.1 has none and leaves them out.
    pub properties: PublishProperties<'a>,
}

properties! {
    /// Properties of PUBLISH (section 3.3.2.3).
    pub struct PublishProperties<'a> {
        /// `true`: the payload is UTF-8; `false`: unspecified bytes.
        payload_format_indicator: bool = PayloadFormatIndicator,
        /// Lifetime in seconds.
        message_expiry_interval: u32 = MessageExpiryInterval,
        /// Number that stands for the topic on this connection.
        topic_alias: NonZeroU16 = TopicAlias,
        /// Topic for a response.
        response_topic: &'a str = ResponseTopic,
        /// What lets a requester recognise the response.
        correlation_data: &'a [u8] = CorrelationData,
        /// Kind of content, such as a MIME type.
        content_type: &'a str = ContentType,
        ;
        /// Identifiers of the subscriptions that matched.
        subscription_identifiers: SubscriptionIdentifiers<'a> = SubscriptionIdentifier
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}

/// Where things are in what [`Publish::encode_header`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Offset of the packet identifier (two bytes, big-endian) from the start
    /// of what was written; `None` for QoS 0.
    pub packet_id_offset: Option<usize>,
    /// Bytes written: all of the packet but the payload.
    pub len: usize,
}

impl HeaderLayout {
    /// Bit of the first byte that is the DUP flag.
    pub const DUP: u8 = DUP;
}

/// The lengths that encoding needs, each computed once.
struct Lengths {
    properties: usize,
    remaining: usize,
}

impl<'a> Publish<'a> {
    /// Decodes what follows the fixed header with these `flags`.
    #[inline]
    pub(crate) fn decode(flags: u8, body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let qos = QoS::from_u8((flags >> 1) & 0b11).ok_or(DecodeError::QosReserved)?;
        let dup = flags & DUP != 0;
        if dup && qos == QoS::AtMostOnce {
            return Err(DecodeError::DupWithoutQos);
        }
        let mut r = Reader::new(body);
        let topic = r.topic_name(DecodeError::TopicName)?;
        let packet_id = match qos {
            QoS::AtMostOnce => None,
            _ => Some(r.packet_id()?),
        };
        let properties = match version {
            Version::V311 => PublishProperties::default(),
            Version::V5 => PublishProperties::decode(&mut r)?,
        };
        if topic.is_empty() && properties.topic_alias.is_none() {
            return Err(DecodeError::TopicMissing);
        }
        Ok(Self {
            dup,
            qos,
            retain: flags & RETAIN != 0,
            topic,
            packet_id,
            payload: r.take_rest(),
            properties,
        })
    }

    /// Bytes that [`Publish::encode`] writes.
    ///
    /// # Errors
    /// What [`Publish::encode`] would fail with for lack of anything but room.
    pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
        self.encoded_len_with(version, self.payload.len())
    }

    /// As [`Publish::encoded_len`] with a payload of `payload_len` bytes;
    /// `self.payload` is not looked at.
    ///
    /// # Errors
    /// As [`Publish::encoded_len`].
    #[inline]
    pub fn encoded_len_with(
        &self,
        version: Version,
        payload_len: usize,
    ) -> Result<usize, EncodeError> {
        packet_len(self.lengths(version, payload_len)?.remaining)
    }

    /// Writes the whole packet.
    ///
    /// # Errors
    /// A field or the packet is too long, the packet identifier does not go
    /// with the QoS, the topic is empty where it must not be, or the sink is
    /// full, which leaves a part of the packet in it.
    #[inline]
    pub fn encode(
        &self,
        version: Version,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        self.encode_header(version, self.payload.len(), out)?;
        Ok(out.put(self.payload)?)
    }

    /// Writes everything but the payload, which is `payload_len` bytes and
    /// must follow; `self.payload` is not looked at.
    ///
    /// The bytes serve many receivers: patch the packet identifier at
    /// [`HeaderLayout::packet_id_offset`] and set [`HeaderLayout::DUP`] in the
    /// first byte as each needs.
    ///
    /// # Errors
    /// As [`Publish::encode`].
    pub fn encode_header(
        &self,
        version: Version,
        payload_len: usize,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<HeaderLayout, EncodeError> {
        self.encode_header_within(version, payload_len, usize::MAX, out)
    }

    /// As [`Publish::encode_header`], of a packet of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// As [`Publish::encode`], and [`EncodeError::PacketTooLarge`] before anything
    /// is written.
    pub fn encode_header_within(
        &self,
        version: Version,
        payload_len: usize,
        bytes_max: usize,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<HeaderLayout, EncodeError> {
        let lengths = self.lengths(version, payload_len)?;
        let header_len = 1 + varint_len(lengths.remaining);
        if header_len + lengths.remaining > bytes_max {
            return Err(EncodeError::PacketTooLarge);
        }
        let topic = self.topic.as_bytes();
        let topic_len = u16::try_from(topic.len()).map_err(|_| EncodeError::FieldTooLong)?;
        put_header_and_u16(out, self.first_byte(), lengths.remaining, topic_len)?;
        out.put(topic)?;
        if let Some(packet_id) = self.packet_id {
            put_u16(out, packet_id.get())?;
        }
        if version == Version::V5 {
            self.properties.encode(lengths.properties, out)?;
        }
        Ok(HeaderLayout {
            packet_id_offset: self.packet_id.map(|_| header_len + 2 + self.topic.len()),
            len: header_len + lengths.remaining - payload_len,
        })
    }

    /// Checks that a payload declared as UTF-8 is: a receiver may, and pays
    /// for it (section 3.3.2.3.2), so [`crate::decode`] leaves it to its caller.
    ///
    /// # Errors
    /// [`DecodeError::PayloadFormat`] when it is not.
    pub fn check_payload_format(&self) -> Result<(), DecodeError> {
        if self.properties.payload_format_indicator == Some(true) {
            core::str::from_utf8(self.payload).map_err(|_| DecodeError::PayloadFormat)?;
        }
        Ok(())
    }

    const fn first_byte(&self) -> u8 {
        PacketType::Publish.first_byte()
            | ((self.dup as u8) << 3)
            | ((self.qos as u8) << 1)
            | (self.retain as u8)
    }

    #[inline]
    fn lengths(&self, version: Version, payload_len: usize) -> Result<Lengths, EncodeError> {
        let has_id = self.qos != QoS::AtMostOnce;
        if has_id != self.packet_id.is_some() {
            return Err(EncodeError::PacketId);
        }
        if self.dup && !has_id {
            return Err(EncodeError::ValueOutOfRange);
        }
        let (properties, section) = match version {
            Version::V311 => (0, 0),
            Version::V5 => {
                let len = self.properties.len()?;
                (len, varint_len(len) + len)
            }
        };
        if self.topic.is_empty()
            && (version == Version::V311 || self.properties.topic_alias.is_none())
        {
            return Err(EncodeError::ValueOutOfRange);
        }
        let id_len = if has_id { 2 } else { 0 };
        let head = prefixed_len(self.topic.as_bytes())? + id_len + section;
        let remaining = head.saturating_add(payload_len);
        packet_len(remaining)?;
        Ok(Lengths {
            properties,
            remaining,
        })
    }
}
