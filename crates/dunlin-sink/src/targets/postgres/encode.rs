//! Rows in the binary form of COPY: each value in the form that its column's type has on
//! the wire. Nothing is allocated for numbers, times and text.

use std::sync::Arc;

use tokio_postgres::types::{Kind as TypeKind, Type};

use crate::input::Input;
use crate::moment;
use crate::refusal::{Cause, Refusal};
use crate::shape::{Shape, Shaped};
use crate::target::Encode;
use crate::value::Value;

/// What rows begin with.
pub(super) const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What rows end with.
pub(super) const TRAILER: &[u8] = &(-1_i16).to_be_bytes();

/// Microseconds from 1970 to 2000, where PostgreSQL counts from.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// How values of a type are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytes,
    Json,
    JsonB,
    TimestampTz,
    Date,
    Uuid,
}

impl Kind {
    /// The kind of a type, if the sink writes it.
    pub(super) fn of(of: &Type) -> Option<Self> {
        Some(match *of {
            Type::BOOL => Self::Bool,
            Type::INT2 => Self::Int2,
            Type::INT4 => Self::Int4,
            Type::INT8 => Self::Int8,
            Type::FLOAT4 => Self::Float4,
            Type::FLOAT8 => Self::Float8,
            Type::NUMERIC => Self::Numeric,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => Self::Text,
            Type::BYTEA => Self::Bytes,
            Type::JSON => Self::Json,
            Type::JSONB => Self::JsonB,
            // Without a zone, times are in UTC.
            Type::TIMESTAMPTZ | Type::TIMESTAMP => Self::TimestampTz,
            Type::DATE => Self::Date,
            Type::UUID => Self::Uuid,
            _ => match of.kind() {
                TypeKind::Domain(base) => return Self::of(base),
                TypeKind::Enum(_) => Self::Text,
                _ if of.name() == "citext" => Self::Text,
                _ => return None,
            },
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Numeric => "numeric",
            Self::Text => "text",
            Self::Bytes => "bytea",
            Self::Json => "json",
            Self::JsonB => "jsonb",
            Self::TimestampTz => "a timestamp",
            Self::Date => "a date",
            Self::Uuid => "uuid",
        }
    }
}

/// Writes rows.
pub(super) struct RowEncoder {
    shape: Arc<Shape>,
    kinds: Vec<Kind>,
}

impl RowEncoder {
    pub(super) const fn new(shape: Arc<Shape>, kinds: Vec<Kind>) -> Self {
        Self { shape, kinds }
    }

    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }
}

impl Encode for RowEncoder {
    fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let columns = self.shape.columns();
        let count = i16::try_from(columns.len()).unwrap_or(i16::MAX);
        self.shape.rows(input, |scope| {
            out.extend_from_slice(&count.to_be_bytes());
            for (column, kind) in columns.iter().zip(&self.kinds) {
                let value = column.eval(scope)?;
                field(column, *kind, &value, out)?;
            }
            Ok(())
        })
    }

    fn runs_programs(&self) -> bool {
        self.shape.runs_programs()
    }
}

/// Appends a value with its length before it.
fn field(column: &Shaped, kind: Kind, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if *value == Value::Null {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    if write(kind, value, out).is_none() {
        let why = format!("{}: {} is not {}", column.name, shown(value), kind.name());
        return Err(Refusal::new(Cause::Value, why));
    }
    let length = i32::try_from(out.len() - at - 4).unwrap_or(i32::MAX);
    if let Some(before) = out.get_mut(at..at + 4) {
        before.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// A value for a sentence: numbers and text as they are, of others what they are.
fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) if text.len() <= 40 => format!("{text:?}"),
        Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Time(_) => {
            value.to_text().map_or_else(String::new, Into::into)
        }
        other => other.kind().into(),
    }
}

