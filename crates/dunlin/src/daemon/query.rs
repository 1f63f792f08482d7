//! Questions to a shard about itself. They come as mail between batches, so that
//! an answer takes no lock on the shard's state.

use std::sync::mpsc::Sender;

use dunlin_base::{ConnId, Text};
use dunlin_broker::ClientView;
use dunlin_net::ConnStats;

use crate::metrics::ShardReport;

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
