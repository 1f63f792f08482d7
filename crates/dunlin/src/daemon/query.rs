//! Questions to a shard about itself. They come as mail between batches, so that
//! an answer takes no lock on the shard's state.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use dunlin_base::{ConnId, Text};
use dunlin_broker::control::values::{Reply, Request};
use dunlin_net::ConnStats;

use crate::metrics::ShardReport;

/// A question, with the channel for its answer, or a request.
#[derive(Debug)]
pub(crate) enum Query {
    /// Counters of the shard.
    Report(Sender<ShardReport>),
    /// What an operator asks.
    Control {
        /// What.
        request: Request,
        /// Where the reply goes, when there is one.
        reply: Sender<Reply>,
    },
    /// Accept no connection any more. There is no answer.
    StopListening,
    /// Publish the page of this client on `$SYS`. There is no answer.
    Publish {
        /// The client's identifier.
        client_id: Text,
        /// The page.
        payload: String,
    },
    /// Publish on `$SYS` whether a bridge is connected. There is no answer.
    Bridge {
        /// Its name.
        name: Arc<str>,
        /// Whether it is.
        connected: bool,
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

impl Query {
    /// Whether the shard looks through tables for it.
    pub(crate) const fn is_long(&self) -> bool {
        matches!(
            self,
            Self::Report(_) | Self::Control { .. } | Self::Conns { .. }
        )
    }
}
