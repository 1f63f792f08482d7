//! The sections that a neutral message is written as.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::{
    EncodeError, List, Map, MessageId, Properties, Section, Symbol, Timestamp, Value,
    encode_annotated,
};
use dunlin_base::{ByteSink, Instant, Message, MessageProperties, QoS, SinkFull, Text};

use super::body::Body;
use super::fields::{Gathered, Pairs, decoded};
use super::{application, fields, names};

/// A neutral message, or what will be one.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a Bytes,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) expires: Option<Instant>,
    pub(super) priority: Option<u8>,
    pub(super) properties: &'a MessageProperties,
}

impl<'a> View<'a> {
    pub(super) fn of(message: &'a Message, properties: &'a MessageProperties) -> Self {
        Self {
            topic: &message.topic,
            payload: &message.payload,
            qos: message.qos,
            retain: message.retain,
            expires: message.expires,
            priority: message.extra.as_ref().and_then(|extra| extra.priority),
            properties,
        }
    }

    /// The priority, also of a User Property.
    pub(super) fn said_priority(&self) -> Option<u8> {
        let pairs = self.properties.user_properties.iter();
        let said = || {
            let mut said = pairs.filter(|(name, _)| name.as_str() == names::PRIORITY);
            said.next().and_then(|(_, value)| value.parse().ok())
        };
        self.priority.or_else(said)
    }

    /// Writes message annotations and bare message.
    pub(super) fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let pairs = self.properties.user_properties.as_slice();
        let types = application::Types::of(pairs);
        let scratch = decoded(pairs, |name| types.is_binary(name));
        Sections::gather(self, &types, &scratch).write(self, out)
    }

    /// Whether the message is written as these bytes.
    pub(super) fn is_written_as(&self, bytes: &[u8]) -> bool {
        let mut rest = Matching(bytes);
        self.write(&mut rest).is_ok() && rest.0.is_empty()
    }
}

/// A sink that takes only the bytes that it expects.
struct Matching<'a>(&'a [u8]);

impl ByteSink for Matching<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkFull> {
        self.0 = self.0.strip_prefix(bytes).ok_or(SinkFull)?;
        Ok(())
    }
}

/// The sections of a message that is written.
pub(super) struct Sections<'a> {
    pub(super) properties: Properties<'a>,
    pub(super) application: Vec<(Value<'a>, Value<'a>)>,
    priority: Option<u8>,
    body: Body<'a>,
    /// What the body is noted as.
    note: Option<&'a str>,
}

impl<'a> Sections<'a> {
    /// Gathers them; `scratch` has the bytes of User Properties by their place.
    pub(super) fn gather(
        view: &View<'a>,
        types: &application::Types<'a>,
        scratch: &'a [Vec<u8>],
    ) -> Self {
        let from = view.properties;
        let mut fields = Gathered {
            correlation: from.correlation_data.as_deref(),
            ..Gathered::default()
        };
        fields.properties.reply_to = from.response_topic.as_deref();
        let mut application = application::Gathered::default();
        let (mut body, mut note) = (None, None);
        for (at, (name, value)) in from.user_properties.iter().enumerate() {
            let bytes = scratch.get(at).map_or(&[][..], Vec::as_slice);
            if name.starts_with(names::PREFIX) {
                if name.as_str() == names::TYPE {
                    continue;
                }
                if name.as_str() == names::BODY && body.is_none() {
                    body = Body::noted(value, view.payload, from.payload_is_utf8);
                    if body.is_some() {
                        note = Some(value.as_str());
                        continue;
                    }
                }
                if fields.take(name, value, bytes).is_some() {
                    continue;
                }
            }
            application.take(name, value, bytes, types);
        }
        application.take_unused_types(&from.user_properties);
        let usual = || {
            let has_content_type = from.content_type.is_some();
            Body::usual(view.payload, from.payload_is_utf8, has_content_type)
        };
        Self {
            priority: fields.priority.or(view.priority),
            properties: finish(view, fields),
            application: application.entries,
            body: body.unwrap_or_else(usual),
            note,
        }
    }

    /// The User Properties that these sections are read as.
    fn pairs(&self, view: &View<'_>) -> Pairs {
        let expires = view.expires.is_some();
        let map = Map::new(&self.application);
        let properties = &self.properties;
        pairs(
            properties,
            &map,
            view.topic,
            expires,
            self.priority,
            self.note,
        )
    }

    fn write(
        &self,
        view: &View<'a>,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        let from = view.properties;
        let is_said = self.pairs(view) == from.user_properties;
        let all: Vec<Value<'_>> = if is_said {
            Vec::new()
        } else {
            let pairs = from.user_properties.iter();
            pairs
                .flat_map(|(name, value)| [name.as_str(), value.as_str()])
                .map(Value::String)
                .collect()
        };
        let content_type = from.content_type.as_deref().filter(|it| !it.is_ascii());
        let format = from.payload_is_utf8;
        let is_format_said = format == self.body.is_utf8();
        let annotations = [
            (
                names::QOS,
                (view.qos == QoS::ExactlyOnce).then_some(Value::Ubyte(2)),
            ),
            (names::RETAIN, view.retain.then_some(Value::Bool(true))),
            (
                names::PAYLOAD_FORMAT,
                format
                    .filter(|_| !is_format_said)
                    .map(|it| Value::Ubyte(it.into())),
            ),
            (names::CONTENT_TYPE, content_type.map(Value::String)),
            (
                names::USER_PROPERTIES,
                (!is_said).then_some(Value::List(List::new(&all))),
            ),
        ];
        let annotations: Vec<_> = annotations
            .into_iter()
            .filter_map(|(name, value)| Some((Value::Symbol(Symbol::new(name)?), value?)))
            .collect();
        let annotations = (!annotations.is_empty()).then_some(Map::new(&annotations));
        encode_annotated(None, None, annotations, out)?;
        if self.properties != Properties::default() {
            self.properties.encode(out)?;
        }
        if !self.application.is_empty() {
            let map = Value::Map(Map::new(&self.application));
            Section::ApplicationProperties.encode(&map, out)?;
        }
        match self.body {
            Body::None => Ok(()),
            Body::Data(data) => {
                Section::encode_data_start(data.len(), out)?;
                Ok(out.put(data)?)
            }
            Body::Value(value) => Section::AmqpValue.encode(&value, out),
        }
    }
}

/// The User Properties that sections are read as.
pub(super) fn pairs(
    properties: &Properties<'_>,
    application: &Map<'_>,
    topic: &str,
    expires: bool,
    priority: Option<u8>,
    note: Option<&str>,
) -> Pairs {
    let mut pairs = Pairs::new();
    application::to_pairs(application, &mut pairs);
    fields::to_pairs(properties, topic, expires, priority, &mut pairs);
    if let Some(note) = note {
        pairs.push((Text::from_static(names::BODY), Text::from(note)));
    }
    pairs
}

/// The properties, with what the fields of MQTT say.
fn finish<'a>(view: &View<'a>, fields: Gathered<'a>) -> Properties<'a> {
    let from = view.properties;
    let mut properties = fields.properties;
    if !fields.has_to {
        properties.to = Some(view.topic);
    }
    if !fields.has_expiry {
        properties.absolute_expiry_time = view.expires.map(|at| {
            // Rounded down: the intervals of MQTT are rounded up again.
            Timestamp(i64::try_from(at.as_micros() / 1000).unwrap_or(i64::MAX))
        });
    }
    if properties.correlation_id.is_none() {
        properties.correlation_id = fields.correlation.map(MessageId::Binary);
    }
    properties.content_type = from.content_type.as_deref().and_then(Symbol::new);
    properties
}
