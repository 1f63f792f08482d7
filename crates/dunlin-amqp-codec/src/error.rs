//! What can be wrong with received bytes, one variant per fault, and with
//! values to encode.

use dunlin_base::SinkFull;

/// Why bytes are not AMQP 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// An array with a constructor longer than
    /// [`crate::limits::ARRAY_CONSTRUCTOR_BYTES_MAX`].
    #[error("an array with a constructor that is too long")]
    ArrayConstructor,
    /// A boolean of one byte that is neither 0 nor 1.
    #[error("a boolean that is neither 0 nor 1")]
    Boolean,
    /// A character that is none of Unicode.
    #[error("a char that is no Unicode scalar value")]
    Char,
    /// The value of a composite type is not a list.
    #[error("a composite value that is not a list")]
    CompositeNotList,
    /// A frame whose data offset is below 2 or beyond its end.
    #[error("invalid data offset")]
    DataOffset,
    /// More levels of values in values than [`crate::limits::DEPTH_MAX`].
    #[error("values nested too deeply")]
    Depth,
    /// A descriptor of a type that has values in it.
    #[error("a descriptor that is not of a primitive type")]
    DescriptorType,
    /// An array of more empty elements than [`crate::limits::EMPTY_ELEMENTS_MAX`].
    #[error("an array of too many elements without bytes")]
    EmptyElements,
    /// A mandatory field is null or not there.
    #[error("mandatory field {0} is missing")]
    FieldMissing(&'static str),
    /// A field has a value of another type.
    #[error("field {0} has the wrong type")]
    FieldType(&'static str),
    /// A list has more fields than the composite type.
    #[error("more fields than {0} has")]
    FieldUnknown(&'static str),
    /// A field has a value outside of its range.
    #[error("field {0} has an invalid value")]
    FieldValue(&'static str),
    /// A frame longer than `max-frame-size`.
    #[error("a frame of {0} bytes is larger than the limit")]
    FrameSize(u32),
    /// A frame type that is not AMQP and not SASL.
    #[error("unknown frame type {0:#04x}")]
    FrameType(u8),
    /// A frame shorter than its header.
    #[error("a frame shorter than its header")]
    FrameTooShort,
    /// A map with a key that has no value.
    #[error("a map with an odd number of elements")]
    MapOdd,
    /// A frame that must have a body has none.
    #[error("a frame without a body")]
    EmptyFrame,
    /// Sections of a message come too late or twice.
    #[error("sections of a message in the wrong order")]
    SectionOrder,
    /// A message has a section that no specification knows.
    #[error("unknown section of a message")]
    SectionUnknown,
    /// A symbol with a character that is not ASCII.
    #[error("a symbol that is not ASCII")]
    SymbolNotAscii,
    /// Bytes after the end of a value.
    #[error("bytes after the end of a value")]
    TrailingBytes,
    /// The bytes end before the value does.
    #[error("the bytes end before the value")]
    Truncated,
    /// A constructor that no type has.
    #[error("unknown constructor {0:#04x}")]
    UnknownCode(u8),
    /// A frame with a body that is no performative.
    #[error("unknown performative")]
    UnknownPerformative,
    /// A string that is not UTF-8.
    #[error("a string that is not UTF-8")]
    Utf8,
    /// A value outside of the range of its type.
    #[error("a value outside of its range")]
    ValueOutOfRange,
    /// A value of another type than expected.
    #[error("a value of the wrong type")]
    WrongType,
}

impl DecodeError {
    /// The same fault, as that of the field `name`.
    pub(crate) const fn of(self, name: &'static str) -> Self {
        match self {
            Self::WrongType => Self::FieldType(name),
            Self::ValueOutOfRange => Self::FieldValue(name),
            other => other,
        }
    }
}

/// Why a value cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Elements of an array have different types, or more than one descriptor.
    #[error("an array of different types")]
    MixedArray,
    /// The sink is full; it may have got a part.
    #[error(transparent)]
    Sink(#[from] SinkFull),
    /// A length does not fit into 32 bits.
    #[error("larger than AMQP can express")]
    TooLarge,
}
