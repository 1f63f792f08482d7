//! The log: lines or JSON objects on standard error.

use tracing_subscriber::EnvFilter;

use crate::config::sections::{Format, Log};

/// Starts the log. `RUST_LOG`, where set, decides instead of the level.
pub fn init(config: &Log) {
    let level = config.level.name();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A log that is already there, in tests, stays.
    let _ = match config.format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
}
