//! A message that is to be sent: sections with types, or bytes as they are.

use core::time::Duration;
use std::time::SystemTime;

use bytes::Bytes;
use dunlin_amqp::codec::{
    EncodeError, Header, Map, MessageId, Properties, Section, SerialNumber, Symbol, Timestamp,
    Uuid, Value, encode_annotated,
};
use dunlin_base::Text;

/// A message that is to be sent.
///
/// # Examples
/// ```
/// use dunlin_amqp_client::Message;
/// use std::time::Duration;
///
/// let reading = Message::new("21.5")
///     .subject("temperature")
///     .content_type("text/plain")
///     .property("line", 7_u32)
///     .ttl(Duration::from_secs(60))
///     .durable(true);
/// # let _ = reading;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "does nothing until it is sent"]
pub struct Message {
    header: Header,
    annotations: Pairs,
    fields: Option<Box<Fields>>,
    application: Pairs,
    body: Body,
}

/// Names and encoded values.
type Pairs = Vec<(Text, Bytes)>;

/// What the message is made of after the properties.
#[derive(Clone, Debug)]
enum Body {
    /// One data section.
    Data(Bytes),
    /// One value section, encoded.
    Value(Bytes),
    /// Nothing but these bytes, which are all sections.
    Raw(Bytes),
}

impl Default for Body {
    fn default() -> Self {
        Self::Data(Bytes::new())
    }
}

/// Properties with their own memory.
#[derive(Clone, Debug, Default)]
struct Fields {
    message_id: Option<Id>,
    user_id: Option<Bytes>,
    to: Option<Text>,
    subject: Option<Text>,
    reply_to: Option<Text>,
    correlation_id: Option<Id>,
    content_type: Option<Text>,
    content_encoding: Option<Text>,
    expires: Option<Timestamp>,
    created: Option<Timestamp>,
    group: Option<(Text, u32)>,
}

/// A message id or correlation id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Id {
    /// A number.
    Ulong(u64),
    /// A UUID.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(Bytes),
    /// Text.
    String(String),
}

impl Id {
    fn get(&self) -> MessageId<'_> {
        match self {
            Self::Ulong(id) => MessageId::Ulong(*id),
            Self::Uuid(id) => MessageId::Uuid(Uuid(*id)),
            Self::Binary(id) => MessageId::Binary(id),
            Self::String(id) => MessageId::String(id),
        }
    }
}

impl From<u64> for Id {
    fn from(id: u64) -> Self {
        Self::Ulong(id)
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Self {
        Self::String(id.into())
    }
}

impl From<String> for Id {
    fn from(id: String) -> Self {
        Self::String(id)
    }
}

impl From<Bytes> for Id {
    fn from(id: Bytes) -> Self {
        Self::Binary(id)
    }
}

impl Message {
    /// A message with one data section.
    pub fn new(payload: impl Into<Payload>) -> Self {
        Self {
            body: Body::Data(payload.into().0),
            ..Self::default()
        }
    }

    /// A message whose body is a value, such as a string, a map or null.
    pub fn value(value: &Value<'_>) -> Self {
        Self {
            body: Body::Value(encoded(value)),
            ..Self::default()
        }
    }

    /// A whole message, encoded: all of its sections, as they go out. The other
    /// methods have no effect on it.
    pub fn raw(sections: impl Into<Bytes>) -> Self {
        Self {
            body: Body::Raw(sections.into()),
            ..Self::default()
        }
    }

    /// Whether it must survive a restart of those who hold it. Default false.
    pub const fn durable(mut self, durable: bool) -> Self {
        self.header.durable = durable;
        self
    }

    /// Higher goes first. Default 4.
    pub const fn priority(mut self, priority: u8) -> Self {
        self.header.priority = priority;
        self
    }

    /// How long it is worth delivering, in whole milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.header.ttl = Some(u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX));
        self
    }

    fn fields(&mut self) -> &mut Fields {
        self.fields.get_or_insert_default()
    }

    /// Identifies the message.
    pub fn message_id(mut self, id: impl Into<Id>) -> Self {
        self.fields().message_id = Some(id.into());
        self
    }

    /// The user who made it; a server may refuse another one than its own.
    pub fn user_id(mut self, user: impl Into<Bytes>) -> Self {
        self.fields().user_id = Some(user.into());
        self
    }