fn write(kind: Kind, value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Bool => out.push(value.to_bool()?.into()),
        Kind::Int2 => out.extend(i16::try_from(value.to_int()?).ok()?.to_be_bytes()),
        Kind::Int4 => out.extend(i32::try_from(value.to_int()?).ok()?.to_be_bytes()),
        Kind::Int8 => out.extend(value.to_int()?.to_be_bytes()),
        Kind::Float4 => {
            let wide = value.to_float()?;
            let narrow = wide as f32;
            if narrow.is_infinite() && wide.is_finite() {
                return None;
            }
            out.extend(narrow.to_be_bytes());
        }
        Kind::Float8 => out.extend(value.to_float()?.to_be_bytes()),
        Kind::Numeric => numeric(value, out)?,
        Kind::Text => text(value, out)?,
        Kind::Bytes => match value {
            Value::Bytes(bytes) => out.extend_from_slice(bytes),
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            _ => return None,
        },
        Kind::Json => json(value, out)?,
        Kind::JsonB => {
            /// Version of the form.
            const VERSION: u8 = 1;
            out.push(VERSION);
            json(value, out)?;
        }
        Kind::TimestampTz => {
            out.extend(time(value)?.checked_sub(EPOCH_MICROS)?.to_be_bytes());
        }
        Kind::Date => {
            let micros = match value {
                Value::Text(text) if text.len() == 10 => {
                    moment::parse(&format!("{text}T00:00:00Z"))?
                }
                other => time(other)?,
            };
            let days = micros.checked_sub(EPOCH_MICROS)?.div_euclid(DAY_MICROS);
            out.extend(i32::try_from(days).ok()?.to_be_bytes());
        }
        Kind::Uuid => uuid(value, out)?,
    }
    Some(())
}

/// A time; a number is none, because its unit is not known.
fn time(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Time(micros) => Some(*micros),
        Value::Text(text) => moment::parse(text.trim()),
        _ => None,
    }
}

fn text(value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    let text = value.to_text()?;
    // PostgreSQL has no text with it.
    if text.as_bytes().contains(&0) {
        return None;
    }
    out.extend_from_slice(text.as_bytes());
    Some(())
}

fn json(value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    let at = out.len();
    value.write_json(out);
    let written = out.get(at..)?;
    let nul = written.windows(6).any(|six| six == b"\\u0000");
    (!nul).then_some(())
}

fn uuid(value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Bytes(bytes) if bytes.len() == 16 => out.extend_from_slice(bytes),
        Value::Text(text) => {
            let mut digits = text.bytes().filter(|byte| *byte != b'-');
            for _ in 0..16 {
                let high = char::from(digits.next()?).to_digit(16)?;
                let low = char::from(digits.next()?).to_digit(16)?;
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            if digits.next().is_some() {
                return None;
            }
        }
        _ => return None,
    }
    Some(())
}

