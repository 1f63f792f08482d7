//! From the configuration file to the settings of shards, loops and store.

use dunlin_base::ShardId;
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_broker::{
    Bounds, BridgeSession, Bridges, ClientLimits, Config as ShardConfig, Memory, Nodes, OtherUser,
    QueueFull, RunningLimits, Secret, Sending, SessionLimits, SysTopics, Totals,
};
use dunlin_net::NetLimits;
use dunlin_store_redb::{Durability, StoreConfig};

use crate::config::bridge::Bridge;
use crate::config::units::Size;
use crate::config::{
    Config, limits, priority, queues, quotas, redirect, sections, topics, transactions,
};

/// Settings of one shard.
pub(crate) fn shard(
    config: &Config,
    id: ShardId,
    shards: u16,
    secret: Secret,
    memory: Memory,
) -> ShardConfig {
    let limits = &config.limits;
    ShardConfig {
        shard: id,
        shards,
        nodes: Nodes::default(),
        secret,
        durable: config.store.durability != sections::Durability::Memory,
        listeners: policies(config),
        clients: clients(config, shards),
        sessions: sessions(config),
        sending: sending(config),
        retained_max: limits.kept.max_retained_messages,
        memory,
        queues: queues::queues(&config.amqp.queues, &config.amqp.queue, limits, shards),
        transactions: transactions::transactions(&config.amqp.transactions),
        redirect: redirect::redirect(&config.rules.redirect),
        bridges: bridges(config),
        topics: topics::topics(config, shards),
        quotas: quotas::quotas(&config.rules.quota),
        sys: SysTopics {
            interval: config.reports.sys.interval.0,
            mosquitto: config.reports.sys.mosquitto,
            events: config
                .reports
                .sys
                .events
                .iter()
                .map(|it| (*it).into())
                .collect(),
        },
    }
}

/// Limits that a shard takes over while it runs, on a machine with so much memory.
pub(crate) fn running(config: &Config, machine: u64) -> RunningLimits {
    let times = &config.limits.times;
    RunningLimits {
        keep_alive_secs_max: keep_alive(config),
        idle_timeout_max: times.idle_timeout.0,
        inflight_max: config.limits.queue.max_inflight,
        sessions: sessions(config),
        queue_options: queues::options(&config.limits),
        retained_max: config.limits.kept.max_retained_messages,
        memory: memory(config, machine),
        quotas: quotas::quotas(&config.rules.quota),
    }
}

/// The longest keep alive, in seconds.
fn keep_alive(config: &Config) -> u16 {
    let longest = config.limits.times.max_keep_alive.0.as_secs();
    u16::try_from(longest).unwrap_or(u16::MAX)
}

/// Connections of one shard, and what each is offered.
fn clients(config: &Config, shards: u16) -> ClientLimits {
    let limits = &config.limits;
    ClientLimits {
        connections_max: limits
            .connections
            .max_connections
            .div_ceil(usize::from(shards)),
        packet_bytes_max: u32::try_from(limits.packets.max_packet_size.0).unwrap_or(u32::MAX),
        connect_bytes_max: u32::try_from(limits.packets.max_connect_size.0).unwrap_or(u32::MAX),
        receive_maximum: limits.packets.receive_maximum,
        topic_alias_maximum: limits.packets.topic_alias_maximum,
        connect_timeout: limits.times.connect_timeout.0,
        keep_alive_secs_max: keep_alive(config),
        idle_timeout_max: limits.times.idle_timeout.0,
        data_streams_max: config.quic.max_data_streams as usize,
    }
}

