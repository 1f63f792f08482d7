//! What a shard gets at start. Every number here is a limit or a default;
//! the daemon reads them from `dunlin.toml`, the simulator sets them.

mod limits;

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{ShardId, Text};

pub use self::limits::{
    ClientLimits, OtherUser, PRIORITY_MAX, Priority, QueueFull, Sending, SessionLimits,
};
use crate::auth::{AuthPolicy, Others};
use crate::bridges::{Bounds, Bridges};
use crate::memory::Memory;
use crate::owners::members::Homes;
use crate::queues::options::{Overflow, QueueOptions};
use crate::quotas::{Quotas, Subject};
use crate::random::Secret;
use crate::topics::Topics;

/// A queue that is there from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedQueue {
    /// Its name, without `/queues/`.
    pub name: Text,
    /// Topic filters, without `$share`, that bring it messages.
    pub topics: Vec<Text>,
    /// Its limits and policies.
    pub options: QueueOptions,
}

/// Queues of AMQP.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Those that are there from the start.
    pub named: Vec<NamedQueue>,
    /// Clients make queues by attaching to them.
    pub auto_create: bool,
    /// Of what clients make.
    pub options: QueueOptions,
    /// Most queues of this shard, subscriptions and dynamic nodes included.
    pub max: usize,
    /// Most of one user, likewise.
    pub of_user_max: usize,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            named: vec![],
            auto_create: true,
            options: QueueOptions::default(),
            max: 10_000,
            of_user_max: 1000,
        }
    }
}

/// Another server, as clients of AMQP reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Its name or address.
    pub host: Text,
    /// Its port.
    pub port: u16,
}

/// Links of AMQP to some addresses are for another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRedirect {
    /// Topic filter, without `$share`, of the addresses.
    pub filter: Text,
    /// The server.
    pub server: Server,
    /// The address there, if that is not the same.
    pub address: Option<Text>,
}

/// Which clients are for another server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// All of MQTT: the Server Reference that they are given.
    pub mqtt: Option<Text>,
    /// All of AMQP.
    pub amqp: Option<Server>,
    /// Links of AMQP; the first that matches counts.
    pub links: Vec<LinkRedirect>,
}

/// Limits of transactions.
#[derive(Clone, Copy, Debug)]
pub struct Transactions {
    /// Most of one connection.
    pub max: usize,
    /// Time from the declaration of one to its discharge.
    pub timeout: Duration,
    /// Most messages and outcomes in one. A receiver stops at
    /// [`Sending::inflight_max`] outcomes that are not decided.
    pub operations_max: usize,
    /// Most bytes of these.
    pub bytes_max: usize,
    /// Deliveries of one on one shard at which it takes no further message: all of
    /// them wait in memory for the store, and others wait for them.
    pub deliveries_max: usize,
}

impl Default for Transactions {
    fn default() -> Self {
        Self {
            max: 64,
            timeout: Duration::from_secs(120),
            operations_max: 1000,
            bytes_max: 16 * 1024 * 1024,
            deliveries_max: 32_768,
        }
    }
}

/// What happens to clients that is published below `$SYS/events/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysEvent {
    /// A client is connected.
    Connected,
    /// A client is not connected any more.
    Disconnected,
    /// A client was not let in.
    Refused,
    /// A client may not publish or subscribe to a topic.
    Denied,
    /// A client has subscribed to a filter.
    Subscribed,
    /// A client has unsubscribed from a filter.
    Unsubscribed,
}

impl SysEvent {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Connected,
        Self::Disconnected,
        Self::Refused,
        Self::Denied,
        Self::Subscribed,
        Self::Unsubscribed,
    ];

    /// The last level of its topic.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Subscribed => "subscribed",
            Self::Unsubscribed => "unsubscribed",
        }
    }
}

/// What is published below `$SYS`.
#[derive(Clone, Debug)]
pub struct SysTopics {
    /// Interval of the figures; zero: none.
    pub interval: Duration,
    /// Figures of all shards, by the names that mosquitto has for them.
    pub mosquitto: bool,
    /// What happens to clients, as it happens.
    pub events: Vec<SysEvent>,
}

impl SysTopics {
    /// Nothing is published.
    #[must_use]
    pub const fn quiet() -> Self {
        Self {
            interval: Duration::ZERO,
            mosquitto: false,
            events: vec![],
        }
    }
}

impl Default for SysTopics {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            mosquitto: false,
            events: vec![],
        }
    }
}

