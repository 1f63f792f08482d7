//! The log: lines or JSON objects on standard error. What a client may have
//! chosen is escaped here, where lines are made, so that an event is one line
//! and moves no cursor.

use core::fmt;
use std::io;
use std::sync::OnceLock;

use tracing::{Event, Subscriber};
#[cfg(feature = "log-filter")]
use tracing_subscriber::EnvFilter as Filter;
use tracing_subscriber::Layer as _;
#[cfg(not(feature = "log-filter"))]
use tracing_subscriber::filter::Targets as Filter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

use crate::config::sections::{Format, Level, Log};

/// The environment variable that decides instead of the configured level.
pub(crate) const VARIABLE: &str = "RUST_LOG";

/// The log cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// [`VARIABLE`] is not a filter.
    #[error("the environment variable {VARIABLE} is not a log filter: {0}")]
    Filter(String),
    /// That is no filter, or cannot be set.
    #[error("the log level: {0}")]
    Level(String),
    /// Another program writes the log.
    #[error("the log of this process is not the broker's")]
    Absent,
}

/// Starts the log. `RUST_LOG`, where set, decides instead of the level.
///
/// # Errors
/// `RUST_LOG` is not a filter.
pub fn init(config: &Log) -> Result<(), LogError> {
    let filter = filter(config.level, std::env::var(VARIABLE).ok().as_deref())?;
    let (subscriber, change) = subscriber(config.format, filter, io::stderr);
    // A log that is already there, in tests, stays.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = CHANGE.set(change);
    }
    Ok(())
}

/// Has the running log write what this filter lets through: a level, or what
/// `RUST_LOG` takes.
///
/// # Errors
/// That is no filter, or the log is not the broker's.
pub(crate) fn change(text: &str) -> Result<(), LogError> {
    let filter = read(text).map_err(LogError::Level)?;
    CHANGE.get().ok_or(LogError::Absent)?(filter)
}

/// What lets through what the text says.
fn read(text: &str) -> Result<Filter, String> {
    #[cfg(feature = "log-filter")]
    return Filter::try_new(text).map_err(|error| error.to_string());
    #[cfg(not(feature = "log-filter"))]
    return text
        .parse()
        .map_err(|error: tracing_subscriber::filter::ParseError| error.to_string());
}

/// Changes what a log writes.
type Change = Box<dyn Fn(Filter) -> Result<(), LogError> + Send + Sync>;

static CHANGE: OnceLock<Change> = OnceLock::new();

fn subscriber<W>(
    format: Format,
    filter: Filter,
    writer: W,
) -> (Box<dyn Subscriber + Send + Sync>, Change)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let gone = |error: reload::Error| LogError::Level(error.to_string());
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer);
    let lines = match format {
        Format::Text => lines.map_event_format(OneLine).boxed(),
        Format::Json => lines
            .json()
            .map_event_format(OneLine)
            .fmt_fields(JsonFields::new())
            .boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    let change = move |filter: Filter| handle.reload(filter).map_err(gone);
    (Box::new(subscriber), Box::new(change))
}

/// Makes one line of what another format makes of an event.
struct OneLine<F>(F);

impl<S, N, F> FormatEvent<S, N> for OneLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        for letter in line.trim_end_matches('\n').chars() {
            match letter {
                letter if !is_active(letter) => writer.write_char(letter)?,
                // As JSON has it; none of them is beyond 16 bits.
                letter => write!(writer, "\\u{:04x}", u32::from(letter))?,
            }
        }
        writer.write_char('\n')
    }
}

/// Whether a terminal or an editor does something else with it than showing it.
pub(crate) fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            // Line and paragraph separator, and what changes the direction.
            '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn filter(level: Level, variable: Option<&str>) -> Result<Filter, LogError> {
    let text = variable.filter(|text| !text.trim().is_empty());
    read(text.unwrap_or_else(|| level.name())).map_err(LogError::Filter)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is written.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("one thread").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_with_any_client_identifier() {
        let evil = "a\n2026 INFO root\r\u{1b}[2J\u{9b}1m\u{2028}\u{202e}\u{7f} user=\"root\"";
        for format in [Format::Text, Format::Json] {
            let page = Page::default();
            let writer = page.clone();
            let filter = read("info").expect("a filter");
            let (subscriber, _) = subscriber(format, filter, move || writer.clone());
            tracing::subscriber::with_default(subscriber, || {
                let error = io::Error::other(evil);
                tracing::info!(client_id = evil, shown = %evil, ?evil, %error, "{evil}");
            });
            let text = page.0.lock().expect("one thread").clone();
            let text = String::from_utf8(text).expect("UTF-8");
            let (line, rest) = text.split_once('\n').expect("a line");
            assert_eq!(rest, "");
            assert!(!line.contains(is_active), "{line:?}");
            match format {
                // A value cannot end its field.
                Format::Text => assert!(line.contains(r#"client_id="a\n2026"#), "{line}"),
                Format::Json => {
                    let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
                    assert_eq!(object["fields"]["client_id"], evil);
                }
            }
        }
    }

    #[test]
    fn the_level_is_changed_while_the_log_runs() {
        for format in [Format::Text, Format::Json] {
            let page = Page::default();
            let writer = page.clone();
            let filter = read("info").expect("a filter");
            let (subscriber, change) = subscriber(format, filter, move || writer.clone());
            tracing::subscriber::with_default(subscriber, || {
                tracing::debug!("first");
                change(read("debug").expect("a filter")).expect("it runs");
                tracing::debug!("second");
            });
            let text = page.0.lock().expect("one thread").clone();
            let text = String::from_utf8(text).expect("UTF-8");
            assert!(!text.contains("first") && text.contains("second"), "{text}");
        }
    }

    #[test]
    fn the_variable_decides_instead_of_the_level() {
        let cases = [
            (Level::Debug, None, "debug"),
            (Level::Off, None, "off"),
            (Level::Info, Some(""), "info"),
            (Level::Info, Some("warn,dunlin=trace"), "dunlin=trace,warn"),
        ];
        for (level, variable, want) in cases {
            let filter = filter(level, variable).expect("valid");
            assert_eq!(filter.to_string(), want);
        }
        let error = filter(Level::Info, Some("dunlin=loud")).expect_err("wrong");
        let error = error.to_string();
        assert!(
            error.starts_with("the environment variable RUST_LOG is not"),
            "{error}"
        );
    }
}
