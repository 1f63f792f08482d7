//! `[[bridge]]`: another broker, and which topics are exchanged with it.

use std::path::PathBuf;

use dunlin_base::topic;
use dunlin_broker::BRIDGE_PREFIX;
use dunlin_broker::access::{Acl, Action};
use dunlin_client::{Priority, QoS, StreamPolicy, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::queues::Full;
use super::units::{Expiry, Span};

/// Most bridges: each has connections and tasks of its own.
pub const BRIDGES_MAX: usize = 64;

/// Most topics of a bridge: each message is compared with them in turn.
const TOPICS_MAX: usize = 256;

/// Most connections of a bridge to the other broker for what goes out.
const CONNECTIONS_MAX: u16 = 16;

/// Most messages of a bridge on their way in one direction.
const IN_FLIGHT_MAX: u16 = 10_000;

/// Most bridges that a message may have come through.
const HOPS_MAX: u8 = 64;

/// Most priorities, as for any client.
const PRIORITIES_MAX: usize = 64;

/// Most bytes of a name: it is part of topics, files and client identifiers.
const NAME_BYTES_MAX: usize = 64;

/// One `[[bridge]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeSettings")]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Bridge {
    /// Its name, in topics, metrics and logs.
    pub name: String,
    /// Where the other broker is.
    pub url: String,
    /// Client identifier there; made up at the first start when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Version of MQTT.
    #[serde(default)]
    pub version: Version,
    /// User name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File with the password, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The password does not travel.
    #[serde(default)]
    pub scram: bool,
    /// Whom to trust, and who the bridge is.
    #[serde(default)]
    pub tls: Tls,
    /// Topics.
    #[serde(default)]
    pub topic: Vec<Topic>,
    /// Most messages that wait while the other broker is away.
    #[serde(default = "messages")]
    pub max_messages: usize,
    /// What happens when so many wait.
    #[serde(default)]
    pub full: Full,
    /// Most messages on their way in one direction.
    #[serde(default = "in_flight")]
    pub max_in_flight: u16,
    /// Connections for what goes out, among which topics are spread.
    #[serde(default = "one")]
    pub connections: u16,
    /// Begin with an empty session at each start.
    #[serde(default)]
    pub clean_start: bool,
    /// How long the other broker keeps what waits there.
    #[serde(default = "week")]
    #[schemars(with = "String")]
    pub session_expiry: Expiry,
    /// Connection and how it comes back.
    #[serde(default)]
    pub connection: Connection,
    /// Most bridges that a message may have come through.
    #[serde(default = "hops")]
    pub max_hops: u8,
    /// Topic at the other broker for 1 and 0, retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_topic: Option<String>,
}

/// Version of MQTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeVersion")]
pub enum Version {
    /// 5.0.
    #[default]
    #[serde(rename = "5.0")]
    V5,
    /// 3.1.1.
    #[serde(rename = "3.1.1")]
    V311,
}

/// Whom to trust on encrypted transports, and who the bridge is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeTls")]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Tls {
    /// Authorities; those of the system when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Certificate of the bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Trust anyone.
    pub insecure: bool,
}

/// How a bridge is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeConnection")]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Connection {
    /// Longest silence.
    #[schemars(with = "String")]
    pub keep_alive: Span,
    /// Wait after the first failure.
    #[schemars(with = "String")]
    pub reconnect_min: Span,
    /// Longest wait.
    #[schemars(with = "String")]
    pub reconnect_max: Span,
    /// Say what the client is, in MQTT 3.1.1.
    pub bridge_flag: bool,
    /// Send early data over QUIC.
    pub early_data: bool,
    /// How messages are spread over streams of QUIC.
    pub streams: Streams,
    /// QoS 0 in datagrams.
    pub datagrams: bool,
    /// Topics that go before or after others.
    pub priority: Vec<Level>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            keep_alive: Span::secs(60),
            reconnect_min: Span::secs(1),
            reconnect_max: Span::secs(60),
            bridge_flag: true,
            early_data: true,
            streams: Streams::default(),
            datagrams: false,
            priority: Vec::new(),
        }
    }
}

