//! A message of AMQP as the neutral message.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp_codec::{DecodeError, Header, Map, Message as Scanned, Properties, Value};
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Text};

use super::body::{Payload, payload, plain};
use super::fields::{Pairs, correlation_bytes, decoded, is_text, is_topic};
use super::form::{Sections, View, pairs};
use super::{application, names, original};

/// The neutral message of one that was received at `now` for `topic`, which the
/// caller has from the link or from `to`. It has what a node needs and what goes
/// to receivers of AMQP; [`to_mqtt`] adds the rest.
///
/// # Errors
/// The bytes are no valid message.
pub fn from_amqp(bytes: &Bytes, topic: Text, now: Instant) -> Result<Message, DecodeError> {
    let scanned = Scanned::scan(bytes)?;
    scanned.check()?;
    let header = scanned.header()?.unwrap_or_default();
    let properties = scanned.properties()?.unwrap_or_default();
    let annotations = scanned.message_annotations()?.unwrap_or_default();
    let deliver_at = delivery_time(&annotations, now);
    let annotations = Annotations::of(&annotations, header.durable);
    let ttl = header.ttl.filter(|ttl| *ttl > 0);
    let ttl = ttl.map(|ttl| now + Duration::from_millis(ttl.into()));
    let form = bytes.slice(scanned.lasting_range());
    let extra = MessageExtra {
        priority: Some(header.priority).filter(|it| *it != Header::default().priority),
        created_ms: properties.creation_time.map(|at| at.0),
        deliver_at,
        sender: None,
        encoded: Some(Encoded {
            form: Form::Amqp,
            bytes: form,
        }),
    };
    Ok(Message {
        topic,
        payload: plain(bytes, &scanned),
        qos: annotations.qos,
        retain: annotations.retain,
        expires: absolute_expiry(&properties).or(ttl),
        properties: None,
        extra: Some(Box::new(extra)),
    })
}

/// When queues may deliver a message, if that is later than now.
fn delivery_time(annotations: &Map<'_>, now: Instant) -> Option<Instant> {
    let ms = |value: Value<'_>| match value {
        Value::Timestamp(at) => u64::try_from(at.0).ok(),
        Value::Ulong(ms) => Some(ms),
        value => value.as_i64().and_then(|ms| u64::try_from(ms).ok()),
    };
    let micros = |name| Some(ms(annotations.get(name)?)?.saturating_mul(1000));
    let delayed = || {
        Some(
            now.as_micros()
                .saturating_add(micros(names::DELIVERY_DELAY)?),
        )
    };
    let at = micros(names::DELIVERY_TIME).or_else(delayed)?;
    Some(Instant::from_micros(at)).filter(|at| *at > now)
}

/// A message as MQTT has it: what came as AMQP with its payload and properties
/// in terms of MQTT, others unchanged.
///
/// # Errors
/// The bytes of the message are no valid message.
pub fn to_mqtt(message: &Message) -> Result<Message, DecodeError> {
    let extra = message.extra.as_deref();
    let Some(encoded) = extra.and_then(|extra| extra.encoded.as_ref()) else {
        return Ok(message.clone());
    };
    if encoded.form != Form::Amqp {
        return Ok(message.clone());
    }
    let arrival = Arrival {
        topic: &message.topic,
        expires: message.expires,
        priority: extra.and_then(|extra| extra.priority),
    };
    let durable = message.qos != QoS::AtMostOnce;
    let read = Read::of(&encoded.bytes, &arrival, durable)?;
    let has_properties = !read.properties.is_empty();
    Ok(Message {
        payload: read.payload,
        properties: has_properties.then(|| Box::new(read.properties)),
        ..message.clone()
    })
}

/// When the message expires by its own word.
fn absolute_expiry(properties: &Properties<'_>) -> Option<Instant> {
    let ms = u64::try_from(properties.absolute_expiry_time?.0).ok()?;
    (ms > 0).then(|| Instant::from_micros(ms.saturating_mul(1000)))
}

/// What is known of a message beside its bytes.
pub(super) struct Arrival<'a> {
    pub(super) topic: &'a str,
    /// When it expires, by its header.
    pub(super) expires: Option<Instant>,
    /// The priority of its header, if it is not the usual one.
    pub(super) priority: Option<u8>,
}

/// What message annotations and bare message say.
pub(super) struct Read {
    pub(super) payload: Bytes,
    pub(super) properties: MessageProperties,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    expires: Option<Instant>,
}

