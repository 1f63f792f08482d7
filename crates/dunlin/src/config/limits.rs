//! `[limits]`: what one client, and all of them, may take.

use dunlin_base::limits::{
    CONNECT_BYTES_DEFAULT, MQTT_PACKET_BYTES_MAX, PACKET_BYTES_DEFAULT, RECEIVE_MAXIMUM_DEFAULT,
};
use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::keys::one_table;
use super::units::{Expiry, Share, Size, Span};

/// Smallest `max_packet_size` that is accepted: a CONNECT with a will fits.
const PACKET_BYTES_MIN: u64 = 256;

/// Smallest `memory` that is accepted: each part has room for a large packet.
const MEMORY_MIN: Size = Size::mib(16);

/// Longest keep alive that MQTT can express.
const KEEP_ALIVE_SECS_MAX: u64 = 65_535;

/// `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Packets, and what clients are offered for them.
    pub packets: Packets,
    /// How long clients may take, and be away.
    pub times: Times,
    /// What waits for one client.
    pub queue: Waiting,
    /// Connections, and what comes over them before CONNACK.
    pub connections: Connections,
    /// What is kept for clients: sessions, subscriptions, retained messages.
    pub kept: Kept,
    /// Memory of what is kept for clients.
    pub memory: Memory,
}

one_table!(Limits {
    ;
    packets { max_packet_size, max_connect_size, receive_maximum, topic_alias_maximum }
    times { connect_timeout, max_keep_alive, idle_timeout, max_session_expiry }
    queue {
        max_inflight, max_queued_messages, max_queued_bytes, max_queued_in_memory,
        queue_full, max_send_backlog, max_qos0_backlog
    }
    connections {
        max_connections, max_connections_per_address, max_handshakes_per_address,
        max_pending_handshakes, max_unknown_bytes, max_unknown_bytes_per_address
    }
    kept {
        max_sessions, max_sessions_per_user, max_subscriptions_per_session,
        max_overlapping_subscriptions, max_subscription_bytes_per_session,
        max_retained_messages, max_retained_bytes, max_will_bytes
    }
    memory { memory, memory_per_user, memory_per_address }
});

/// Packets, and what clients are offered for them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packets {
    /// Largest packet accepted.
    pub max_packet_size: Size,
    /// Largest packet accepted before CONNACK.
    pub max_connect_size: Size,
    /// Receive Maximum announced to clients.
    pub receive_maximum: u16,
    /// Topic Alias Maximum announced to clients.
    pub topic_alias_maximum: u16,
}

impl Default for Packets {
    fn default() -> Self {
        Self {
            max_packet_size: Size(PACKET_BYTES_DEFAULT as u64),
            max_connect_size: Size(CONNECT_BYTES_DEFAULT as u64),
            receive_maximum: RECEIVE_MAXIMUM_DEFAULT,
            topic_alias_maximum: 16,
        }
    }
}

/// How long clients may take, and be away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// Time for a handshake, and after it for the CONNECT.
    pub connect_timeout: Span,
    /// Longest keep alive; zero: no limit.
    pub max_keep_alive: Span,
    /// Silence after which a client with keep alive 0 is dropped.
    pub idle_timeout: Span,
    /// Longest session expiry.
    pub max_session_expiry: Expiry,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect_timeout: Span::secs(10),
            max_keep_alive: Span::secs(0),
            idle_timeout: Span::secs(24 * 3600),
            max_session_expiry: Expiry::Never,
        }
    }
}

/// What waits for one client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Most messages in flight to one client.
    pub max_inflight: u16,
    /// Most messages queued for one session.
    pub max_queued_messages: usize,
    /// Most bytes queued for one session.
    pub max_queued_bytes: Size,
    /// Queued messages of one session kept in memory; eight times as many while
    /// its client is connected.
    pub max_queued_in_memory: usize,
    /// What happens when a queue is full.
    pub queue_full: QueueFull,
    /// Unsent bytes of a connection at which its queue waits.
    pub max_send_backlog: Size,
    /// Unsent bytes of a connection at which QoS 0 messages are dropped.
    pub max_qos0_backlog: Size,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            max_inflight: 1024,
            max_queued_messages: 100_000,
            max_queued_bytes: Size::mib(64),
            max_queued_in_memory: 1000,
            queue_full: QueueFull::Reject,
            max_send_backlog: Size::kib(256),
            max_qos0_backlog: Size::mib(1),
        }
    }
}