/// How messages are spread over streams of a QUIC connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeStreams")]
#[serde(rename_all = "kebab-case")]
pub enum Streams {
    /// All on one.
    #[default]
    Single,
    /// One for each topic.
    PerTopic,
    /// One for each message; those of a topic wait for each other.
    PerPublish,
    /// Per topic if the other broker says that it takes such streams.
    Auto,
}

impl From<Streams> for StreamPolicy {
    fn from(streams: Streams) -> Self {
        match streams {
            Streams::Single => Self::Single,
            Streams::PerTopic => Self::PerTopic,
            Streams::PerPublish => Self::PerPublish,
            Streams::Auto => Self::Auto,
        }
    }
}

/// Topics that go before or after others, by stream priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeLevel")]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Level {
    /// Topics at the other broker.
    pub filter: String,
    /// 0 to 7; others have 3.
    pub level: u8,
}

/// Which way messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeDirection")]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the other broker.
    In,
    /// To the other broker.
    Out,
    /// Both.
    Both,
}

/// Topics of a bridge: those that begin with a prefix here, and with another there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeTopic")]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Topic {
    /// What follows the prefix, as a topic filter.
    #[serde(default)]
    pub pattern: String,
    /// Which way.
    pub direction: Direction,
    /// Highest QoS.
    #[serde(default = "at_least_once")]
    pub qos: u8,
    /// What topics begin with here.
    #[serde(default)]
    pub local_prefix: String,
    /// What topics begin with there.
    #[serde(default)]
    pub remote_prefix: String,
}

const fn messages() -> usize {
    100_000
}

const fn in_flight() -> u16 {
    256
}

const fn one() -> u16 {
    1
}

const fn week() -> Expiry {
    Expiry::After(Span::secs(7 * 24 * 3600))
}

const fn hops() -> u8 {
    8
}

const fn at_least_once() -> u8 {
    1
}

impl Topic {
    /// Whether messages go out.
    pub(crate) fn is_out(&self) -> bool {
        self.direction != Direction::In
    }

    /// Whether messages come in.
    pub(crate) fn is_in(&self) -> bool {
        self.direction != Direction::Out
    }

    /// Highest QoS.
    pub(crate) fn qos(&self) -> QoS {
        QoS::from_u8(self.qos).unwrap_or(QoS::AtLeastOnce)
    }

    /// The filter here.
    pub(crate) fn local_filter(&self) -> String {
        format!("{}{}", self.local_prefix, self.pattern)
    }

    /// The filter there.
    pub(crate) fn remote_filter(&self) -> String {
        format!("{}{}", self.remote_prefix, self.pattern)
    }

    fn check(&self) -> Result<(), Wrong> {
        for (key, prefix, filter) in [
            ("local_prefix", &self.local_prefix, self.local_filter()),
            ("remote_prefix", &self.remote_prefix, self.remote_filter()),
        ] {
            if prefix.contains(['#', '+']) {
                return Err((key, format!("'{prefix}' has a wildcard")));
            }
            if topic::validate_filter(&filter).is_err() || filter.starts_with("$share/") {
                return Err((key, format!("'{filter}' is not a topic filter")));
            }
        }
        match self.qos {
            0..=2 => Ok(()),
            qos => Err(("qos", format!("{qos} is not 0, 1 or 2"))),
        }
    }
}

impl Bridge {
    /// Client identifier and user of its session here.
    pub(crate) fn local_id(&self) -> String {
        format!("{BRIDGE_PREFIX}{}", self.name)
    }

    /// Whether messages of some topic go out.
    pub(crate) fn has_out(&self) -> bool {
        self.topic.iter().any(Topic::is_out)
    }

