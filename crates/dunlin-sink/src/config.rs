//! The configuration: one file in TOML, read with every key checked. Opens nothing.

mod targets;
mod tls;
mod units;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dunlin_base::topic;
use dunlin_client::{Builder, QoS, Url};
use serde::Deserialize;

use crate::decode::Format;
pub use targets::{Body, ClickHouse, Http, InfluxDb, Kafka, Nats, OnConflict, Postgres};
pub use tls::Tls;
pub use units::{Size, Span, Unit};

/// Most filters.
const FILTERS_MAX: usize = 256;
/// Most connections to the broker, each with one to the target.
pub(crate) const WORKERS_MAX: usize = 64;
/// Most messages that a connection holds without having acknowledged them.
const IN_FLIGHT_MAX: u16 = 32_000;
/// Most columns.
const COLUMNS_MAX: usize = 1_000;
/// Most bytes of a batch.
const BATCH_BYTES_MAX: usize = 256 << 20;
/// Longest password in a file.
const SECRET_BYTES_MAX: u64 = 4096;

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no TOML, or has a key or value that does not belong there.
    #[error("{path}: {why}")]
    Syntax {
        /// Which file.
        path: String,
        /// Where, and what.
        why: String,
    },
    /// A value is not possible.
    #[error("{key}: {why}")]
    Value {
        /// Which.
        key: &'static str,
        /// Why.
        why: String,
    },
}

fn value(key: &'static str, why: impl Into<String>) -> ConfigError {
    let why = why.into();
    ConfigError::Value { key, why }
}

/// The configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Its name: in the client identifier, the group, metrics and logs.
    #[serde(default = "name")]
    pub name: String,
    /// Where metrics are served.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// File in which it notes what it is working on, of this sink alone.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// Where messages come from.
    pub broker: Broker,
    /// What they are, and which of them are stored.
    #[serde(default)]
    pub message: MessageConfig,
    /// What is stored of them.
    #[serde(default)]
    pub columns: BTreeMap<String, Column>,
    /// How many are stored at a time.
    #[serde(default)]
    pub batch: BatchConfig,
    /// What happens when the target is away.
    #[serde(default)]
    pub retry: Retry,
    /// What becomes of messages that cannot be stored.
    #[serde(default)]
    pub refused: RefusedConfig,
    /// PostgreSQL, with or without Timescale.
    #[serde(default)]
    pub postgres: Option<Postgres>,
    /// A server that takes rows by HTTP.
    #[serde(default)]
    pub http: Option<Http>,
    /// InfluxDB.
    #[serde(default)]
    pub influxdb: Option<InfluxDb>,
    /// ClickHouse.
    #[serde(default)]
    pub clickhouse: Option<ClickHouse>,
    /// NATS JetStream.
    #[serde(default)]
    pub nats: Option<Nats>,
    /// Kafka.
    #[serde(default)]
    pub kafka: Option<Kafka>,
}

/// Where messages come from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Broker {
    /// Where the broker is.
    #[serde(default = "local")]
    pub url: String,
    /// Which topics.
    #[serde(default)]
    pub filters: Vec<String>,
    /// The group that shares them; the name if absent.
    #[serde(default)]
    pub group: Option<String>,
    /// Client identifier; the name if absent.
    #[serde(default)]
    pub client_id: Option<String>,
    /// User.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password and nothing else.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The password does not travel.
    #[serde(default)]
    pub scram: bool,
    /// Whom to trust, and who the sink is.
    #[serde(default)]
    pub tls: Tls,
    /// Highest QoS of messages.
    #[serde(default = "at_least_once")]
    pub qos: u8,
    /// Most messages that are not acknowledged, of each connection.
    #[serde(default = "in_flight")]
    pub in_flight: u16,
    /// How long the broker keeps what waits while the sink is away.
    #[serde(default = "week")]
    pub session_expiry: Span,
    /// Connections, each with one to the target.
    #[serde(default = "one")]
    pub workers: usize,
}

