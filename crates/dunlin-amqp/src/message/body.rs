//! The body of an AMQP message as a payload, and back.

use bytes::Bytes;
use dunlin_amqp_codec::{BodyKind, Message, Value};

use super::json::to_json;
use super::names;

/// A payload and what it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Payload {
    pub(super) bytes: Bytes,
    /// Payload Format Indicator.
    pub(super) is_utf8: Option<bool>,
    /// Content Type, if it is not that of the message.
    pub(super) content_type: Option<&'static str>,
    /// What indicator and Content Type do not say of the body.
    pub(super) note: Option<&'static str>,
}

/// The payload of the message that `form` is, a slice of it where it can be.
pub(super) fn payload(form: &Bytes, message: &Message<'_>, has_content_type: bool) -> Payload {
    let body = message.body();
    let slice = |bytes: &[u8]| form.slice_ref(bytes);
    let mut values = body.values();
    let (first, second) = (values.next(), values.next());
    let Some(Ok(value)) = first else {
        return Payload {
            note: Some("none"),
            ..Payload::default()
        };
    };
    if second.is_none() {
        match value {
            Value::Binary(data) => {
                return Payload {
                    bytes: slice(data),
                    note: (body.kind == BodyKind::Value).then_some("binary"),
                    ..Payload::default()
                };
            }
            Value::String(text) => {
                return Payload {
                    bytes: slice(text.as_bytes()),
                    is_utf8: Some(true),
                    note: has_content_type.then_some("string"),
                    ..Payload::default()
                };
            }
            Value::Null => {
                return Payload {
                    note: Some("null"),
                    ..Payload::default()
                };
            }
            _ => {}
        }
        if let Some(json) = to_json(&value) {
            return Payload {
                bytes: Bytes::from(json),
                is_utf8: Some(true),
                content_type: Some(names::JSON),
                note: None,
            };
        }
    }
    Payload {
        bytes: slice(body.bytes),
        content_type: Some(names::ENCODED),
        ..Payload::default()
    }
}

/// The bytes of a body: those of one data section or of one value that is text or
/// bytes, else all sections as they are.
pub(super) fn plain(bytes: &Bytes, message: &Message<'_>) -> Bytes {
    let body = message.body();
    let mut values = body.values();
    let part = match (values.next(), values.next()) {
        (Some(Ok(Value::Binary(data))), None) => data,
        (Some(Ok(Value::String(text))), None) => text.as_bytes(),
        (None | Some(Ok(Value::Null)), None) => &[],
        _ => body.bytes,
    };
    bytes.slice_ref(part)
}

/// The body of a message that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Body<'a> {
    #[default]
    None,
    Data(&'a [u8]),
    Value(Value<'a>),
}

impl<'a> Body<'a> {
    /// The body that says most about the payload.
    pub(super) fn usual(payload: &'a [u8], is_utf8: Option<bool>, has_content_type: bool) -> Self {
        match core::str::from_utf8(payload) {
            Ok(text) if is_utf8 == Some(true) && !has_content_type => {
                Self::Value(Value::String(text))
            }
            _ => Self::Data(payload),
        }
    }

    /// The body that `note` of a [`Payload`] says, if it fits.
    pub(super) fn noted(note: &str, payload: &'a [u8], is_utf8: Option<bool>) -> Option<Self> {
        Some(match note {
            "none" if payload.is_empty() => Self::None,
            "null" if payload.is_empty() => Self::Value(Value::Null),
            "binary" => Self::Value(Value::Binary(payload)),
            "string" if is_utf8 == Some(true) => {
                Self::Value(Value::String(core::str::from_utf8(payload).ok()?))
            }
            _ => return None,
        })
    }

    /// The Payload Format Indicator that it will be read with.
    pub(super) const fn is_utf8(&self) -> Option<bool> {
        match self {
            Self::Value(Value::String(_)) => Some(true),
            _ => None,
        }
    }
}
