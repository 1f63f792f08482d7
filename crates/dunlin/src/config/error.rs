//! Wrong configuration, as one sentence that names file, line and key.

use core::ops::Range;
use std::io;
use std::path::{Path, PathBuf};

use super::shown::HIDDEN;

/// What is wrong with a section: key within it, and a sentence.
pub(super) type Wrong = (&'static str, String);

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in the file is wrong.
    #[error("{}:{line}: {}{message}", path.display(), prefix(key))]
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Section and key, as in `limits.max_inflight`; empty if the line has
        /// none.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// An override on the command line is wrong.
    #[error("--set {argument}: {message}")]
    Override {
        /// As given.
        argument: String,
        /// What is wrong.
        message: String,
    },
    /// A value does not fit the rest; neither file nor override is to blame
    /// alone.
    #[error("{}{message}", prefix(key))]
    Value {
        /// Section and key.
        key: String,
        /// What is wrong.
        message: String,
    },
}

impl ConfigError {
    /// With what an operator does next, where a broker that runs has read `file`, and goes
    /// on with what it has.
    pub(crate) fn while_running(&self, file: &Path) -> String {
        let file = file.display();
        format!(
            "{self}; nothing has changed: the configuration that was read before stays in \
             force. Correct it, see `dunlin broker --check --config {file}`, and reload again"
        )
    }

    /// The position and key of an error of the TOML parser.
    pub(super) fn in_file(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        Self::File {
            path: path.into(),
            line: line_at(text, span.start),
            key: key_at(text, &span),
            message: humanize(error.message()),
        }
    }

    /// A value of the file that does not fit.
    pub(super) fn at_key(path: &Path, text: &str, key: &str, message: String) -> Self {
        Self::File {
            path: path.into(),
            line: line_of_key(text, key),
            key: key.into(),
            message,
        }
    }
}

fn prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}: ")
    }
}

/// Line of a byte offset, from 1.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A line of a file, as far as errors need it.
struct Place<'a> {
    /// Header of the table it is in, without brackets.
    table: &'a str,
    /// Number of the table, or of the one it is within, among those with the
    /// same header, from 0.
    index: usize,
    /// The key that it sets, or set last in this table.
    key: &'a str,
}

/// Follows headers and keys line by line. A string over several lines may
/// mislead it; then the sentence names a wrong key and still the right line.
fn places(text: &str) -> impl Iterator<Item = Place<'_>> {
    let mut headers: Vec<&str> = Vec::new();
    let (mut table, mut index, mut key) = ("", 0, "");
    text.lines().map(move |line| {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix('[').filter(|_| !line.contains('=')) {
            table = rest.trim_matches(|c| c == '[' || c == ']' || c == ' ');
            table = table.split(']').next().unwrap_or(table);
            headers.push(table);
            let outer = outermost(table);
            let seen = headers.iter().filter(|seen| **seen == outer).count();
            index = seen.saturating_sub(1);
            key = "";
        } else if let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            key = name.trim();
        }
        Place { table, index, key }
    })
}

fn outermost(table: &str) -> &str {
    table.split('.').next().unwrap_or_default()
}

fn key_at(text: &str, span: &Range<usize>) -> String {
    let line = line_at(text, span.start);
    match places(text).nth(line - 1) {
        None => String::new(),
        Some(place) if place.key.is_empty() || place.table.is_empty() => {
            format!("{}{}", place.table, place.key)
        }
        Some(place) => format!("{}.{}", place.table, place.key),
    }
}

