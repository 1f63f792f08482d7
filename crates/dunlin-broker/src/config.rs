//! What a shard gets at start. Every number here is a limit or a default;
//! the daemon reads them from `dunlin.toml`, the simulator sets them.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::limits::{CONNECT_BYTES_DEFAULT, PACKET_BYTES_DEFAULT, RECEIVE_MAXIMUM_DEFAULT};
use dunlin_base::{ShardId, Text};

use crate::auth::AuthPolicy;
use crate::bridges::{Bounds, Bridges};
use crate::memory::Memory;
use crate::queues::options::{Overflow, QueueOptions};
use crate::quotas::Quotas;
use crate::random::Secret;
use crate::topics::Topics;

/// What happens to a QoS 1 or 2 message when the queue of one of its receivers
/// is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueFull {
    /// The publisher gets 0x97 Quota exceeded in MQTT 5.0, end of the
    /// connection in 3.1.1, which has no way to refuse a PUBLISH. Nothing
    /// acknowledged is lost.
    #[default]
    Reject,
    /// That receiver does not get it; the publisher is acknowledged.
    DropNewest,
}

/// What happens to a CONNECT whose client identifier has a session of another
/// user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherUser {
    /// CONNACK has 0x85 Client Identifier not valid; the session stays.
    #[default]
    Refuse,
    /// The session ends and an empty one begins.
    StartClean,
}

/// Messages of topics that match go before messages of a lower level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Topic filter, without `$share`.
    pub filter: Text,
    /// 1 to [`PRIORITY_MAX`]; topics that no rule matches have 0.
    pub level: u8,
}

/// The highest level of a [`Priority`].
pub const PRIORITY_MAX: u8 = 7;

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
    /// [`Config::inflight_max`] outcomes that are not decided.
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

/// What is published below `$SYS` besides the figures of each shard.
#[derive(Clone, Debug, Default)]
pub struct SysTopics {
    /// Figures of all shards, by the names that mosquitto has for them.
    pub mosquitto: bool,
    /// What happens to clients, as it happens.
    pub events: Vec<SysEvent>,
}

/// Configuration of one shard.
#[derive(Clone, Debug)]
pub struct Config {
    /// This shard.
    pub shard: ShardId,
    /// Number of shards in the process.
    pub shards: u16,
    /// What hash keys, identifiers and nonces are made from.
    pub secret: Secret,
    /// What each listener asks of its clients, by index; the default stands in
    /// for missing ones.
    pub listeners: Vec<AuthPolicy>,
    /// For a session of another user.
    pub other_user: OtherUser,
    /// Largest packet accepted, in bytes. Announced to clients only when it is
    /// lower than the default, because real clients refuse some values.
    pub packet_bytes_max: u32,
    /// Largest packet accepted before CONNACK.
    pub connect_bytes_max: u32,
    /// Receive Maximum announced to clients.
    pub receive_maximum: u16,
    /// Topic Alias Maximum announced to clients.
    pub topic_alias_maximum: u16,
    /// Time from the first byte to a complete CONNECT.
    pub connect_timeout: Duration,
    /// Longest keep alive in seconds; longer ones, and 0, are lowered to it by
    /// Server Keep Alive. 0: no limit.
    pub keep_alive_secs_max: u16,
    /// Transport idle timeout of a client with keep alive 0.
    pub idle_timeout_max: Duration,
    /// Longest session expiry in seconds; `u32::MAX`: no limit.
    pub session_expiry_secs_max: u32,
    /// Most messages in flight to one client, however large its Receive Maximum.
    pub inflight_max: u16,
    /// Most messages queued for one session.
    pub queue_messages_max: usize,
    /// Most bytes queued for one session.
    pub queue_bytes_max: usize,
    /// Messages of an offline session kept in memory; the rest is loaded from
    /// the store when its turn comes.
    pub queue_held_max: usize,
    /// Policy of a full queue.
    pub queue_full: QueueFull,
    /// Bytes given to the transport and not yet sent, at which queued messages
    /// wait.
    pub send_backlog_bytes: usize,
    /// Bytes waiting for one connection, at which QoS 0 messages to it are
    /// dropped.
    pub qos0_backlog_bytes: usize,
    /// Most connections on this shard.
    pub connections_max: usize,
    /// Most subscriptions of one session.
    pub subscriptions_max: usize,
    /// Most subscriptions of one session that one message can match.
    pub overlaps_max: usize,
    /// Most retained messages.
    pub retained_max: usize,
    /// What clients may make the broker keep, in bytes.
    pub memory: Memory,
    /// Client-opened QUIC streams besides control, per connection.
    pub data_streams_max: usize,
    /// Streams that the broker opens for deliveries to a client that takes
    /// them, per connection; 0: none.
    pub delivery_streams_max: usize,
    /// Deliver QoS 0 in datagrams to clients that ask for it.
    pub datagrams: bool,
    /// Send small packets twice to clients that ask for it.
    pub repeat_packets: bool,
    /// Queues of AMQP.
    pub queues: Queues,
    /// Transactions of AMQP.
    pub transactions: Transactions,
    /// Clients that another server is to serve.
    pub redirect: Redirect,
    /// Bridges of this broker to others.
    pub bridges: Bridges,
    /// Topics whose messages overtake others.
    pub priorities: Vec<Priority>,
    /// What becomes of topics of clients.
    pub topics: Topics,
    /// How fast clients may send, and what they may have.
    pub quotas: Quotas,
    /// Interval of `$SYS` messages; zero: none.
    pub sys_interval: Duration,
    /// What else is published below `$SYS`.
    pub sys: SysTopics,
    /// Sessions, retained messages and queues go to a store that answers.
    pub durable: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shard: ShardId(0),
            shards: 1,
            secret: Secret::of_seed(0),
            listeners: vec![],
            other_user: OtherUser::Refuse,
            packet_bytes_max: PACKET_BYTES_DEFAULT,
            connect_bytes_max: CONNECT_BYTES_DEFAULT,
            receive_maximum: RECEIVE_MAXIMUM_DEFAULT,
            topic_alias_maximum: 16,
            connect_timeout: Duration::from_secs(10),
            keep_alive_secs_max: 0,
            idle_timeout_max: Duration::from_secs(24 * 3600),
            session_expiry_secs_max: u32::MAX,
            inflight_max: 1024,
            queue_messages_max: 100_000,
            queue_bytes_max: 64 * 1024 * 1024,
            queue_held_max: 1000,
            queue_full: QueueFull::Reject,
            send_backlog_bytes: 256 * 1024,
            qos0_backlog_bytes: 1024 * 1024,
            connections_max: 1_000_000,
            subscriptions_max: 200_000,
            overlaps_max: 256,
            retained_max: 1_000_000,
            memory: Memory::default(),
            data_streams_max: 16,
            delivery_streams_max: 32,
            datagrams: true,
            repeat_packets: true,
            queues: Queues::default(),
            transactions: Transactions::default(),
            redirect: Redirect::default(),
            bridges: Bridges::default(),
            priorities: vec![],
            topics: Topics::default(),
            quotas: Quotas::default(),
            sys_interval: Duration::from_secs(10),
            sys: SysTopics::default(),
            durable: true,
        }
    }
}