/// Connections, and what comes over them before CONNACK.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connections {
    /// Most connections of the broker.
    pub max_connections: usize,
    /// Most connections from one address; 0: no limit.
    pub max_connections_per_address: u32,
    /// Most new connections from one address in a second; 0: no limit.
    pub max_handshakes_per_address: u32,
    /// Most handshakes going on.
    pub max_pending_handshakes: usize,
    /// Most bytes from clients before CONNACK, all together.
    pub max_unknown_bytes: Size,
    /// Likewise, from one address to one shard.
    pub max_unknown_bytes_per_address: Size,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            max_connections: 1_000_000,
            max_connections_per_address: 0,
            max_handshakes_per_address: 0,
            max_pending_handshakes: 8192,
            max_unknown_bytes: Size::mib(64),
            max_unknown_bytes_per_address: Size::mib(16),
        }
    }
}

/// What is kept for clients: sessions, subscriptions, retained messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Most sessions.
    pub max_sessions: usize,
    /// Most sessions of one user; 0: no limit.
    pub max_sessions_per_user: usize,
    /// Most subscriptions of one session.
    pub max_subscriptions_per_session: usize,
    /// Most subscriptions of one session that one message can match.
    pub max_overlapping_subscriptions: usize,
    /// Most bytes of the subscriptions of one session.
    pub max_subscription_bytes_per_session: Size,
    /// Most retained messages.
    pub max_retained_messages: usize,
    /// Most bytes of retained messages.
    pub max_retained_bytes: Option<Size>,
    /// Most bytes of wills.
    pub max_will_bytes: Option<Size>,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            max_sessions: 1_000_000,
            max_sessions_per_user: 0,
            max_subscriptions_per_session: 200_000,
            max_overlapping_subscriptions: 256,
            max_subscription_bytes_per_session: Size::mib(256),
            max_retained_messages: 1_000_000,
            max_retained_bytes: None,
            max_will_bytes: None,
        }
    }
}

/// Memory of what is kept for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Most bytes of what is kept for clients, all together.
    pub memory: Share,
    /// Most of it of one user.
    pub memory_per_user: Share,
    /// Most of it of one address.
    pub memory_per_address: Share,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            memory: Share::Percent(50),
            memory_per_user: Share::Percent(12),
            memory_per_address: Share::Percent(12),
        }
    }
}

impl Limits {
    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let packet = self.packets.max_packet_size;
        if !(PACKET_BYTES_MIN..=u64::from(MQTT_PACKET_BYTES_MAX)).contains(&packet.0) {
            let why =
                format!("{packet} is not between 256B and 268435460B, which MQTT can express");
            return Err(("max_packet_size", why));
        }
        let connect = self.packets.max_connect_size;
        if !(PACKET_BYTES_MIN..=u64::from(MQTT_PACKET_BYTES_MAX)).contains(&connect.0) {
            let why =
                format!("{connect} is not between 256B and 268435460B, which MQTT can express");
            return Err(("max_connect_size", why));
        }
        if let Share::Bytes(memory) = self.memory.memory
            && memory < MEMORY_MIN
        {
            return Err(("memory", format!("{memory} is less than {MEMORY_MIN}")));
        }
        if self.queue.max_queued_bytes < packet {
            let why = format!(
                "{} is less than max_packet_size, {packet}",
                self.queue.max_queued_bytes
            );
            return Err(("max_queued_bytes", why));
        }
        for (key, value) in [
            ("receive_maximum", usize::from(self.packets.receive_maximum)),
            ("max_inflight", usize::from(self.queue.max_inflight)),
            ("max_queued_messages", self.queue.max_queued_messages),
            ("max_queued_in_memory", self.queue.max_queued_in_memory),
            ("max_send_backlog", self.queue.max_send_backlog.as_usize()),
            ("max_qos0_backlog", self.queue.max_qos0_backlog.as_usize()),
            ("max_connections", self.connections.max_connections),
            ("max_sessions", self.kept.max_sessions),
            (
                "max_pending_handshakes",
                self.connections.max_pending_handshakes,
            ),
        ] {
            if value == 0 {
                return Err((key, "must be at least 1".into()));
            }
        }
        for (key, value) in [
            ("connect_timeout", self.times.connect_timeout),
            ("idle_timeout", self.times.idle_timeout),
        ] {
            if value.0.is_zero() {
                return Err((key, "must be longer than nothing".into()));
            }
        }
        let keep_alive = self.times.max_keep_alive.0;
        if keep_alive.as_secs() > KEEP_ALIVE_SECS_MAX || keep_alive.subsec_nanos() > 0 {
            let why = format!(
                "{} is not a number of whole seconds up to 65535s",
                self.times.max_keep_alive
            );
            return Err(("max_keep_alive", why));
        }
        Ok(())
    }
}

/// What happens to a QoS 1 or 2 message when the queue of one of its receivers
/// is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueFull {
    /// The publisher is refused.
    #[default]
    Reject,
    /// That receiver does not get it.
    DropNewest,
}
