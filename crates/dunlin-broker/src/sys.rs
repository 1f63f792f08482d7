//! `$SYS/broker/…`: counters as messages, for people with only an MQTT client
//! at hand. Numbers are those of one shard, under its number.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use bytes::Bytes;
use dunlin_base::{Message, Text};
use dunlin_mqtt::server::delivery;

use crate::shard::Shard;
use crate::source::Source;

impl Shard {
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
        let shard = self.config.shard.0;
        for (name, value) in values {
            let topic: String = format!("$SYS/broker/shard/{shard}/{name}");
            self.publish_here(&topic, format!("{value}"));
        }
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