/// Limits that may change while a shard runs: lower ones end nothing that is there, and
/// what comes is measured with them.
#[derive(Clone, Debug)]
pub struct RunningLimits {
    /// [`ClientLimits::keep_alive_secs_max`], of clients that connect.
    pub keep_alive_secs_max: u16,
    /// [`ClientLimits::idle_timeout_max`], likewise.
    pub idle_timeout_max: Duration,
    /// [`Sending::inflight_max`].
    pub inflight_max: u16,
    /// Sessions and their queues.
    pub sessions: SessionLimits,
    /// [`Queues::options`], of queues that are made.
    pub queue_options: QueueOptions,
    /// [`Config::retained_max`].
    pub retained_max: usize,
    /// What clients may make the broker keep; totals stay those of the start. Of users and
    /// addresses only bytes, and only where these are counted from the start.
    pub memory: Memory,
    /// Rates and sizes of packets of clients that connect; queues of all. Sessions are
    /// limited only where they are counted from the start.
    pub quotas: Quotas,
}

/// What clients hear whose connections end because a home is gone. One of AMQP gets
/// `amqp:connection:forced` either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HomeLost {
    /// Server shutting down.
    #[default]
    ShutDown,
    /// Use another server, with this Server Reference.
    UseAnother(Text),
    /// Server moved, with this Server Reference.
    Moved(Text),
}

/// What a home may have stored for one home that has another store, until that has it.
#[derive(Clone, Debug)]
pub struct PostLimits {
    /// Most messages.
    pub messages_max: usize,
    /// Most bytes of messages.
    pub bytes_max: usize,
}

impl Default for PostLimits {
    fn default() -> Self {
        Self {
            messages_max: 100_000,
            bytes_max: 256 << 20,
        }
    }
}

/// Where a shard stands that is not alone with those of its process.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    /// Which shards own what is durable. `None`: all of this process, which have the
    /// numbers from zero on.
    pub homes: Option<Homes>,
    /// How many homes have one store, from the first on; the next so many have another.
    /// 0: all have one.
    pub homes_per_store: u16,
    /// What is kept for the homes of other stores.
    pub posts: PostLimits,
    /// How often a shard of this number has been there before.
    pub incarnation: u16,
    /// What clients hear when a home is gone, and with it this shard.
    pub home_lost: HomeLost,
}

/// Configuration of one shard.
#[derive(Clone, Debug)]
pub struct Config {
    /// This shard.
    pub shard: ShardId,
    /// Number of shards in the process.
    pub shards: u16,
    /// Shards of other processes.
    pub nodes: Nodes,
    /// What hash keys, identifiers and nonces are made from.
    pub secret: Secret,
    /// Sessions, retained messages and queues go to a store that answers.
    pub durable: bool,
    /// What each listener asks of its clients, by index; the default stands in
    /// for missing ones.
    pub listeners: Vec<AuthPolicy>,
    /// Connections, and what each is offered.
    pub clients: ClientLimits,
    /// Sessions and their queues.
    pub sessions: SessionLimits,
    /// How messages go to clients.
    pub sending: Sending,
    /// Most retained messages.
    pub retained_max: usize,
    /// What clients may make the broker keep, in bytes.
    pub memory: Memory,
    /// Queues of AMQP.
    pub queues: Queues,
    /// Transactions of AMQP.
    pub transactions: Transactions,
    /// Clients that another server is to serve.
    pub redirect: Redirect,
    /// Bridges of this broker to others.
    pub bridges: Bridges,
    /// What becomes of topics of clients.
    pub topics: Topics,
    /// How fast clients may send, and what they may have.
    pub quotas: Quotas,
    /// What is published below `$SYS`.
    pub sys: SysTopics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shard: ShardId(0),
            shards: 1,
            nodes: Nodes::default(),
            secret: Secret::of_seed(0),
            durable: true,
            listeners: vec![],
            clients: ClientLimits::default(),
            sessions: SessionLimits::default(),
            sending: Sending::default(),
            retained_max: 1_000_000,
            memory: Memory::default(),
            queues: Queues::default(),
            transactions: Transactions::default(),
            redirect: Redirect::default(),
            bridges: Bridges::default(),
            topics: Topics::default(),
            quotas: Quotas::default(),
            sys: SysTopics::default(),
        }
    }
}

