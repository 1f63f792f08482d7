//! `dunlin.toml`: everything about the broker that can be chosen.
//!
//! A [`Config`] is made in three steps, each with its own kind of error: the
//! file, the overrides of the command line (`--set KEY=VALUE`), the check of
//! how values fit together. It says what is wanted and opens nothing.

mod asking;
pub mod bridge;
pub mod cluster;
pub mod early;
mod error;
pub mod http;
mod jwt;
mod keys;
pub mod lb;
mod ldap;
pub mod limits;
pub mod listener;
pub mod mode;
pub mod nats;
pub mod path;
pub mod priority;
pub mod proxies;
pub mod qlog;
pub mod queues;
pub mod quotas;
pub mod redirect;
pub(crate) mod running;
#[cfg(unix)]
mod salvage;
pub mod sections;
pub(crate) mod shown;
pub mod socket;
pub mod tls;
pub mod topics;
pub mod transactions;
mod tuning;
pub mod units;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) use asking::AskedServer;
pub use asking::{Asking, AskingTopics, TopicsDown, WhenDown};
use early::EarlyData;
pub use error::ConfigError;
pub use jwt::{JWT_ALGORITHMS, Jwt, UserName};
use keys::one_table;
pub(crate) use ldap::Finding;
pub use ldap::Ldap;
use limits::Limits;
use listener::{Anonymous, Kind, Listener};
pub use sections::{Auth, ShardThreads, Step};
use sections::{Control, Log, Metrics, Quic, Store, Sys};

/// The commented file that shows every key with its default.
pub const EXAMPLE: &str = include_str!("../../dunlin.example.toml");

/// Most shards that can be asked for.
pub const SHARDS_MAX: u16 = 1024;

/// Most listeners that can be configured.
pub const LISTENERS_MAX: usize = 256;

/// Configuration of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Where the store and the development certificates are.
    pub data_dir: PathBuf,
    /// Number of shards; 0: one per core.
    pub shards: u16,
    /// When shards have threads of their own.
    pub shard_threads: ShardThreads,
    /// Other brokers, and which topics are exchanged with them.
    pub bridge: Vec<bridge::Bridge>,
    /// Where connections are accepted.
    pub listener: Vec<Listener>,
    /// What clients may take.
    pub limits: Limits,
    /// Messages with a delay, and Sparkplug.
    pub topics: topics::Topics,
    /// Flow control of QUIC connections.
    pub quic: Quic,
    /// Ciphers and key exchanges.
    pub tls: tls::Tls,
    /// What clients may send before their handshake is complete.
    pub early_data: EarlyData,
    /// What survives a restart.
    pub store: Store,
    /// Other nodes of the broker.
    pub cluster: cluster::Cluster,
    /// Who may connect.
    pub auth: Auth,
    /// How the broker is steered.
    pub control: Control,
    /// What topics and clients are subject to.
    pub rules: Rules,
    /// Queues and transactions of AMQP.
    pub amqp: Amqp,
    /// What the broker says of itself.
    pub reports: Reports,
    /// Where this was read.
    origin: Option<Origin>,
}

one_table!(Config {
    data_dir, shards, shard_threads, bridge, listener, limits, topics, quic, tls, early_data,
    store, cluster, auth, control;
    rules { priority, rewrite, subscribe, quota, redirect }
    amqp { queue, queues, transactions }
    reports { log, sys, qlog, metrics }
});

/// What topics and clients are subject to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// Topics whose messages go before others.
    pub priority: Vec<priority::Rule>,
    /// Topics of clients that stand for others.
    pub rewrite: Vec<topics::Rewrite>,
    /// Subscriptions of new sessions.
    pub subscribe: Vec<topics::Subscribe>,
    /// How fast some clients may send, and what they may have.
    pub quota: Vec<quotas::Quota>,
    /// Clients that another server is to serve.
    pub redirect: redirect::Redirect,
}

/// Queues and transactions of AMQP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Amqp {
    /// Queues that are there from the start.
    pub queue: Vec<queues::Queue>,
    /// What queues clients may make.
    pub queues: queues::Queues,
    /// What one transaction may be.
    pub transactions: transactions::Transactions,
}

