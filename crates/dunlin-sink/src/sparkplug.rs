//! Payloads of Sparkplug B (version 3.0): the part of its protocol buffer that data is in.
//! Data sets, templates and properties of metrics are passed over.

use std::borrow::Cow;

use crate::value::Value;

/// Most metrics of a payload.
const METRICS_MAX: usize = 100_000;

/// Names of the data types, by number.
const TYPES: [&str; 35] = [
    "Unknown",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float",
    "Double",
    "Boolean",
    "String",
    "DateTime",
    "Text",
    "UUID",
    "DataSet",
    "Bytes",
    "File",
    "Template",
    "PropertySet",
    "PropertySetList",
    "Int8Array",
    "Int16Array",
    "Int32Array",
    "Int64Array",
    "UInt8Array",
    "UInt16Array",
    "UInt32Array",
    "UInt64Array",
    "FloatArray",
    "DoubleArray",
    "BooleanArray",
    "StringArray",
    "DateTimeArray",
];

/// A field of a protocol buffer.
enum Field<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// Decodes a payload.
///
/// # Errors
/// It is not one; says why.
pub(crate) fn decode(payload: &[u8]) -> Result<Value<'_>, &'static str> {
    let mut fields = Vec::new();
    let mut metrics = Vec::new();
    let mut rest = payload;
    while let Some((number, field)) = next(&mut rest)? {
        match (number, field) {
            (1, Field::Varint(millis)) => fields.push(("timestamp".into(), time(millis))),
            (2, Field::Bytes(bytes)) => {
                if metrics.len() >= METRICS_MAX {
                    return Err("it has too many metrics");
                }
                metrics.push(metric(bytes)?);
            }
            (3, Field::Varint(seq)) => fields.push(("seq".into(), whole(seq))),
            (4, Field::Bytes(bytes)) => fields.push(("uuid".into(), text(bytes)?)),
            (5, Field::Bytes(bytes)) => {
                fields.push(("body".into(), Value::Bytes(Cow::Borrowed(bytes))));
            }
            _ => {}
        }
    }
    fields.push(("metrics".into(), Value::List(metrics)));
    Ok(Value::Map(fields))
}

fn metric(bytes: &[u8]) -> Result<Value<'_>, &'static str> {
    let mut fields: Vec<(Cow<'_, str>, Value<'_>)> = Vec::new();
    let (mut value, mut datatype, mut is_null) = (None, 0, false);
    let mut rest = bytes;
    while let Some((number, field)) = next(&mut rest)? {
        match (number, field) {
            (1, Field::Bytes(name)) => fields.push(("name".into(), text(name)?)),
            (2, Field::Varint(alias)) => fields.push(("alias".into(), whole(alias))),
            (3, Field::Varint(millis)) => fields.push(("timestamp".into(), time(millis))),
            (4, Field::Varint(number)) => datatype = number,
            (5, Field::Varint(yes)) => fields.push(("is_historical".into(), flag(yes))),
            (6, Field::Varint(yes)) => fields.push(("is_transient".into(), flag(yes))),
            (7, Field::Varint(yes)) => is_null = yes != 0,
            (10 | 11, Field::Varint(int)) => value = Some(whole(int)),
            (12, Field::Fixed32(bits)) => value = Some(Value::Float(f32::from_bits(bits).into())),
            (13, Field::Fixed64(bits)) => value = Some(Value::Float(f64::from_bits(bits))),
            (14, Field::Varint(yes)) => value = Some(flag(yes)),
            (15, Field::Bytes(bytes)) => value = Some(text(bytes)?),
            (16, Field::Bytes(bytes)) => value = Some(Value::Bytes(Cow::Borrowed(bytes))),
            _ => {}
        }
    }
    let name = usize::try_from(datatype).ok().and_then(|at| TYPES.get(at));
    if let Some(name) = name.filter(|_| datatype != 0) {
        fields.push(("datatype".into(), Value::Text(Cow::Borrowed(name))));
    }
    let value = value.filter(|_| !is_null).unwrap_or(Value::Null);
    fields.push(("value".into(), typed(value, datatype)));
    Ok(Value::Map(fields))
}

