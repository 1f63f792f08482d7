//! The audit log: one line of JSON for each order, with who gave it, what, when, and
//! what came of it. A file that has become too large makes room for the next one.

use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use time::UtcDateTime;

use super::values::{Code, Failure, Reply, Request, Role};

/// Older files beside the one that is written.
const OLD_FILES: u32 = 3;

/// Orders in a minute that are written although the role of who gave them does not allow
/// them: who may give none must not push those that were carried out of the log.
const FORBIDDEN_MAX: u32 = 30;

/// How long those are counted.
const FORBIDDEN_WINDOW: Duration = Duration::from_secs(60);

/// Longest text of a request that is written; the rest is cut off.
const TEXT_CHARS_MAX: usize = 512;

/// Who gives an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The door that it came through.
    pub door: &'static str,
    /// Whom the door knows.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    door: &'static str,
    who: &'a str,
    order: Value,
    outcome: &'a str,
}

/// The log, which several doors write.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    bytes_max: u64,
    open: Mutex<Option<(File, u64)>>,
    /// Orders that were not allowed: since when, and how many.
    forbidden: Mutex<Option<(Instant, u32)>>,
}

impl Audit {
    /// The log in this file, each file of at most about so many bytes. It is made with
    /// the first order.
    pub(crate) const fn new(path: PathBuf, bytes_max: u64) -> Self {
        Self {
            path,
            bytes_max,
            open: Mutex::new(None),
            forbidden: Mutex::new(None),
        }
    }

    /// Writes a line.
    pub(super) fn write(&self, who: &Who, request: &Request, outcome: &Result<Reply, Failure>) {
        let order = serde_json::to_value(request).unwrap_or_default();
        self.write_order(who, order, outcome.as_ref().err());
    }

    /// Writes a line about an order that was refused unread.
    pub(super) fn write_unread(&self, who: &Who, what: &str, failure: &Failure) {
        self.write_order(who, json!({ "unread": what }), Some(failure));
    }

    fn write_order(&self, who: &Who, mut order: Value, failure: Option<&Failure>) {
        let is_forbidden = failure.is_some_and(|it| it.code == Code::Forbidden);
        if is_forbidden && !self.has_room(Instant::now()) {
            return;
        }
        shorten(&mut order);
        let mut outcome = match failure {
            None => "done".to_owned(),
            Some(failure) => failure.text.clone(),
        };
        cut(&mut outcome);
        let line = Line {
            time: now(),
            door: who.door,
            who: &who.name,
            order,
            outcome: &outcome,
        };
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        if let Err(error) = self.append(text.as_bytes()) {
            let path = self.path.display();
            tracing::error!(%error, %path, line = text.trim_end(), "an order is not in the audit log");
        }
    }

    /// Whether one more order that is not allowed is written.
    fn has_room(&self, now: Instant) -> bool {
        let mut forbidden = self
            .forbidden
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (since, count) = forbidden.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) >= FORBIDDEN_WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        if *count == FORBIDDEN_MAX + 1 {
            tracing::warn!("too many orders that are not allowed: the audit log leaves out some");
        }
        *count <= FORBIDDEN_MAX
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open
            .as_ref()
            .is_some_and(|(_, bytes)| *bytes >= self.bytes_max)
        {
            *open = None;
            if let Err(error) = rotate(&self.path) {
                // Better a long file than an order that is in none.
                let path = self.path.display();
                tracing::error!(%error, %path, "the audit log cannot be renamed: it grows");
            }
        }
        let (file, bytes) = match &mut *open {
            Some(open) => open,
            None => {
                let file = create(&self.path)?;
                let bytes = file.metadata()?.len();
                open.insert((file, bytes))
            }
        };
        file.write_all(line)?;
        *bytes += line.len() as u64;
        Ok(())
    }
}