    /// The node that it is meant for; where an anonymous sender sends it to.
    pub fn to(mut self, address: impl AsRef<str>) -> Self {
        self.fields().to = Some(Text::from(address.as_ref()));
        self
    }

    /// What it is about.
    pub fn subject(mut self, subject: impl AsRef<str>) -> Self {
        self.fields().subject = Some(Text::from(subject.as_ref()));
        self
    }

    /// The node that answers go to.
    pub fn reply_to(mut self, address: impl AsRef<str>) -> Self {
        self.fields().reply_to = Some(Text::from(address.as_ref()));
        self
    }

    /// Says what an answer belongs to.
    pub fn correlation_id(mut self, id: impl Into<Id>) -> Self {
        self.fields().correlation_id = Some(id.into());
        self
    }

    /// Media type of the data, in ASCII.
    pub fn content_type(mut self, media_type: impl AsRef<str>) -> Self {
        self.fields().content_type = Some(Text::from(media_type.as_ref()));
        self
    }

    /// Encoding of the data beyond the media type, in ASCII.
    pub fn content_encoding(mut self, encoding: impl AsRef<str>) -> Self {
        self.fields().content_encoding = Some(Text::from(encoding.as_ref()));
        self
    }

    /// When it expires.
    pub fn absolute_expiry(mut self, at: SystemTime) -> Self {
        self.fields().expires = Some(timestamp(at));
        self
    }

    /// When it was made.
    pub fn creation_time(mut self, at: SystemTime) -> Self {
        self.fields().created = Some(timestamp(at));
        self
    }

    /// The group that it belongs to, and its place there.
    pub fn group(mut self, id: impl AsRef<str>, sequence: u32) -> Self {
        self.fields().group = Some((Text::from(id.as_ref()), sequence));
        self
    }

    /// Adds an application property.
    pub fn property<'v>(mut self, name: impl AsRef<str>, value: impl Into<Value<'v>>) -> Self {
        let pair = (Text::from(name.as_ref()), encoded(&value.into()));
        self.application.push(pair);
        self
    }

    /// Adds a message annotation; its name is ASCII.
    pub fn annotation<'v>(mut self, name: impl AsRef<str>, value: impl Into<Value<'v>>) -> Self {
        let pair = (Text::from(name.as_ref()), encoded(&value.into()));
        self.annotations.push(pair);
        self
    }

    /// The same message with another body: one data section.
    pub fn with_payload(mut self, payload: impl Into<Payload>) -> Self {
        self.body = Body::Data(payload.into().0);
        self
    }

    /// Writes it: what comes before the body's bytes, and those.
    pub(crate) fn encode(&self) -> Result<(Bytes, Bytes), EncodeError> {
        let mut head = Vec::new();
        let body = match &self.body {
            Body::Raw(bytes) => return Ok((Bytes::new(), bytes.clone())),
            Body::Data(bytes) | Body::Value(bytes) => bytes.clone(),
        };
        let header = (self.header != Header::default()).then_some(&self.header);
        let annotations = entries(&self.annotations, symbol)?;
        let map = (!annotations.is_empty()).then(|| Map::new(&annotations));
        encode_annotated(header, None, map, &mut head)?;
        if let Some(fields) = &self.fields {
            fields.get()?.encode(&mut head)?;
        }
        if !self.application.is_empty() {
            let pairs = entries(&self.application, |name| Ok(Value::String(name)))?;
            Section::ApplicationProperties.encode(&Value::Map(Map::new(&pairs)), &mut head)?;
        }
        match &self.body {
            Body::Data(_) | Body::Raw(_) => Section::encode_data_start(body.len(), &mut head)?,
            // A described value: its descriptor stands before it.
            Body::Value(_) => head.extend([0x00, 0x53, Section::AmqpValue as u8]),
        }
        Ok((head.into(), body))
    }
}

impl Fields {
    fn get<'s>(&'s self) -> Result<Properties<'s>, EncodeError> {
        let symbol = |text: Option<&'s Text>| match text {
            Some(text) => Symbol::new(text).map(Some).ok_or(EncodeError::TooLarge),
            None => Ok(None),
        };
        Ok(Properties {
            message_id: self.message_id.as_ref().map(Id::get),
            user_id: self.user_id.as_deref(),
            to: self.to.as_deref(),
            subject: self.subject.as_deref(),
            reply_to: self.reply_to.as_deref(),
            correlation_id: self.correlation_id.as_ref().map(Id::get),
            content_type: symbol(self.content_type.as_ref())?,
            content_encoding: symbol(self.content_encoding.as_ref())?,
            absolute_expiry_time: self.expires,
            creation_time: self.created,
            group_id: self.group.as_ref().map(|(id, _)| &**id),
            group_sequence: self.group.as_ref().map(|(_, place)| SerialNumber(*place)),
            reply_to_group_id: None,
        })
    }
}

