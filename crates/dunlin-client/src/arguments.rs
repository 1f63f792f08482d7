//! What arguments of the public functions can be made of: text and bytes.

use bytes::Bytes;
use dunlin_base::Text;

/// Text that an argument can be made of: `&str`, `String` or [`Text`].
#[derive(Clone, Debug, Default)]
pub struct TextArg(pub(crate) Text);

/// As [`TextArg`], by its former name.
pub type Topic = TextArg;

impl From<&str> for TextArg {
    fn from(text: &str) -> Self {
        Self(Text::from(text))
    }
}

impl From<&String> for TextArg {
    fn from(text: &String) -> Self {
        Self(Text::from(text.as_str()))
    }
}

impl From<String> for TextArg {
    fn from(text: String) -> Self {
        Self(Text::from(text))
    }
}

impl From<Text> for TextArg {
    fn from(text: Text) -> Self {
        Self(text)
    }
}

/// Bytes that an argument can be made of: byte and text slices and vectors,
/// [`Bytes`] without a copy.
#[derive(Clone, Debug, Default)]
pub struct Payload(pub(crate) Bytes);

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        Self(Bytes::from(text.into_bytes()))
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Payload {
    fn from(bytes: &[u8; N]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::from(bytes))
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}
