//! Composite types (section 1.4): a described list whose fields are named by
//! their place. The macro `composite!` describes one, once; what is here reads
//! and writes all of them.

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::value::read_descriptor;
use crate::writer::{compound_len, put_compound};
use crate::{DecodeError, Descriptor, EncodeError, code};

/// A composite type.
pub(crate) trait Composite<'a>: Sized {
    /// Numeric descriptor.
    const CODE: u64;
    /// Symbolic descriptor.
    const SYMBOL: &'static str;

    /// Reads the fields in their order.
    fn read_fields(fields: &mut FieldReader<'a>) -> Result<Self, DecodeError>;

    /// Count and bytes of the fields.
    fn layout(&self) -> Layout;

    /// Writes the first `count` fields.
    fn write_fields(
        &self,
        count: usize,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError>;

    /// Reads the list with the constructor `code` that follows the descriptor.
    fn read_list(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (left, r) = match code {
            code::LIST0 => (0, Reader::new(&[])),
            code::LIST8 | code::LIST32 => r.compound(code)?,
            _ => return Err(DecodeError::CompositeNotList),
        };
        let mut fields = FieldReader { r, left };
        let value = Self::read_fields(&mut fields)?;
        if fields.left > 0 {
            return Err(DecodeError::FieldUnknown(Self::SYMBOL));
        }
        fields.r.finish()?;
        Ok(value)
    }
}

/// Whether `descriptor` is that of `T`.
#[inline]
pub(crate) fn is_described<'a, T: Composite<'a>>(descriptor: Descriptor<'_>) -> bool {
    descriptor.is(T::CODE, T::SYMBOL)
}

impl<'a, T: Composite<'a>> Field<'a> for T {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if code != code::DESCRIBED || !is_described::<T>(read_descriptor(r)?) {
            return Err(DecodeError::WrongType);
        }
        let code = r.u8()?;
        T::read_list(code, r)
    }

    fn encoded_len(&self) -> usize {
        let Layout { count, bytes } = self.layout();
        // Every descriptor of a composite type is a small ulong.
        3 + if count == 0 {
            1
        } else {
            compound_len(count, bytes)
        }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let Layout { count, bytes } = self.layout();
        out.put(&[code::DESCRIBED, code::SMALL_ULONG, T::CODE as u8])?;
        if count == 0 {
            return Ok(out.put_u8(code::LIST0)?);
        }
        put_compound(out, code::LIST8, count, bytes)?;
        self.write_fields(count, out)
    }
}

/// Reads the fields of a list.
pub(crate) struct FieldReader<'a> {
    r: Reader<'a>,
    left: u32,
}

impl<'a> FieldReader<'a> {
    /// The next field; `None` if it is null or the list has ended.
    #[inline]
    pub(crate) fn optional<T: Field<'a>>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match self.r.u8()? {
            code::NULL => Ok(None),
            code => T::read(code, &mut self.r).map(Some).map_err(|e| e.of(name)),
        }
    }

    /// The next field, which must be there.
    pub(crate) fn mandatory<T: Field<'a>>(&mut self, name: &'static str) -> Result<T, DecodeError> {
        self.optional(name)?.ok_or(DecodeError::FieldMissing(name))
    }
}

/// How much of a list is written.
pub(crate) struct Layout {
    /// Fields up to the last that is not null.
    pub(crate) count: usize,
    /// Their bytes.
    pub(crate) bytes: usize,
}

impl Layout {
    /// From the bytes of each field, 0 for null.
    pub(crate) fn of(lens: &[usize]) -> Self {
        let count = lens.iter().rposition(|&len| len > 0).map_or(0, |at| at + 1);
        let bytes = lens.iter().take(count).map(|&len| len.max(1)).sum();
        Self { count, bytes }
    }
}