impl Read {
    /// Reads `form`: message annotations, bare message and footer.
    pub(super) fn of(
        form: &Bytes,
        arrival: &Arrival<'_>,
        durable: bool,
    ) -> Result<Self, DecodeError> {
        let scanned = Scanned::scan(form)?;
        if scanned.lasting_range().start > 0 {
            return Err(DecodeError::SectionOrder);
        }
        scanned.check()?;
        let annotations = scanned.message_annotations()?.unwrap_or_default();
        let annotations = Annotations::of(&annotations, durable);
        let properties = scanned.properties()?.unwrap_or_default();
        let application = scanned.application_properties()?.unwrap_or_default();
        let payload = payload(form, &scanned, properties.content_type.is_some());
        let mut read = Self {
            properties: neutral_fields(&annotations, &properties, &payload),
            payload: payload.bytes,
            qos: annotations.qos,
            retain: annotations.retain,
            expires: absolute_expiry(&properties).or(arrival.expires),
        };
        if let Some(all) = annotations.user_properties {
            read.properties.user_properties = all;
            if read.is_said_by(arrival, &properties, &application) {
                return Ok(read);
            }
        }
        read.properties.user_properties = pairs(
            &properties,
            &application,
            arrival.topic,
            read.expires.is_some(),
            arrival.priority,
            payload.note,
        );
        if !read.view(arrival).is_written_as(form) {
            let pairs = &mut read.properties.user_properties;
            original::append(pairs, form, &read.payload);
        }
        Ok(read)
    }

    fn view<'a>(&'a self, arrival: &Arrival<'a>) -> View<'a> {
        View {
            topic: arrival.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            expires: self.expires,
            priority: arrival.priority,
            properties: &self.properties,
        }
    }

    /// Whether the User Properties say what the sections do.
    fn is_said_by(
        &self,
        arrival: &Arrival<'_>,
        properties: &Properties<'_>,
        application: &Map<'_>,
    ) -> bool {
        let view = self.view(arrival);
        let all = view.properties.user_properties.as_slice();
        let types = application::Types::of(all);
        let scratch = decoded(all, |name| types.is_binary(name));
        let said = Sections::gather(&view, &types, &scratch);
        said.properties == *properties && is_same_map(said.application, application)
    }
}

/// Whether two maps by string have the same entries; a client may have changed
/// their order.
fn is_same_map<'a>(mut entries: Vec<(Value<'a>, Value<'a>)>, map: &Map<'a>) -> bool {
    if entries.len() != map.len() {
        return false;
    }
    let mut others: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(name, _)| name.as_str());
    others.sort_by_key(|(name, _)| name.as_str());
    entries == others
}

/// What the fields of MQTT say, without User Properties.
fn neutral_fields(
    annotations: &Annotations,
    properties: &Properties<'_>,
    payload: &Payload,
) -> MessageProperties {
    let content_type = properties.content_type.map(|it| it.as_str());
    let content_type = content_type.filter(|it| is_text(it)).map(Text::from);
    let reply_to = properties.reply_to.filter(|to| is_topic(to));
    MessageProperties {
        payload_is_utf8: annotations.payload_format.or(payload.is_utf8),
        content_type: payload
            .content_type
            .map(Text::from_static)
            .or_else(|| annotations.content_type.clone())
            .or(content_type),
        response_topic: reply_to.map(Text::from),
        correlation_data: properties
            .correlation_id
            .map(|id| Bytes::copy_from_slice(&correlation_bytes(id))),
        user_properties: Vec::new(),
    }
}

/// What message annotations say of MQTT.
struct Annotations {
    qos: QoS,
    retain: bool,
    payload_format: Option<bool>,
    content_type: Option<Text>,
    user_properties: Option<Pairs>,
}

impl Annotations {
    fn of(map: &Map<'_>, durable: bool) -> Self {
        let mut annotations = Self {
            qos: if durable {
                QoS::AtLeastOnce
            } else {
                QoS::AtMostOnce
            },
            retain: false,
            payload_format: None,
            content_type: None,
            user_properties: None,
        };
        for (name, value) in map.iter() {
            match (name.as_str().unwrap_or_default(), value) {
                (names::QOS, value) => {
                    let qos = value.as_i64().and_then(|it| u8::try_from(it).ok());
                    let qos = qos.and_then(QoS::from_u8);
                    annotations.qos = qos.unwrap_or(annotations.qos);
                }
                (names::RETAIN, Value::Bool(retain)) => annotations.retain = retain,
                (names::PAYLOAD_FORMAT, value) => {
                    annotations.payload_format = value.as_i64().map(|it| it == 1);
                }
                (names::CONTENT_TYPE, Value::String(text)) if is_text(text) => {
                    annotations.content_type = Some(Text::from(text));
                }
                (names::USER_PROPERTIES, Value::List(list)) => {
                    annotations.user_properties = pairs_of(list.iter());
                }
                _ => {}
            }
        }
        annotations
    }
}

/// Names and values, one after the other.
fn pairs_of<'a>(mut values: impl Iterator<Item = Value<'a>>) -> Option<Pairs> {
    let mut pairs = Pairs::new();
    let text = |value: Value<'a>| match value {
        Value::String(text) if is_text(text) => Some(Text::from(text)),
        _ => None,
    };
    while let Some(name) = values.next() {
        pairs.push((text(name)?, text(values.next()?)?));
    }
    Some(pairs)
}