/// What messages are, and which of them are stored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MessageConfig {
    /// What payloads are.
    pub format: Format,
    /// Only rows for which this is true.
    #[serde(rename = "where")]
    pub condition: Option<String>,
    /// A list, each element of which becomes a row.
    pub each: Option<String>,
}

/// What is in a column: an expression, or one with a unit of time.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
#[non_exhaustive]
pub enum Column {
    /// An expression.
    Plain(String),
    /// A number that is a time.
    Timed {
        /// The expression.
        value: String,
        /// What the number counts since 1970.
        unit: Unit,
    },
}

impl Column {
    /// The expression.
    #[must_use]
    pub fn source(&self) -> &str {
        match self {
            Self::Plain(value) | Self::Timed { value, .. } => value,
        }
    }

    /// The unit of time.
    #[must_use]
    pub const fn unit(&self) -> Option<Unit> {
        match self {
            Self::Plain(_) => None,
            Self::Timed { unit, .. } => Some(*unit),
        }
    }
}

/// When a batch is closed: whichever comes first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct BatchConfig {
    /// Most messages.
    pub messages: usize,
    /// Most bytes of rows and payloads.
    pub bytes: Size,
    /// Longest time from its first message.
    pub time: Span,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            messages: 5_000,
            bytes: Size(8 << 20),
            time: Span(Duration::from_millis(50)),
        }
    }
}

/// What happens when the target is away.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Retry {
    /// Wait after the first failure.
    pub min: Span,
    /// Longest wait.
    pub max: Span,
    /// Time for one attempt.
    pub timeout: Span,
    /// Time to store what is at hand when the sink stops.
    pub stop: Span,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            min: Span(Duration::from_millis(200)),
            max: Span(Duration::from_secs(30)),
            timeout: Span(Duration::from_secs(30)),
            stop: Span(Duration::from_secs(10)),
        }
    }
}

/// What becomes of messages that cannot be stored. Without a place for them the sink ends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RefusedConfig {
    /// Published to this topic.
    pub topic: Option<String>,
    /// Appended to this file.
    pub file: Option<PathBuf>,
    /// Most bytes of the file; the sink waits when it is full.
    pub file_max: Size,
}

impl Default for RefusedConfig {
    fn default() -> Self {
        Self {
            topic: None,
            file: None,
            file_max: Size(1 << 30),
        }
    }
}

fn name() -> String {
    "sink".into()
}

fn local() -> String {
    "mqtt://localhost".into()
}

const fn at_least_once() -> u8 {
    1
}

const fn in_flight() -> u16 {
    20_000
}

const fn week() -> Span {
    Span(Duration::from_secs(7 * 24 * 3600))
}