/// Sessions and their queues.
fn sessions(config: &Config) -> SessionLimits {
    let limits = &config.limits;
    SessionLimits {
        other_user: match config.auth.session_of_other_user {
            sections::OtherUser::Refuse => OtherUser::Refuse,
            sections::OtherUser::StartClean => OtherUser::StartClean,
        },
        session_expiry_secs_max: limits.times.max_session_expiry.as_secs_u32(),
        queue_messages_max: limits.queue.max_queued_messages,
        queue_bytes_max: limits.queue.max_queued_bytes.as_usize(),
        queue_held_max: limits.queue.max_queued_in_memory,
        queue_full: match limits.queue.queue_full {
            limits::QueueFull::Reject => QueueFull::Reject,
            limits::QueueFull::DropNewest => QueueFull::DropNewest,
        },
        subscriptions_max: limits.kept.max_subscriptions_per_session,
        overlaps_max: limits.kept.max_overlapping_subscriptions,
    }
}

/// How messages go to clients.
fn sending(config: &Config) -> Sending {
    let (limits, quic) = (&config.limits, &config.quic);
    Sending {
        inflight_max: limits.queue.max_inflight,
        send_backlog_bytes: limits.queue.max_send_backlog.as_usize(),
        qos0_backlog_bytes: limits.queue.max_qos0_backlog.as_usize(),
        delivery_streams_max: quic.delivery_streams as usize,
        datagrams: quic.datagrams,
        repeat_packets: quic.repeat_packets,
        priorities: priority::priorities(&config.rules.priority),
    }
}

/// What each listener asks; behind them, that of bridges, which have proved themselves
/// by where they come from.
fn policies(config: &Config) -> Vec<AuthPolicy> {
    let listeners = config.listener.iter();
    let own = AuthPolicy {
        anonymous: Anonymous::Never,
        passwords: false,
        certificates: true,
        tokens: false,
        ..AuthPolicy::default()
    };
    listeners
        .map(|listener| config.auth_policy(listener))
        .chain([own])
        .collect()
}

/// Sessions in which messages for other brokers wait.
fn bridges(config: &Config) -> Bridges {
    Bridges {
        listener: Some(config.bridge_listener()),
        sessions: bridge_sessions(config, &config.bridge),
    }
}

/// How much waits for each.
pub(crate) fn bridge_sessions(config: &Config, bridges: &[Bridge]) -> Vec<BridgeSession> {
    let session = |bridge: &Bridge| BridgeSession {
        client_id: bridge.local_id().into(),
        bounds: Bounds {
            messages_max: bridge.max_messages,
            bytes_max: config.limits.queue.max_queued_bytes.as_usize(),
            overflow: bridge.full.into(),
        },
    };
    bridges.iter().map(session).collect()
}

/// What clients may make all shards keep, on a machine with so much memory.
pub(crate) fn memory(config: &Config, machine: u64) -> Memory {
    let limits = &config.limits;
    let bytes = limits.memory.memory.of(machine);
    Memory {
        bytes,
        user_bytes_max: limits.memory.memory_per_user.of(bytes as u64),
        address_bytes_max: limits.memory.memory_per_address.of(bytes as u64),
        retained_bytes_max: limits.kept.max_retained_bytes.map(Size::as_usize),
        will_bytes_max: limits.kept.max_will_bytes.map(Size::as_usize),
        subscription_bytes_max: limits.kept.max_subscription_bytes_per_session.as_usize(),
        sessions_max: limits.kept.max_sessions,
        sessions_per_user_max: limits.kept.max_sessions_per_user,
        totals: Totals::default(),
    }
}