/// Whole numbers travel without a sign; the data type says what they are.
fn typed(value: Value<'_>, datatype: u64) -> Value<'_> {
    let bits = match value {
        Value::Int(int) => int as u64,
        Value::UInt(int) => int,
        other => return other,
    };
    match datatype {
        1 => Value::Int((bits as i8).into()),
        2 => Value::Int((bits as i16).into()),
        3 => Value::Int((bits as i32).into()),
        4 => Value::Int(bits as i64),
        13 => time(bits),
        _ => whole(bits),
    }
}

fn whole(int: u64) -> Value<'static> {
    i64::try_from(int).map_or(Value::UInt(int), Value::Int)
}

fn time(millis: u64) -> Value<'static> {
    match i64::try_from(millis).map(|millis| millis.checked_mul(1000)) {
        Ok(Some(micros)) => Value::Time(micros),
        _ => whole(millis),
    }
}

const fn flag(yes: u64) -> Value<'static> {
    Value::Bool(yes != 0)
}

fn text(bytes: &[u8]) -> Result<Value<'_>, &'static str> {
    let text = core::str::from_utf8(bytes).map_err(|_| "text is not UTF-8")?;
    Ok(Value::Text(Cow::Borrowed(text)))
}

/// The next field and its number.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u64, Field<'a>)>, &'static str> {
    if rest.is_empty() {
        return Ok(None);
    }
    let key = varint(rest)?;
    let field = match key & 7 {
        0 => Field::Varint(varint(rest)?),
        1 => Field::Fixed64(u64::from_le_bytes(fixed(rest)?)),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| CUT)?;
            let (bytes, after) = rest.split_at_checked(length).ok_or(CUT)?;
            *rest = after;
            Field::Bytes(bytes)
        }
        5 => Field::Fixed32(u32::from_le_bytes(fixed(rest)?)),
        _ => return Err("a field has an unknown form"),
    };
    Ok(Some((key >> 3, field)))
}

const CUT: &str = "it ends within a field";

fn fixed<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (bytes, after) = rest.split_first_chunk().ok_or(CUT)?;
    *rest = after;
    Ok(*bytes)
}

fn varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(CUT)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value<'_>) -> String {
        let mut out = Vec::new();
        value.write_json(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    #[test]
    fn metrics_have_their_type() {
        // A double, an Int8 of -1 in 32 bits, a DateTime, a null, an alias alone.
        let double = [
            field(1, b"t"),
            vec![0x20, 10, 0x69],
            21.5_f64.to_le_bytes().to_vec(),
        ]
        .concat();
        let negative = [vec![0x20, 1, 0x50], vec![0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        let date = vec![0x20, 13, 0x58, 0xe8, 0x07];
        let null = vec![0x20, 10, 0x38, 1];
        let alias = vec![0x10, 7, 0x70, 1];
        let payload = [
            vec![0x08, 0xe8, 0x07, 0x18, 3],
            field(2, &double),
            field(2, &negative),
            field(2, &date),
            field(2, &null),
            field(2, &alias),
        ]
        .concat();
        let value = decode(&payload).expect("a payload");
        let want = concat!(
            r#"{"timestamp":"1970-01-01T00:00:01Z","seq":3,"metrics":["#,
            r#"{"name":"t","datatype":"Double","value":21.5},"#,
            r#"{"datatype":"Int8","value":-1},"#,
            r#"{"datatype":"DateTime","value":"1970-01-01T00:00:01Z"},"#,
            r#"{"datatype":"Double","value":null},"#,
            r#"{"alias":7,"value":true}]}"#,
        );
        assert_eq!(json(&value), want);
    }

    #[test]
    fn every_cut_is_refused_or_a_shorter_payload() {
        let metric = [field(1, b"name"), vec![0x20, 3, 0x50, 0x96, 0x01]].concat();
        let payload = [vec![0x08, 0x80, 0x01], field(2, &metric)].concat();
        for length in 0..payload.len() {
            let cut = decode(&payload[..length]);
            assert_eq!(cut.is_ok(), [0, 3].contains(&length), "{length}");
        }
        assert!(decode(&[0xff; 11]).is_err(), "a number without end");
        assert!(decode(&[0x0b]).is_err(), "a group");
        assert!(decode(&field(4, b"\xff")).is_err(), "text");
    }
}
