//! Which messages are stored, and as which rows: decoding, selection, columns. Knows no
//! target.

use crate::config::{Column, Config, ConfigError, MessageConfig, Unit};
use crate::decode::Format;
use crate::expression::{Expression, Expressions, Scope, Work};
use crate::input::Input;
use crate::refusal::{Cause, Refusal};
use crate::value::Value;

/// Most rows of one message.
pub(crate) const ROWS_MAX: usize = 100_000;

/// Columns when the configuration names none.
const PLAIN: [&str; 4] = ["payload", "qos", "time", "topic"];

/// A column.
#[derive(Debug)]
pub struct Shaped {
    /// Its name.
    pub name: String,
    value: Expression,
    unit: Option<Unit>,
}

/// How a message becomes rows.
#[derive(Debug)]
pub struct Shape {
    format: Format,
    condition: Option<Expression>,
    each: Option<Expression>,
    columns: Vec<Shaped>,
    is_plain: bool,
}

impl Shape {
    /// As the configuration says.
    ///
    /// # Errors
    /// An expression cannot be read; a sentence says which, and why.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let columns = config.columns.iter();
        let columns = columns.map(|(name, column)| (name.as_str(), column));
        let key = "expression";
        Self::new(&config.message, columns).map_err(|why| ConfigError::Value { key, why })
    }

    fn new<'a>(
        message: &MessageConfig,
        columns: impl Iterator<Item = (&'a str, &'a Column)>,
    ) -> Result<Self, String> {
        let expressions = Expressions::new();
        let optional = |key: &str, source: &Option<String>| {
            let parsed = source.as_ref().map(|source| expressions.parse(source));
            parsed
                .transpose()
                .map_err(|why| format!("message.{key}: {why}"))
        };
        let condition = optional("where", &message.condition)?;
        let each = optional("each", &message.each)?;
        let mut shaped = Vec::new();
        for (name, column) in columns {
            let value = expressions.parse(column.source());
            shaped.push(Shaped {
                name: name.to_owned(),
                value: value.map_err(|why| format!("columns.{name}: {why}"))?,
                unit: column.unit(),
            });
        }
        let is_plain = shaped.is_empty();
        if is_plain {
            for name in PLAIN {
                shaped.push(Shaped {
                    name: name.to_owned(),
                    value: expressions.parse(name)?,
                    unit: None,
                });
            }
        }
        Ok(Self {
            format: message.format,
            condition,
            each,
            columns: shaped,
            is_plain,
        })
    }

    /// The columns, in their order.
    #[must_use]
    pub fn columns(&self) -> &[Shaped] {
        &self.columns
    }

    /// Whether the configuration names no columns.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Appends a row as the body of a message: the payload as it came, or the element, or
    /// an object of the columns that the configuration names.
    ///
    /// # Errors
    /// An expression fails.
    pub(crate) fn write_body(&self, scope: &Scope<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        match scope.item {
            _ if !self.is_plain => write_object(&self.columns, scope, out)?,
            Some(item) => item.write_json(out),
            None => out.extend_from_slice(scope.input.payload),
        }
        Ok(())
    }

    /// Whether an expression is a program, and not a path.
    #[must_use]
    pub fn runs_programs(&self) -> bool {
        let columns = self.columns.iter().map(|column| &column.value);
        let mut all = columns.chain(&self.condition).chain(&self.each);
        all.any(Expression::is_program)
    }

    /// Calls `row` for each row of a message; gives how many there are. None, if the
    /// message is not selected.
    ///
    /// # Errors
    /// The message does not decode, an expression fails, or `row` does.
    pub fn rows(
        &self,
        input: &Input<'_>,
        mut row: impl FnMut(&Scope<'_>) -> Result<(), Refusal>,
    ) -> Result<usize, Refusal> {
        let payload = self.format.decode(input.topic, input.payload)?;
        let work = Work::default();
        let whole = Scope {
            input,
            payload: &payload,
            item: None,
            index: 0,
            work: &work,
        };
        let Some(each) = &self.each else {
            if !self.selects(&whole)? {
                return Ok(0);
            }
            row(&whole)?;
            return Ok(1);
        };
        let list = each.eval(&whole)?;
        let items = match &*list {
            Value::List(items) => items.as_slice(),
            // What is not there has no elements.
            Value::Null => &[],
            other => {
                let why = format!("`each` gives {}, and no list", other.kind());
                return Err(Refusal::new(Cause::Expression, why));
            }
        };
        if items.len() > ROWS_MAX {
            let why = format!("it has {} rows, more than {ROWS_MAX}", items.len());
            return Err(Refusal::new(Cause::Expression, why));
        }
        let mut count = 0;
        for (index, item) in items.iter().enumerate() {
            let scope = Scope {
                input,
                payload: &payload,
                item: Some(item),
                index,
                work: &work,
            };
            if self.selects(&scope)? {
                row(&scope)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn selects(&self, scope: &Scope<'_>) -> Result<bool, Refusal> {
        let Some(condition) = &self.condition else {
            return Ok(true);
        };
        match *condition.eval(scope)? {
            Value::Bool(yes) => Ok(yes),
            ref other => {
                let why = format!("`where` gives {}, and no truth value", other.kind());
                Err(Refusal::new(Cause::Expression, why))
            }
        }
    }
}

impl Shaped {
    /// Its value in a row.
    ///
    /// # Errors
    /// Its expression fails, or gives no time although it has a unit of time.
    pub fn eval<'s>(&self, scope: &Scope<'s>) -> Result<std::borrow::Cow<'s, Value<'s>>, Refusal> {
        let value = self.value.eval(scope)?;
        let Some(unit) = self.unit else {
            return Ok(value);
        };
        let micros = match &*value {
            Value::Null | Value::Time(_) => return Ok(value),
            Value::Int(count) => unit.micros(*count),
            Value::Float(count) => unit.micros_of(*count),
            Value::Text(text) => match text.trim().parse() {
                Ok(count) => unit.micros(count),
                Err(_) => crate::moment::parse(text),
            },
            _ => None,
        };
        match micros {
            Some(micros) => Ok(std::borrow::Cow::Owned(Value::Time(micros))),
            None => {
                let why = format!("{}: {} is no time", self.name, value.kind());
                Err(Refusal::new(Cause::Value, why))
            }
        }
    }
}

/// Appends a row as a JSON object.
///
/// # Errors
/// An expression fails.
pub(crate) fn write_object(
    columns: &[Shaped],
    scope: &Scope<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    out.push(b'{');
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        crate::value::json(column.name.as_str(), out);
        out.push(b':');
        column.eval(scope)?.write_json(out);
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(config: &str, payload: &str) -> Result<Vec<String>, String> {
        let config = crate::config::tests::with(config);
        let shape = Shape::of(&config).map_err(|error| error.to_string())?;
        let input = Input {
            topic: "a/b",
            payload: payload.as_bytes(),
            time: 0,
            qos: 1,
            retain: false,
            properties: None,
        };
        let mut rows = Vec::new();
        let count = shape.rows(&input, |scope| {
            let mut out = Vec::new();
            write_object(shape.columns(), scope, &mut out)?;
            rows.push(String::from_utf8(out).expect("UTF-8"));
            Ok(())
        });
        assert_eq!(count.map_err(|r| r.to_string())?, rows.len());
        Ok(rows)
    }

    #[test]
    fn messages_become_rows() {
        let plain = r#"{"payload":{"v":1},"qos":1,"time":"1970-01-01T00:00:00Z","topic":"a/b"}"#;
        assert_eq!(rows("", r#"{"v":1}"#), Ok(vec![plain.to_owned()]));
        let some = "[message]\nwhere = 'payload.v > 1'\n[columns]\nv = 'payload.v'";
        assert_eq!(rows(some, r#"{"v":1}"#), Ok(vec![]));
        assert_eq!(rows(some, r#"{"v":2}"#), Ok(vec![r#"{"v":2}"#.into()]));
        let each = "[message]\neach = 'payload.m'\nwhere = 'item.v != null'\n\
                    [columns]\nn = 'index'\nv = 'item.v'";
        let two = [r#"{"n":0,"v":5}"#, r#"{"n":2,"v":6}"#].map(str::to_owned);
        let payload = r#"{"m":[{"v":5},{"v":null},{"v":6}]}"#;
        assert_eq!(rows(each, payload), Ok(two.to_vec()));
        assert_eq!(rows(each, "{}"), Ok(vec![]));
    }

    #[test]
    fn units_make_times() {
        for (unit, value, want) in [
            ("s", "1.5", "1970-01-01T00:00:01.500000Z"),
            ("ms", "1500", "1970-01-01T00:00:01.500000Z"),
            ("us", "\"1500000\"", "1970-01-01T00:00:01.500000Z"),
            ("ns", "1500000999", "1970-01-01T00:00:01.500000Z"),
            ("s", "\"2026-01-02T03:04:05Z\"", "2026-01-02T03:04:05Z"),
        ] {
            let config = format!("[columns]\nt = {{ value = 'payload', unit = '{unit}' }}");
            assert_eq!(
                rows(&config, value),
                Ok(vec![format!("{{\"t\":\"{want}\"}}")])
            );
        }
        let config = "[columns]\nt = { value = 'payload', unit = 's' }";
        for value in ["true", "\"soon\"", "1e300", "9223372036854775807"] {
            let refused = rows(config, value).expect_err(value);
            assert!(refused.starts_with("value: t: "), "{refused}");
        }
        assert_eq!(rows(config, "null"), Ok(vec!["{\"t\":null}".into()]));
    }

    #[test]
    fn messages_that_do_not_fit_are_refused() {
        for (config, payload, part) in [
            ("", "{", "decode: not JSON"),
            (
                "[message]\nwhere = 'payload.v'",
                "{\"v\":1}",
                "no truth value",
            ),
            ("[message]\neach = 'payload.v'", "{\"v\":1}", "no list"),
            ("[message]\nwhere = 'payload.v > 1'", "{}", "expression: "),
            (
                "[columns]\nv = 'x.y'",
                "{}",
                "expression: columns.v: `x.y` is not",
            ),
            (
                "[message]\neach = 'payload.'",
                "{}",
                "expression: message.each: ",
            ),
        ] {
            let refused = rows(config, payload).expect_err(config);
            assert!(refused.contains(part), "{refused}");
        }
    }
}
