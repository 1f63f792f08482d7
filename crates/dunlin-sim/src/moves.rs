//! Connections that move from one shard to another, as those over TCP do at
//! CONNECT: under which id each side knows them.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_base::ConnId;
use dunlin_base::transport::Peer;

/// Ids of connections at their clients and at their shards.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    peers: BTreeMap<ConnId, Peer>,
    /// On their way to another shard.
    moving: BTreeSet<ConnId>,
    /// Ids at the shard and at the client.
    moved: Vec<(ConnId, ConnId)>,
}

impl Moves {
    pub(crate) fn open(&mut self, conn: ConnId, peer: Peer) {
        self.peers.insert(conn, peer);
    }

    /// The id of a connection at its shard.
    pub(crate) fn at_shard(&self, conn: ConnId) -> ConnId {
        let mut latest = self.moved.iter().rev();
        let moved = latest.find(|(_, client)| *client == conn);
        moved.map_or(conn, |(shard, _)| *shard)
    }

    /// The id of a connection at its client.
    pub(crate) fn at_client(&self, conn: ConnId) -> ConnId {
        let moved = self.moved.iter().find(|(shard, _)| *shard == conn);
        moved.map_or(conn, |(_, client)| *client)
    }

    pub(crate) fn leave(&mut self, conn: ConnId) {
        self.moving.insert(conn);
    }

    /// A connection arrives under a new id, unless it was lost on its way.
    pub(crate) fn arrive(&mut self, conn: ConnId, at_shard: ConnId) -> Option<Peer> {
        let moving = self.moving.remove(&conn);
        let peer = self.peers.get(&conn).filter(|_| moving).cloned()?;
        self.moved.push((at_shard, conn));
        Some(peer)
    }

    /// A connection is lost: whether that is on its way to another shard.
    pub(crate) fn lose(&mut self, conn: ConnId) -> bool {
        self.moving.remove(&conn)
    }

    pub(crate) fn lose_all(&mut self) {
        self.moving.clear();
    }
}