/// Limits of one shard's transports.
pub(crate) fn net(config: &Config) -> NetLimits {
    let (limits, quic) = (&config.limits, &config.quic);
    let window = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    let mut net = NetLimits::default();
    net.connections_max = limits.connections.max_connections.min(net.connections_max);
    net.connections_per_address_max = limits.connections.max_connections_per_address;
    net.handshakes_per_address_per_second = limits.connections.max_handshakes_per_address;
    net.handshakes_pending_max = limits.connections.max_pending_handshakes;
    net.unknown_bytes_max = limits.connections.max_unknown_bytes.as_usize();
    net.unknown_bytes_per_address_max = limits.connections.max_unknown_bytes_per_address.as_usize();
    // Messages alone never hold up what a client sends.
    let messages = limits
        .queue
        .max_send_backlog
        .max(limits.queue.max_qos0_backlog);
    net.unread_answers_bytes_max = net
        .unread_answers_bytes_max
        .max(messages.as_usize().saturating_mul(2));
    net.quic_retry = quic.retry.into();
    net.gather = quic.network.gather.0;
    net.quic_retry_pending = quic.retry_from_pending;
    net.quic_tokens = quic.tokens;
    net.quic_token_lifetime = quic.token_lifetime.0;
    net.handshake_timeout = limits.times.connect_timeout.0;
    net.first_bytes_timeout = limits.times.connect_timeout.0;
    net.quic_bidi_streams = quic.max_data_streams.saturating_add(1);
    net.quic_uni_streams = quic.max_data_streams;
    if !quic.datagrams {
        net.quic_datagram_receive_bytes = 0;
    }
    net.quic_receive_window = window(quic.receive_window);
    net.quic_stream_receive_window = window(quic.stream_receive_window);
    net.quic_send_window = window(quic.send_window);
    net
}

/// How a node takes part in its cluster.
#[cfg(feature = "cluster")]
pub(crate) fn bus(config: &Config, secret: &[u8], about: dunlin_bus::About) -> dunlin_bus::Config {
    let nats = &config.store.nats;
    let first = nats.urls.first().map_or("", String::as_str);
    let mut settings = dunlin_bus::Config {
        urls: nats.urls.clone(),
        tls_ca: nats.ca.clone(),
        patience: nats.patience.0,
        prefix: nats.prefix.clone(),
        replicas: nats.replicas,
        ..dunlin_bus::Config::new(first, secret, about)
    };
    let timing = &mut settings.timing;
    // A link that is silent for so long is lost a heartbeat later.
    timing.silence = config
        .cluster
        .link_silence
        .0
        .saturating_sub(timing.heartbeat);
    settings
}

/// Settings of a log in NATS; `None` when there is none. One log has the operations of all
/// shards, so that a machine with another number of them can go on with it.
#[cfg(feature = "cluster")]
pub(crate) fn log(config: &Config) -> Option<dunlin_store_nats::NatsConfig> {
    let nats = &config.store.nats;
    let first = nats.urls.first()?;
    Some(dunlin_store_nats::NatsConfig {
        urls: nats.urls.clone(),
        system_urls: nats.system_urls.clone(),
        unsynced_accepted: nats.accept_unsynced,
        own_only: nats.take == crate::config::nats::Take::Own,
        prefix: nats.prefix.clone(),
        replicas: nats.replicas,
        tls_ca: nats.ca.clone(),
        patience: nats.patience.0,
        lease: nats.lease.0,
        ..dunlin_store_nats::NatsConfig::new(first, config.store_path())
    })
}

/// Settings of the store; `None` when nothing is kept.
pub(crate) fn store(config: &Config) -> Option<StoreConfig> {
    let durability = match config.store.durability {
        sections::Durability::Fsync => Durability::Fsync,
        sections::Durability::Os => Durability::Os,
        sections::Durability::Memory => return None,
    };
    Some(StoreConfig {
        durability,
        commit_window: config.store.commit_window.0,
        ..StoreConfig::default()
    })
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::config::units::Span;

    #[test]
    fn a_link_is_lost_after_the_silence_that_is_configured() {
        let mut config = Config::default();
        let timing = |config: &Config| bus(config, b"secret", dunlin_bus::About::default()).timing;
        assert_eq!(timing(&config), dunlin_bus::Timing::default());
        config.cluster.link_silence = Span::secs(8);
        let timing = timing(&config);
        assert_eq!(timing.silence + timing.heartbeat, Duration::from_secs(8));
    }
}