/// What the broker says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reports {
    /// What is logged.
    pub log: Log,
    /// Statistics on `$SYS` topics.
    pub sys: Sys,
    /// Logs of QUIC connections.
    pub qlog: qlog::Qlog,
    /// Metrics over HTTP.
    pub metrics: Metrics,
}

/// Where a configuration was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    file: PathBuf,
    overrides: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "dunlin-data".into(),
            shards: 0,
            shard_threads: ShardThreads::default(),
            bridge: Vec::new(),
            listener: default_listeners(),
            limits: Limits::default(),
            topics: topics::Topics::default(),
            quic: Quic::default(),
            tls: tls::Tls::default(),
            early_data: EarlyData::default(),
            store: Store::default(),
            cluster: cluster::Cluster::default(),
            auth: Auth::default(),
            control: Control::default(),
            rules: Rules::default(),
            amqp: Amqp::default(),
            reports: Reports::default(),
            origin: None,
        }
    }
}

/// Every transport at the usual port of MQTT, and those of AMQP at its own.
fn default_listeners() -> Vec<Listener> {
    let amqp = [Kind::Quic, Kind::Tcp, Kind::Tls].map(Listener::amqp);
    let speaks_amqp = listener::Protocol::ALL.contains(&listener::Protocol::Amqp);
    Kind::ALL
        .map(Listener::new)
        .into_iter()
        .chain(amqp.into_iter().filter(|_| speaks_amqp))
        .collect()
}

/// What is wrong with an override.
fn wrong(argument: &str, message: String) -> ConfigError {
    let argument = shown::hide("", argument);
    ConfigError::Override { argument, message }
}

