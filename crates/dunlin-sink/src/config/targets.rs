//! The part of the configuration that names a target: a section for each kind. Knows
//! nothing of brokers and messages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::tls::Tls;
use super::units::Size;

/// PostgreSQL.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Postgres {
    /// `postgresql://…` or `host=… dbname=…`.
    pub url: String,
    /// File with the password and nothing else.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Whom to trust.
    #[serde(default)]
    pub tls: Tls,
    /// The table; `schema.table` for another schema.
    pub table: String,
    /// What happens to a row whose unique key is there already.
    #[serde(default)]
    pub on_conflict: OnConflict,
}

/// What happens to a row whose unique key is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// It is refused; the table has no unique key, or it must not happen.
    #[default]
    Refuse,
    /// Nothing: the row that is there stays.
    Nothing,
}

/// A server that takes rows by HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Http {
    /// Where.
    pub url: String,
    /// How rows stand in the body.
    #[serde(default)]
    pub body: Body,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// File with a token for `Authorization: Bearer`.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Authorities; those of the system when absent.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// How rows stand in the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// An object a line.
    #[default]
    Ndjson,
    /// A list of objects.
    Json,
}

/// InfluxDB 2 and what speaks its line protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct InfluxDb {
    /// Where, without a path.
    pub url: String,
    /// Organisation.
    #[serde(default)]
    pub org: String,
    /// Bucket.
    pub bucket: String,
    /// The measurement.
    pub measurement: String,
    /// Columns that are tags; all others but `time` are fields.
    #[serde(default)]
    pub tags: Vec<String>,
    /// File with the token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Authorities; those of the system when absent.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// ClickHouse over HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClickHouse {
    /// Where, without a path.
    pub url: String,
    /// The table; `database.table` for another database.
    pub table: String,
    /// User.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password and nothing else.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Authorities; those of the system when absent.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// NATS JetStream.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Nats {
    /// `nats://host[:port]` or `tls://host[:port]`.
    pub url: String,
    /// What subjects begin with; the topic follows, with `.` for `/`.
    #[serde(default = "mqtt")]
    pub prefix: String,
    /// Value of `Nats-Msg-Id`, by which the stream knows a message that it has.
    #[serde(default)]
    pub key: Option<String>,
    /// User.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password and nothing else.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// File with a token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Whom to trust, and who the sink is.
    #[serde(default)]
    pub tls: Tls,
}

/// Kafka, and what speaks its protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Kafka {
    /// Servers that are asked for all others, `HOST[:PORT]`.
    pub servers: Vec<String>,
    /// The topic, which must be there.
    pub topic: String,
    /// Expression for the key of a record; the topic of the message if absent.
    #[serde(default)]
    pub key: Option<String>,
    /// Most bytes of a batch of records for one partition.
    #[serde(default = "record_batch")]
    pub batch_bytes: Size,
    /// User.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password and nothing else.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The password does not travel.
    #[serde(default)]
    pub scram: bool,
    /// Encrypted connections: whom to trust, and who the sink is.
    #[serde(default)]
    pub tls: Option<Tls>,
}

/// Below what a server takes by default, 1 MiB and 12 bytes.
const fn record_batch() -> Size {
    Size(1_000_000)
}

fn mqtt() -> String {
    "mqtt".into()
}
