//! Questions to a shard about itself, and its answers. They come as mail
//! between batches, so that looking takes no lock.

use std::sync::mpsc::Sender;

use dunlin_base::{ConnId, Text};
use dunlin_broker::ClientView;
use dunlin_net::ConnStats;

use super::worker::Worker;
use crate::metrics::{SAMPLES_MAX, ShardReport};

/// A question, with where its answer goes. Who asked may have gone meanwhile.
#[derive(Debug)]
pub(crate) enum Look {
    /// How is the shard?
    Report(Sender<ShardReport>),
    /// Which clients are connected?
    Clients {
        /// Only connections after this one.
        after: Option<ConnId>,
        /// So many at most.
        limit: usize,
        /// Where the answer goes.
        reply: Sender<Vec<ClientView>>,
    },
    /// Who is this client?
    Client {
        /// Its identifier.
        client_id: Text,
        /// Where the answer goes.
        reply: Sender<Option<ClientView>>,
    },
    /// Which clients does somebody watch on `$SYS`?
    Watched {
        /// Only connections after this one.
        after: Option<ConnId>,
        /// So many are looked at.
        limit: usize,
        /// Where the answer goes, and where to go on.
        reply: Sender<(Vec<ClientView>, Option<ConnId>)>,
    },
    /// Tell those who watch this client. Nothing is answered.
    Tell {
        /// Which.
        client_id: Text,
        /// What they are told.
        payload: String,
    },
    /// Whose is this connection, whose socket is here? Nothing is answered: it
    /// decides whether the connection is logged.
    Name {
        /// Which.
        conn: ConnId,
        /// Its client.
        client_id: Text,
    },
    /// Log this connection, whose socket is here, from now on.
    Log(ConnId),
    /// How are these connections, whose sockets are here?
    Conns {
        /// Which.
        conns: Vec<ConnId>,
        /// Where the answer goes.
        reply: Sender<Vec<(ConnId, ConnStats)>>,
    },
}

impl Worker {
    /// Answers a question.
    pub(crate) fn look(&mut self, look: Look) {
        // Nobody may be there any more to hear an answer.
        let _heard = match look {
            Look::Report(reply) => reply.send(self.report()).is_ok(),
            Look::Clients {
                after,
                limit,
                reply,
            } => reply.send(self.shard.clients(after, limit)).is_ok(),
            Look::Client { client_id, reply } => reply.send(self.shard.client(&client_id)).is_ok(),
            Look::Conns { conns, reply } => {
                let net = &mut self.net;
                let found = conns
                    .into_iter()
                    .filter_map(|conn| Some((conn, net.stats(conn)?)));
                reply.send(found.collect()).is_ok()
            }
            Look::Watched {
                after,
                limit,
                reply,
            } => reply.send(self.shard.watched_clients(after, limit)).is_ok(),
            Look::Tell { client_id, payload } => {
                let now = self.clock.now();
                self.shard.publish_client(now, &client_id, payload);
                true
            }
            Look::Name { conn, client_id } => {
                self.net.name_log(conn, &client_id);
                true
            }
            Look::Log(conn) => {
                self.net.log_conn(conn);
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
