//! Values as JSON (RFC 8259), where JSON can say them without a convention:
//! null, booleans, numbers, text, lists and maps by text.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt::Write;

use dunlin_amqp_codec::Value;

/// Bytes of JSON for each encoded byte of the value; more are not written,
/// because a few bytes of AMQP can say much.
const GROWTH_MAX: usize = 8;
/// Bytes that a short value may take anyway.
const SHORT: usize = 256;

/// The value as JSON.
pub(super) fn to_json(value: &Value<'_>) -> Option<String> {
    let mut json = Json {
        text: String::new(),
        bytes_max: value.encoded_len().saturating_mul(GROWTH_MAX).max(SHORT),
    };
    json.value(value)?;
    Some(json.text)
}

struct Json {
    text: String,
    bytes_max: usize,
}

impl Json {
    fn value(&mut self, value: &Value<'_>) -> Option<()> {
        match value {
            Value::Null => self.raw("null"),
            Value::Bool(true) => self.raw("true"),
            Value::Bool(false) => self.raw("false"),
            Value::Float(v) => self.number(f64::from(*v).is_finite().then_some(v)?),
            Value::Double(v) => self.number(v.is_finite().then_some(v)?),
            Value::String(text) => self.string(text),
            Value::Symbol(symbol) => self.string(symbol.as_str()),
            Value::List(list) => self.array(list.iter()),
            Value::Array(array) => self.array(array.iter()),
            Value::Map(map) => self.object(map.iter()),
            Value::Ulong(v) => self.number(v),
            other => self.number(other.as_i64()?),
        }
    }

    /// Writes what is JSON already.
    fn raw(&mut self, text: &str) -> Option<()> {
        self.text.push_str(text);
        (self.text.len() <= self.bytes_max).then_some(())
    }

    fn number(&mut self, number: impl core::fmt::Display) -> Option<()> {
        write!(self.text, "{number}").ok()?;
        self.raw("")
    }

    fn string(&mut self, text: &str) -> Option<()> {
        self.raw("\"")?;
        for c in text.chars() {
            match c {
                '"' => self.raw("\\\"")?,
                '\\' => self.raw("\\\\")?,
                '\n' => self.raw("\\n")?,
                '\r' => self.raw("\\r")?,
                '\t' => self.raw("\\t")?,
                c if c < ' ' => write!(self.text, "\\u{:04x}", u32::from(c)).ok()?,
                c => self.text.push(c),
            }
        }
        self.raw("\"")
    }

    fn array<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) -> Option<()> {
        self.raw("[")?;
        for (at, value) in values.enumerate() {
            self.raw(if at == 0 { "" } else { "," })?;
            self.value(&value)?;
        }
        self.raw("]")
    }

    fn object<'a>(&mut self, entries: impl Iterator<Item = (Value<'a>, Value<'a>)>) -> Option<()> {
        let mut keys = BTreeSet::new();
        self.raw("{")?;
        for (at, (key, value)) in entries.enumerate() {
            let key = key.as_str()?;
            if !keys.insert(key) {
                return None;
            }
            self.raw(if at == 0 { "" } else { "," })?;
            self.string(key)?;
            self.raw(":")?;
            self.value(&value)?;
        }
        self.raw("}")
    }
}
