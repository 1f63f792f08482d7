//! Properties (MQTT 5.0 section 2.2.2): how each wire type of the table in
//! `property_id.rs` is read and written. The packets list those that they may
//! carry with [`properties!`], which makes a plain struct and its codec.

use core::num::{NonZeroU16, NonZeroU32};

use dunlin_base::topic::TopicError;
use dunlin_base::{ByteSink, QoS};

use crate::property_id::{PropertyId, property_table};
use crate::reader::Reader;
use crate::writer::{VARINT_MAX, prefixed_len, put_prefixed, put_u16, put_varint, varint_len};
use crate::{DecodeError, EncodeError};

macro_rules! wire_types {
    ($($(#[$meta:meta])* $id:literal $Name:ident: $Kind:ident,)*) => {
        const fn extent(id: PropertyId) -> Extent {
            match id {
                $(PropertyId::$Name => $Kind::EXTENT,)*
            }
        }

        /// The wire type of each property, by its name.
        pub(crate) mod types {
            $(pub(crate) type $Name = super::$Kind;)*
        }
    };
}

property_table!(wire_types);

/// How far a value reaches, enough to step over it.
enum Extent {
    Fixed(usize),
    Varint,
    Prefixed,
    Pair,
}

/// Steps over the value of the property `id`; the bytes are already checked.
pub(crate) fn skip(r: &mut Reader<'_>, id: u8) -> Result<(), DecodeError> {
    let id = PropertyId::from_u8(id).ok_or(DecodeError::PropertyUnknown(id))?;
    match extent(id) {
        Extent::Fixed(len) => r.take(len).map(drop),
        Extent::Varint => r.varint().map(drop),
        Extent::Prefixed => r.binary().map(drop),
        Extent::Pair => r.binary().and_then(|_| r.binary()).map(drop),
    }
}

/// The fault of a property identifier that the packet does not list.
#[cold]
pub(crate) fn unexpected(id: u8) -> DecodeError {
    PropertyId::from_u8(id).map_or(
        DecodeError::PropertyUnknown(id),
        DecodeError::PropertyNotAllowed,
    )
}

/// A wire type: how its values are read, measured and written.
pub(crate) trait Kind<'a> {
    type Value: Copy;
    fn read(r: &mut Reader<'a>, id: PropertyId) -> Result<Self::Value, DecodeError>;
    fn len(value: Self::Value) -> Result<usize, EncodeError>;
    fn write(value: Self::Value, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError>;
}

macro_rules! kinds {
    ($($(#[$meta:meta])* $Kind:ident($Value:ty, $extent:expr) {
        read: |$r:ident, $id:ident| $read:expr;
        len: |$l:ident| $len:expr;
        write: |$w:ident, $out:ident| $write:expr;
    })*) => {
        $(
            $(#[$meta])*
            pub(crate) struct $Kind;

            impl $Kind {
                const EXTENT: Extent = $extent;
            }

            impl<'a> Kind<'a> for $Kind {
                type Value = $Value;

                fn read($r: &mut Reader<'a>, $id: PropertyId) -> Result<$Value, DecodeError> {
                    $read
                }

                fn len($l: $Value) -> Result<usize, EncodeError> {
                    $len
                }

                fn write(
                    $w: $Value,
                    $out: &mut (impl ByteSink + ?Sized),
                ) -> Result<(), EncodeError> {
                    $write
                }
            }
        )*
    };
}

kinds! {
    /// A byte that is 0 or 1.
    Flag(bool, Extent::Fixed(1)) {
        read: |r, id| match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::PropertyValue(id)),
        };
        len: |_value| Ok(1);
        write: |value, out| Ok(out.put_u8(u8::from(value))?);
    }
    /// Maximum QoS: 0 or 1; absence means 2.
    QosLimit(QoS, Extent::Fixed(1)) {
        read: |r, id| match r.u8()? {
            0 => Ok(QoS::AtMostOnce),
            1 => Ok(QoS::AtLeastOnce),
            _ => Err(DecodeError::PropertyValue(id)),
        };
        len: |value| if value == QoS::ExactlyOnce {
            Err(EncodeError::ValueOutOfRange)
        } else {
            Ok(1)
        };
        write: |value, out| Ok(out.put_u8(value as u8)?);
    }
    /// Two Byte Integer.
    TwoBytes(u16, Extent::Fixed(2)) {
        read: |r, _id| r.u16();
        len: |_value| Ok(2);
        write: |value, out| put_u16(out, value);
    }
    /// Two Byte Integer that is not 0.
    TwoBytesNonZero(NonZeroU16, Extent::Fixed(2)) {
        read: |r, id| NonZeroU16::new(r.u16()?).ok_or(DecodeError::PropertyValue(id));
        len: |_value| Ok(2);
        write: |value, out| put_u16(out, value.get());
    }
    /// Topic Alias, which has a reason code of its own for 0.
    Alias(NonZeroU16, Extent::Fixed(2)) {
        read: |r, _id| NonZeroU16::new(r.u16()?).ok_or(DecodeError::TopicAliasZero);
        len: |_value| Ok(2);
        write: |value, out| put_u16(out, value.get());
    }
    /// Four Byte Integer.
    FourBytes(u32, Extent::Fixed(4)) {
        read: |r, _id| r.u32();
        len: |_value| Ok(4);
        write: |value, out| Ok(out.put(&value.to_be_bytes())?);
    }
    /// Four Byte Integer that is not 0.
    FourBytesNonZero(NonZeroU32, Extent::Fixed(4)) {
        read: |r, id| NonZeroU32::new(r.u32()?).ok_or(DecodeError::PropertyValue(id));
        len: |_value| Ok(4);
        write: |value, out| Ok(out.put(&value.get().to_be_bytes())?);
    }
    /// Variable Byte Integer that is not 0: Subscription Identifier only.
    Varint(NonZeroU32, Extent::Varint) {
        read: |r, id| NonZeroU32::new(r.varint()?).ok_or(DecodeError::PropertyValue(id));
        len: |value| if value.get() > VARINT_MAX {
            Err(EncodeError::ValueOutOfRange)
        } else {
            Ok(varint_len(value.get() as usize))
        };
        write: |value, out| put_varint(out, value.get() as usize);
    }
    /// UTF-8 Encoded String.
    Text(&'a str, Extent::Prefixed) {
        read: |r, _id| r.text();
        len: |value| prefixed_len(value.as_bytes());
        write: |value, out| put_prefixed(out, value.as_bytes());
    }
    /// UTF-8 Encoded String that is a topic name.
    TopicName(&'a str, Extent::Prefixed) {
        read: |r, _id| {
            let name = r.topic_name(DecodeError::ResponseTopic)?;
            if name.is_empty() {
                return Err(DecodeError::ResponseTopic(TopicError::Empty));
            }
            Ok(name)
        };
        len: |value| prefixed_len(value.as_bytes());
        write: |value, out| put_prefixed(out, value.as_bytes());
    }
    /// Binary Data.
    Binary(&'a [u8], Extent::Prefixed) {
        read: |r, _id| r.binary();
        len: |value| prefixed_len(value);
        write: |value, out| put_prefixed(out, value);
    }
    /// UTF-8 String Pair.
    Pair((&'a str, &'a str), Extent::Pair) {
        read: |r, _id| Ok((r.text()?, r.text()?));
        len: |pair| Ok(prefixed_len(pair.0.as_bytes())? + prefixed_len(pair.1.as_bytes())?);
        write: |pair, out| {
            put_prefixed(out, pair.0.as_bytes())?;
            put_prefixed(out, pair.1.as_bytes())
        };
    }
}

/// Reads a value of the property `id`.
pub(crate) fn read<'a, K: Kind<'a>>(
    r: &mut Reader<'a>,
    id: PropertyId,
) -> Result<K::Value, DecodeError> {
    K::read(r, id)
}

/// Reads the property `id` into its place, which must still be empty.
pub(crate) fn read_once<'a, K: Kind<'a>>(
    r: &mut Reader<'a>,
    id: PropertyId,
    place: &mut Option<K::Value>,
) -> Result<(), DecodeError> {
    if place.is_some() {
        return Err(DecodeError::PropertyDuplicate(id));
    }
    *place = Some(read::<K>(r, id)?);
    Ok(())
}

/// Bytes of a property with its identifier, 0 when absent.
#[inline]
pub(crate) fn len_of<'a, K: Kind<'a>>(value: Option<K::Value>) -> Result<usize, EncodeError> {
    match value {
        Some(value) => Ok(1 + K::len(value)?),
        None => Ok(0),
    }
}

/// Writes the property `id`, nothing when absent.
#[inline]
pub(crate) fn write_one<'a, K: Kind<'a>>(
    id: PropertyId,
    value: Option<K::Value>,
    out: &mut (impl ByteSink + ?Sized),
) -> Result<(), EncodeError> {
    let Some(value) = value else {
        return Ok(());
    };
    out.put_u8(id as u8)?;
    K::write(value, out)
}

/// Declares the properties of a packet: a struct with one optional field per
/// property, and after each `;` one list of a property that may repeat.
macro_rules! properties {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident<$lt:lifetime> {
            $($(#[$fmeta:meta])* $field:ident: $ty:ty = $Prop:ident,)*
            $(; $(#[$lmeta:meta])* $list:ident: $lty:ty = $LProp:ident)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $Name<$lt> {
            $($(#[$fmeta])* pub $field: Option<$ty>,)*
            $($(#[$lmeta])* pub $list: $lty,)*
        }

        impl<$lt> $Name<$lt> {
            /// Reads the property length and the properties.
            #[inline]
            pub(crate) fn decode(
                r: &mut $crate::reader::Reader<$lt>,
            ) -> Result<Self, $crate::DecodeError> {
                // Most packets have none.
                if let Some((0, rest)) = r.rest().split_first() {
                    *r = $crate::reader::Reader::new(rest);
                    return Ok(Self::default());
                }
                Self::decode_some(r)
            }

            fn decode_some(
                r: &mut $crate::reader::Reader<$lt>,
            ) -> Result<Self, $crate::DecodeError> {
                let mut properties = Self::default();
                let len = r.varint()? as usize;
                let mut r = $crate::reader::Reader::new(r.take(len)?);
                while !r.is_empty() {
                    let at = r.rest();
                    match r.u8()? {
                        $(id if id == $crate::PropertyId::$Prop as u8 => {
                            $crate::property::read_once::<$crate::property::types::$Prop>(
                                &mut r,
                                $crate::PropertyId::$Prop,
                                &mut properties.$field,
                            )?;
                        })*
                        $(id if id == $crate::PropertyId::$LProp as u8 => {
                            $crate::property::read::<$crate::property::types::$LProp>(
                                &mut r,
                                $crate::PropertyId::$LProp,
                            )?;
                            properties.$list.note_wire(at);
                        })*
                        id => return Err($crate::property::unexpected(id)),
                    }
                }
                Ok(properties)
            }

            /// Bytes of the properties without the property length.
            #[inline]
            pub(crate) fn len(&self) -> Result<usize, $crate::EncodeError> {
                Ok(0
                    $(+ $crate::property::len_of::<$crate::property::types::$Prop>(
                        self.$field,
                    )?)*
                    $(+ self.$list.wire_len()?)*)
            }

            /// Writes the property length, which is `len`, and the properties.
            #[inline]
            pub(crate) fn encode(
                &self,
                len: usize,
                out: &mut (impl dunlin_base::ByteSink + ?Sized),
            ) -> Result<(), $crate::EncodeError> {
                if len == 0 {
                    return Ok(out.put_u8(0)?);
                }
                self.encode_some(len, out)
            }

            fn encode_some(
                &self,
                len: usize,
                out: &mut (impl dunlin_base::ByteSink + ?Sized),
            ) -> Result<(), $crate::EncodeError> {
                $crate::writer::put_varint(out, len)?;
                $($crate::property::write_one::<$crate::property::types::$Prop>(
                    $crate::PropertyId::$Prop,
                    self.$field,
                    out,
                )?;)*
                $(self.$list.write(out)?;)*
                Ok(())
            }
        }
    };
}
pub(crate) use properties;
