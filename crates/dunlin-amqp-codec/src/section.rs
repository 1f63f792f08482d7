//! The sections of a message (section 3.2), one by one.

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::value::read_descriptor;
use crate::writer::variable_len;
use crate::{
    DecodeError, Descriptor, EncodeError, Map, MessageId, SerialNumber, Symbol, Timestamp, Value,
    code,
};

composite! {
    /// What a node may change on the way of a message.
    Header = 0x70, "amqp:header:list" {
        /// The message must survive a restart.
        durable: default bool = false,
        /// Higher goes first.
        priority: default u8 = 4,
        /// Milliseconds that the message is worth delivering.
        ttl: optional u32,
        /// Acquired by no other link before.
        first_acquirer: default bool = false,
        /// Deliveries that failed before.
        delivery_count: default u32 = 0,
    }
}

composite! {
    /// Properties of the bare message.
    Properties<'a> = 0x73, "amqp:properties:list" {
        /// Identifies the message.
        message_id: optional MessageId<'a>,
        /// The user who made it.
        user_id: optional &'a [u8],
        /// The node that it is meant for.
        to: optional &'a str,
        /// What it is about.
        subject: optional &'a str,
        /// The node that answers go to.
        reply_to: optional &'a str,
        /// Says what an answer belongs to.
        correlation_id: optional MessageId<'a>,
        /// Media type (RFC 2046) of the data.
        content_type: optional Symbol<'a>,
        /// Encoding of the data, beyond the media type.
        content_encoding: optional Symbol<'a>,
        /// When the message expires.
        absolute_expiry_time: optional Timestamp,
        /// When the message was made.
        creation_time: optional Timestamp,
        /// The group that it belongs to.
        group_id: optional &'a str,
        /// Its place in the group.
        group_sequence: optional SerialNumber,
        /// The group that answers belong to.
        reply_to_group_id: optional &'a str,
    }
}

/// A kind of section; the number is its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Section {
    /// See [`Header`].
    Header = 0x70,
    /// For the next node only.
    DeliveryAnnotations = 0x71,
    /// For all nodes on the way.
    MessageAnnotations = 0x72,
    /// See [`Properties`].
    Properties = 0x73,
    /// Of the application: strings to simple values.
    ApplicationProperties = 0x74,
    /// Bytes; a body may have several.
    Data = 0x75,
    /// A list; a body may have several.
    AmqpSequence = 0x76,
    /// Any value.
    AmqpValue = 0x77,
    /// Signatures and the like.
    Footer = 0x78,
}

impl Section {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Header, Header::SYMBOL),
        (Self::DeliveryAnnotations, "amqp:delivery-annotations:map"),
        (Self::MessageAnnotations, "amqp:message-annotations:map"),
        (Self::Properties, Properties::SYMBOL),
        (
            Self::ApplicationProperties,
            "amqp:application-properties:map",
        ),
        (Self::Data, "amqp:data:binary"),
        (Self::AmqpSequence, "amqp:amqp-sequence:list"),
        (Self::AmqpValue, "amqp:amqp-value:*"),
        (Self::Footer, "amqp:footer:map"),
    ];

    /// Numeric descriptor.
    #[must_use]
    pub const fn descriptor(self) -> u64 {
        self as u64
    }

    /// The section that `descriptor` begins.
    fn from_descriptor(descriptor: Descriptor<'_>) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(section, symbol)| descriptor.is(section.descriptor(), symbol))
            .map(|(section, _)| section)
    }

    /// Reads the beginning of a section, up to the constructor of its value.
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.u8()? != code::DESCRIBED {
            return Err(DecodeError::SectionUnknown);
        }
        Self::from_descriptor(read_descriptor(r)?).ok_or(DecodeError::SectionUnknown)
    }

    /// Bytes of this section with `value` in it.
    #[must_use]
    pub fn encoded_len(self, value: &Value<'_>) -> usize {
        3 + value.encoded_len()
    }

    /// Writes this section with `value` in it.
    ///
    /// # Errors
    /// As [`Value::encode`].
    pub fn encode(
        self,
        value: &Value<'_>,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        self.put_descriptor(out)?;
        value.encode(out)
    }

    /// Bytes of the data section that has `len` bytes in it.
    #[must_use]
    pub const fn data_len(len: usize) -> usize {
        3 + variable_len(len)
    }

    /// Writes the beginning of a data section, up to its `len` bytes.
    ///
    /// # Errors
    /// The sink is full, or the bytes are more than AMQP can say.
    pub fn encode_data_start(
        len: usize,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        Self::Data.put_descriptor(out)?;
        if let Ok(len) = u8::try_from(len) {
            return Ok(out.put(&[code::BINARY8, len])?);
        }
        let len = u32::try_from(len).map_err(|_| EncodeError::TooLarge)?;
        out.put_u8(code::BINARY32)?;
        Ok(out.put(&len.to_be_bytes())?)
    }

    fn put_descriptor(self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        Ok(out.put(&[code::DESCRIBED, code::SMALL_ULONG, self as u8])?)
    }
}

/// Writes the sections that a node may write: before the bare message.
///
/// # Errors
/// As [`Value::encode`].
pub fn encode_annotated(
    header: Option<&Header>,
    delivery_annotations: Option<Map<'_>>,
    message_annotations: Option<Map<'_>>,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    if let Some(header) = header {
        header.write(out)?;
    }
    if let Some(map) = delivery_annotations {
        Section::DeliveryAnnotations.encode(&Value::Map(map), out)?;
    }
    if let Some(map) = message_annotations {
        Section::MessageAnnotations.encode(&Value::Map(map), out)?;
    }
    Ok(())
}