const fn one() -> usize {
    1
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        Self::parse(&path.display(), &text)
    }

    /// Reads the text of a file, which `path` names in errors.
    ///
    /// # Errors
    /// It is wrong.
    pub fn parse(path: &dyn fmt::Display, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.to_string(),
            why: error.to_string().trim_end().to_owned(),
        })
    }

    /// Checks what keys say together; files are not opened, and expressions not read.
    ///
    /// # Errors
    /// Something is not possible.
    pub fn check(&self) -> Result<(), ConfigError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(value("name", "1 to 64 letters, digits, `-`, `_` and `.`"));
        }
        self.broker.check(&self.refused)?;
        if self.columns.len() > COLUMNS_MAX {
            return Err(value("columns", format!("at most {COLUMNS_MAX}")));
        }
        if self.batch.messages == 0 {
            return Err(value("batch.messages", "at least 1"));
        }
        let bytes = usize::try_from(self.batch.bytes.0).unwrap_or(usize::MAX);
        if bytes == 0 || bytes > BATCH_BYTES_MAX {
            return Err(value("batch.bytes", "from 1B to 256MiB"));
        }
        if self.retry.min.0.is_zero() || self.retry.max.0 < self.retry.min.0 {
            return Err(value(
                "retry",
                "`min` is more than 0 and not more than `max`",
            ));
        }
        if self.refused.topic.is_some() && self.refused.file.is_some() {
            return Err(value("refused", "a topic or a file, not both"));
        }
        if let Some(topic) = &self.refused.topic
            && topic::validate_name(topic).is_err()
        {
            return Err(value("refused.topic", format!("`{topic}` is not a topic")));
        }
        match self.targets() {
            0 => Err(value(
                "target",
                "there is none: give one of [postgres], [http], [influxdb], [clickhouse], [nats], \
                 [kafka]",
            )),
            1 => Ok(()),
            _ => Err(value("target", "there are several: run a sink for each")),
        }
    }

    fn targets(&self) -> usize {
        [
            self.postgres.is_some(),
            self.http.is_some(),
            self.influxdb.is_some(),
            self.clickhouse.is_some(),
            self.nats.is_some(),
            self.kafka.is_some(),
        ]
        .into_iter()
        .filter(|there| *there)
        .count()
    }

    /// A client that is not connected yet, with everything but its session.
    ///
    /// # Errors
    /// The address or a file is wrong.
    pub fn client(&self) -> Result<Builder, ConfigError> {
        let broker = &self.broker;
        let url: Url = broker
            .url
            .parse()
            .map_err(|error| value("broker.url", format!("{}: {error}", broker.url)))?;
        let password = broker.password_file.as_deref().map(secret).transpose()?;
        let mut builder = Builder::new(url).tls(broker.tls.options());
        builder = match (&broker.user, password) {
            (Some(user), Some(password)) if broker.scram => builder.scram(user, password),
            (Some(user), Some(password)) => builder.user(user).password(password),
            (Some(user), None) => builder.user(user),
            (None, Some(password)) => builder.password(password),
            (None, None) => builder,
        };
        Ok(builder)
    }

    /// Messages that a worker holds at most without having acknowledged them.
    #[must_use]
    pub const fn in_flight(&self) -> u16 {
        self.broker.in_flight
    }

    /// Client identifier of a worker.
    #[must_use]
    pub fn client_id(&self, worker: usize) -> String {
        let id = self.broker.client_id.as_deref().unwrap_or(&self.name);
        match worker {
            0 => id.to_owned(),
            _ => format!("{id}-{worker}"),
        }
    }

    /// What is subscribed to.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<String> {
        let group = self.broker.group.as_deref().unwrap_or(&self.name);
        let filters = self.broker.filters.iter();
        filters.map(|it| format!("$share/{group}/{it}")).collect()
    }
}

impl Broker {
    /// Highest QoS.
    #[must_use]
    pub fn qos(&self) -> QoS {
        QoS::from_u8(self.qos).unwrap_or(QoS::AtLeastOnce)
    }

    fn check(&self, refused: &RefusedConfig) -> Result<(), ConfigError> {
        if self.filters.is_empty() || self.filters.len() > FILTERS_MAX {
            return Err(value(
                "broker.filters",
                format!("1 to {FILTERS_MAX} filters"),
            ));
        }
        for filter in &self.filters {
            if topic::validate_filter(filter).is_err() || filter.starts_with("$share/") {
                let why = format!("`{filter}` is not a topic filter");
                return Err(value("broker.filters", why));
            }
            if let Some(topic) = &refused.topic
                && topic::matches(filter, topic)
            {
                let why = format!("the sink would read it itself: `{filter}` matches it");
                return Err(value("refused.topic", why));
            }
        }
        let group = self.group.as_deref().unwrap_or("group");
        if group.is_empty() || group.contains(['/', '+', '#']) {
            return Err(value(
                "broker.group",
                "not empty, and without `/`, `+`, `#`",
            ));
        }
        if !matches!(self.qos, 1 | 2) {
            let why = "1 or 2: what comes with QoS 0 is not acknowledged";
            return Err(value("broker.qos", why));
        }
        if self.in_flight == 0 || self.in_flight > IN_FLIGHT_MAX {
            return Err(value("broker.in_flight", format!("1 to {IN_FLIGHT_MAX}")));
        }
        if self.workers == 0 || self.workers > WORKERS_MAX {
            return Err(value("broker.workers", format!("1 to {WORKERS_MAX}")));
        }
        if self.scram && (self.user.is_none() || self.password_file.is_none()) {
            return Err(value("broker.scram", "it needs `user` and `password_file`"));
        }
        if self.tls.cert.is_some() != self.tls.key.is_some() {
            return Err(value("broker.tls", "`cert` and `key` go together"));
        }
        Ok(())
    }
}

