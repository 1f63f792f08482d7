//! What a shard answers when it is asked about itself.

use dunlin_broker::Input;

use super::query::Query;
use super::worker::Worker;
use crate::metrics::{SAMPLES_MAX, ShardReport};

impl Worker {
    /// Answers a question.
    pub(crate) fn query(&mut self, query: Query) {
        // The asker may have given up waiting.
        let _received = match query {
            Query::Report(reply) => reply.send(self.report()).is_ok(),
            Query::Control { request, reply } => {
                let (now, number) = (self.clock.now(), self.asked.note(reply));
                let input = Input::Control { number, request };
                self.shard.handle(now, input);
                true
            }
            Query::Conns { conns, reply } => {
                let net = &mut self.net;
                let found = conns
                    .into_iter()
                    .filter_map(|conn| Some((conn, net.conn(conn).stats()?)));
                reply.send(found.collect()).is_ok()
            }
            Query::StopListening => {
                self.net.stop_listening();
                true
            }
            Query::Publish { client_id, payload } => {
                let now = self.clock.now();
                self.shard.publish_client(now, &client_id, payload);
                true
            }
            Query::Bridge { name, connected } => {
                let now = self.clock.now();
                self.shard.publish_bridge(now, &name, connected);
                true
            }
            Query::Name { conn, client_id } => {
                self.net.conn(conn).name_log(&client_id);
                true
            }
            Query::Log(conn) => {
                self.net.conn(conn).begin_log();
                true
            }
        };
    }

    fn report(&mut self) -> ShardReport {
        let paths = &mut self.paths;
        self.net
            .sample_quic(SAMPLES_MAX, &mut |stats| paths.observe(stats));
        let address = self.shards.get(self.id);
        let census = self.shard.figures(self.clock.now());
        ShardReport {
            shard: self.id.0,
            stats: *self.shard.stats(),
            census,
            memory: self.shard.memory().collect(),
            counters: *self.net.counters(),
            held: self.net.held(),
            handshakes_pending: self.net.handshakes_pending(),
            inbox_bytes: address.map_or(0, |address| address.waiting()),
            paths: self.paths.clone(),
        }
    }
}
