//! The properties of a bare message as User Properties, and back. The topic is
//! `to` unless a User Property says otherwise; Content Type, Response Topic and
//! Correlation Data are not looked at here, but for what they cannot say.

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec::Vec;

use dunlin_amqp_codec::{MessageId, Properties, SerialNumber, Symbol, Timestamp};
use dunlin_base::limits::MQTT_STRING_BYTES_MAX;
use dunlin_base::{Text, topic};

use super::names;
use super::typed::{base64, from_base64, from_uuid_text, number, uuid_text};

/// User Properties.
pub(super) type Pairs = Vec<(Text, Text)>;

/// Whether MQTT can say the text.
pub(super) fn is_text(text: &str) -> bool {
    text.len() <= MQTT_STRING_BYTES_MAX && !text.contains('\0')
}

/// Adds a User Property, if MQTT can say it. What it cannot say is found missing
/// when the message is mapped back.
pub(super) fn push(pairs: &mut Pairs, name: &str, value: Cow<'_, str>) {
    if is_text(name) && is_text(&value) {
        let value = match value {
            Cow::Borrowed(value) => Text::from(value),
            Cow::Owned(value) => Text::from(value),
        };
        pairs.push((Text::from(name), value));
    }
}

/// Whether an address is a Response Topic.
pub(super) fn is_topic(address: &str) -> bool {
    topic::validate_name(address).is_ok()
}

/// Correlation Data that an id is.
pub(super) fn correlation_bytes(id: MessageId<'_>) -> Cow<'_, [u8]> {
    match id {
        MessageId::Binary(bytes) => bytes.into(),
        MessageId::String(text) => text.as_bytes().into(),
        MessageId::Ulong(number) => number.to_be_bytes().to_vec().into(),
        MessageId::Uuid(uuid) => uuid.0.to_vec().into(),
    }
}

/// Adds what the fields of MQTT do not say of `properties`.
pub(super) fn to_pairs(
    properties: &Properties<'_>,
    topic: &str,
    expires: bool,
    priority: Option<u8>,
    pairs: &mut Pairs,
) {
    let mut text = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            push(pairs, name, value.into());
        }
    };
    match properties.to {
        None => text(names::TO, Some("")),
        // An empty address is left to the encoded bytes.
        Some("") => {}
        to => text(names::TO, to.filter(|to| *to != topic)),
    }
    text(names::SUBJECT, properties.subject);
    text(
        names::REPLY_TO,
        properties.reply_to.filter(|to| !is_topic(to)),
    );
    let encoding = properties.content_encoding.map(|it| it.as_str());
    text(names::CONTENT_ENCODING, encoding);
    text(names::GROUP_ID, properties.group_id);
    text(names::REPLY_TO_GROUP_ID, properties.reply_to_group_id);
    let mut made = |name: &str, value: Option<alloc::string::String>| {
        if let Some(value) = value {
            push(pairs, name, value.into());
        }
    };
    match properties.message_id {
        None => {}
        Some(MessageId::String(id)) => made(names::MESSAGE_ID, Some(id.into())),
        Some(MessageId::Ulong(id)) => made(names::MESSAGE_ID_ULONG, Some(id.to_string())),
        Some(MessageId::Uuid(id)) => made(names::MESSAGE_ID_UUID, Some(uuid_text(id))),
        Some(MessageId::Binary(id)) => made(names::MESSAGE_ID_BINARY, Some(base64(id))),
    }
    match properties.correlation_id {
        None | Some(MessageId::Binary(_)) => {}
        Some(MessageId::String(id)) => made(names::CORRELATION_ID, Some(id.into())),
        Some(MessageId::Ulong(id)) => made(names::CORRELATION_ID_ULONG, Some(id.to_string())),
        Some(MessageId::Uuid(id)) => made(names::CORRELATION_ID_UUID, Some(uuid_text(id))),
    }
    made(names::USER_ID, properties.user_id.map(base64));
    match properties.absolute_expiry_time {
        Some(at) => made(names::ABSOLUTE_EXPIRY_TIME, Some(at.0.to_string())),
        None if expires => made(names::ABSOLUTE_EXPIRY_TIME, Some("".into())),
        None => {}
    }
    made(
        names::CREATION_TIME,
        properties.creation_time.map(|at| at.0.to_string()),
    );
    made(
        names::GROUP_SEQUENCE,
        properties.group_sequence.map(|it| it.0.to_string()),
    );
    made(names::PRIORITY, priority.map(|it| it.to_string()));
}