/// What is in a file with a password or a token and nothing else.
///
/// # Errors
/// It cannot be read or is too long.
pub(crate) fn secret(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: path.into(),
        source,
    };
    if std::fs::metadata(path).map_err(failed)?.len() > SECRET_BYTES_MAX {
        let why = format!("{} is longer than a password", path.display());
        return Err(value("password_file", why));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const LEAST: &str = "broker = { filters = [\"a/#\"] }\nhttp = { url = \"http://h\" }\n";

    /// The least configuration and more.
    pub(crate) fn with(more: &str) -> Config {
        Config::parse(&"f", &format!("{LEAST}{more}")).expect("valid")
    }

    #[test]
    fn the_least_is_enough() {
        let config = with("");
        config.check().expect("possible");
        assert_eq!(config.subscriptions(), ["$share/sink/a/#"]);
        assert_eq!(config.client_id(0), "sink");
        assert_eq!(config.client_id(2), "sink-2");
    }

    #[test]
    fn what_is_impossible_is_named() {
        for (more, part) in [
            ("name = 'a/b'", "name: "),
            ("refused = { topic = 'a/x' }", "`a/#` matches it"),
            ("refused = { topic = 'b/#' }", "`b/#` is not a topic"),
            ("refused = { topic = 'b', file = 'c' }", "not both"),
            ("batch = { messages = 0 }", "batch.messages"),
            ("batch = { bytes = '1GiB' }", "batch.bytes"),
            ("retry = { min = '2s', max = '1s' }", "retry"),
            ("nats = { url = 'nats://h' }", "several"),
        ] {
            let text = format!("{more}\n{LEAST}");
            let error = Config::parse(&"f", &text).expect(more).check();
            let error = error.expect_err(more).to_string();
            assert!(error.contains(part), "{more}: {error}");
        }
        for (broker, part) in [
            ("filters = []", "broker.filters"),
            ("filters = ['a/#/b']", "`a/#/b`"),
            ("filters = ['$share/g/a']", "`$share/g/a`"),
            ("filters = ['a'], qos = 0", "broker.qos"),
            ("filters = ['a'], in_flight = 40000", "broker.in_flight"),
            ("filters = ['a'], workers = 0", "broker.workers"),
            ("filters = ['a'], scram = true", "broker.scram"),
            ("filters = ['a'], group = 'x/y'", "broker.group"),
        ] {
            let text = format!("broker = {{ {broker} }}\nhttp = {{ url = 'http://h' }}");
            let error = Config::parse(&"f", &text).expect(broker).check();
            let error = error.expect_err(broker).to_string();
            assert!(error.contains(part), "{broker}: {error}");
        }
        let none = Config::parse(&"f", "broker = { filters = ['a'] }").expect("TOML");
        let error = none.check().expect_err("no target").to_string();
        assert!(error.contains("[postgres]"), "{error}");
    }

    #[test]
    fn unknown_keys_have_a_line() {
        let error = Config::parse(&"f.toml", "broker = { filters = ['a'] }\nx = 1");
        let error = error.expect_err("unknown").to_string();
        assert!(
            error.contains("f.toml") && error.contains("line 2"),
            "{error}"
        );
        let error = Config::parse(&"f", "broker = {}\nbatch = { time = '5 fortnights' }");
        let error = error.expect_err("no duration").to_string();
        assert!(error.contains("is not a duration"), "{error}");
    }
}