/// Values as they are decoded again, with their names.
fn entries<'p>(
    pairs: &'p Pairs,
    name: impl Fn(&'p str) -> Result<Value<'p>, EncodeError>,
) -> Result<Vec<(Value<'p>, Value<'p>)>, EncodeError> {
    let all = pairs.iter().map(|(key, value)| {
        // It was encoded here.
        let value = Value::decode(value).map_err(|_| EncodeError::TooLarge)?;
        Ok((name(key)?, value))
    });
    all.collect()
}

fn symbol(text: &str) -> Result<Value<'_>, EncodeError> {
    Symbol::new(text)
        .map(Value::Symbol)
        .ok_or(EncodeError::TooLarge)
}

/// The encoded value; empty, which is none, if AMQP cannot say it.
fn encoded(value: &Value<'_>) -> Bytes {
    value.to_vec().unwrap_or_default().into()
}

fn timestamp(at: SystemTime) -> Timestamp {
    let millis = match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()),
        Err(before) => i64::try_from(before.duration().as_millis()).map(|millis| -millis),
    };
    Timestamp(millis.unwrap_or(i64::MAX))
}

/// Bytes of a message, from anything that has some.
#[derive(Clone, Debug)]
pub struct Payload(pub(crate) Bytes);

macro_rules! payload {
    ($($type:ty),*) => {$(
        impl From<$type> for Payload {
            fn from(bytes: $type) -> Self {
                Self(bytes.into())
            }
        }
    )*};
}

payload!(Bytes, String, Vec<u8>);

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use dunlin_amqp::codec::Message as Sections;

    use super::*;

    fn bytes(message: &Message) -> Vec<u8> {
        let (head, body) = message.encode().expect("encodable");
        [head, body].concat()
    }

    #[test]
    fn sections_are_read_as_they_were_written() {
        let message = Message::new("body")
            .durable(true)
            .priority(9)
            .ttl(Duration::from_secs(2))
            .message_id(7)
            .to("a/b")
            .subject("s")
            .content_type("text/plain")
            .correlation_id("c")
            .group("g", 3)
            .annotation("x-opt-a", true)
            .property("n", 5_u32)
            .property("t", "v");
        let bytes = bytes(&message);
        let sections = Sections::scan(&bytes).expect("a message");
        sections.check().expect("valid");
        let header = sections.header().expect("valid").expect("there");
        assert_eq!(
            (header.durable, header.priority, header.ttl),
            (true, 9, Some(2000))
        );
        let properties = sections.properties().expect("valid").expect("there");
        assert_eq!(properties.message_id, Some(MessageId::Ulong(7)));
        assert_eq!(properties.correlation_id, Some(MessageId::String("c")));
        assert_eq!(
            (properties.to, properties.subject),
            (Some("a/b"), Some("s"))
        );
        assert_eq!(properties.group_id, Some("g"));
        let map = sections.application_properties().expect("valid");
        let map = map.expect("there");
        assert_eq!(map.get("n"), Some(Value::Uint(5)));
        assert_eq!(map.get("t"), Some(Value::String("v")));
        let map = sections.message_annotations().expect("valid");
        assert_eq!(map.expect("there").get("x-opt-a"), Some(Value::Bool(true)));
        let data: Vec<_> = sections.body().data().collect();
        assert_eq!(data, [b"body"]);
    }

    #[test]
    fn a_plain_payload_has_nothing_before_it_but_its_section() {
        assert_eq!(bytes(&Message::new("x")), b"\x00\x53\x75\xa0\x01x");
        assert_eq!(bytes(&Message::raw("abc")), b"abc");
        let null = bytes(&Message::value(&Value::Null));
        assert_eq!(null, b"\x00\x53\x77\x40");
    }

    #[test]
    fn what_is_no_symbol_is_refused() {
        assert!(Message::new("").content_type("é").encode().is_err());
        assert!(Message::new("").annotation("é", 1_u32).encode().is_err());
    }
}
