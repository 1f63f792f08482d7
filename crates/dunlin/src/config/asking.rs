//! `auth.http` and `auth.topics`: servers that are asked who clients are, and which topics
//! they may use.

use core::time::Duration;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::Span;
use super::web;

/// Bounds of the time for a question.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// Most questions at a time.
const CONNECTIONS_MAX: u32 = 64;

/// Longest time for which an answer counts.
const CACHE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A server that is asked by HTTP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedServer<'a> {
    pub(crate) url: &'a str,
    pub(crate) ca_file: Option<&'a Path>,
    pub(crate) authorization_file: Option<&'a Path>,
    pub(crate) timeout: Duration,
    pub(crate) connections: u32,
}

/// A server that is asked who clients are.
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

/// A server that is asked which topics clients may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AskingTopics {
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
    pub when_down: TopicsDown,
    /// Time for which a yes counts.
    #[serde(default = "one_minute")]
    pub cache: Span,
    /// Time for which a no counts.
    #[serde(default = "ten_seconds")]
    pub cache_denied: Span,
}

/// What is done where a server does not say whether a client may use a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopicsDown {
    /// It may not.
    #[default]
    Deny,
    /// It may.
    Allow,
    /// As the server said last, if that is known.
    Last,
}

impl From<TopicsDown> for dunlin_broker::access::WhenDown {
    fn from(from: TopicsDown) -> Self {
        match from {
            TopicsDown::Deny => Self::Deny,
            TopicsDown::Allow => Self::Allow,
            TopicsDown::Last => Self::Last,
        }
    }
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

pub(super) const fn two_seconds() -> Span {
    Span::secs(2)
}

pub(super) const fn one_minute() -> Span {
    Span::secs(60)
}

const fn ten_seconds() -> Span {
    Span::secs(10)
}

pub(super) const fn eight() -> u32 {
    8
}

impl AskedServer<'_> {
    /// What is wrong with it, where these are the names of its keys.
    fn check(&self, [url, timeout, connections]: [&'static str; 3]) -> Result<(), Wrong> {
        web::check(self.url).map_err(|why| (url, why))?;
        check_bounds([timeout, connections], self.timeout, self.connections)
    }
}

/// What is wrong with how a server is asked, where these are the names of the keys.
pub(super) fn check_bounds(
    [timeout, connections]: [&'static str; 2],
    time: Duration,
    count: u32,
) -> Result<(), Wrong> {
    let (min, max) = TIMEOUT;
    if !(min..=max).contains(&time) {
        return Err((timeout, format!("{} to {}", Span(min), Span(max))));
    }
    if !(1..=CONNECTIONS_MAX).contains(&count) {
        return Err((connections, format!("1 to {CONNECTIONS_MAX}")));
    }
    Ok(())
}

impl Asking {
    pub(crate) fn server(&self) -> AskedServer<'_> {
        AskedServer {
            url: &self.url,
            ca_file: self.ca_file.as_deref(),
            authorization_file: self.authorization_file.as_deref(),
            timeout: self.timeout.0,
            connections: self.connections,
        }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let keys = ["http.url", "http.timeout", "http.connections"];
        self.server().check(keys)
    }
}

impl AskingTopics {
    pub(crate) fn server(&self) -> AskedServer<'_> {
        AskedServer {
            url: &self.url,
            ca_file: self.ca_file.as_deref(),
            authorization_file: self.authorization_file.as_deref(),
            timeout: self.timeout.0,
            connections: self.connections,
        }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let keys = ["topics.url", "topics.timeout", "topics.connections"];
        self.server().check(keys)?;
        for (key, span) in [
            ("topics.cache", self.cache),
            ("topics.cache_denied", self.cache_denied),
        ] {
            if span.0 > CACHE_MAX {
                return Err((key, format!("is more than {}", Span(CACHE_MAX))));
            }
        }
        Ok(())
    }
}
