//! The filter lists of SUBSCRIBE and UNSUBSCRIBE and the Subscription Options
//! (MQTT 5.0 section 3.8.3.1).

use dunlin_base::topic::Filter;
use dunlin_base::{ByteSink, QoS};

use crate::lists::list;
use crate::reader::Reader;
use crate::writer::{prefixed_len, put_prefixed};
use crate::{DecodeError, EncodeError, Version};

/// When retained messages are sent for a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    SendAtSubscribe = 0,
    /// Only if the subscription is new.
    SendIfNew = 1,
    /// Never.
    DoNotSend = 2,
}

/// Subscription Options; 3.1.1 has only the QoS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// Highest QoS that the client wants to receive.
    pub qos: QoS,
    /// Do not send the client its own messages.
    pub no_local: bool,
    /// Keep the RETAIN flag of forwarded messages.
    pub retain_as_published: bool,
    /// When to send retained messages.
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
    /// Reads the options byte of 5.0; that of 3.1.1 means the same.
    ///
    /// # Errors
    /// QoS 3, retain handling 3, or a reserved bit.
    pub const fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        if byte & 0b1100_0000 != 0 {
            return Err(DecodeError::SubscribeOptions);
        }
        let Some(qos) = QoS::from_u8(byte & 0b11) else {
            return Err(DecodeError::SubscribeQos);
        };
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(DecodeError::RetainHandling),
        };
        Ok(Self {
            qos,
            no_local: byte & 0b0100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }

    /// The options byte of 5.0.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        (self.qos as u8)
            | ((self.no_local as u8) << 2)
            | ((self.retain_as_published as u8) << 3)
            | ((self.retain_handling as u8) << 4)
    }
}

/// One subscription of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeFilter<'a> {
    /// The topic filter, with its `$share/NAME/` if it is shared.
    pub filter: &'a str,
    /// How to subscribe.
    pub options: SubscribeOptions,
}

/// The subscriptions of a SUBSCRIBE.
#[derive(Clone, Copy)]
pub struct SubscribeFilters<'a>(Subscriptions<'a>);

#[derive(Clone, Copy)]
enum Subscriptions<'a> {
    Slice(&'a [SubscribeFilter<'a>]),
    Wire { bytes: &'a [u8], count: usize },
}

impl<'a> SubscribeFilters<'a> {
    /// The subscriptions of a slice.
    #[must_use]
    pub const fn new(filters: &'a [SubscribeFilter<'a>]) -> Self {
        Self(Subscriptions::Slice(filters))
    }

    /// Checks the rest of a SUBSCRIBE.
    pub(crate) fn decode(r: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let bytes = r.take_rest();
        let mut r = Reader::new(bytes);
        let mut count = 0;
        while !r.is_empty() {
            let text = r.text()?;
            let filter = Filter::parse(text).map_err(DecodeError::TopicFilter)?;
            let byte = r.u8()?;
            let options = SubscribeOptions::from_byte(byte)?;
            if version == Version::V311 && byte & 0b1111_1100 != 0 {
                return Err(DecodeError::SubscribeOptions);
            }
            if options.no_local && filter.share.is_some() {
                return Err(DecodeError::NoLocalOnShared);
            }
            count += 1;
        }
        if count == 0 {
            return Err(DecodeError::NoTopicFilter);
        }
        Ok(Self(Subscriptions::Wire { bytes, count }))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Subscriptions::Slice(filters) => filters.len(),
            Subscriptions::Wire { count, .. } => count,
        }
    }

    /// The subscriptions, in order.
    pub fn iter(&self) -> impl Iterator<Item = SubscribeFilter<'a>> + Clone + use<'a> {
        let (slice, bytes) = match self.0 {
            Subscriptions::Slice(slice) => (slice, [].as_slice()),
            Subscriptions::Wire { bytes, .. } => ([].as_slice(), bytes),
        };
        let mut r = Reader::new(bytes);
        // The decoder has checked the bytes, so errors are only the end.
        slice.iter().copied().chain(core::iter::from_fn(move || {
            let filter = r.text().ok()?;
            let options = SubscribeOptions::from_byte(r.u8().ok()?).ok()?;
            Some(SubscribeFilter { filter, options })
        }))
    }

    pub(crate) fn wire_len(&self) -> Result<usize, EncodeError> {
        if self.is_empty() {
            return Err(EncodeError::ListEmpty);
        }
        self.iter().try_fold(0, |sum, subscription| {
            Ok(sum + prefixed_len(subscription.filter.as_bytes())? + 1)
        })
    }

    pub(crate) fn write(
        &self,
        version: Version,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        for subscription in self.iter() {
            put_prefixed(out, subscription.filter.as_bytes())?;
            out.put_u8(match version {
                Version::V311 => subscription.options.qos as u8,
                Version::V5 => subscription.options.to_byte(),
            })?;
        }
        Ok(())
    }
}

list!(SubscribeFilters, SubscribeFilter<'a>);

/// The filters of an UNSUBSCRIBE.
#[derive(Clone, Copy)]
pub struct UnsubscribeFilters<'a>(Filters<'a>);

#[derive(Clone, Copy)]
enum Filters<'a> {
    Slice(&'a [&'a str]),
    Wire { bytes: &'a [u8], count: usize },
}

impl<'a> UnsubscribeFilters<'a> {
    /// The filters of a slice.
    #[must_use]
    pub const fn new(filters: &'a [&'a str]) -> Self {
        Self(Filters::Slice(filters))
    }

    /// Checks the rest of an UNSUBSCRIBE.
    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = r.take_rest();
        let mut r = Reader::new(bytes);
        let mut count = 0;
        while !r.is_empty() {
            Filter::parse(r.text()?).map_err(DecodeError::TopicFilter)?;
            count += 1;
        }
        if count == 0 {
            return Err(DecodeError::NoTopicFilter);
        }
        Ok(Self(Filters::Wire { bytes, count }))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Filters::Slice(filters) => filters.len(),
            Filters::Wire { count, .. } => count,
        }
    }

    /// The filters, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let (slice, bytes) = match self.0 {
            Filters::Slice(slice) => (slice, [].as_slice()),
            Filters::Wire { bytes, .. } => ([].as_slice(), bytes),
        };
        let mut r = Reader::new(bytes);
        let wire = core::iter::from_fn(move || r.text().ok());
        slice.iter().copied().chain(wire)
    }

    pub(crate) fn wire_len(&self) -> Result<usize, EncodeError> {
        if self.is_empty() {
            return Err(EncodeError::ListEmpty);
        }
        self.iter()
            .try_fold(0, |sum, filter| Ok(sum + prefixed_len(filter.as_bytes())?))
    }

    pub(crate) fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.iter()
            .try_for_each(|filter| put_prefixed(out, filter.as_bytes()))
    }
}

list!(UnsubscribeFilters, &'a str);
