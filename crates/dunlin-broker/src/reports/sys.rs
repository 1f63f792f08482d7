//! `$SYS/broker/…`: counters as messages, for people with only an MQTT client
//! at hand. Numbers are those of one shard, under its number.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use bytes::Bytes;
use dunlin_base::{Instant, Message, Text};

use crate::control::values::{ClientFilter, ClientView, Page, Place};
use crate::messages::publish;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::reports::census::Census;
use crate::reports::clients;

/// Levels below `clients/` that are figures, and no clients.
pub(crate) const CLIENTS: [&str; 6] = [
    "total",
    "connected",
    "disconnected",
    "maximum",
    "active",
    "inactive",
];

/// Topic of the state of a client's connection. Of its identifier, what would be a
/// level or a wildcard is percent-encoded, and where it is the name of a figure its first
/// letter.
#[must_use]
pub fn client_topic(client_id: &str) -> String {
    let mut topic = String::from("$SYS/broker/clients/");
    let is_figure = CLIENTS.contains(&client_id);
    for (at, letter) in client_id.chars().enumerate() {
        match letter {
            letter if is_figure && at == 0 => {
                topic.push_str(&format!("%{:02X}", u32::from(letter)));
            }
            '/' => topic.push_str("%2F"),
            '+' => topic.push_str("%2B"),
            '#' => topic.push_str("%23"),
            '%' => topic.push_str("%25"),
            _ => topic.push(letter),
        }
    }
    topic
}

/// As [`clients::clients`], of those whose [`client_topic`] has a subscriber.
pub(crate) fn watched_clients(own: &Owners, at: Place, limit: usize) -> Page<ClientView> {
    let mut page = clients::clients(own, &ClientFilter::default(), at, limit);
    let is_watched = |view: &ClientView| own.routing.is_wanted(&client_topic(&view.client_id));
    page.rows.retain(is_watched);
    page
}

/// Publishes the state of a client's connection to those who watch it.
pub(crate) fn publish_client(own: &mut Owners, client_id: &str, payload: String) {
    let topic = client_topic(client_id);
    // Encoding may have made it too long for a topic.
    if dunlin_base::topic::validate_name(&topic).is_ok() {
        publish_here(own, &topic, payload);
    }
}

/// Publishes whether a bridge is connected, for all who subscribe later too.
pub(crate) fn publish_bridge(own: &mut Owners, name: &str, connected: bool) {
    let message = Message {
        topic: Text::from(format!("$SYS/broker/bridge/{name}/state")),
        payload: Bytes::from_static(if connected { b"1" } else { b"0" }),
        retain: true,
        ..Message::default()
    };
    publish_message(own, message);
}

/// Publishes the counters. They are not retained: a new subscriber waits for
/// the next round.
pub(crate) fn publish_counters(own: &mut Owners, census: &Census, started: Instant) {
    let stats = own.stats;
    let uptime = (own.now - started).as_secs();
    let values: [(&str, u64); 18] = [
        ("uptime_seconds", uptime),
        ("connections/current", census.conns as u64),
        ("connections/total", stats.connections),
        ("clients/accepted", stats.clients_accepted),
        ("clients/refused", stats.clients_refused),
        ("clients/keep_alive_timeouts", stats.keep_alive_timeouts),
        ("clients/take_overs", stats.take_overs),
        ("clients/migrations", stats.migrations),
        ("sessions/current", own.sessions.len() as u64),
        ("subscriptions/current", own.routing.subscriptions() as u64),
        ("retained/current", own.routing.retained.len() as u64),
        ("messages/received", stats.messages_received()),
        ("messages/sent", stats.messages_sent()),
        ("messages/dropped/slow", stats.messages_dropped_slow),
        ("messages/dropped/full", stats.messages_dropped_full),
        ("messages/refused", stats.publishes_refused),
        ("bytes/received", stats.bytes_received),
        ("bytes/sent", stats.bytes_sent),
    ];
    for (name, value) in values {
        publish_value(own, name, value);
    }
}

/// Publishes one counter, as a topic below that of this shard.
pub(crate) fn publish_value(own: &mut Owners, name: &str, value: u64) {
    let shard = own.config.shard.0;
    let topic: String = format!("$SYS/broker/shard/{shard}/{name}");
    publish_here(own, &topic, format!("{value}"));
}

/// Publishes something of the whole broker.
pub(crate) fn publish_named(own: &mut Owners, name: &str, value: String) {
    publish_here(own, &format!("$SYS/broker/{name}"), value);
}

/// Publishes something about this broker, for those who have subscribed to it.
pub(crate) fn publish_here(own: &mut Owners, topic: &str, payload: String) {
    let message = Message {
        topic: Text::from(topic),
        payload: Bytes::from(payload.into_bytes()),
        ..Message::default()
    };
    publish_message(own, message);
}

fn publish_message(own: &mut Owners, message: Message) {
    let message = Arc::new(message);
    let mut source = Source::of(&message, own.now);
    let token = own.commits.token();
    publish::dispatch(own, None, token, &mut source, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_one_level_of_a_topic() {
        for (id, level) in [
            ("a", "a"),
            ("a/b", "a%2Fb"),
            ("+#%", "%2B%23%25"),
            ("\u{e4}", "\u{e4}"),
            ("total", "%74otal"),
            ("totals", "totals"),
        ] {
            let topic = client_topic(id);
            assert_eq!(topic.strip_prefix("$SYS/broker/clients/"), Some(level));
            assert!(dunlin_base::topic::validate_name(&topic).is_ok());
        }
    }
}
