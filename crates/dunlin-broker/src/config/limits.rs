//! Limits and defaults of connections, of sessions and of what is sent to clients.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::Text;
use dunlin_base::limits::{CONNECT_BYTES_DEFAULT, PACKET_BYTES_DEFAULT, RECEIVE_MAXIMUM_DEFAULT};

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

/// Connections, and what each is offered.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Most connections on this shard.
    pub connections_max: usize,
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
    /// Client-opened QUIC streams besides control, per connection.
    pub data_streams_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections_max: 1_000_000,
            packet_bytes_max: PACKET_BYTES_DEFAULT,
            connect_bytes_max: CONNECT_BYTES_DEFAULT,
            receive_maximum: RECEIVE_MAXIMUM_DEFAULT,
            topic_alias_maximum: 16,
            connect_timeout: Duration::from_secs(10),
            keep_alive_secs_max: 0,
            idle_timeout_max: Duration::from_secs(24 * 3600),
            data_streams_max: 16,
        }
    }
}

/// Sessions and their queues.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// For a session of another user.
    pub other_user: OtherUser,
    /// Longest session expiry in seconds; `u32::MAX`: no limit.
    pub session_expiry_secs_max: u32,
    /// Most messages queued for one session.
    pub queue_messages_max: usize,
    /// Most bytes queued for one session.
    pub queue_bytes_max: usize,
    /// Messages of an offline session kept in memory; the rest is loaded from
    /// the store when its turn comes.
    pub queue_held_max: usize,
    /// Policy of a full queue.
    pub queue_full: QueueFull,
    /// Most subscriptions of one session.
    pub subscriptions_max: usize,
    /// Most subscriptions of one session that one message can match.
    pub overlaps_max: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            other_user: OtherUser::Refuse,
            session_expiry_secs_max: u32::MAX,
            queue_messages_max: 100_000,
            queue_bytes_max: 64 * 1024 * 1024,
            queue_held_max: 1000,
            queue_full: QueueFull::Reject,
            subscriptions_max: 200_000,
            overlaps_max: 256,
        }
    }
}

/// How messages go to clients.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Most messages in flight to one client, however large its Receive Maximum.
    pub inflight_max: u16,
    /// Bytes given to the transport and not yet sent, at which queued messages
    /// wait.
    pub send_backlog_bytes: usize,
    /// Bytes waiting for one connection, at which QoS 0 messages to it are
    /// dropped.
    pub qos0_backlog_bytes: usize,
    /// Streams that the broker opens for deliveries to a client that takes
    /// them, per connection; 0: none.
    pub delivery_streams_max: usize,
    /// Deliver QoS 0 in datagrams to clients that ask for it.
    pub datagrams: bool,
    /// Send small packets twice to clients that ask for it.
    pub repeat_packets: bool,
    /// Topics whose messages overtake others.
    pub priorities: Vec<Priority>,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            inflight_max: 1024,
            send_backlog_bytes: 256 * 1024,
            qos0_backlog_bytes: 1024 * 1024,
            delivery_streams_max: 32,
            datagrams: true,
            repeat_packets: true,
            priorities: vec![],
        }
    }
}
