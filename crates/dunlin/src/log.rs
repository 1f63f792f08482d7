//! The log: lines or JSON objects on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::sections::{Format, Level, Log};

/// The environment variable that decides instead of the configured level.
const VARIABLE: &str = "RUST_LOG";

/// The log cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// [`VARIABLE`] is not a filter.
    #[error("the environment variable {VARIABLE} is not a log filter: {0}")]
    Filter(String),
}

/// Starts the log. `RUST_LOG`, where set, decides instead of the level.
///
/// # Errors
/// `RUST_LOG` is not a filter.
pub fn init(config: &Log) -> Result<(), LogError> {
    let filter = filter(config.level, std::env::var(VARIABLE).ok().as_deref())?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    // A log that is already there, in tests, stays.
    let _ = match config.format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
    Ok(())
}

fn filter(level: Level, variable: Option<&str>) -> Result<EnvFilter, LogError> {
    let text = variable.filter(|text| !text.trim().is_empty());
    EnvFilter::try_new(text.unwrap_or_else(|| level.name()))
        .map_err(|error| LogError::Filter(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
