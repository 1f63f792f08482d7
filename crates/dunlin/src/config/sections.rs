//! The tables of `dunlin.toml` besides listeners, with their defaults. Each
//! key is documented for users in `dunlin.example.toml`; a test holds the two
//! together.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use dunlin_net::GATHER_MAX;
use dunlin_store_redb::COMMIT_WINDOW_MAX;
use serde::{Deserialize, Serialize};

use super::asking::{Asking, AskingTopics};
use super::error::Wrong;
use super::http::Http;
use super::jwt::Jwt;
use super::keys::one_table;
use super::lb::Lb;
use super::ldap::Ldap;
use super::listener::Anonymous;
use super::nats::Nats;
use super::path::{Control as CongestionControl, Path, Retry};
use super::units::{Brief, Size, Span};
use crate::auth::Delays;

/// Most address tokens for a client: each is sent to it after its handshake.
const TOKENS_MAX: u32 = 8;

/// Most streams of a kind: they are looked through one by one.
const STREAMS_MAX: u32 = 1024;

/// Longest `login_delay_max`.
const LOGIN_DELAY_MAX: Duration = Duration::from_secs(600);

/// When shards have threads of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardThreads {
    /// While one thread does not keep up with all of them.
    #[default]
    AsNeeded,
    /// From the start.
    Always,
}

/// `[quic]`: flow control of QUIC connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quic {
    /// Streams, besides the control stream, that a client may have open.
    pub max_data_streams: u32,
    /// Streams that the broker opens for deliveries to a client that takes
    /// them.
    pub delivery_streams: u32,
    /// Datagrams for QoS 0, both ways.
    pub datagrams: bool,
    /// Small packets twice, to clients that ask for it.
    pub repeat_packets: bool,
    /// Bytes that a client may send ahead on a connection.
    pub receive_window: Size,
    /// Bytes that a client may send ahead on a stream.
    pub stream_receive_window: Size,
    /// Unacknowledged bytes kept for a connection.
    pub send_window: Size,
    /// When a client must prove its address first.
    pub retry: Retry,
    /// Pending handshakes from which on clients must prove their address.
    pub retry_from_pending: usize,
    /// Tokens that spare a returning client the proof of its address.
    pub tokens: u32,
    /// How long such a token is good.
    pub token_lifetime: Span,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// Round-trip time assumed at first.
    pub initial_rtt: Span,
    /// How soon clients are asked to acknowledge.
    pub ack_delay: Span,
    /// Bytes that may be in flight at first.
    pub initial_window: Option<Size>,
    /// What it does about the network.
    pub network: Network,
    /// When new keys are taken.
    pub keys: KeyUpdates,
    /// Connection ids that a load balancer can read.
    pub lb: Lb,
}

one_table!(Quic {
    max_data_streams, delivery_streams, datagrams, repeat_packets, receive_window,
    stream_receive_window, send_window, retry, retry_from_pending, tokens, token_lifetime,
    congestion, initial_rtt, ack_delay, initial_window, lb;
    network { mtu_discovery, ecn, migration, gather }
    keys { key_update_packets, key_update_interval }
});

/// What a QUIC connection does about the network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Network {
    /// Search for a larger packet size than 1200 bytes.
    pub mtu_discovery: bool,
    /// Mark packets for explicit congestion notification.
    pub ecn: bool,
    /// Whether clients may change their address.
    pub migration: bool,
    /// How long a turn waits for more datagrams under load.
    pub gather: Brief,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            mtu_discovery: true,
            ecn: true,
            migration: true,
            gather: Brief::default(),
        }
    }
}

/// When new keys of a QUIC connection are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyUpdates {
    /// Packets sent after which they are.
    pub key_update_packets: Option<u64>,
    /// Time after which they are.
    pub key_update_interval: Option<Span>,
}

impl Default for Quic {
    fn default() -> Self {
        Self {
            max_data_streams: 16,
            delivery_streams: 32,
            datagrams: true,
            repeat_packets: true,
            receive_window: Size::kib(256),
            stream_receive_window: Size::kib(128),
            send_window: Size::kib(256),
            retry: Retry::Load,
            retry_from_pending: 1024,
            tokens: 1,
            token_lifetime: Span::secs(7 * 24 * 3600),
            congestion: CongestionControl::Cubic,
            initial_rtt: Span::millis(250),
            ack_delay: Span::millis(5),
            initial_window: None,
            network: Network::default(),
            keys: KeyUpdates::default(),
            lb: Lb::default(),
        }
    }
}