impl Config {
    /// Reads a file, applies overrides, and checks how it all fits together.
    /// Without a file, the defaults.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut config = match file {
            None => Self::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
                    path: path.into(),
                    source,
                })?;
                Self::parse(path, &text)?
            }
        };
        for argument in overrides {
            config = config.with(argument)?;
        }
        if let Err((key, message)) = config.check() {
            // What does not fit may be said by several of them together.
            let of_key = |argument: &&String| argument.split('=').next() == Some(&*key);
            let named = overrides.iter().rev().find(of_key);
            let argument = named
                .or_else(|| overrides.last())
                .map_or("", String::as_str);
            return Err(wrong(argument, format!("{key}: {message}")));
        }
        config.origin = file.map(|file| Origin {
            file: file.into(),
            overrides: overrides.to_vec(),
        });
        Ok(config)
    }

    /// What its file says now; without one, what it is. The data directory may have been
    /// chosen on the command line, and stays.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn read_again(&self) -> Result<Self, ConfigError> {
        let Some(Origin { file, overrides }) = &self.origin else {
            return Ok(self.clone());
        };
        let mut fresh = Self::load(Some(file), overrides)?;
        fresh.data_dir.clone_from(&self.data_dir);
        Ok(match self.is_edge() {
            true => fresh.edge(),
            false => fresh,
        })
    }

    /// The file that it was read from, if it was.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.origin.as_ref().map(|origin| &*origin.file)
    }

    /// Keys whose values differ; of a list, its own.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let (mut found, empty) = (Vec::new(), || toml::Value::Table(toml::Table::new()));
        let [one, other] =
            [self, other].map(|config| toml::Value::try_from(config).unwrap_or_else(|_| empty()));
        differences("", &one, &other, &mut found);
        found
    }

    /// Reads and checks the text of a file; `path` is named in errors.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| ConfigError::in_file(path, text, &error))?;
        match config.check() {
            Ok(()) => Ok(config),
            Err((key, message)) => Err(ConfigError::at_key(path, text, &key, message)),
        }
    }

    /// With one `KEY=VALUE` applied. The value is TOML, or else a string, so
    /// that `limits.max_packet_size=2MiB` needs no quotes.
    ///
    /// # Errors
    /// There is no such key, or the value is wrong for it.
    pub fn overridden(&self, argument: &str) -> Result<Self, ConfigError> {
        let config = self.with(argument)?;
        let checked = config.check();
        checked.map_err(|(key, message)| wrong(argument, format!("{key}: {message}")))?;
        Ok(config)
    }

    /// The same without a check of how it fits together.
    fn with(&self, argument: &str) -> Result<Self, ConfigError> {
        let wrong = |message: String| wrong(argument, message);
        let (key, value) = argument
            .split_once('=')
            .ok_or_else(|| wrong("expected KEY=VALUE, as in limits.max_inflight=100".into()))?;
        let value = match format!("v = {value}").parse::<toml::Table>() {
            Ok(mut table) if table.len() == 1 => table.remove("v"),
            _ => None,
        }
        .unwrap_or_else(|| value.trim().into());
        let mut root = toml::Value::try_from(self).map_err(|error| wrong(error.to_string()))?;
        set(&mut root, key.trim(), value).map_err(wrong)?;
        // Read as a file is: what reads a configuration is large, and there once.
        let text = toml::to_string(&root).map_err(|error| wrong(error.to_string()))?;
        toml::from_str(&text).map_err(|error| wrong(error::humanize(error.message())))
    }

    /// Number of shards to start.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        match self.shards {
            0 => std::thread::available_parallelism()
                .ok()
                .and_then(|cores| u16::try_from(cores.get()).ok())
                .unwrap_or(1)
                .min(match self.cluster.is_used() {
                    true => cluster::SHARDS_MAX,
                    false => SHARDS_MAX,
                }),
            shards => shards,
        }
    }

    /// What the shards of an edge are configured as: what is durable, bridges and `$SYS` are
    /// the home's.
    #[must_use]
    pub fn edge(&self) -> Self {
        let mut edge = self.clone();
        edge.store = Store::default();
        edge.store.durability = sections::Durability::Memory;
        edge.bridge.clear();
        // Tickets are kept by the home, or by no node.
        if self.tickets().is_none() {
            edge.early_data.mode = early::Mode::Off;
        }
        edge.reports.sys.interval = units::Span::millis(0);
        edge
    }

    /// Whether it is [that](Config::edge).
    #[must_use]
    pub const fn is_edge(&self) -> bool {
        self.cluster.is_used() && !self.store.nats.is_used()
    }

    /// File of the store.
    #[must_use]
    pub fn store_path(&self) -> PathBuf {
        // The copy of a log is another file than the store that was there before it.
        let name = if self.store.nats.is_used() {
            "log.redb"
        } else {
            "store.redb"
        };
        let within = || self.data_dir.join(name);
        self.store.path.clone().unwrap_or_else(within)
    }

    /// Bounds of the register of tickets for early data; `None`: none is taken. Neither is
    /// where a power cut may take back that a ticket was used.
    pub(crate) fn tickets(&self) -> Option<dunlin_net::TicketLimits> {
        let nats = &self.store.nats;
        let may_forget = nats.is_used() && nats.accept_unsynced;
        self.early_data.limits().filter(|_| !may_forget)
    }

    /// The socket for `dunlin ctl`, if there is to be one.
    #[must_use]
    pub fn control_path(&self) -> Option<PathBuf> {
        let within = || self.data_dir.join(sections::CONTROL_SOCKET);
        let path = self.control.socket.clone().unwrap_or_else(within);
        self.control.enabled.then_some(path)
    }

    /// The audit log of orders.
    #[must_use]
    pub fn audit_path(&self) -> PathBuf {
        self.data_dir.join("audit.log")
    }

    /// Who may give orders over HTTP.
    #[must_use]
    pub fn tokens_path(&self) -> PathBuf {
        let within = || self.data_dir.join(http::TOKENS);
        self.control.http.tokens_file.clone().unwrap_or_else(within)
    }

    /// Who is banned.
    #[must_use]
    pub fn bans_path(&self) -> PathBuf {
        self.data_dir.join("bans.json")
    }

    /// Directory of the development certificates.
    #[must_use]
    pub fn certs_dir(&self) -> PathBuf {
        self.data_dir.join("certs")
    }

    /// Whether a listener needs the development certificates.
    #[must_use]
    pub fn needs_development_certs(&self) -> bool {
        self.listener
            .iter()
            .any(|l| l.transport.transport().is_encrypted() && l.tls.is_none())
    }

    /// How QUIC at a listener behaves towards the network.
    #[must_use]
    pub fn quic_tuning(&self, listener: &Listener) -> dunlin_net::QuicTuning {
        let same = path::Path::default();
        listener.quic.as_ref().unwrap_or(&same).tuning(&self.quic)
    }

    /// What a listener asks of its clients.
    #[must_use]
    pub fn auth_policy(&self, listener: &Listener) -> dunlin_broker::auth::AuthPolicy {
        use dunlin_broker::auth::{Others, Partial};
        let steps: Vec<Step> = self.auth.steps().collect();
        let knows = |step: &Step| matches!(step, Step::Jwt | Step::Ldap);
        let others = match steps.contains(&Step::Http) {
            true => Others::Always,
            false if steps.iter().any(knows) => Others::Credentials,
            false => Others::Never,
        };
        let of_listener = listener.filter_subscriptions;
        let is_filtered = of_listener.unwrap_or(self.auth.filter_subscriptions);
        dunlin_broker::auth::AuthPolicy {
            others,
            partial: match is_filtered {
                true => Partial::Filtered,
                false => Partial::Refused,
            },
            certificate_first: steps.first() == Some(&Step::Certificate),
            anonymous: listener.anonymous.unwrap_or(self.auth.anonymous).into(),
            passwords: self.auth.password_file.is_some(),
            tokens: self.auth.jwt.is_some(),
            certificates: steps.contains(&Step::Certificate)
                && (listener.proxy_identity()
                    || listener
                        .tls
                        .as_ref()
                        .is_some_and(|tls| tls.client_ca.is_some())),
        }
    }

    /// Number of the listener that only bridges come through: that after the last.
    #[must_use]
    pub(crate) fn bridge_listener(&self) -> u16 {
        u16::try_from(self.listener.len()).unwrap_or(u16::MAX)
    }

    /// Web pages that may open a WebSocket at a listener: those that it lists, and the
    /// broker's own.
    /// When it lists none, no page may use that a client needs no credentials.
    pub(crate) fn origins(&self, listener: &Listener) -> dunlin_net::Origins {
        use dunlin_net::OriginCheck;
        let mut origins = dunlin_net::Origins::default();
        let anonymous = listener.anonymous.unwrap_or(self.auth.anonymous);
        origins.checked = match (&listener.origins, anonymous) {
            (Some(_), _) | (None, Anonymous::Always) => OriginCheck::Always,
            (None, Anonymous::Loopback) => OriginCheck::Loopback,
            (None, Anonymous::Never) => OriginCheck::Never,
        };
        let allowed = listener.origins.iter().flatten().cloned();
        let allowed = allowed.chain(self.control.http.origins());
        origins.allowed = allowed.map(dunlin_base::Text::from).collect();
        origins
    }

    /// How values fit together: key and sentence of the first that does not.
    fn check(&self) -> Result<(), (String, String)> {
        if self.shards > SHARDS_MAX {
            let why = format!("{} is more than {SHARDS_MAX}", self.shards);
            return Err(("shards".into(), why));
        }
        if let Err((index, (key, why))) = priority::check(&self.rules.priority) {
            return Err((format!("priority.{index}.{key}"), why));
        }
        self.check_rules()?;
        if let Err((index, (key, why))) = queues::check(&self.amqp.queue) {
            return Err((format!("queue.{index}.{key}"), why));
        }
        if let Err((index, (key, why))) = bridge::check(&self.bridge) {
            return Err((format!("bridge.{index}.{key}"), why));
        }
        let in_section =
            |name: &'static str| move |(key, why): error::Wrong| (format!("{name}.{key}"), why);
        self.auth.check().map_err(in_section("auth"))?;
        self.limits.check().map_err(in_section("limits"))?;
        self.topics.check().map_err(in_section("topics"))?;
        self.rules
            .redirect
            .check()
            .map_err(in_section("redirect"))?;
        self.quic.check().map_err(in_section("quic"))?;
        self.tls.check().map_err(in_section("tls"))?;
        self.early_data.check().map_err(in_section("early_data"))?;
        self.reports.qlog.check().map_err(in_section("qlog"))?;
        self.store.check().map_err(in_section("store"))?;
        let cluster = self.cluster.check(
            self.store.nats.is_used().then_some(self.store.nats.lease),
            self.shard_count(),
            self.limits.packets.max_packet_size.0,
        );
        cluster.map_err(in_section("cluster"))?;
        let http = self.control.http.check();
        http.map_err(in_section("control.http"))?;
        self.check_listeners()
    }

    /// Rules about topics and quotas.
    fn check_rules(&self) -> Result<(), (String, String)> {
        let of = |name: &'static str| {
            move |(index, (key, why)): (usize, error::Wrong)| (format!("{name}.{index}.{key}"), why)
        };
        topics::check_rewrites(&self.rules.rewrite).map_err(of("rewrite"))?;
        topics::check_subscribes(&self.rules.subscribe).map_err(of("subscribe"))?;
        let listeners = self.listener.len();
        quotas::check(&self.rules.quota, listeners, &self.limits).map_err(of("quota"))
    }

    fn check_listeners(&self) -> Result<(), (String, String)> {
        if self.listener.is_empty() || self.listener.len() > LISTENERS_MAX {
            let why = format!("there must be 1 to {LISTENERS_MAX} listeners");
            return Err(("listener".into(), why));
        }
        let mut seen = BTreeMap::new();
        for (index, listener) in self.listener.iter().enumerate() {
            let wrong = |key: &str, why| Err((format!("listener.{index}.{key}"), why));
            let checked = listener.check().and_then(|()| proxies::check(listener));
            let checked = checked.and_then(|()| socket::check(listener));
            let checked = checked.and_then(|()| topics::check_mount(listener));
            if let Err((key, why)) = checked {
                return wrong(key, why);
            }
            if let Some(path) = &listener.quic
                && let Err((key, why)) = path.check(&self.quic)
            {
                return wrong(&format!("quic.{key}"), why);
            }
            let address = listener.address();
            if listener.transport == Kind::Unix {
                let path = listener.path().to_owned();
                if let Some(other) = seen.insert((false, path.clone()), index) {
                    return wrong("path", format!("{path} is taken by listener {other}"));
                }
                continue;
            }
            // Port 0 lets the system choose, a different one each time.
            let protocol = (listener.transport == Kind::Quic, address.to_string());
            if address.port() != 0
                && let Some(other) = seen.insert(protocol, index)
            {
                return wrong("address", format!("{address} is taken by listener {other}"));
            }
        }
        Ok(())
    }
}