    /// Whether messages of some topic come in.
    pub(crate) fn has_in(&self) -> bool {
        self.topic.iter().any(Topic::is_in)
    }

    /// Adds what it may do here to the access list.
    pub(crate) fn allow(&self, acl: &mut Acl) {
        let user = self.local_id();
        for topic in &self.topic {
            let filter = topic.local_filter();
            if topic.is_out() {
                acl.allow(&user, Action::Subscribe, &filter);
            }
            if topic.is_in() {
                acl.allow(&user, Action::Publish, &filter);
            }
        }
    }

    fn check(&self) -> Result<(), Wrong> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name = &self.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            let why = format!("'{name}' is not 1 to {NAME_BYTES_MAX} letters, digits, - and _");
            return Err(("name", why));
        }
        let url = self.url.parse::<Url>();
        let url = url.and_then(|url| url.require(dunlin_dial::Protocol::Mqtt));
        url.map_err(|error| ("url", error.to_string()))?;
        if self.max_messages == 0 {
            return Err(("max_messages", "must be at least 1".into()));
        }
        if !(1..=IN_FLIGHT_MAX).contains(&self.max_in_flight) {
            let why = format!("{} is not 1 to {IN_FLIGHT_MAX}", self.max_in_flight);
            return Err(("max_in_flight", why));
        }
        if !(1..=HOPS_MAX).contains(&self.max_hops) {
            let why = format!("{} is not 1 to {HOPS_MAX}", self.max_hops);
            return Err(("max_hops", why));
        }
        if let Some(topic) = &self.status_topic
            && topic::validate_name(topic).is_err()
        {
            return Err(("status_topic", format!("'{topic}' is not a topic")));
        }
        self.check_credentials()?;
        self.check_connection()?;
        self.check_topics()
    }

    fn check_credentials(&self) -> Result<(), Wrong> {
        if self.tls.cert.is_some() != self.tls.key.is_some() {
            return Err(("tls", "cert and key go together".into()));
        }
        if self.password_file.is_some() && self.user.is_none() {
            return Err(("password_file", "needs a user".into()));
        }
        if self.scram && (self.password_file.is_none() || self.version == Version::V311) {
            return Err(("scram", "needs password_file and version 5.0".into()));
        }
        Ok(())
    }

    fn check_connection(&self) -> Result<(), Wrong> {
        let connection = &self.connection;
        let (min, max) = (connection.reconnect_min, connection.reconnect_max);
        if min.0.is_zero() || max < min {
            let why = "reconnect_min is longer than nothing, and no longer than reconnect_max";
            return Err(("connection", why.into()));
        }
        if connection.priority.len() > PRIORITIES_MAX {
            let why = format!("there are more than {PRIORITIES_MAX} priorities");
            return Err(("connection", why));
        }
        for Level { filter, level } in &connection.priority {
            if topic::validate_filter(filter).is_err() || *level > Priority::HIGHEST.level() {
                let why = format!("'{filter}' with {level} is not a topic filter with 0 to 7");
                return Err(("connection", why));
            }
        }
        Ok(())
    }

    fn check_topics(&self) -> Result<(), Wrong> {
        if self.topic.is_empty() || self.topic.len() > TOPICS_MAX {
            return Err(("topic", format!("there must be 1 to {TOPICS_MAX} topics")));
        }
        for (index, topic) in self.topic.iter().enumerate() {
            let wrong = |(key, why)| ("topic", format!("{index}.{key}: {why}"));
            topic.check().map_err(wrong)?;
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            let why = format!("{} is not 1 to {CONNECTIONS_MAX}", self.connections);
            return Err(("connections", why));
        }
        // Without user properties, only a common connection tells a broker that it
        // should not send back what it was sent.
        let exact = |topic: &Topic| topic.is_out() && topic.qos() == QoS::ExactlyOnce;
        if self.version == Version::V311 && self.has_in() && self.has_out() {
            if self.connections > 1 {
                let why = "more than one is not possible with 3.1.1 and topics both ways";
                return Err(("connections", why.into()));
            }
            if self.topic.iter().any(exact) {
                let why = "what goes out has QoS 0 or 1 with 3.1.1 and topics both ways";
                return Err(("topic", why.into()));
            }
        }
        Ok(())
    }
}

