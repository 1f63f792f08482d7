//! What payloads are decoded into and columns are computed from: one tree of values for
//! every format, which borrows what it can from the message. Knows no format but JSON.

use core::fmt;
use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::moment::Rfc3339;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number too large for the former.
    UInt(u64),
    /// A number.
    Float(f64),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// A point in time, in microseconds since 1970.
    Time(i64),
    /// Values in order.
    List(Vec<Self>),
    /// Values by name. Of a name that is there twice the last one counts.
    Map(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Value<'a> {
    /// The value with this name, of a map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(fields) = self else {
            return None;
        };
        let mut fields = fields.iter().rev();
        fields.find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The value at this place, of a list.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&Self> {
        match self {
            Self::List(values) => values.get(index),
            _ => None,
        }
    }

    /// What it is, for people.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Int(_) | Self::UInt(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Time(_) => "a time",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// As text: text itself, UTF-8 bytes, and of others what JSON writes.
    #[must_use]
    pub fn to_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Bytes(bytes) => core::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Self::Time(micros) => Some(Rfc3339(*micros).to_string().into()),
            other => {
                let mut out = Vec::new();
                other.write_json(&mut out);
                String::from_utf8(out).ok().map(Cow::Owned)
            }
        }
    }

    /// As a whole number, if it is one.
    #[must_use]
    pub fn to_int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            Self::UInt(int) => i64::try_from(*int).ok(),
            // Up to here every whole number is exact.
            Self::Float(float) if float.trunc() == *float && float.abs() <= EXACT => {
                Some(*float as i64)
            }
            Self::Text(text) => text.trim().parse().ok(),
            Self::Bool(yes) => Some((*yes).into()),
            _ => None,
        }
    }

    /// As a number, if it is one.
    #[must_use]
    pub fn to_float(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::UInt(int) => Some(*int as f64),
            Self::Float(float) => Some(*float),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// As a truth value, if it is one.
    #[must_use]
    pub fn to_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(yes) => Some(*yes),
            Self::Int(0) => Some(false),
            Self::Int(1) => Some(true),
            Self::Text(text) => match text.trim() {
                "true" | "t" | "1" | "on" => Some(true),
                "false" | "f" | "0" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Appends it as JSON: bytes in base64, a time as RFC 3339 says, a number that is
    /// none as `null`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Int(int) => json(int, out),
            Self::UInt(int) => json(int, out),
            Self::Float(float) => json(float, out),
            Self::Text(text) => json(&**text, out),
            Self::Bytes(bytes) => json(&STANDARD.encode(bytes), out),
            Self::Time(micros) => json(&Rfc3339(*micros).to_string(), out),
            Self::List(values) => {
                out.push(b'[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    value.write_json(out);
                }
                out.push(b']');
            }
            Self::Map(fields) => {
                out.push(b'{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    json(&**name, out);
                    out.push(b':');
                    value.write_json(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The same without a loan.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(yes) => Value::Bool(yes),
            Self::Int(int) => Value::Int(int),
            Self::UInt(int) => Value::UInt(int),
            Self::Float(float) => Value::Float(float),
            Self::Text(text) => Value::Text(text.into_owned().into()),
            Self::Bytes(bytes) => Value::Bytes(bytes.into_owned().into()),
            Self::Time(micros) => Value::Time(micros),
            Self::List(values) => Value::List(values.into_iter().map(Value::into_owned).collect()),
            Self::Map(fields) => {
                let own = |(name, value): (Cow<'_, str>, Self)| {
                    (Cow::Owned(name.into_owned()), value.into_owned())
                };
                Value::Map(fields.into_iter().map(own).collect())
            }
        }
    }
}

/// Whole numbers of a larger amount are not exact in a float.
pub(crate) const EXACT: f64 = 9_007_199_254_740_992.0;

/// Appends something that always can be JSON.
pub(crate) fn json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(yes))
    }

    fn visit_i64<E: Error>(self, int: i64) -> Result<Value<'de>, E> {
        Ok(Value::Int(int))
    }

    fn visit_u64<E: Error>(self, int: u64) -> Result<Value<'de>, E> {
        Ok(i64::try_from(int).map_or(Value::UInt(int), Value::Int))
    }

    fn visit_f64<E: Error>(self, float: f64) -> Result<Value<'de>, E> {
        Ok(Value::Float(float))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Value::Map(fields))
    }
}

/// A key, borrowed if it stands in the input as it is.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Tree.visit_name(deserializer)? {
            Value::Text(name) => Ok(Self(name)),
            other => Err(D::Error::custom(format_args!("{} as a name", other.kind()))),
        }
    }
}

impl Tree {
    fn visit_name<'de, D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Value<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &Value<'_>) -> String {
        let mut out = Vec::new();
        value.write_json(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn json_goes_in_and_out() {
        for json in [
            "null",
            "true",
            "-7",
            "18446744073709551615",
            "21.5",
            "\"a\\\"b\\u0001\"",
            "[1,[],{\"a\":{}}]",
            "{\"b\":1,\"a\":[null,2.0]}",
        ] {
            let value: Value<'_> = serde_json::from_str(json).expect(json);
            assert_eq!(text(&value), json);
        }
        let plain: Value<'_> = serde_json::from_str("{\"a\":\"x\"}").expect("valid");
        let Value::Map(fields) = &plain else {
            panic!("a map: {plain:?}");
        };
        assert!(matches!(&fields[0].0, Cow::Borrowed("a")), "no copy");
        assert!(matches!(&fields[0].1, Value::Text(Cow::Borrowed("x"))));
    }

    #[test]
    fn of_a_name_that_is_there_twice_the_last_counts() {
        let value: Value<'_> = serde_json::from_str("{\"a\":1,\"a\":2}").expect("valid");
        assert_eq!(value.field("a"), Some(&Value::Int(2)));
        assert_eq!(value.field("b"), None);
        assert_eq!(Value::Int(1).field("a"), None);
    }

    #[test]
    fn values_change_their_type_only_without_loss() {
        assert_eq!(Value::Float(21.0).to_int(), Some(21));
        assert_eq!(Value::Float(21.5).to_int(), None);
        assert_eq!(Value::Float(1e300).to_int(), None);
        assert_eq!(Value::UInt(u64::MAX).to_int(), None);
        assert_eq!(Value::Text(" 7 ".into()).to_int(), Some(7));
        assert_eq!(Value::Text("x".into()).to_float(), None);
        assert_eq!(Value::Int(2).to_bool(), None);
        assert_eq!(Value::Bytes(vec![0xff].into()).to_text(), None);
        assert_eq!(text(&Value::Bytes(vec![0xff].into())), "\"/w==\"");
        assert_eq!(text(&Value::Float(f64::NAN)), "null");
        assert_eq!(text(&Value::Time(0)), "\"1970-01-01T00:00:00Z\"");
    }
}
