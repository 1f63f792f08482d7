//! Rows in the line protocol of InfluxDB, over HTTP. The column `time` is the timestamp,
//! some columns are tags, the others fields.

use core::fmt::Write as _;
use core::time::Duration;
use std::sync::Arc;

use super::objects::percent;
use super::web::Web;
use crate::config::{self, ConfigError, InfluxDb};
use crate::expression::Scope;
use crate::input::Input;
use crate::refusal::{Cause, Refusal};
use crate::shape::{Shape, Shaped};
use crate::target::Encode;
use crate::value::Value;

/// The column that is the timestamp.
const TIME: &str = "time";

struct Lines {
    shape: Arc<Shape>,
    measurement: String,
    /// Which columns are tags, by name in order, as the protocol advises.
    tags: Vec<usize>,
    fields: Vec<usize>,
    time: Option<usize>,
}

/// InfluxDB.
pub(super) fn influxdb(
    config: &InfluxDb,
    shape: Arc<Shape>,
    timeout: Duration,
) -> Result<Web, ConfigError> {
    let wrong = |key, why: String| Err(ConfigError::Value { key, why });
    let (mut tags, mut fields, mut time) = (Vec::new(), Vec::new(), None);
    for (index, column) in shape.columns().iter().enumerate() {
        if column.name == TIME {
            time = Some(index);
        } else if config.tags.contains(&column.name) {
            tags.push(index);
        } else {
            fields.push(index);
        }
    }
    let known = |tag: &&String| shape.columns().iter().any(|column| column.name == **tag);
    if let Some(tag) = config.tags.iter().find(|tag| !known(tag)) {
        return wrong("influxdb.tags", format!("there is no column `{tag}`"));
    }
    if fields.is_empty() {
        let why = "a row has a field: one column at least is neither a tag nor `time`";
        return wrong("columns", why.into());
    }
    if config.measurement.is_empty() || config.measurement.contains(['\n', '\r']) {
        return wrong("influxdb.measurement", "a name on one line".into());
    }
    let encoder = Lines {
        shape,
        measurement: escaped(&config.measurement, &[',', ' ']),
        tags,
        fields,
        time,
    };
    let url = format!(
        "{}/api/v2/write?org={}&bucket={}&precision=ns",
        config.url.trim_end_matches('/'),
        percent(&config.org),
        percent(&config.bucket)
    );
    let mut web = Web::new(url, config.ca.as_deref(), timeout, Arc::new(encoder))?
        .header("content-type", "text/plain; charset=utf-8");
    if let Some(file) = &config.token_file {
        let token = config::secret(file)?;
        web = web.header("authorization", format!("Token {token}"));
    }
    Ok(web)
}

impl Encode for Lines {
    fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
        self.shape.rows(input, |scope| self.line(scope, out))
    }

    fn runs_programs(&self) -> bool {
        self.shape.runs_programs()
    }
}

impl Lines {
    fn line(&self, scope: &Scope<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut line = self.measurement.clone();
        for column in self.of(&self.tags) {
            let value = column.eval(scope)?;
            // A tag without a value is left out.
            let Some(text) = value.to_text().filter(|text| !text.is_empty()) else {
                continue;
            };
            if text.contains(['\n', '\r']) {
                return Err(misfit(column, "a tag has one line"));
            }
            // Only a backslash at the end would quote what follows.
            let text = text.trim_end_matches('\\');
            let _ = write!(
                line,
                ",{}={}",
                escaped(&column.name, &[',', '=', ' ']),
                escaped(text, &[',', '=', ' '])
            );
        }
        let mut separator = ' ';
        for column in self.of(&self.fields) {
            let value = column.eval(scope)?;
            let text = match &*value {
                Value::Null => continue,
                Value::Bool(yes) => yes.to_string(),
                Value::Int(int) => format!("{int}i"),
                Value::UInt(int) => format!("{int}u"),
                Value::Float(float) if float.is_finite() => float.to_string(),
                Value::Float(_) => return Err(misfit(column, "a field is a finite number")),
                other => match other.to_text() {
                    Some(text) => format!("\"{}\"", escaped(&text, &['"', '\\'])),
                    None => return Err(misfit(column, "a field is text, not other bytes")),
                },
            };
            let name = escaped(&column.name, &[',', '=', ' ']);
            let _ = write!(line, "{separator}{name}={text}");
            separator = ',';
        }
        if separator == ' ' {
            return Err(Refusal::new(Cause::Value, "every field is null"));
        }
        for column in self.of(self.time.as_slice()) {
            let value = column.eval(scope)?;
            let nanos = match &*value {
                Value::Null => continue,
                Value::Time(micros) => micros.checked_mul(1000),
                _ => return Err(misfit(column, "not a time: give the column a unit")),
            };
            let Some(nanos) = nanos else {
                return Err(misfit(column, "too far away"));
            };
            let _ = write!(line, " {nanos}");
        }
        line.push('\n');
        out.extend_from_slice(line.as_bytes());
        Ok(())
    }

