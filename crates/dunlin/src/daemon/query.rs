//! Questions to a shard about itself, and its answers. They come as mail
//! between batches, so that an answer takes no lock on the shard's state.

use std::sync::mpsc::Sender;

use dunlin_base::{ConnId, Text};
use dunlin_broker::ClientView;
use dunlin_net::ConnStats;

use super::worker::Worker;
use crate::metrics::{SAMPLES_MAX, ShardReport};

/// A question, with the channel for its answer, or a request.
#[derive(Debug)]
pub(crate) enum Query {
    /// Counters of the shard.
    Report(Sender<ShardReport>),
    /// Connected clients.
    Clients {
        /// Only connections after this one.
        after: Option<ConnId>,
        /// At most this many.
        limit: usize,
        /// Where the answer goes.
        reply: Sender<Vec<ClientView>>,
    },
    /// One client.
    Client {
        /// Its identifier.
        client_id: Text,
        /// Where the answer goes.
        reply: Sender<Option<ClientView>>,
    },
    /// Clients to whose pages on `$SYS` a session has subscribed.
    Watched {
        /// Only connections after this one.
        after: Option<ConnId>,
        /// At most this many are examined.
        limit: usize,
        /// Where the answer goes: the clients, and where to go on.
        reply: Sender<(Vec<ClientView>, Option<ConnId>)>,
    },
    /// Publish the page of this client on `$SYS`. There is no answer.
    Publish {
        /// The client's identifier.
        client_id: Text,
        /// The page.
        payload: String,
    },
    /// The client of this connection, whose socket is here, is known: decide
    /// whether the connection is logged. There is no answer.
    Name {
        /// The connection.
        conn: ConnId,
        /// Its client's identifier.
        client_id: Text,
    },
    /// Log this connection, whose socket is here, from now on.
    Log(ConnId),
    /// Statistics of these connections, whose sockets are here.
    Conns {
        /// The connections.
        conns: Vec<ConnId>,
        /// Where the answer goes.
        reply: Sender<Vec<(ConnId, ConnStats)>>,
    },
}

impl Worker {
    /// Answers a question.
    pub(crate) fn query(&mut self, query: Query) {
        // The asker may have given up waiting.
        let _received = match query {
            Query::Report(reply) => reply.send(self.report()).is_ok(),
            Query::Clients {
                after,
                limit,
                reply,
            } => reply.send(self.shard.clients(after, limit)).is_ok(),
            Query::Client { client_id, reply } => reply.send(self.shard.client(&client_id)).is_ok(),
            Query::Conns { conns, reply } => {
                let net = &mut self.net;
                let found = conns
                    .into_iter()
                    .filter_map(|conn| Some((conn, net.conn(conn).stats()?)));
                reply.send(found.collect()).is_ok()
            }
            Query::Watched {
                after,
                limit,
                reply,
            } => reply.send(self.shard.watched_clients(after, limit)).is_ok(),
            Query::Publish { client_id, payload } => {
                let now = self.clock.now();
                self.shard.publish_client(now, &client_id, payload);
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
        let address = self.shards.get(usize::from(self.id.0));
        ShardReport {
            shard: self.id.0,
            stats: *self.shard.stats(),
            census: self.shard.census(),
            counters: *self.net.counters(),
            held: self.net.held(),
            handshakes_pending: self.net.handshakes_pending(),
            inbox_bytes: address.map_or(0, |address| address.waiting()),
            paths: self.paths.clone(),
        }
    }
}
