//! One shard's ways to shards of other nodes: what it has for them during a turn of its
//! loop goes in one batch for each node.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_base::{Instant, ShardId};
use dunlin_broker::{BusMessage, Membership, bus};
use dunlin_bus::limits::NODES_MAX;
use dunlin_bus::{Peer, SendError};
use dunlin_net::{Answer, ForeignDatagram};

use super::frame::{Run, begin_batch};
use super::{Nodes, has_spare_room, node_of, relay, shards_of};
use crate::metrics::Readiness;

/// Bytes of a batch from which on the next message begins another one.
const BATCH_BYTES: usize = 1 << 20;

/// How long datagrams come for a node that was never seen, before it counts as gone: one that
/// has just joined is soon heard of.
const UNSEEN_WAIT: Duration = Duration::from_secs(5);

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
    gathered: Gathered,
    relayed: relay::Gathered,
}

/// What is for a run of a node and was not handed over. What several shards there are to have
/// goes once.
#[derive(Debug)]
struct Gathered {
    run: u64,
    batch: Vec<u8>,
    recent: bus::Recent,
}

impl Gathered {
    const fn new(run: u64) -> Self {
        Self {
            run,
            batch: Vec::new(),
            recent: bus::Recent::new(0),
        }
    }

    fn begin(&mut self, now: Instant) {
        begin_batch(self.run, &mut self.batch);
        self.recent = bus::Recent::new(self.batch.len());
        bus::begin(now, &mut self.batch);
    }

    /// Adds a message; a batch that is full, and is to be handed over before.
    fn push(
        &mut self,
        (from, to): (ShardId, ShardId),
        message: &BusMessage,
        now: Instant,
    ) -> Result<Option<Vec<u8>>, bus::EncodeError> {
        if self.batch.is_empty() {
            self.begin(now);
        }
        let before = self.batch.len();
        let added = self.recent.encode(from, to, message, &mut self.batch)?;
        // A reference goes with what it refers to.
        if before <= BATCH_BYTES || added == bus::Added::Reference {
            return Ok(None);
        }
        self.batch.truncate(before);
        let full = core::mem::take(&mut self.batch);
        self.begin(now);
        self.recent.encode(from, to, message, &mut self.batch)?;
        Ok(Some(full))
    }
}

/// Since when datagrams come for nodes that were never seen: at most one entry for each number
/// that a node may have.
#[derive(Debug, Default)]
struct Unseen(BTreeMap<u16, Instant>);

impl Unseen {
    /// Whether a node has been waited for long enough.
    fn is_over(&mut self, node: u16, now: Instant) -> bool {
        if !(1..=NODES_MAX).contains(&node) {
            return true;
        }
        let since = *self.0.entry(node).or_insert(now);
        now - since >= UNSEEN_WAIT
    }

    fn forget(&mut self, node: u16) {
        self.0.remove(&node);
    }
}

/// See the head of the file. Of a broker that is alone, it is empty.
#[derive(Debug, Default)]
pub(crate) struct Far {
    nodes: Option<Arc<Nodes>>,
    ways: BTreeMap<u16, Way>,
    unseen: Unseen,
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
            unseen: Unseen::default(),
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
                        gathered: Gathered::new(run.number),
                        relayed: relay::Gathered::new(run.number),
                    };
                    self.ways.insert(node, way);
                    self.unseen.forget(node);
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
        match way.gathered.push((from, to), message, now) {
            Ok(None) => {}
            Ok(Some(full)) => send(self.nodes.as_deref(), &way.peer, full),
            Err(error) => broken(self.nodes.as_deref(), &error.to_string()),
        }
    }

    /// Relays a datagram to the node whose connection it is for. `Some`: that node is no
    /// member of the cluster, and its connections are gone.
    pub(crate) fn relay(
        &mut self,
        from: ShardId,
        to: ShardId,
        datagram: ForeignDatagram,
        now: Instant,
    ) -> Option<ForeignDatagram> {
        let node = node_of(to);
        let nodes = self.nodes.as_deref()?;
        match self.ways.get_mut(&node) {
            Some(way) => {
                let way_of = (from, to);
                // What passes is counted when it is handed over.
                if !has_spare_room(&way.peer) || !way.relayed.push_datagram(way_of, &datagram, now)
                {
                    nodes.relayed.note(false, 1);
                }
            }
            // It may be back soon, or begins to serve.
            None if nodes.present.has(node) => {
                self.unseen.forget(node);
                nodes.relayed.note(false, 1);
            }
            None if !nodes.left.has(node) && !self.unseen.is_over(node, now) => {
                nodes.relayed.note(false, 1);
            }
            None => {
                nodes.relayed.note_gone();
                return Some(datagram);
            }
        }
        None
    }

    /// Has another node send what is for a client that had sent to it.
    pub(crate) fn answer(&mut self, from: ShardId, to: ShardId, answer: &Answer, now: Instant) {
        let way = self.ways.get_mut(&node_of(to));
        let mut ready = way.filter(|way| has_spare_room(&way.peer));
        let is_added = ready
            .as_mut()
            .is_some_and(|way| way.relayed.push_answer((from, to), answer, now));
        if let Some(nodes) = self.nodes.as_ref().filter(|_| !is_added) {
            nodes.relayed.note(false, 1);
        }
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&mut self) {
        for way in self.ways.values_mut() {
            if let Some((relayed, entries)) = way.relayed.take() {
                // Other shards may have had something for it meanwhile.
                let is_passed = has_spare_room(&way.peer);
                if is_passed {
                    send(self.nodes.as_deref(), &way.peer, relayed);
                }
                if let Some(nodes) = &self.nodes {
                    nodes.relayed.note(is_passed, entries);
                }
            }
            let batch = core::mem::take(&mut way.gathered.batch);
            if !batch.is_empty() {
                send(self.nodes.as_deref(), &way.peer, batch);
            }
        }
    }
}