    fn of<'a>(&'a self, indexes: &'a [usize]) -> impl Iterator<Item = &'a Shaped> {
        let columns = self.shape.columns();
        indexes.iter().filter_map(|index| columns.get(*index))
    }
}

fn misfit(column: &Shaped, why: &str) -> Refusal {
    Refusal::new(Cause::Value, format!("{}: {why}", column.name))
}

fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(columns: &str, payload: &str) -> Result<String, String> {
        let text = format!(
            "broker = {{ filters = ['a'] }}\ninfluxdb = {{ url = 'http://h', bucket = 'b', \
             measurement = 'my room', tags = ['place'] }}\n[columns]\n{columns}"
        );
        let config = config::Config::parse(&"f", &text).expect("valid");
        let shape = Arc::new(Shape::of(&config).expect("expressions"));
        let influx = config.influxdb.as_ref().expect("given");
        influxdb(influx, Arc::clone(&shape), Duration::from_secs(1))
            .map_err(|error| error.to_string())?;
        let by_name = |name: &str| shape.columns().iter().position(|c| c.name == name);
        let tag = by_name("place").expect("a tag");
        let time = by_name("time");
        let others = 0..shape.columns().len();
        let lines = Lines {
            fields: others
                .filter(|at| *at != tag && Some(*at) != time)
                .collect(),
            measurement: escaped("my room", &[',', ' ']),
            tags: vec![tag],
            time,
            shape,
        };
        let input = Input {
            topic: "a",
            payload: payload.as_bytes(),
            time: 5,
            qos: 1,
            retain: false,
            properties: None,
        };
        let mut out = Vec::new();
        lines.encode(&input, &mut out).map_err(|r| r.to_string())?;
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn rows_become_lines() {
        let columns = "place = 'payload.p'\nv = 'payload.v'\nt = 'payload.t'\ntime = 'time'";
        for (payload, want) in [
            (
                r#"{"p":"a b,c=d","v":21,"t":"say \"x\""}"#,
                "my\\ room,place=a\\ b\\,c\\=d t=\"say \\\"x\\\"\",v=21i 5000\n",
            ),
            (r#"{"p":"","v":1.5}"#, "my\\ room v=1.5 5000\n"),
            (r#"{"p":"x\\","v":true}"#, "my\\ room,place=x v=true 5000\n"),
        ] {
            assert_eq!(lines(columns, payload).as_deref(), Ok(want));
        }
    }

    #[test]
    fn rows_that_are_no_lines_are_refused() {
        let columns = "place = 'payload.p'\nv = 'payload.v'";
        for payload in [r#"{"p":"a"}"#, r#"{"p":"a\nb","v":1}"#] {
            lines(columns, payload).expect_err(payload);
        }
        let timed = "place = 'payload.p'\nv = 'payload.v'\ntime = 'payload.t'";
        let refused = lines(timed, r#"{"v":1,"t":5}"#).expect_err("a number");
        assert!(refused.contains("give the column a unit"), "{refused}");
        let none = lines("place = 'payload.p'", "{}").expect_err("no field");
        assert!(none.contains("a row has a field"), "{none}");
        let unknown = lines("v = 'payload'", "1").expect_err("no tag");
        assert!(unknown.contains("no column `place`"), "{unknown}");
    }
}