impl Quic {
    /// Windows that no peer could live with, or that do not fit the protocol.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let range = Size::kib(4)..=Size::mib(1024);
        for (key, window) in [
            ("receive_window", self.receive_window),
            ("stream_receive_window", self.stream_receive_window),
            ("send_window", self.send_window),
        ] {
            if !range.contains(&window) {
                return Err((key, format!("{window} is not between 4KiB and 1GiB")));
            }
        }
        for (key, streams) in [
            ("max_data_streams", self.max_data_streams),
            ("delivery_streams", self.delivery_streams),
        ] {
            if streams > STREAMS_MAX {
                return Err((key, format!("{streams} is more than {STREAMS_MAX}")));
            }
        }
        if self.network.gather.0 > GATHER_MAX {
            let why = format!("{} is longer than 1ms", self.network.gather);
            return Err(("gather", why));
        }
        if self.tokens > TOKENS_MAX {
            let why = format!("{} is more than {TOKENS_MAX}", self.tokens);
            return Err(("tokens", why));
        }
        self.lb.check()?;
        Path::default().check(self)
    }
}

/// `[store]`: what survives a restart, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Store {
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// How long the writer collects what others submit before it commits.
    pub commit_window: Span,
    /// The file; within the data directory when absent.
    pub path: Option<PathBuf>,
    /// A log in NATS in the place of the file.
    pub nats: Nats,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            commit_window: Span::millis(1),
            path: None,
            nats: Nats::default(),
        }
    }
}

impl Store {
    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.commit_window.0 > COMMIT_WINDOW_MAX {
            let max = COMMIT_WINDOW_MAX.as_millis();
            let why = format!("{} is longer than {max}ms", self.commit_window);
            return Err(("commit_window", why));
        }
        self.nats.check()?;
        if self.nats.is_used() && self.durability != Durability::Fsync {
            let why = "with nats.urls, it is \"fsync\": nats.accept_unsynced is what lowers it";
            return Err(("durability", why.into()));
        }
        if self.nats.is_used() && self.path.is_some() {
            let why = "is the file of a store on this machine, which nats.urls replaces; the \
                       copy of the log is log.redb in data_dir";
            return Err(("path", why.into()));
        }
        Ok(())
    }
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// It is on disk: survives loss of power.
    #[default]
    Fsync,
    /// It was given to the operating system: survives `kill -9`.
    Os,
    /// Nothing survives the process.
    Memory,
}

/// `[auth]`: who may connect, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Auth {
    /// Who may connect without credentials.
    pub anonymous: Anonymous,
    /// Users and their password hashes.
    pub password_file: Option<PathBuf>,
    /// How bearer tokens are verified; absent: there are none.
    pub jwt: Option<Jwt>,
    /// A server that is asked who clients are.
    pub http: Option<Asking>,
    /// A directory that is asked who clients are.
    pub ldap: Option<Ldap>,
    /// A server that is asked which topics clients may use.
    pub topics: Option<AskingTopics>,
    /// What decides on a client, one after the other.
    pub order: Vec<Step>,
    /// Topics that users and clients may use.
    pub acl_file: Option<PathBuf>,
    /// Whether subscriptions that the rules allow in part are accepted, and what clients may
    /// not receive is left out.
    pub filter_subscriptions: bool,
    /// What happens to a client whose identifier has a session of another user.
    pub session_of_other_user: OtherUser,
    /// How long who tried wrong passwords has to wait at first; zero: no time.
    pub login_delay: Span,
    /// How long at most.
    pub login_delay_max: Span,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            anonymous: Anonymous::default(),
            password_file: None,
            jwt: None,
            http: None,
            ldap: None,
            topics: None,
            order: vec![
                Step::Jwt,
                Step::Password,
                Step::Http,
                Step::Ldap,
                Step::Certificate,
            ],
            acl_file: None,
            filter_subscriptions: false,
            session_of_other_user: OtherUser::default(),
            login_delay: Span::secs(1),
            login_delay_max: Span::secs(60),
        }
    }
}

impl Auth {
    /// How long who tried wrong passwords has to wait.
    pub(crate) const fn delays(&self) -> Delays {
        Delays {
            first: self.login_delay.0,
            longest: self.login_delay_max.0,
        }
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.login_delay > self.login_delay_max {
            let why = format!("{} is more than login_delay_max", self.login_delay);
            return Err(("login_delay", why));
        }
        if self.login_delay_max.0 > LOGIN_DELAY_MAX {
            return Err(("login_delay_max", "is more than 10m".into()));
        }
        self.jwt.as_ref().map_or(Ok(()), Jwt::check)?;
        self.http.as_ref().map_or(Ok(()), Asking::check)?;
        self.ldap.as_ref().map_or(Ok(()), Ldap::check)?;
        self.topics.as_ref().map_or(Ok(()), AskingTopics::check)?;
        self.check_order()
    }