impl Config {
    /// Which shards own what is durable.
    #[must_use]
    pub fn homes(&self) -> Homes {
        self.nodes.homes.unwrap_or(Homes {
            first: ShardId(0),
            count: self.shards,
        })
    }

    /// Bytes of the largest packet accepted from a client, which is known by
    /// its CONNECT or not.
    pub(crate) const fn largest_packet(&self, known: bool) -> u32 {
        match known {
            true => self.clients.packet_bytes_max,
            false => self.clients.connect_bytes_max,
        }
    }

    /// What bounds the queue of a client's session.
    pub(crate) fn bounds_of(&self, who: &Subject<'_>) -> Bounds {
        if let Some(own) = self.bridges.bounds_of(who.client_id) {
            return own;
        }
        let quota = self.quotas.of(who);
        let quota = quota.map_or((0, 0), |it| (it.queue_messages_max, it.queue_bytes_max));
        Bounds {
            messages_max: match quota.0 {
                0 => self.sessions.queue_messages_max,
                max => max,
            },
            bytes_max: match quota.1 {
                0 => self.sessions.queue_bytes_max,
                max => max,
            },
            overflow: self.overflow(),
        }
    }

    /// Other limits are in force.
    pub(crate) fn take_over(&mut self, limits: &RunningLimits) {
        self.clients.keep_alive_secs_max = limits.keep_alive_secs_max;
        self.clients.idle_timeout_max = limits.idle_timeout_max;
        self.sending.inflight_max = limits.inflight_max;
        self.sessions = limits.sessions.clone();
        self.queues.options = limits.queue_options.clone();
        self.retained_max = limits.retained_max;
        self.quotas = limits.quotas.clone();
    }

    /// The limits that may change.
    #[must_use]
    pub fn running(&self) -> RunningLimits {
        RunningLimits {
            keep_alive_secs_max: self.clients.keep_alive_secs_max,
            idle_timeout_max: self.clients.idle_timeout_max,
            inflight_max: self.sending.inflight_max,
            sessions: self.sessions.clone(),
            queue_options: self.queues.options.clone(),
            retained_max: self.retained_max,
            memory: self.memory.clone(),
            quotas: self.quotas.clone(),
        }
    }

    /// Whether sessions of users are counted: for a quota, or as a token or a server may
    /// bring a limit.
    pub(crate) fn counts_sessions(&self) -> bool {
        let mut listeners = self.listeners.iter();
        self.quotas.counts_sessions() || listeners.any(|it| it.tokens || it.others != Others::Never)
    }

    const fn overflow(&self) -> Overflow {
        match self.sessions.queue_full {
            QueueFull::Reject => Overflow::Reject,
            QueueFull::DropNewest => Overflow::DropNewest,
        }
    }

    /// What happens where the queue of a client's session is full.
    pub(crate) fn overflow_of(&self, client_id: &str) -> Overflow {
        let own = self.bridges.bounds_of(client_id);
        own.map_or_else(|| self.overflow(), |bounds| bounds.overflow)
    }

    /// The level of a topic: that of the first rule that matches it.
    pub(crate) fn level(&self, topic: &str) -> u8 {
        let mut rules = self.sending.priorities.iter();
        rules
            .find(|rule| dunlin_base::topic::matches(&rule.filter, topic))
            .map_or(0, |rule| rule.level.min(PRIORITY_MAX))
    }

    /// Bytes waiting for a connection at which a QoS 0 message is dropped:
    /// where there are priorities, a quarter is for those who have one.
    pub(crate) fn qos0_limit(&self, level: u8) -> usize {
        match level == 0 && !self.sending.priorities.is_empty() {
            true => self.sending.qos0_backlog_bytes / 4 * 3,
            false => self.sending.qos0_backlog_bytes,
        }
    }

    /// Bytes waiting for a connection at which queued messages wait. What has
    /// a stream of its own overtakes them in the transport, so it may follow.
    pub(crate) const fn backlog_limit(&self, level: u8, apart: bool) -> usize {
        match level > 0 && level <= PRIORITY_MAX && apart {
            true => self.sending.send_backlog_bytes.saturating_mul(2),
            false => self.sending.send_backlog_bytes,
        }
    }

    /// Messages in flight at which queued messages wait: where there are
    /// priorities, an eighth is for those who have one.
    pub(crate) fn window(&self, level: u8, window: u16) -> u16 {
        match level == 0 && !self.sending.priorities.is_empty() {
            true => window - window / 8,
            false => window,
        }
    }
}