fn send(nodes: Option<&Nodes>, peer: &Peer, batch: Vec<u8>) {
    match peer.send(batch.into()) {
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
    use dunlin_net::NetKeys;

    use super::super::frame::Frame;
    use super::*;

    /// Bytes that go for a message of 3 MiB to so many shards of a node, and all that is read
    /// of them.
    fn bytes_to(shards: u16) -> (usize, Vec<ShardId>) {
        let mut gathered = Gathered::new(7);
        let (now, from) = (Instant::from_micros(1), ShardId(64));
        let message = || BusMessage::Messages(vec![9; 3 << 20]);
        let mut batches = Vec::new();
        for to in shards_of(2, shards) {
            let full = gathered.push((from, to), &message(), now);
            batches.extend(full.expect("within limits"));
        }
        batches.push(gathered.batch);
        let mut found = Vec::new();
        for batch in &batches {
            let Some(Frame::Batch { run: 7, bytes }) = Frame::decode(&batch.clone().into()) else {
                panic!("no batch");
            };
            for read in bus::Batch::open(bytes, now).expect("a batch") {
                let read = read.expect("readable");
                assert!(matches!(&read.message, BusMessage::Messages(it) if it.len() == 3 << 20));
                found.push(read.to);
            }
        }
        (batches.iter().map(Vec::len).sum(), found)
    }

    /// A count of bytes; before, each shard had its own.
    #[test]
    fn a_message_goes_to_a_node_once() {
        let (one, _) = bytes_to(1);
        assert!(one > 3 << 20);
        let (four, found) = bytes_to(4);
        assert_eq!(four, one + 3 * 13);
        assert_eq!(found, shards_of(2, 4).collect::<Vec<_>>());
    }

    #[test]
    fn a_node_that_was_never_seen_is_waited_for() {
        let mut unseen = Unseen::default();
        let begin = Instant::from_micros(7);
        assert!(!unseen.is_over(3, begin));
        let early = begin + (UNSEEN_WAIT - Duration::from_micros(1));
        assert!(!unseen.is_over(3, early));
        assert!(unseen.is_over(3, begin + UNSEEN_WAIT));
        assert!(!unseen.is_over(4, begin + UNSEEN_WAIT), "each by itself");
        unseen.forget(3);
        assert!(!unseen.is_over(3, begin + 2 * UNSEEN_WAIT));
        for node in 0..=u16::MAX {
            unseen.is_over(node, begin);
        }
        assert_eq!(unseen.0.len(), usize::from(NODES_MAX));
    }

    #[test]
    fn a_node_that_left_is_gone_until_it_is_back() {
        let nodes = Nodes::new(NetKeys::of_cluster(b"secret"), || {});
        let left = |number: u16| nodes.left.has(number);
        assert!(!left(3));
        nodes.note_left(3);
        assert!(left(3) && !nodes.present.has(3));
        nodes.note_joined(3);
        assert!(!left(3) && nodes.present.has(3));
    }

    #[test]
    fn what_differs_goes_in_batches_of_bounded_length() {
        let mut gathered = Gathered::new(7);
        let (now, way) = (Instant::from_micros(1), (ShardId(64), ShardId(128)));
        let mut full = 0;
        for number in 0..20 {
            let message = BusMessage::Messages(vec![number; 300_000]);
            let batch = gathered.push(way, &message, now).expect("within limits");
            full += usize::from(batch.is_some());
            assert!(gathered.batch.len() < BATCH_BYTES + 400_000);
        }
        assert_eq!(full, 4);
    }

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