/// The file, which only its owner can read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Older files get the next number; the oldest one goes.
fn rotate(path: &Path) -> io::Result<()> {
    let numbered = |number: u32| match number {
        0 => path.to_owned(),
        number => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        }
    };
    for number in (0..OLD_FILES).rev() {
        match std::fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Cuts off a long text.
fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
}

/// Cuts off long texts, and leaves payloads and passwords out.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => cut(text),
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), &*value) {
                    ("payload" | "payload_base64", Value::String(text)) => {
                        *value = format!("{} bytes", text.len()).into();
                    }
                    ("password", Value::String(_)) => *value = "…".into(),
                    _ => shorten(value),
                }
            }
        }
        _ => {}
    }
}

/// As RFC 3339 has it, to the millisecond.
fn now() -> String {
    let now = UtcDateTime::now();
    let (date, millis) = (now.date(), now.millisecond());
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Who {
        Who {
            door: "unix",
            name: "uid 7".to_owned(),
            role: Role::Admin,
        }
    }

    #[test]
    fn an_order_is_a_line_with_who_what_when_and_outcome() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        let audit = Audit::new(path.clone(), 1 << 20);
        let request = Request::Disconnect {
            client_id: "a\n\u{1b}".to_owned(),
            why: "x".repeat(2 * TEXT_CHARS_MAX),
        };
        audit.write(
            &who(),
            &request,
            &Ok(Reply::Done {
                count: 1,
                next: None,
            }),
        );
        let failure = Failure::new(Code::NotFound, "no such client");
        audit.write(&who(), &request, &Err(failure));
        let failure = Failure::new(Code::NotFound, "é".repeat(1 << 20));
        audit.write(&who(), &request, &Err(failure));
        let text = std::fs::read_to_string(&path).expect("written");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 3, "{} bytes", text.len());
        let outcome = lines[2]["outcome"].as_str().expect("text");
        assert_eq!(outcome.chars().count(), TEXT_CHARS_MAX + 1);
        assert_eq!(
            (&lines[0]["who"], &lines[0]["door"]),
            (&"uid 7".into(), &"unix".into())
        );
        assert_eq!(lines[0]["order"]["client_id"], "a\n\u{1b}");
        let why = lines[0]["order"]["why"].as_str().expect("text");
        assert_eq!(why.chars().count(), TEXT_CHARS_MAX + 1);
        assert_eq!(lines[0]["outcome"], "done");
        assert_eq!(lines[1]["outcome"], "no such client");
        let time = lines[0]["time"].as_str().expect("a time");
        assert!(
            time.ends_with('Z') && time.len() == "2026-11-23T09:00:00.000Z".len(),
            "{time}"
        );
    }

    #[test]
    fn orders_that_are_not_allowed_push_nothing_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        let audit = Audit::new(path.clone(), 1 << 20);
        let request = Request::Reload {};
        for _ in 0..1000 {
            let failure = Failure::new(Code::Forbidden, "your role does not allow this");
            audit.write(&who(), &request, &Err(failure));
        }
        let lines = || {
            let text = std::fs::read_to_string(&path).expect("written");
            text.lines().count() as u32
        };
        assert_eq!(lines(), FORBIDDEN_MAX);
        let failure = Failure::new(Code::NotFound, "no such client");
        audit.write(&who(), &request, &Err(failure));
        assert_eq!(lines(), FORBIDDEN_MAX + 1);
        assert!(audit.has_room(Instant::now() + FORBIDDEN_WINDOW));
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        let audit = Audit::new(path, 400);
        for number in 0..100 {
            let request = Request::Disconnect {
                client_id: number.to_string(),
                why: String::new(),
            };
            audit.write(
                &who(),
                &request,
                &Ok(Reply::Done {
                    count: 1,
                    next: None,
                }),
            );
        }
        let files: Vec<_> = std::fs::read_dir(dir.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").metadata().expect("known").len())
            .collect();
        assert_eq!(files.len(), 1 + OLD_FILES as usize);
        assert!(files.iter().all(|bytes| *bytes < 700), "{files:?}");
    }
}
