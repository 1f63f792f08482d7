//! Simple values as text, with the name of their type, and back.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dunlin_amqp_codec::{Symbol, Timestamp, Uuid, Value};

/// Bytes in Base64.
pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The bytes that `text` is in Base64, if it is the one way to write them.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

/// A number, if `text` is the one way to write it.
pub(super) fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|it: &T| it.to_string() == text)
}

/// Type and text of a simple value; `None` for the type of a string, and for
/// all if it is no simple value.
pub(super) fn to_text<'a>(value: &Value<'a>) -> Option<(Option<&'static str>, Cow<'a, str>)> {
    let (name, text): (_, Cow<'a, str>) = match *value {
        Value::String(text) => return Some((None, text.into())),
        Value::Null => ("null", "".into()),
        Value::Bool(v) => ("boolean", v.to_string().into()),
        Value::Ubyte(v) => ("ubyte", v.to_string().into()),
        Value::Ushort(v) => ("ushort", v.to_string().into()),
        Value::Uint(v) => ("uint", v.to_string().into()),
        Value::Ulong(v) => ("ulong", v.to_string().into()),
        Value::Byte(v) => ("byte", v.to_string().into()),
        Value::Short(v) => ("short", v.to_string().into()),
        Value::Int(v) => ("int", v.to_string().into()),
        Value::Long(v) => ("long", v.to_string().into()),
        Value::Float(v) => ("float", v.to_string().into()),
        Value::Double(v) => ("double", v.to_string().into()),
        Value::Decimal32(v) => ("decimal32", hex(&v).into()),
        Value::Decimal64(v) => ("decimal64", hex(&v).into()),
        Value::Decimal128(v) => ("decimal128", hex(&v).into()),
        Value::Char(v) => ("char", v.to_string().into()),
        Value::Timestamp(v) => ("timestamp", v.0.to_string().into()),
        Value::Uuid(v) => ("uuid", uuid_text(v).into()),
        Value::Binary(v) => ("binary", base64(v).into()),
        Value::Symbol(v) => ("symbol", v.as_str().into()),
        _ => return None,
    };
    Some((Some(name), text))
}

/// The value of type `name` that `text` is; `bytes` is `text` from Base64.
pub(super) fn from_text<'a>(
    name: &str,
    text: &'a str,
    bytes: Option<&'a [u8]>,
) -> Option<Value<'a>> {
    Some(match name {
        "null" => text.is_empty().then_some(Value::Null)?,
        "boolean" => Value::Bool(number(text)?),
        "ubyte" => Value::Ubyte(number(text)?),
        "ushort" => Value::Ushort(number(text)?),
        "uint" => Value::Uint(number(text)?),
        "ulong" => Value::Ulong(number(text)?),
        "byte" => Value::Byte(number(text)?),
        "short" => Value::Short(number(text)?),
        "int" => Value::Int(number(text)?),
        "long" => Value::Long(number(text)?),
        "float" => Value::Float(number(text)?),
        "double" => Value::Double(number(text)?),
        "decimal32" => Value::Decimal32(from_hex(text)?),
        "decimal64" => Value::Decimal64(from_hex(text)?),
        "decimal128" => Value::Decimal128(from_hex(text)?),
        "char" => Value::Char(number(text)?),
        "timestamp" => Value::Timestamp(Timestamp(number(text)?)),
        "uuid" => Value::Uuid(from_uuid_text(text)?),
        "binary" => Value::Binary(bytes?),
        "symbol" => Value::Symbol(Symbol::new(text)?),
        _ => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Bytes from lower case digits.
fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = core::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    (hex(&bytes) == text).then_some(bytes)
}

/// A UUID as RFC 4122 writes it.
pub(super) fn uuid_text(uuid: Uuid) -> String {
    let digits = hex(&uuid.0);
    let part = |from, to| digits.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// A UUID, if `text` is the one way to write it.
pub(super) fn from_uuid_text(text: &str) -> Option<Uuid> {
    let digits: String = text.split('-').collect();
    from_hex(&digits)
        .map(Uuid)
        .filter(|uuid| uuid_text(*uuid) == text)
}