fn differences(at: &str, one: &toml::Value, other: &toml::Value, found: &mut Vec<String>) {
    let (Some(one), Some(other)) = (one.as_table(), other.as_table()) else {
        if one != other {
            found.push(at.to_owned());
        }
        return;
    };
    let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for key in keys {
        let dot = if at.is_empty() { "" } else { "." };
        let at = format!("{at}{dot}{key}");
        match (one.get(key), other.get(key)) {
            (Some(one), Some(other)) => differences(&at, one, other, found),
            _ => found.push(at),
        }
    }
}

/// Puts a value at a dotted key; numbers index arrays.
fn set(root: &mut toml::Value, key: &str, value: toml::Value) -> Result<(), String> {
    let mut place = root;
    for part in key.split('.') {
        if part.is_empty() {
            return Err("expected KEY=VALUE, as in limits.max_inflight=100".into());
        }
        place = match place {
            toml::Value::Table(table) => table
                .entry(part)
                .or_insert_with(|| toml::Value::Table(toml::Table::new())),
            toml::Value::Array(array) => {
                let len = array.len();
                part.parse::<usize>()
                    .ok()
                    .and_then(|index| array.get_mut(index))
                    .ok_or_else(|| format!("there is no `{part}` among {len}, counted from 0"))?
            }
            _ => return Err(format!("there is no key `{part}` in a value")),
        };
    }
    *place = value;
    Ok(())
}

#[cfg(test)]
mod tests;
