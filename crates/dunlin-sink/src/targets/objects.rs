//! Rows as JSON objects: any server that takes them by HTTP, and ClickHouse.

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;

use super::web::Web;
use crate::config::{self, Body, ClickHouse, ConfigError};
use crate::input::Input;
use crate::refusal::Refusal;
use crate::shape::{Shape, write_object};
use crate::target::{Encode, Rows};

/// Writes rows as objects, with a byte before or after each.
struct Objects {
    shape: Arc<Shape>,
    before: Option<u8>,
    after: Option<u8>,
}

impl Encode for Objects {
    fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
        self.shape.rows(input, |scope| {
            out.extend(self.before);
            write_object(self.shape.columns(), scope, out)?;
            out.extend(self.after);
            Ok(())
        })
    }

    fn runs_programs(&self) -> bool {
        self.shape.runs_programs()
    }
}

const fn lines(shape: Arc<Shape>) -> Objects {
    Objects {
        shape,
        before: None,
        after: Some(b'\n'),
    }
}

/// Any server.
pub(super) fn http(
    config: &config::Http,
    shape: Arc<Shape>,
    timeout: Duration,
) -> Result<Web, ConfigError> {
    let (encoder, media) = match config.body {
        Body::Ndjson => (lines(shape), "application/x-ndjson"),
        Body::Json => {
            let list = Objects {
                shape,
                before: Some(b','),
                after: None,
            };
            (list, "application/json")
        }
    };
    let encoder = Arc::new(encoder);
    let mut web = Web::new(config.url.clone(), config.ca.as_deref(), timeout, encoder)?;
    if config.body == Body::Json {
        web = web.body(list);
    }
    let named = |name: &str| {
        let mut names = config.headers.keys();
        names.any(|known| known.eq_ignore_ascii_case(name))
    };
    if !named("content-type") {
        web = web.header("content-type", media);
    }
    if let Some(file) = &config.token_file {
        let token = config::secret(file)?;
        web = web.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in &config.headers {
        web = web.header(name, value);
    }
    Ok(web)
}

/// Objects with a comma before each, as a list.
fn list(rows: Rows) -> Bytes {
    let objects = rows.bytes.get(1..).unwrap_or_default();
    Bytes::from([b"[", objects, b"]"].concat())
}

/// ClickHouse.
pub(super) fn clickhouse(
    config: &ClickHouse,
    shape: Arc<Shape>,
    timeout: Duration,
) -> Result<Web, ConfigError> {
    let table: Vec<String> = config.table.split('.').map(quoted).collect();
    let query = format!("INSERT INTO {} FORMAT JSONEachRow", table.join("."));
    let url = format!(
        "{}/?query={}&wait_end_of_query=1&date_time_input_format=best_effort",
        config.url.trim_end_matches('/'),
        percent(&query)
    );
    let mut web = Web::new(url, config.ca.as_deref(), timeout, Arc::new(lines(shape)))?;
    if let Some(user) = &config.user {
        web = web.header("x-clickhouse-user", user);
    }
    if let Some(file) = &config.password_file {
        web = web.header("x-clickhouse-key", config::secret(file)?);
    }
    Ok(web)
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

/// Text as part of the query of a URL.
pub(super) fn percent(text: &str) -> String {
    use core::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted() {
        assert_eq!(quoted("a`b\\"), "`a\\`b\\\\`");
        assert_eq!(percent("a `b`&ä"), "a%20%60b%60%26%C3%A4");
    }

    #[test]
    fn objects_become_a_list() {
        let rows = Rows {
            bytes: Bytes::from_static(b",{\"a\":1},{}"),
            count: 2,
        };
        assert_eq!(&list(rows)[..], b"[{\"a\":1},{}]");
    }
}
