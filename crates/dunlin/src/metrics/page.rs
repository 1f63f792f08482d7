//! Connections as JSON: what the session's shard and the socket's shard know of
//! a client, in one object.

use dunlin_broker::ClientView;
use dunlin_net::{ConnStats, QuicStats};
use serde_json::{Value, json};

/// Media type of the pages.
pub(crate) const CONTENT_TYPE: &str = "application/json";

/// One client.
pub(crate) fn client(view: &ClientView, stats: Option<&ConnStats>) -> Value {
    json!({
        "client_id": &*view.client_id,
        "user": view.user.as_deref(),
        "connection": view.conn.map(|conn| conn.to_string()),
        "address": address(view, stats),
        "transport": view.peer.as_ref().map(|peer| peer.transport.name()),
        "listener": view.peer.as_ref().map(|peer| peer.listener),
        "certificate": view.peer.as_ref().and_then(|peer| peer.identity.as_deref()),
        "protocol": if view.version == 0 { "amqp" } else { "mqtt" },
        "mqtt_version": mqtt_version(view.version),
        "links": view.links,
        "session_expiry_seconds": (view.expiry_secs < u32::MAX).then_some(view.expiry_secs),
        "subscriptions": view.subscriptions,
        "queued_messages": view.queued,
        "queued_bytes": view.queued_bytes,
        "inflight_messages": view.in_flight,
        "receiving_messages": view.receiving,
        "backlog_bytes": view.backlog_bytes,
        "alpn": stats.and_then(|s| s.protocol.as_deref()).map(String::from_utf8_lossy),
        "cipher_suite": stats.and_then(|s| s.cipher_suite),
        "key_exchange": stats.and_then(|s| s.key_exchange),
        "resumed": stats.and_then(|s| s.resumed),
        "quic": stats.and_then(|s| s.quic.as_ref()).map(quic),
    })
}

/// The version of MQTT, if it is that.
const fn mqtt_version(version: u8) -> Option<&'static str> {
    match version {
        0 => None,
        4 => Some("3.1.1"),
        _ => Some("5.0"),
    }
}

/// The address now, or else the one it came from.
fn address(view: &ClientView, stats: Option<&ConnStats>) -> Option<String> {
    let first = || view.peer.as_ref().map(|peer| peer.addr);
    let addr = stats.map(|stats| stats.addr).or_else(first);
    addr.map(|addr| addr.to_string())
}

fn quic(stats: &QuicStats) -> Value {
    let values = quic_values(stats);
    values
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// What is known of a QUIC connection, by name; times in microseconds.
pub(crate) fn quic_values(stats: &QuicStats) -> [(&'static str, u64); 22] {
    let micros = |time: core::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    [
        ("rtt_us", micros(stats.rtt)),
        ("rtt_min_us", micros(stats.rtt_min)),
        ("congestion_window_bytes", stats.congestion_window),
        ("congestion_events", stats.congestion_events),
        ("packets_sent", stats.packets_out),
        ("packets_lost", stats.lost_packets),
        ("bytes_lost", stats.lost_bytes),
        ("mtu_bytes", u64::from(stats.mtu)),
        ("black_holes", stats.black_holes),
        ("udp_datagrams_sent", stats.udp_out),
        ("udp_datagrams_received", stats.udp_in),
        ("udp_bytes_sent", stats.udp_bytes_out),
        ("udp_bytes_received", stats.udp_bytes_in),
        ("ecn_capable", u64::from(stats.ecn)),
        ("ecn_marked_received", stats.ecn_marked_in),
        ("datagram_frames_sent", stats.datagrams_out),
        ("datagram_frames_received", stats.datagrams_in),
        ("streams_peer_bidirectional", stats.streams_peer.0),
        ("streams_peer_unidirectional", stats.streams_peer.1),
        ("streams_sending", stats.streams_sending),
        ("migrations", stats.migrations),
        ("early_data", u64::from(stats.early_data)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_known_of_a_connection_is_in_the_book() {
        let book = include_str!("../../../../docs/book/src/observability.md");
        for (name, _) in quic_values(&QuicStats::default()) {
            assert!(book.contains(&format!("`{name}`")), "{name}");
        }
    }
}
