//! `$SYS/broker/…`: counters as messages, for people with only an MQTT client
//! at hand. Numbers are those of one shard, under its number.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{ConnId, Instant, Message, Text};
use dunlin_mqtt::server::delivery;

use crate::roll::ClientView;
use crate::shard::Shard;
use crate::source::Source;

/// Where the connection of a client is told. Of its identifier, what would be a
/// level or a wildcard is percent-encoded.
#[must_use]
pub fn client_topic(client_id: &str) -> String {
    let mut topic = String::from("$SYS/broker/clients/");
    for letter in client_id.chars() {
        match letter {
            '/' => topic.push_str("%2F"),
            '+' => topic.push_str("%2B"),
            '#' => topic.push_str("%23"),
            '%' => topic.push_str("%25"),
            _ => topic.push(letter),
        }
    }
    topic
}

impl Shard {
    /// As [`Shard::clients`], but of those whose [`client_topic`] somebody has
    /// subscribed to; and where to go on, when there may be more.
    #[must_use]
    pub fn watched_clients(
        &self,
        after: Option<ConnId>,
        limit: usize,
    ) -> (Vec<ClientView>, Option<ConnId>) {
        let mut views = self.clients(after, limit);
        let last = views.last().filter(|_| views.len() == limit);
        let next = last.and_then(|view| view.conn);
        views.retain(|view| {
            let mut watched = false;
            let topic = client_topic(&view.client_id);
            self.tree.matches(&topic, |_| watched = true);
            watched
        });
        (views, next)
    }

    /// Tells subscribers of the connection of a client.
    pub fn publish_client(&mut self, now: Instant, client_id: &str, payload: String) {
        self.now = now;
        let topic = client_topic(client_id);
        // Encoding may have made it too long for a topic.
        if dunlin_base::topic::validate_name(&topic).is_ok() {
            self.publish_here(&topic, payload);
        }
    }

    /// Publishes the counters. They are not retained: who wants them waits for
    /// the next round.
    pub(crate) fn publish_sys(&mut self) {
        let stats = self.stats;
        let census = self.census();
        let uptime = (self.now - self.started).as_secs();
        let values: [(&str, u64); 18] = [
            ("uptime_seconds", uptime),
            ("connections/current", census.conns as u64),
            ("connections/total", stats.connections),
            ("clients/accepted", stats.clients_accepted),
            ("clients/refused", stats.clients_refused),
            ("clients/keep_alive_timeouts", stats.keep_alive_timeouts),
            ("clients/take_overs", stats.take_overs),
            ("clients/migrations", stats.migrations),
            ("sessions/current", self.sessions.len() as u64),
            (
                "subscriptions/current",
                self.tree.subscription_count() as u64,
            ),
            ("retained/current", self.retained.len() as u64),
            ("messages/received", stats.messages_received()),
            ("messages/sent", stats.messages_sent()),
            ("messages/dropped/slow", stats.messages_dropped_slow),
            ("messages/dropped/full", stats.messages_dropped_full),
            ("messages/refused", stats.publishes_refused),
            ("bytes/received", stats.bytes_received),
            ("bytes/sent", stats.bytes_sent),
        ];
        for (name, value) in values {
            self.publish_sys_value(name, value);
        }
    }

    /// Publishes one counter, as a topic below that of this shard.
    pub fn publish_sys_value(&mut self, name: &str, value: u64) {
        let shard = self.config.shard.0;
        let topic: String = format!("$SYS/broker/shard/{shard}/{name}");
        self.publish_here(&topic, format!("{value}"));
    }

    fn publish_here(&mut self, topic: &str, payload: String) {
        let message = Arc::new(Message {
            topic: Text::from(topic),
            payload: Bytes::from(payload.into_bytes()),
            ..Message::default()
        });
        let view = delivery::view(&message, self.now);
        let mut source = Source::from_message(&message, &view, self.now);
        let token = self.token();
        self.dispatch(None, token, &mut source);
    }
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
        ] {
            let topic = client_topic(id);
            assert_eq!(topic.strip_prefix("$SYS/broker/clients/"), Some(level));
            assert!(dunlin_base::topic::validate_name(&topic).is_ok());
        }
    }
}
