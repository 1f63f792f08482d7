//! From the bytes of a payload to a value, by format. Bytes of strangers: nothing here
//! panics, and nothing holds more than a small multiple of the payload.

use std::borrow::Cow;

use serde::Deserialize;

use crate::moment;
use crate::refusal::{Cause, Refusal};
use crate::sparkplug;
use crate::value::Value;

/// What payloads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Bytes as they are.
    Raw,
    /// UTF-8.
    Text,
    /// JSON.
    #[default]
    Json,
    /// CBOR.
    Cbor,
    /// Sparkplug B; what is below `STATE` is JSON.
    Sparkplug,
}

impl Format {
    /// Decodes a payload.
    ///
    /// # Errors
    /// It is not of this format.
    pub fn decode<'a>(self, topic: &str, payload: &'a [u8]) -> Result<Value<'a>, Refusal> {
        let wrong = |why: String| Refusal::new(Cause::Decode, why);
        match self {
            Self::Raw => Ok(Value::Bytes(Cow::Borrowed(payload))),
            Self::Text => match core::str::from_utf8(payload) {
                Ok(text) => Ok(Value::Text(Cow::Borrowed(text))),
                Err(error) => Err(wrong(format!("not UTF-8: {error}"))),
            },
            Self::Json => json(payload),
            Self::Cbor => cbor(payload).map_err(wrong),
            Self::Sparkplug if topic.split('/').nth(1) == Some("STATE") => json(payload),
            Self::Sparkplug => sparkplug::decode(payload)
                .map_err(|why| wrong(format!("not a payload of Sparkplug B: {why}"))),
        }
    }
}

fn json(payload: &[u8]) -> Result<Value<'_>, Refusal> {
    serde_json::from_slice(payload)
        .map_err(|error| Refusal::new(Cause::Decode, format!("not JSON: {error}")))
}

/// Depth of CBOR; that of JSON is the same.
const DEPTH_MAX: usize = 128;

fn cbor(payload: &[u8]) -> Result<Value<'static>, String> {
    let mut rest = payload;
    let value: ciborium::Value =
        ciborium::de::from_reader_with_recursion_limit(&mut rest, DEPTH_MAX)
            .map_err(|error| format!("not CBOR: {error}"))?;
    if !rest.is_empty() {
        return Err(format!("not CBOR: {} bytes follow its end", rest.len()));
    }
    from_cbor(value)
}

fn from_cbor(value: ciborium::Value) -> Result<Value<'static>, String> {
    use ciborium::Value as Cbor;
    /// Tags of a time as text and as seconds (RFC 8949, section 3.4).
    const TIME_TEXT: u64 = 0;
    const TIME_SECONDS: u64 = 1;
    Ok(match value {
        Cbor::Null => Value::Null,
        Cbor::Bool(yes) => Value::Bool(yes),
        Cbor::Integer(int) => whole(int.into()),
        Cbor::Float(float) => Value::Float(float),
        Cbor::Text(text) => Value::Text(text.into()),
        Cbor::Bytes(bytes) => Value::Bytes(bytes.into()),
        Cbor::Tag(TIME_TEXT, inner) => match from_cbor(*inner)? {
            Value::Text(text) => moment::parse(&text).map_or(Value::Text(text), Value::Time),
            other => other,
        },
        Cbor::Tag(TIME_SECONDS, inner) => match from_cbor(*inner)? {
            Value::Int(seconds) => seconds
                .checked_mul(1_000_000)
                .map_or(Value::Int(seconds), Value::Time),
            Value::Float(seconds) => Value::Time((seconds * 1e6).round() as i64),
            other => other,
        },
        Cbor::Tag(_, inner) => from_cbor(*inner)?,
        Cbor::Array(values) => {
            let values: Result<_, String> = values.into_iter().map(from_cbor).collect();
            Value::List(values?)
        }
        Cbor::Map(fields) => {
            let mut named = Vec::with_capacity(fields.len());
            for (key, value) in fields {
                let key = from_cbor(key)?;
                let name = match key.to_text() {
                    Some(name) => name.into_owned(),
                    None => return Err(format!("{} is the name of a field", key.kind())),
                };
                named.push((Cow::Owned(name), from_cbor(value)?));
            }
            Value::Map(named)
        }
        _ => return Err("a value of CBOR that has no name here".into()),
    })
}

fn whole(int: i128) -> Value<'static> {
    match (i64::try_from(int), u64::try_from(int)) {
        (Ok(int), _) => Value::Int(int),
        (_, Ok(int)) => Value::UInt(int),
        _ => Value::Float(int as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: Format, payload: &[u8]) -> Result<String, String> {
        let value = format.decode("a/b", payload).map_err(|r| r.to_string())?;
        let mut out = Vec::new();
        value.write_json(&mut out);
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn payloads_become_values() {
        for (format, payload, want) in [
            (Format::Raw, &b"\xff\x00"[..], "\"/wA=\""),
            (Format::Text, "21,5 °C".as_bytes(), "\"21,5 °C\""),
            (Format::Json, b" {\"v\": 1}\n", "{\"v\":1}"),
            // {"v": 1.5, 2: [h'01', null]}
            (
                Format::Cbor,
                b"\xa2\x61v\xf9\x3e\x00\x02\x82\x41\x01\xf6",
                "{\"v\":1.5,\"2\":[\"AQ==\",null]}",
            ),
            // 1(1.5), 0("2026-01-02T03:04:05Z"), 99(-1)
            (
                Format::Cbor,
                b"\x83\xc1\xf9\x3e\x00\xc0\x742026-01-02T03:04:05Z\xd8\x63\x20",
                "[\"1970-01-01T00:00:01.500000Z\",\"2026-01-02T03:04:05Z\",-1]",
            ),
        ] {
            assert_eq!(shown(format, payload).as_deref(), Ok(want));
        }
    }

    #[test]
    fn what_is_of_another_format_is_refused() {
        for (format, payload) in [
            (Format::Text, &b"\xff"[..]),
            (Format::Json, b""),
            (Format::Json, b"21,5"),
            (Format::Json, b"{\"v\":1"),
            (Format::Json, b"{} {}"),
            (Format::Cbor, b""),
            (Format::Cbor, b"\x01\x01"),
            (Format::Cbor, b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"),
            (Format::Sparkplug, b"\xff"),
        ] {
            let refused = format.decode("a", payload).expect_err("another format");
            assert_eq!(refused.cause, Cause::Decode, "{format:?} {payload:?}");
        }
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert!(Format::Json.decode("a", &deep).is_err());
        assert!(Format::Cbor.decode("a", &b"\x81".repeat(100_000)).is_err());
    }

    #[test]
    fn states_of_sparkplug_are_json() {
        let state = Format::Sparkplug.decode("spBv1.0/STATE/host", b"{\"online\":true}");
        let state = state.expect("JSON");
        assert_eq!(state.field("online"), Some(&Value::Bool(true)));
    }
}
