//! `auth.http`: a server that is asked who clients are.

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::Span;
use super::web;

/// Bounds of the time for a question.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// Most questions at a time.
const CONNECTIONS_MAX: u32 = 64;

/// A server that is asked by HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Asking {
    /// Where.
    pub url: String,
    /// Authorities of the server; absent: those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// What the header `Authorization` of a question says.
    #[serde(default)]
    pub authorization_file: Option<PathBuf>,
    /// Time for a question and its answer.
    #[serde(default = "two_seconds")]
    pub timeout: Span,
    /// Questions at a time, on as many threads and connections.
    #[serde(default = "eight")]
    pub connections: u32,
    /// What is done without an answer.
    #[serde(default)]
    pub when_down: WhenDown,
}

/// What is done where a server does not answer, or not as it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// The client is refused, and may try again later.
    #[default]
    Deny,
    /// The next step decides.
    Next,
}

const fn two_seconds() -> Span {
    Span::secs(2)
}

const fn eight() -> u32 {
    8
}

impl Asking {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        web::check(&self.url).map_err(|why| ("http.url", why))?;
        let (min, max) = TIMEOUT;
        if !(min..=max).contains(&self.timeout.0) {
            return Err(("http.timeout", format!("{} to {}", Span(min), Span(max))));
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(("http.connections", format!("1 to {CONNECTIONS_MAX}")));
        }
        Ok(())
    }
}
