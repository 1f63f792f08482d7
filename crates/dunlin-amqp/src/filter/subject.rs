//! What filters see of a message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::{DecodeError, Map, Message as Scanned, Properties, Symbol, Value};
use dunlin_base::{Form, Instant, Message, QoS};

use super::term::{Number, Term};
use crate::message::{Attempt, to_amqp};

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Field {
    Durable,
    DeliveryMode,
    Priority,
    Property(Property),
    Annotation(Box<str>),
    Application(Box<str>),
    /// A name that stands for nothing here.
    Unknown,
}

impl Field {
    /// Bytes of its name, where it has its own.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Annotation(name) | Self::Application(name) => name.len(),
            _ => 0,
        }
    }
}

/// A property of the bare message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    MessageId,
    UserId,
    To,
    Subject,
    ReplyTo,
    CorrelationId,
    ContentType,
    ContentEncoding,
    AbsoluteExpiryTime,
    CreationTime,
    GroupId,
    GroupSequence,
    ReplyToGroupId,
}

impl Property {
    /// By the name of the specification, with `_` for `-` or as it is.
    pub(super) fn of(name: &str) -> Option<Self> {
        let is = |it: &&(&str, Self)| it.0.bytes().map(dash).eq(name.bytes().map(dash));
        Self::NAMES.iter().find(is).map(|it| it.1)
    }

    const NAMES: [(&'static str, Self); 13] = [
        ("message-id", Self::MessageId),
        ("user-id", Self::UserId),
        ("to", Self::To),
        ("subject", Self::Subject),
        ("reply-to", Self::ReplyTo),
        ("correlation-id", Self::CorrelationId),
        ("content-type", Self::ContentType),
        ("content-encoding", Self::ContentEncoding),
        ("absolute-expiry-time", Self::AbsoluteExpiryTime),
        ("creation-time", Self::CreationTime),
        ("group-id", Self::GroupId),
        ("group-sequence", Self::GroupSequence),
        ("reply-to-group-id", Self::ReplyToGroupId),
    ];
}

const fn dash(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}

impl Field {
    /// A name in a selector of JMS.
    pub(super) fn of_jms(name: &str) -> Self {
        let property = match name {
            "JMSPriority" => return Self::Priority,
            "JMSDeliveryMode" => return Self::DeliveryMode,
            "JMSMessageID" => Property::MessageId,
            "JMSCorrelationID" => Property::CorrelationId,
            "JMSType" => Property::Subject,
            "JMSTimestamp" => Property::CreationTime,
            "JMSExpiration" => Property::AbsoluteExpiryTime,
            "JMSDestination" => Property::To,
            "JMSReplyTo" => Property::ReplyTo,
            "JMSXUserID" => Property::UserId,
            "JMSXGroupID" => Property::GroupId,
            "JMSXGroupSeq" => Property::GroupSequence,
            _ => {
                return match name.strip_prefix("m.") {
                    Some(name) => Self::Annotation(name.into()),
                    None => Self::Application(name.into()),
                };
            }
        };
        Self::Property(property)
    }

    /// A name in an SQL filter.
    pub(super) fn of_sql(name: &str) -> Self {
        let Some((section, field)) = name.split_once('.') else {
            return Self::Application(name.into());
        };
        match section {
            "header" | "h" => match field {
                "durable" => Self::Durable,
                "priority" => Self::Priority,
                _ => Self::Unknown,
            },
            "properties" | "p" => Property::of(field).map_or(Self::Unknown, Self::Property),
            "message_annotations" | "m" => Self::Annotation(field.into()),
            "application_properties" | "a" => Self::Application(field.into()),
            _ => Self::Application(name.into()),
        }
    }
}

/// What filters see of a message.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    durable: bool,
    priority: u8,
    properties: Properties<'a>,
    annotations: Map<'a>,
    application: Map<'a>,
}

impl<'a> Subject<'a> {
    /// The bytes of a message that a subject is of; a message that came by
    /// another protocol is written, without its payload.
    #[must_use]
    pub fn bytes(message: &Message, now: Instant) -> Bytes {
        let extra = message.extra.as_deref();
        match extra.and_then(|extra| extra.encoded.as_ref()) {
            Some(encoded) if encoded.form == Form::Amqp => encoded.bytes.clone(),
            _ => {
                let mut out = Vec::new();
                let bare = Message {
                    payload: Bytes::new(),
                    ..message.clone()
                };
                // A vector has room, and what was received is not too large.
                let written = to_amqp(&bare, now, Attempt::default(), &mut out);
                if written.is_err() {
                    Bytes::new()
                } else {
                    out.into()
                }
            }
        }
    }

