//! Answers of the broker for people: tables, and lists of names and values. What a
//! client has chosen is shown without its control characters.

use std::io::{self, Write};

use serde_json::Value;
use time::UtcDateTime;

/// A heading, and the field of a row below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str);

/// Longest cell that others in its column are aligned to.
const WIDTH_MAX: usize = 40;

/// A table that is printed page by page: columns keep the width of the first one, and
/// what is longer is not cut off.
#[derive(Debug)]
pub(super) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
}

impl Table {
    pub(super) const fn new(columns: &'static [Column]) -> Self {
        let widths = Vec::new();
        Self { columns, widths }
    }

    /// Prints rows, the first time below the headings.
    pub(super) fn print(&mut self, out: &mut dyn Write, rows: &[Value]) -> io::Result<()> {
        let cells = rows.iter().map(|row| {
            let fields = self
                .columns
                .iter()
                .map(|column| field(column.1, &row[column.1]));
            fields.collect::<Vec<_>>()
        });
        let cells: Vec<_> = cells.collect();
        if self.widths.is_empty() {
            let heads: Vec<_> = self.columns.iter().map(|it| it.0.to_owned()).collect();
            let width = |at: usize| {
                let of_column = cells.iter().chain([&heads]).filter_map(|row| row.get(at));
                let widths = of_column.map(|cell| cell.chars().count());
                widths.max().unwrap_or(0).min(WIDTH_MAX)
            };
            self.widths = (0..heads.len()).map(width).collect();
            self.line(out, &heads)?;
        }
        cells.iter().try_for_each(|row| self.line(out, row))
    }

    fn line(&self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())
    }
}

/// Prints the fields of a thing that have a value, those of its parts behind them.
pub(super) fn show(out: &mut dyn Write, thing: &Value) -> io::Result<()> {
    let fields = fields("", thing);
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in fields {
        writeln!(out, "{name:<width$}  {value}")?;
    }
    Ok(())
}

fn fields(prefix: &str, thing: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, value) in thing.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Value::Null => {}
            Value::Object(_) => found.extend(fields(&format!("{name}."), value)),
            value => found.push((name, cell(value))),
        }
    }
    found
}

/// Fields that are seconds since 1970.
const TIMES: [&str; 4] = ["until", "not_after", "last_error_at", "since"];

/// The value of a field as a person reads it.
fn field(name: &str, value: &Value) -> String {
    match name {
        "session_expiry_seconds" if value.is_null() => return "never".to_owned(),
        "until" if value.is_null() => return "for good".to_owned(),
        _ => {}
    }
    let seconds = value.as_i64().filter(|_| TIMES.contains(&name));
    let at = seconds.and_then(|seconds| UtcDateTime::from_unix_timestamp(seconds).ok());
    match at {
        Some(at) => {
            let (date, hour, minute, second) = (at.date(), at.hour(), at.minute(), at.second());
            format!("{date} {hour:02}:{minute:02}:{second:02} UTC")
        }
        None => cell(value),
    }
}

/// A value as a person reads it.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text
            .chars()
            .flat_map(|letter| match crate::log::is_active(letter) {
                true => letter.escape_unicode().collect::<Vec<_>>(),
                false => vec![letter],
            })
            .collect(),
        Value::Array(values) => {
            let cells: Vec<_> = values.iter().map(cell).collect();
            cells.join(", ")
        }
        Value::Object(fields) => {
            let cells = fields
                .iter()
                .map(|(name, value)| format!("{name} {}", cell(value)));
            cells.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: [Column; 2] = [Column("NAME", "name"), Column("N", "n")];

    #[test]
    fn columns_are_aligned_and_hostile_text_is_shown_as_text() {
        let (mut table, mut out) = (Table::new(&COLUMNS), Vec::new());
        let rows = [
            json!({ "name": "a\u{1b}[2J\n", "n": 1 }),
            json!({ "name": null, "n": [2, 3] }),
        ];
        table.print(&mut out, &rows).expect("written");
        table
            .print(&mut out, &[json!({ "n": 4 })])
            .expect("written");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "NAME             N");
        assert_eq!(lines[1], r"a\u{1b}[2J\u{a}  1");
        assert_eq!(lines[2], "-                2, 3");
        assert_eq!(lines[3], "-                4");
    }

    #[test]
    fn times_are_dates() {
        for (value, text) in [
            (json!(0), "1970-01-01 00:00:00 UTC"),
            (json!(1_790_000_000), "2026-09-21 14:13:20 UTC"),
            (json!(null), "for good"),
            (json!(u64::MAX), "18446744073709551615"),
        ] {
            assert_eq!(field("until", &value), text);
        }
        assert_eq!(field("count", &json!(7)), "7");
    }

    #[test]
    fn a_thing_is_shown_field_by_field() {
        let mut out = Vec::new();
        let thing = json!({ "a": "x", "none": null, "quic": { "rtt_us": 7 } });
        show(&mut out, &thing).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "a            x\nquic.rtt_us  7\n");
    }
}