/// Bytes that User Properties have in Base64, by their place.
pub(super) fn decoded(pairs: &[(Text, Text)], is_binary: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let is_wanted =
        |name: &str| matches!(name, names::USER_ID | names::MESSAGE_ID_BINARY) || is_binary(name);
    pairs
        .iter()
        .map(|(name, value)| is_wanted(name).then(|| from_base64(value)))
        .map(|bytes| bytes.flatten().unwrap_or_default())
        .collect()
}

/// Properties as they are gathered from User Properties.
#[derive(Debug, Default)]
pub(super) struct Gathered<'a> {
    pub(super) properties: Properties<'a>,
    /// Correlation Data, which a `correlation-id` must have.
    pub(super) correlation: Option<&'a [u8]>,
    /// `to` is said, even if it is absent.
    pub(super) has_to: bool,
    /// `absolute-expiry-time` is said, even if it is absent.
    pub(super) has_expiry: bool,
    pub(super) priority: Option<u8>,
}

/// Sets a field that is not set; `None` if it is, or has no value.
fn set<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    if field.is_some() {
        return None;
    }
    *field = Some(value?);
    Some(())
}

impl<'a> Gathered<'a> {
    /// Takes a User Property that says a property; `None` if it says none, or
    /// one that was said before, or something that does not fit.
    pub(super) fn take(&mut self, name: &str, value: &'a str, bytes: &'a [u8]) -> Option<()> {
        let to = &mut self.properties;
        let binary = (base64(bytes) == value).then_some(bytes);
        match name {
            names::MESSAGE_ID => set(&mut to.message_id, Some(MessageId::String(value))),
            names::MESSAGE_ID_ULONG => set(&mut to.message_id, number(value).map(MessageId::Ulong)),
            names::MESSAGE_ID_UUID => set(
                &mut to.message_id,
                from_uuid_text(value).map(MessageId::Uuid),
            ),
            names::MESSAGE_ID_BINARY => set(&mut to.message_id, binary.map(MessageId::Binary)),
            names::CORRELATION_ID => self.correlate(Some(MessageId::String(value))),
            names::CORRELATION_ID_ULONG => self.correlate(number(value).map(MessageId::Ulong)),
            names::CORRELATION_ID_UUID => {
                self.correlate(from_uuid_text(value).map(MessageId::Uuid))
            }
            names::USER_ID => set(&mut to.user_id, binary),
            names::SUBJECT => set(&mut to.subject, Some(value)),
            names::REPLY_TO => set(&mut to.reply_to, Some(value)),
            names::CONTENT_ENCODING => set(&mut to.content_encoding, Symbol::new(value)),
            names::CREATION_TIME => set(&mut to.creation_time, number(value).map(Timestamp)),
            names::GROUP_ID => set(&mut to.group_id, Some(value)),
            names::GROUP_SEQUENCE => set(&mut to.group_sequence, number(value).map(SerialNumber)),
            names::REPLY_TO_GROUP_ID => set(&mut to.reply_to_group_id, Some(value)),
            names::PRIORITY => set(&mut self.priority, number(value)),
            names::TO if !self.has_to => {
                self.has_to = true;
                to.to = Some(value).filter(|to| !to.is_empty());
                Some(())
            }
            names::ABSOLUTE_EXPIRY_TIME if !self.has_expiry => {
                let at = number(value).map(Timestamp);
                if at.is_none() && !value.is_empty() {
                    return None;
                }
                self.has_expiry = true;
                to.absolute_expiry_time = at;
                Some(())
            }
            _ => None,
        }
    }

    fn correlate(&mut self, id: Option<MessageId<'a>>) -> Option<()> {
        let id = id.filter(|id| self.correlation == Some(&*correlation_bytes(*id)));
        set(&mut self.properties.correlation_id, id)
    }
}