/// Line where a key such as `listener.1.tls` is set: the first of those that
/// match most of it, so that an absent key is blamed on its table.
fn line_of_key(text: &str, key: &str) -> usize {
    let mut parts = key.split('.');
    let table = parts.next().unwrap_or_default();
    let mut rest: Vec<&str> = parts.collect();
    let index = rest.first().and_then(|part| part.parse().ok());
    if index.is_some() {
        rest.remove(0);
    }
    let index = index.unwrap_or(0);
    let rest = rest.join(".");
    let wanted = format!("{table}.{rest}");
    let within = format!("{wanted}.");
    let score = |place: &Place<'_>| {
        if rest.is_empty() && place.table.is_empty() && place.key == table {
            return 3;
        }
        if place.index != index || outermost(place.table) != table {
            return 0;
        }
        let full = format!("{}.{}", place.table, place.key);
        match () {
            () if full == wanted => 3,
            () if full.starts_with(&within) => 2,
            () if place.table == table => 1,
            () => 0,
        }
    };
    let mut best = (0, 1);
    for (number, place) in places(text).enumerate() {
        let score = score(&place);
        if score > best.0 {
            best = (score, number + 1);
        }
    }
    best.1
}

/// Rewrites what serde says about Rust types and unknown fields for people who
/// edit files.
pub(super) fn humanize(message: &str) -> String {
    let message = without_urls(message.trim()).replace('\n', "; ");
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return unknown(rest).unwrap_or(message);
    }
    [
        ("expected u16", "expected a whole number from 0 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected u64", "expected a whole number"),
        ("expected usize", "expected a whole number"),
        ("expected path string", "expected a path in quotes"),
        ("expected a boolean", "expected true or false"),
        ("unknown variant", "unknown value"),
        ("missing field", "missing key"),
        ("invalid type:", "wrong type:"),
    ]
    .iter()
    .fold(message, |message, (from, to)| message.replace(from, to))
}

/// Without values that have a URL in them, which may have a password: what serde quotes.
fn without_urls(message: &str) -> String {
    let variant = message.strip_prefix("unknown variant `");
    let (value, expected) = variant
        .and_then(|rest| rest.rsplit_once("`, expected "))
        .unwrap_or_default();
    if value.contains("://") {
        return format!("unknown variant `{HIDDEN}`, expected {expected}");
    }
    let mut out = String::new();
    let mut rest = message;
    while let Some((before, quoted)) = rest.split_once("string \"") {
        let mut escaped = false;
        let end = quoted.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let (value, after) = quoted.split_at(end.unwrap_or(quoted.len()));
        let value = if value.contains("://") { HIDDEN } else { value };
        out.extend([before, "string \"", value]);
        rest = after;
    }
    out + rest
}

/// From "NAME`, expected one of `a`, `b`" to a sentence with a proposal.
fn unknown(rest: &str) -> Option<String> {
    let (name, expected) = rest.split_once('`')?;
    let known = expected.split('`').skip(1).step_by(2);
    let nearest = known
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= name.len().div_ceil(3));
    Some(match nearest {
        Some((_, nearest)) => format!("unknown key `{name}`, did you mean `{nearest}`?"),
        None => format!("unknown key `{name}`{expected}"),
    })
}

/// Levenshtein distance of two short names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            left = (diagonal + usize::from(x != *y))
                .min(above + 1)
                .min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_again() {
        let text = "data_dir = \"x\"\n\n[limits]\n# a = 1\nmax_inflight = 0\n\
            [[listener]]\ntransport = \"tcp\"\n[[listener]]\ntransport = \"ws\"\ntls.key = \"k\"\n";
        for (key, line) in [
            ("data_dir", 1),
            ("limits.max_inflight", 5),
            ("limits.absent", 3),
            ("listener.0.transport", 7),
            ("listener.1.transport", 9),
            ("listener.1.path", 8),
            ("listener.1.tls.key", 10),
            ("nothing.at.all", 1),
        ] {
            assert_eq!(line_of_key(text, key), line, "{key}");
        }
    }

    #[test]
    fn urls_are_not_shown() {
        let wrong = |value: &str| {
            let value = toml::Value::from(value);
            let error = value.try_into::<Vec<String>>().expect_err("no list");
            humanize(error.message())
        };
        for value in [
            "nats://u:secret@h",
            "a \"b\\ nats://u:secret@h\", c",
            "x://secret",
        ] {
            let shown = wrong(value);
            let hidden = "wrong type: string \"(hidden)\", expected a sequence";
            assert_eq!(shown, hidden);
        }
        assert_eq!(wrong("x"), "wrong type: string \"x\", expected a sequence");
    }

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
