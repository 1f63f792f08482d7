//! What was found, as a table for people and as JSON.

use core::fmt;
use core::fmt::Write as _;

use serde_json::{Map, Value, json};

/// What came of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The server has it.
    Yes,
    /// The server does not have it.
    No,
    /// The check did not come to an end.
    Failed,
    /// It was not tried.
    Skipped,
}

impl Outcome {
    const fn word(&self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the check.
    pub name: &'static str,
    /// What it is about, for people.
    pub title: &'static str,
    /// What came of it.
    pub outcome: Outcome,
    /// More about it, or why not, for people.
    pub detail: String,
    /// Numbers and names for machines; null where the outcome says all.
    pub value: Value,
}

/// All rows about one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What was asked, without password.
    pub url: String,
    /// The rows, in the order of the checks.
    pub rows: Vec<Row>,
}

impl Report {
    /// Names among these that the server does not have, or that could not be shown.
    #[must_use]
    pub fn missing(&self, required: &[String]) -> Vec<String> {
        let has = |name: &str| {
            let mut rows = self.rows.iter();
            rows.any(|row| row.name == name && row.outcome == Outcome::Yes)
        };
        let missing = required.iter().filter(|name| !has(name));
        missing.cloned().collect()
    }

    /// Whether there was a connection at all.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| row.name == "connect" && row.outcome == Outcome::Yes)
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self, missing: &[String]) -> Value {
        let row = |row: &Row| {
            let value = json!({
                "outcome": row.outcome.word(),
                "detail": row.detail,
                "value": row.value,
            });
            (row.name.to_owned(), value)
        };
        let checks: Map<String, Value> = self.rows.iter().map(row).collect();
        json!({ "url": self.url, "checks": checks, "missing": missing })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.url)?;
        let width = |of: fn(&Row) -> usize| self.rows.iter().map(of).max().unwrap_or(0);
        let (names, titles) = (width(|row| row.name.len()), width(|row| row.title.len()));
        for row in &self.rows {
            let mut line = String::new();
            write!(
                line,
                "  {:<names$}  {:<titles$}  {:<7}  {}",
                row.name,
                row.title,
                row.outcome.word(),
                row.detail
            )?;
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, outcome: Outcome) -> Row {
        Row {
            name,
            title: "title",
            outcome,
            detail: String::new(),
            value: Value::Null,
        }
    }

    #[test]
    fn what_is_required_must_be_shown() {
        let report = Report {
            url: "mqtt://h".into(),
            rows: vec![
                row("qos1", Outcome::Yes),
                row("qos2", Outcome::No),
                row("will", Outcome::Failed),
            ],
        };
        let required: Vec<String> = ["qos1", "qos2", "will", "quic"].map(str::to_owned).into();
        let missing = report.missing(&required);
        assert_eq!(missing, ["qos2", "will", "quic"]);
        assert_eq!(report.json(&missing)["checks"]["qos2"]["outcome"], "no");
        assert_eq!(report.json(&missing)["missing"][2], "quic");
    }
}