impl Config {
    /// Bytes of the largest packet accepted from a client, which is known by
    /// its CONNECT or not.
    pub(crate) const fn largest_packet(&self, known: bool) -> u32 {
        match known {
            true => self.packet_bytes_max,
            false => self.connect_bytes_max,
        }
    }

    /// What bounds the queue of a client's session.
    pub(crate) fn bounds_of(&self, client_id: &str, user: Option<&str>) -> Bounds {
        if let Some(own) = self.bridges.bounds_of(client_id) {
            return own;
        }
        let quota = self.quotas.of(client_id, user, None);
        let quota = quota.map_or((0, 0), |it| (it.queue_messages_max, it.queue_bytes_max));
        Bounds {
            messages_max: match quota.0 {
                0 => self.queue_messages_max,
                max => max,
            },
            bytes_max: match quota.1 {
                0 => self.queue_bytes_max,
                max => max,
            },
            overflow: match self.queue_full {
                QueueFull::Reject => Overflow::Reject,
                QueueFull::DropNewest => Overflow::DropNewest,
            },
        }
    }

    /// The level of a topic: that of the first rule that matches it.
    pub(crate) fn level(&self, topic: &str) -> u8 {
        let mut rules = self.priorities.iter();
        rules
            .find(|rule| dunlin_base::topic::matches(&rule.filter, topic))
            .map_or(0, |rule| rule.level.min(PRIORITY_MAX))
    }

    /// Bytes waiting for a connection at which a QoS 0 message is dropped:
    /// where there are priorities, a quarter is for those who have one.
    pub(crate) fn qos0_limit(&self, level: u8) -> usize {
        match level == 0 && !self.priorities.is_empty() {
            true => self.qos0_backlog_bytes / 4 * 3,
            false => self.qos0_backlog_bytes,
        }
    }

    /// Bytes waiting for a connection at which queued messages wait. What has
    /// a stream of its own overtakes them in the transport, so it may follow.
    pub(crate) const fn backlog_limit(&self, level: u8, apart: bool) -> usize {
        match level > 0 && level <= PRIORITY_MAX && apart {
            true => self.send_backlog_bytes.saturating_mul(2),
            false => self.send_backlog_bytes,
        }
    }

    /// Messages in flight at which queued messages wait: where there are
    /// priorities, an eighth is for those who have one.
    pub(crate) fn window(&self, level: u8, window: u16) -> u16 {
        match level == 0 && !self.priorities.is_empty() {
            true => window - window / 8,
            false => window,
        }
    }
}