/// A decimal number: groups of four digits, as PostgreSQL's `numeric_recv` reads them.
fn numeric(value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    /// Most digits of a number here; PostgreSQL takes more.
    const DIGITS_MAX: usize = 1000;
    let owned = match value {
        // Without an exponent.
        Value::Float(float) if float.is_finite() => float.to_string(),
        Value::Int(_) | Value::UInt(_) | Value::Text(_) => value.to_text()?.trim().to_owned(),
        _ => return None,
    };
    let (negative, plain) = match owned.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, owned.strip_prefix('+').unwrap_or(&owned)),
    };
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let digits = whole.bytes().chain(fraction.bytes());
    let count = whole.len() + fraction.len();
    if count == 0 || count > DIGITS_MAX || !digits.clone().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Groups are counted from the point on both sides.
    let lead = (4 - whole.len() % 4) % 4;
    let zeros = core::iter::repeat_n(b'0', lead);
    let padded: Vec<u8> = zeros.chain(digits).collect();
    let mut groups: Vec<u16> = padded
        .chunks(4)
        .map(|group| {
            let value = group
                .iter()
                .fold(0, |sum, b| sum * 10 + u16::from(b - b'0'));
            value * 10_u16.pow(4 - u32::try_from(group.len()).unwrap_or(4))
        })
        .collect();
    let mut weight = i16::try_from((whole.len() + lead) / 4).ok()? - 1;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    weight -= i16::try_from(leading).ok()?;
    let (sign, weight) = match (groups.is_empty(), negative) {
        (true, _) => (0, 0),
        (false, false) => (0, weight),
        (false, true) => (0x4000_u16, weight),
    };
    out.extend(u16::try_from(groups.len()).ok()?.to_be_bytes());
    out.extend(weight.to_be_bytes());
    out.extend(sign.to_be_bytes());
    out.extend(u16::try_from(fraction.len()).ok()?.to_be_bytes());
    for group in groups {
        out.extend(group.to_be_bytes());
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, value: &Value<'_>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        write(kind, value, &mut out).map(|()| out)
    }

    fn text(text: &str) -> Value<'_> {
        Value::Text(text.into())
    }

    #[test]
    fn values_have_their_form() {
        let day = Value::Time(EPOCH_MICROS - 1);
        for (kind, value, want) in [
            (Kind::Bool, Value::Bool(true), &[1][..]),
            (Kind::Int2, Value::Int(-2), &[0xff, 0xfe]),
            (Kind::Int4, Value::Float(7.0), &[0, 0, 0, 7]),
            (Kind::Int8, text("8"), &[0, 0, 0, 0, 0, 0, 0, 8]),
            (Kind::Float4, Value::Int(1), &[0x3f, 0x80, 0, 0]),
            (Kind::Text, Value::Int(21), b"21"),
            (Kind::Text, Value::List(vec![Value::Null]), b"[null]"),
            (Kind::Bytes, text("a\0"), b"a\0"),
            (Kind::JsonB, text("a"), b"\x01\"a\""),
            (Kind::TimestampTz, day.clone(), &[0xff; 8]),
            (Kind::TimestampTz, text("2000-01-01T00:00:00Z"), &[0; 8]),
            (Kind::Date, day, &[0xff; 4]),
            (Kind::Date, text("2000-01-02"), &[0, 0, 0, 1]),
            (
                Kind::Uuid,
                text("00112233-4455-6677-8899-aabbccddeeff"),
                &[
                    0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc,
                    0xdd, 0xee, 0xff,
                ],
            ),
        ] {
            assert_eq!(
                written(kind, &value).as_deref(),
                Some(want),
                "{kind:?} {value:?}"
            );
        }
    }

    #[test]
    fn decimal_numbers_come_in_groups() {
        let number = |groups: &[u16], weight: i16, sign: u16, scale: u16| {
            let mut out = (groups.len() as u16).to_be_bytes().to_vec();
            out.extend(weight.to_be_bytes());
            out.extend(sign.to_be_bytes());
            out.extend(scale.to_be_bytes());
            out.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
            out
        };
        for (value, want) in [
            (text("0"), number(&[], 0, 0, 0)),
            (text("-0.00"), number(&[], 0, 0, 2)),
            (Value::Int(12_345), number(&[1, 2345], 1, 0, 0)),
            (Value::Float(-21.5), number(&[21, 5000], 0, 0x4000, 1)),
            (text("0.00001"), number(&[1000], -2, 0, 5)),
            (text("10000"), number(&[1], 1, 0, 0)),
            (text("+1.2345678"), number(&[1, 2345, 6780], 0, 0, 7)),
        ] {
            let got = written(Kind::Numeric, &value);
            assert_eq!(got, Some(want), "{value:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (kind, value) in [
            (Kind::Bool, Value::Int(2)),
            (Kind::Int2, Value::Int(40_000)),
            (Kind::Int4, Value::Float(1.5)),
            (Kind::Int8, Value::UInt(u64::MAX)),
            (Kind::Float4, Value::Float(1e300)),
            (Kind::Float8, text("warm")),
            (Kind::Text, text("a\0b")),
            (Kind::Text, Value::Bytes(vec![0xff].into())),
            (Kind::JsonB, text("a\0b")),
            (Kind::TimestampTz, Value::Int(1)),
            (Kind::TimestampTz, Value::Time(i64::MIN)),
            (Kind::Uuid, text("00112233")),
            (Kind::Uuid, text("zz112233-4455-6677-8899-aabbccddeeff")),
            (Kind::Numeric, text("1e5")),
            (Kind::Numeric, text("")),
            (Kind::Numeric, Value::Float(f64::NAN)),
        ] {
            assert_eq!(written(kind, &value), None, "{kind:?} {value:?}");
        }
    }
}
