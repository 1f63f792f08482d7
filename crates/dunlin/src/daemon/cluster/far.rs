//! One shard's ways to shards of other nodes: what it has for them during a turn of its
//! loop goes in one batch for each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_base::{Instant, ShardId};
use dunlin_broker::{BusMessage, Membership, bus};
use dunlin_bus::{Peer, SendError};

use super::frame::{Run, begin_batch};
use super::{Nodes, node_of, shards_of};
use crate::metrics::Readiness;

/// Bytes of a batch from which on the next message begins another one.
const BATCH_BYTES: usize = 1 << 20;

/// Lets the other node send more when it is dropped.
pub(crate) type Receipt = dunlin_bus::Batch;

/// A node whose shards have joined.
#[derive(Clone, Debug)]
pub(crate) struct Linked {
    pub(super) node: u16,
    pub(super) run: Run,
    pub(super) peer: Peer,
}

/// What a shard is to know about those of other nodes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// These shards are there: those of the nodes, and others of this process.
    Joined {
        nodes: Vec<Linked>,
        siblings: Vec<ShardId>,
    },
    /// The shards of a node's run are gone.
    Gone { node: u16, run: Run },
}

#[derive(Debug)]
struct Way {
    peer: Peer,
    run: u64,
    batch: Vec<u8>,
}

/// See the head of the file. Of a broker that is alone, it is empty.
#[derive(Debug, Default)]
pub(crate) struct Far {
    nodes: Option<Arc<Nodes>>,
    ways: BTreeMap<u16, Way>,
    /// The shard is of an edge, and has not heard everything yet that it has to know: who is to
    /// learn of it when it has.
    waits: Option<Arc<Readiness>>,
}

impl Far {
    /// Of a shard of a node; `waits`: it serves when it has heard everything, which is said
    /// there.
    pub(crate) fn new(nodes: Option<Arc<Nodes>>, waits: Option<Arc<Readiness>>) -> Self {
        if let Some(ready) = &waits {
            ready.wait_for_shard();
        }
        Self {
            nodes,
            ways: BTreeMap::new(),
            waits,
        }
    }

    /// The shard has heard everything.
    pub(crate) fn serve(&mut self) {
        if let Some(ready) = self.waits.take() {
            ready.shard_serves();
        }
    }

    /// Whether reading from clients has to wait.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waits.is_some() || self.ways.values().any(|way| way.peer.is_full())
    }

    /// Shards of other nodes come and go: what the shard is to be given.
    pub(crate) fn change(&mut self, change: Change) -> Vec<Membership> {
        match change {
            Change::Joined { nodes, siblings } => {
                let mut joined = siblings;
                for Linked { node, run, peer } in nodes {
                    joined.extend(shards_of(node, run.shards));
                    let way = Way {
                        peer,
                        run: run.number,
                        batch: Vec::new(),
                    };
                    self.ways.insert(node, way);
                }
                vec![Membership::Joined(joined)]
            }
            Change::Gone { node, run } => {
                self.ways.remove(&node);
                shards_of(node, run.shards).map(Membership::Gone).collect()
            }
        }
    }

    /// Adds a message to the batch for the node of a shard.
    pub(crate) fn push(&mut self, from: ShardId, to: ShardId, message: &BusMessage, now: Instant) {
        let Some(way) = self.ways.get_mut(&node_of(to)) else {
            // It is gone, and the shard is about to hear of it.
            return;
        };
        if way.batch.len() > BATCH_BYTES {
            send(self.nodes.as_deref(), way);
        }
        if way.batch.is_empty() {
            begin_batch(way.run, &mut way.batch);
            bus::begin(now, &mut way.batch);
        }
        if let Err(error) = bus::encode(from, to, message, &mut way.batch) {
            broken(self.nodes.as_deref(), &error.to_string());
        }
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&mut self) {
        for way in self.ways.values_mut() {
            if !way.batch.is_empty() {
                send(self.nodes.as_deref(), way);
            }
        }
    }
}

fn send(nodes: Option<&Nodes>, way: &mut Way) {
    let batch = core::mem::take(&mut way.batch);
    match way.peer.send(batch.into()) {
        // That the link is lost is heard soon.
        Ok(()) | Err(SendError::Lost) => {}
        Err(error) => broken(nodes, &error.to_string()),
    }
}

/// Something that is for another node cannot be sent, so that nothing holds any more that
/// this node and the others know of each other.
fn broken(nodes: Option<&Nodes>, why: &str) {
    if let Some(nodes) = nodes {
        nodes.break_off(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_of_an_edge_reads_from_clients_when_it_has_heard_everything() {
        let ready = Arc::new(Readiness::default());
        let mut edge = Far::new(None, Some(Arc::clone(&ready)));
        assert!(edge.is_held_up() && ready.check().is_err());
        for _ in 0..2 {
            edge.serve();
            assert!(!edge.is_held_up());
            assert_eq!(ready.check(), Ok(()));
        }
        assert!(!Far::new(None, None).is_held_up());
    }
}