/// What is wrong with a bridge, by its number.
pub(crate) fn check(bridges: &[Bridge]) -> Result<(), (usize, Wrong)> {
    for (index, bridge) in bridges.iter().enumerate() {
        let wrong = |why| Err((index, ("name", why)));
        if index >= BRIDGES_MAX {
            return wrong(format!("there are more than {BRIDGES_MAX} bridges"));
        }
        let mut before = bridges.iter().take(index);
        if before.any(|other| other.name == bridge.name) {
            return wrong(format!("there are two bridges '{}'", bridge.name));
        }
        bridge.check().map_err(|error| (index, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge(more: &str) -> Result<Bridge, toml::de::Error> {
        let fixed = "name = 'up'\nurl = 'quic://h'\n";
        toml::from_str(&format!("{fixed}{more}"))
    }

    const OUT: &str = "[[topic]]\npattern = 'a/#'\ndirection = 'out'\n";

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        let good = bridge(OUT).expect("parsed");
        assert_eq!(check(core::slice::from_ref(&good)), Ok(()));
        let twice = check(&[good.clone(), good]).expect_err("two of a name");
        assert_eq!((twice.0, twice.1.0), (1, "name"));
        let both = "[[topic]]\npattern = 'a/#'\ndirection = 'both'\nqos = 2\n";
        for (more, key) in [
            ("", "topic"),
            ("[[topic]]\npattern='a'\ndirection='in'\nqos=3\n", "topic"),
            ("[[topic]]\ndirection='in'\n", "topic"),
            (
                "[[topic]]\npattern='a'\ndirection='in'\nlocal_prefix='+/'\n",
                "topic",
            ),
            ("[[topic]]\npattern='a/#/b'\ndirection='in'\n", "topic"),
            (&format!("max_messages = 0\n{OUT}"), "max_messages"),
            (&format!("max_in_flight = 0\n{OUT}"), "max_in_flight"),
            (&format!("max_hops = 0\n{OUT}"), "max_hops"),
            (&format!("connections = 17\n{OUT}"), "connections"),
            (&format!("password_file = 'p'\n{OUT}"), "password_file"),
            (&format!("scram = true\n{OUT}"), "scram"),
            (&format!("tls = {{ cert = 'c' }}\n{OUT}"), "tls"),
            (&format!("status_topic = 'a/#'\n{OUT}"), "status_topic"),
            (
                &format!("connection = {{ reconnect_min = '0s' }}\n{OUT}"),
                "connection",
            ),
            (
                &format!("connection = {{ priority = [{{ filter = 'a', level = 8 }}] }}\n{OUT}"),
                "connection",
            ),
            (&format!("version = '3.1.1'\n{both}"), "topic"),
            (
                &format!("version = '3.1.1'\nconnections = 2\n{both}"),
                "connections",
            ),
        ] {
            let found = bridge(more).expect("parsed");
            let (_, (found, why)) = check(&[found]).expect_err(more);
            assert_eq!(found, key, "{more}: {why}");
        }
    }

    #[test]
    fn names_and_urls_are_checked() {
        for (name, url, key) in [
            ("", "quic://h", "name"),
            ("a/b", "quic://h", "name"),
            ("a", "amqp://h", "url"),
            ("a", "h:1883", "url"),
        ] {
            let mut made = bridge(OUT).expect("parsed");
            (made.name, made.url) = (name.into(), url.into());
            let (_, (found, _)) = check(&[made]).expect_err("wrong");
            assert_eq!(found, key);
        }
    }
}