    fn check_order(&self) -> Result<(), Wrong> {
        for (at, step) in self.order.iter().enumerate() {
            if self.order.iter().take(at).any(|earlier| earlier == step) {
                return Err(("order", "names a step twice".into()));
            }
        }
        for (step, is_set, why) in [
            (
                Step::Password,
                self.password_file.is_some(),
                "password_file is set, but `password` is not in it",
            ),
            (
                Step::Http,
                self.http.is_some(),
                "http is set, but `http` is not in it",
            ),
            (
                Step::Ldap,
                self.ldap.is_some(),
                "ldap is set, but `ldap` is not in it",
            ),
        ] {
            if is_set && !self.order.contains(&step) {
                return Err(("order", why.into()));
            }
        }
        Ok(())
    }

    /// The steps that there are, in order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> {
        let is_there = |step: &Step| match step {
            Step::Certificate => true,
            Step::Password => self.password_file.is_some(),
            Step::Jwt => self.jwt.is_some(),
            Step::Http => self.http.is_some(),
            Step::Ldap => self.ldap.is_some(),
        };
        self.order.iter().copied().filter(is_there)
    }
}

/// What decides on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Its certificate.
    Certificate,
    /// The password file.
    Password,
    /// A token that it sends as password.
    Jwt,
    /// A server that is asked.
    Http,
    /// A directory that is asked.
    Ldap,
}

/// What happens to a client whose identifier has a session of another user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherUser {
    /// It is refused.
    #[default]
    Refuse,
    /// The session ends, and the client gets an empty one.
    StartClean,
}

/// `[log]`: what is written to standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Log {
    /// How much.
    pub level: Level,
    /// In which form.
    pub format: Format,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing.
    Off,
    /// What needs attention.
    Error,
    /// What looks wrong.
    Warn,
    /// Start, stop, reload.
    #[default]
    Info,
    /// Connections and sessions.
    Debug,
    /// Packets.
    Trace,
}

impl Level {
    /// As written in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[sys]`: statistics on `$SYS` topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Sys {
    /// How often they are published; zero: never.
    pub interval: Span,
    /// Whether each client's connection is published too.
    pub clients: bool,
    /// Whether figures are published by mosquitto's names as well.
    pub mosquitto: bool,
    /// What happens to clients that is published.
    pub events: Vec<SysEvent>,
}

/// Something that happens to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SysEvent {
    /// It is connected.
    Connected,
    /// It is not connected any more.
    Disconnected,
    /// It was not let in.
    Refused,
    /// It may not publish or subscribe to a topic.
    Denied,
    /// It has subscribed.
    Subscribed,
    /// It has unsubscribed.
    Unsubscribed,
}

impl From<SysEvent> for dunlin_broker::SysEvent {
    fn from(event: SysEvent) -> Self {
        match event {
            SysEvent::Connected => Self::Connected,
            SysEvent::Disconnected => Self::Disconnected,
            SysEvent::Refused => Self::Refused,
            SysEvent::Denied => Self::Denied,
            SysEvent::Subscribed => Self::Subscribed,
            SysEvent::Unsubscribed => Self::Unsubscribed,
        }
    }
}

impl Default for Sys {
    fn default() -> Self {
        Self {
            interval: Span::secs(10),
            clients: false,
            mosquitto: true,
            events: Vec::new(),
        }
    }
}

/// `[metrics]`: metrics and connections over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Metrics {
    /// Where; nowhere when absent.
    pub address: Option<SocketAddr>,
    /// Names of this machine by which it may be asked, besides `localhost` and
    /// addresses.
    pub hosts: Vec<String>,
}

/// The name of the control socket in the data directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// `[control]`: how the broker is seen and steered while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Control {
    /// Whether there is a socket.
    pub enabled: bool,
    /// Where; within the data directory when absent.
    pub socket: Option<PathBuf>,
    /// Bytes of the audit log after which a new file is begun.
    pub audit_size: Size,
    /// Orders over HTTP.
    pub http: Http,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            enabled: true,
            socket: None,
            audit_size: Size::mib(8),
            http: Http::default(),
        }
    }
}