    /// The subject of `message`, of which these are [`Subject::bytes`].
    ///
    /// # Errors
    /// The bytes are no valid message.
    pub fn of(message: &Message, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let scanned = Scanned::scan(bytes)?;
        let header = scanned.header()?.unwrap_or_default();
        let extra = message.extra.as_deref();
        Ok(Self {
            durable: message.qos != QoS::AtMostOnce,
            priority: extra
                .and_then(|extra| extra.priority)
                .unwrap_or(header.priority),
            properties: scanned.properties()?.unwrap_or_default(),
            annotations: scanned.message_annotations()?.unwrap_or_default(),
            application: scanned.application_properties()?.unwrap_or_default(),
        })
    }

    /// Steps that a look at a field takes.
    pub(super) fn steps(&self, field: &Field) -> usize {
        match field {
            Field::Annotation(_) => 1 + self.annotations.len(),
            Field::Application(_) => 1 + self.application.len(),
            _ => 1,
        }
    }

    /// The value of a field, null if it is not there.
    pub(super) fn value(&self, field: &Field) -> Value<'a> {
        let value = match field {
            Field::Durable => Some(Value::Bool(self.durable)),
            Field::DeliveryMode => Some(Value::String(if self.durable {
                "PERSISTENT"
            } else {
                "NON_PERSISTENT"
            })),
            Field::Priority => Some(Value::Ubyte(self.priority)),
            Field::Property(property) => self.property(*property),
            Field::Annotation(name) => self.annotations.get(name),
            Field::Application(name) => self.application.get(name),
            Field::Unknown => None,
        };
        value.unwrap_or_default()
    }

    fn property(&self, property: Property) -> Option<Value<'a>> {
        let from = &self.properties;
        match property {
            Property::MessageId => from.message_id.map(|id| id.value()),
            Property::UserId => from.user_id.map(Value::Binary),
            Property::To => from.to.map(Value::String),
            Property::Subject => from.subject.map(Value::String),
            Property::ReplyTo => from.reply_to.map(Value::String),
            Property::CorrelationId => from.correlation_id.map(|id| id.value()),
            Property::ContentType => from.content_type.map(Value::Symbol),
            Property::ContentEncoding => from.content_encoding.map(Value::Symbol),
            Property::AbsoluteExpiryTime => from.absolute_expiry_time.map(Value::Timestamp),
            Property::CreationTime => from.creation_time.map(Value::Timestamp),
            Property::GroupId => from.group_id.map(Value::String),
            Property::GroupSequence => from.group_sequence.map(|it| Value::Uint(it.0)),
            Property::ReplyToGroupId => from.reply_to_group_id.map(Value::String),
        }
    }

    /// A field as a term of a selector.
    pub(super) fn field(&self, field: &Field) -> Term<'a> {
        term_of(
            self.value(field),
            *field == Field::Property(Property::UserId),
        )
    }
}

/// A value as a term; `is_text` says that bytes are text if they are UTF-8.
fn term_of(value: Value<'_>, is_text: bool) -> Term<'_> {
    match value {
        Value::Null => Term::Null,
        Value::Bool(truth) => Term::Bool(truth),
        Value::String(text) => Term::Text(text),
        Value::Symbol(symbol) => Term::Text(Symbol::as_str(symbol)),
        Value::Binary(bytes) if is_text => {
            core::str::from_utf8(bytes).map_or(Term::Other, Term::Text)
        }
        other => number_of(&other).map_or(Term::Other, Term::Number),
    }
}

/// The number that a value is.
pub(super) fn number_of(value: &Value<'_>) -> Option<Number> {
    Some(match *value {
        Value::Float(number) => Number::Double(number.into()),
        Value::Double(number) => Number::Double(number),
        Value::Timestamp(at) => Number::Long(at.0),
        Value::Ulong(number) => {
            i64::try_from(number).map_or(Number::Double(number as f64), Number::Long)
        }
        _ => Number::Long(value.as_i64()?),
    })
}
