//! How `dunlin receive` prints a message.

use std::io::{self, Write};

use anyhow::{Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dunlin_amqp_client::{Delivery, MessageId, Value};
use serde_json::{Map, Value as Json};

/// What is printed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    Parts(Vec<Part>),
    Json,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Payload,
    Hexadecimal,
    Length,
    Address,
    Subject,
    ContentType,
    MessageId,
}

impl Form {
    /// A line with the payload, after the address if that is wanted.
    pub(super) fn plain(with_address: bool) -> Self {
        let mut parts = Vec::new();
        if with_address {
            parts.extend([Part::Address, Part::Text(" ".into())]);
        }
        parts.extend([Part::Payload, Part::Text("\n".into())]);
        Self::Parts(parts)
    }

    /// A line in a format.
    pub(super) fn parse(format: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut chars = format.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                text.push(char);
                continue;
            }
            let part = match chars.next() {
                Some('p') => Part::Payload,
                Some('x') => Part::Hexadecimal,
                Some('l') => Part::Length,
                Some('t') => Part::Address,
                Some('s') => Part::Subject,
                Some('c') => Part::ContentType,
                Some('m') => Part::MessageId,
                Some('n') => {
                    text.push('\n');
                    continue;
                }
                Some('%') => {
                    text.push('%');
                    continue;
                }
                other => bail!(
                    "%{} is not known",
                    other.map_or(String::new(), String::from)
                ),
            };
            parts.push(Part::Text(core::mem::take(&mut text)));
            parts.push(part);
        }
        text.push('\n');
        parts.push(Part::Text(text));
        Ok(Self::Parts(parts))
    }

    /// Prints a message that came from `address`.
    pub(super) fn write(
        &self,
        delivery: &Delivery,
        address: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let properties = delivery.properties();
        let address = properties.to.unwrap_or(address);
        let Self::Parts(parts) = self else {
            let line = json(delivery, address);
            return writeln!(out, "{line}");
        };
        for part in parts {
            match part {
                Part::Text(text) => out.write_all(text.as_bytes())?,
                Part::Payload => out.write_all(&delivery.payload())?,
                Part::Hexadecimal => {
                    for byte in delivery.payload() {
                        write!(out, "{byte:02x}")?;
                    }
                }
                Part::Length => write!(out, "{}", delivery.payload().len())?,
                Part::Address => out.write_all(address.as_bytes())?,
                Part::Subject => {
                    out.write_all(properties.subject.unwrap_or_default().as_bytes())?
                }
                Part::ContentType => {
                    let media_type = properties.content_type.map_or("", |it| it.as_str());
                    out.write_all(media_type.as_bytes())?;
                }
                Part::MessageId => {
                    let id = properties.message_id.map(id_text);
                    out.write_all(id.unwrap_or_default().as_bytes())?;
                }
            }
        }
        Ok(())
    }
}

/// A message as JSON; a payload that is no text in Base64.
fn json(delivery: &Delivery, address: &str) -> Json {
    let mut map = Map::new();
    let mut put = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    };
    let (header, properties) = (delivery.header(), delivery.properties());
    let payload = delivery.payload();
    put("address", Some(address.into()));
    match core::str::from_utf8(&payload) {
        Ok(text) => put("payload", Some(text.into())),
        Err(_) => put("payload_base64", Some(STANDARD.encode(&payload).into())),
    }
    put("durable", Some(header.durable.into()));
    put("priority", Some(header.priority.into()));
    put("ttl_ms", header.ttl.map(Json::from));
    put("delivery_count", Some(header.delivery_count.into()));
    put("settled", Some(delivery.is_settled().into()));
    put(
        "message_id",
        properties.message_id.map(|id| id_text(id).into()),
    );
    put("subject", properties.subject.map(Json::from));
    put("reply_to", properties.reply_to.map(Json::from));
    put(
        "correlation_id",
        properties.correlation_id.map(|id| id_text(id).into()),
    );
    put(
        "content_type",
        properties.content_type.map(|it| it.as_str().into()),
    );
    put("group_id", properties.group_id.map(Json::from));
    put("created_ms", properties.creation_time.map(|it| it.0.into()));
    let application = delivery
        .sections()
        .ok()
        .and_then(|it| it.application_properties().ok());
    if let Some(application) = application.flatten() {
        put("properties", Some(simple(Value::Map(application))));
    }
    Json::Object(map)
}

/// A value as JSON; bytes in Base64.
pub(super) fn simple(value: Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(it) => it.into(),
        Value::Float(it) => it.into(),
        Value::Double(it) => it.into(),
        Value::Ulong(it) => it.into(),
        Value::Binary(it) => STANDARD.encode(it).into(),
        Value::List(it) => it.iter().map(simple).collect(),
        Value::Map(it) => {
            let pairs = it.iter();
            let name = |it: Value<'_>| it.as_str().unwrap_or_default().to_owned();
            pairs.map(|(k, v)| (name(k), simple(v))).collect()
        }
        other => match (other.as_str(), other.as_i64()) {
            (Some(text), _) => text.into(),
            (None, Some(number)) => number.into(),
            (None, None) => format!("{other:?}").into(),
        },
    }
}

fn id_text(id: MessageId<'_>) -> String {
    match id {
        MessageId::Ulong(id) => id.to_string(),
        MessageId::String(id) => id.to_owned(),
        MessageId::Binary(id) => STANDARD.encode(id),
        MessageId::Uuid(id) => id.0.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed() {
        let form = Form::parse("%s: %p%n%%").expect("a format");
        let want = [
            Part::Text(String::new()),
            Part::Subject,
            Part::Text(": ".into()),
            Part::Payload,
            Part::Text("\n%\n".into()),
        ];
        assert_eq!(form, Form::Parts(want.into()));
        assert!(Form::parse("%q").is_err());
        assert!(Form::parse("x%").is_err());
    }
}