/// Describes a composite type: its descriptors and its fields in their order,
/// each `mandatory`, `optional` or with a `default` value.
macro_rules! composite {
    (
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? = $code:literal, $symbol:literal {
            $($(#[$field_doc:meta])* $field:ident: $kind:ident $type:ty $(= $default:expr)?,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: field!(type $kind $type),)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Numeric descriptor.
            pub const DESCRIPTOR: u64 = $code;
            /// Symbolic descriptor.
            pub const SYMBOL: &'static str = $symbol;

            /// Decodes `bytes`, which are exactly one value of this type.
            ///
            /// # Errors
            /// The first rule that the bytes break.
            pub fn decode(bytes: &$($life)? [u8]) -> Result<Self, $crate::DecodeError> {
                $crate::field::read_whole(bytes)
            }

            /// Bytes that encoding takes.
            #[must_use]
            pub fn encoded_len(&self) -> usize {
                $crate::field::Field::encoded_len(self)
            }

            /// Writes the value with its descriptor.
            ///
            /// # Errors
            /// The sink is full, or the value is larger than AMQP can say.
            pub fn encode(
                &self,
                out: &mut (impl dunlin_base::ByteSink + ?Sized),
            ) -> Result<(), $crate::EncodeError> {
                $crate::field::Field::write(self, out)
            }
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                Self { $($field: field!(default $kind $($default)?),)* }
            }
        }

        impl<'a> $crate::composite::Composite<'a> for $name $(<$life>)? {
            const CODE: u64 = $code;
            const SYMBOL: &'static str = $symbol;

            #[inline]
            fn read_fields(
                fields: &mut $crate::composite::FieldReader<'a>,
            ) -> Result<Self, $crate::DecodeError> {
                let _ = &fields;
                Ok(Self {
                    $($field: field!(
                        read $kind fields,
                        concat!(stringify!($name), ".", stringify!($field))
                        $(, $default)?
                    ),)*
                })
            }

            #[inline]
            fn layout(&self) -> $crate::composite::Layout {
                $crate::composite::Layout::of(&[
                    $(field!(len $kind self.$field $(, $default)?),)*
                ])
            }

            #[inline]
            fn write_fields(
                &self,
                count: usize,
                out: &mut (impl dunlin_base::ByteSink + ?Sized),
            ) -> Result<(), $crate::EncodeError> {
                let left = count;
                $(
                    let Some(left) = left.checked_sub(1) else {
                        return Ok(());
                    };
                    field!(write $kind self.$field, out $(, $default)?)?;
                )*
                debug_assert_eq!(left, 0, "more fields than the type has");
                let _ = out;
                Ok(())
            }
        }
    };
}

/// What `composite!` does with one field, by its kind.
macro_rules! field {
    (type mandatory $type:ty) => { $type };
    (type optional $type:ty) => { Option<$type> };
    (type default $type:ty) => { $type };
    (default mandatory) => { Default::default() };
    (default optional) => { None };
    (default default $default:expr) => { $default };
    (read mandatory $fields:ident, $name:expr) => { $fields.mandatory($name)? };
    (read optional $fields:ident, $name:expr) => { $fields.optional($name)? };
    (read default $fields:ident, $name:expr, $default:expr) => {
        $fields.optional($name)?.unwrap_or($default)
    };
    (len mandatory $value:expr) => { $crate::field::Field::encoded_len(&$value) };
    (len optional $value:expr) => {
        $value.as_ref().map_or(0, $crate::field::Field::encoded_len)
    };
    (len default $value:expr, $default:expr) => {
        if $value == $default {
            0
        } else {
            $crate::field::Field::encoded_len(&$value)
        }
    };
    (write mandatory $value:expr, $out:ident) => {
        $crate::field::Field::write(&$value, $out)
    };
    (write optional $value:expr, $out:ident) => {
        match &$value {
            Some(value) => $crate::field::Field::write(value, $out),
            None => $crate::writer::put_null($out),
        }
    };
    (write default $value:expr, $out:ident, $default:expr) => {
        if $value == $default {
            $crate::writer::put_null($out)
        } else {
            $crate::field::Field::write(&$value, $out)
        }
    };
}

/// Implements [`Field`] for an enum that has one of several composite types,
/// and the conversion from each.
macro_rules! any_composite {
    ($name:ident { $($variant:ident($type:ident),)* }) => {
        impl<'a> $name<'a> {
            /// Reads the list after a descriptor.
            #[inline]
            fn read_list(
                descriptor: $crate::Descriptor<'a>,
                r: &mut $crate::reader::Reader<'a>,
            ) -> Result<Self, $crate::DecodeError> {
                $(
                    if $crate::composite::is_described::<$type<'_>>(descriptor) {
                        let code = r.u8()?;
                        // `map` instead of `?` lets the compiler build it in place.
                        return $crate::composite::Composite::read_list(code, r)
                            .map(Self::$variant);
                    }
                )*
                Err($crate::DecodeError::UnknownPerformative)
            }
        }

        impl<'a> $crate::field::Field<'a> for $name<'a> {
            fn read(
                code: u8,
                r: &mut $crate::reader::Reader<'a>,
            ) -> Result<Self, $crate::DecodeError> {
                if code != $crate::code::DESCRIBED {
                    return Err($crate::DecodeError::WrongType);
                }
                let descriptor = $crate::value::read_descriptor(r)?;
                Self::read_list(descriptor, r).map_err(|error| match error {
                    $crate::DecodeError::UnknownPerformative => $crate::DecodeError::WrongType,
                    other => other,
                })
            }

            fn encoded_len(&self) -> usize {
                match self {
                    $(Self::$variant(value) => value.encoded_len(),)*
                }
            }

            fn write(
                &self,
                out: &mut (impl dunlin_base::ByteSink + ?Sized),
            ) -> Result<(), $crate::EncodeError> {
                match self {
                    $(Self::$variant(value) => value.encode(out),)*
                }
            }
        }

        $(
            impl<'a> From<$type<'a>> for $name<'a> {
                fn from(value: $type<'a>) -> Self {
                    Self::$variant(value)
                }
            }
        )*
    };
}

/// Several values are none by default, and are compared and shown by their elements,
/// however they are kept.
macro_rules! as_its_elements {
    ($name:ident, $show:ident) => {
        impl Default for $name<'_> {
            fn default() -> Self {
                Self::new(&[])
            }
        }

        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.iter().eq(other.iter())
            }
        }

        impl core::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.$show().entries(self.iter()).finish()
            }
        }
    };
}
