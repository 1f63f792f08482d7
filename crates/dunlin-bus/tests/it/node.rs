//! A member of the tests: what it is given, in order, with the rules of every link held on
//! the way.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use bytes::{Buf as _, BufMut as _, Bytes};
use dunlin_bus::{About, Batch, Bus, Config, Encoding, Event, Incarnation, LinkId, NodeId, Peer};

use crate::server::WAIT;

pub(crate) const SECRET: &[u8] = b"a secret of sixteen";

/// Times that no busy machine exceeds.
pub(crate) fn config(url: &str, name: &str) -> Config {
    let about = About {
        name: name.to_owned(),
        shards: 2,
        version: "0.1.0".to_owned(),
        encoding: Encoding {
            version: 1,
            least: 1,
            oldest: 1,
        },
        addresses: vec![format!("mqtt://{name}")],
        since: 1,
    };
    let mut config = Config::new(url, SECRET, about);
    config.timing.ttl = Duration::from_secs(60);
    config.timing.evict_after = Duration::from_secs(60);
    config.timing.silence = Duration::from_secs(30);
    config
}

/// A member, and what it knows.
pub(crate) struct Node {
    pub(crate) bus: Bus,
    events: Receiver<Event>,
    /// Batches are not dropped, as by a consumer that is slow.
    pub(crate) keeps: bool,
    pub(crate) kept: Vec<Batch>,
    pub(crate) members: BTreeMap<NodeId, Incarnation>,
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    /// By link: how many batches were handed over.
    sent: BTreeMap<LinkId, u64>,
    /// By link: how many came.
    pub(crate) received: BTreeMap<LinkId, u64>,
}

impl Node {
    pub(crate) fn join(config: Config) -> Self {
        let (to, events) = channel();
        let bus = Bus::join(config, move |event| {
            // A node that is dropped wants nothing.
            let _ = to.send(event);
        });
        Self {
            bus: bus.expect("joins"),
            events,
            keeps: false,
            kept: Vec::new(),
            members: BTreeMap::new(),
            peers: BTreeMap::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        self.bus.member().node
    }

    /// Hands a batch of about so many bytes over; whether there is a link.
    pub(crate) fn send(&mut self, to: NodeId, bytes: usize) -> bool {
        let Some(peer) = self.peers.get(&to) else {
            return false;
        };
        let number = self.sent.entry(peer.id()).or_default();
        let mut batch = Vec::with_capacity(16 + bytes);
        batch.put_u64(peer.id().number);
        batch.put_u64(*number);
        batch.resize(16 + bytes, *number as u8);
        let sent = peer.send(Bytes::from(batch)).is_ok();
        *number += u64::from(sent);
        sent
    }

    /// Takes what came for a moment.
    pub(crate) fn look(&mut self, wait: Duration) -> Option<Event> {
        let event = self.events.recv_timeout(wait).ok()?;
        match &event {
            Event::Joined(member) => {
                let before = self.members.insert(member.node, member.incarnation);
                assert_eq!(before, None, "joined twice");
            }
            Event::Left { node, incarnation } => {
                assert_eq!(self.members.remove(node), Some(*incarnation));
                assert!(!self.peers.contains_key(node), "its link was lost before");
            }
            Event::Linked(peer) => {
                let member = self.members.get(&peer.id().node);
                assert_eq!(member, Some(&peer.id().incarnation));
                let before = self.peers.insert(peer.id().node, peer.clone());
                assert!(before.is_none(), "linked twice");
            }
            Event::Lost { link, .. } => {
                let peer = self.peers.remove(&link.node).expect("lost once");
                assert_eq!(peer.id(), *link);
                assert!(peer.send(Bytes::new()).is_err());
            }
            Event::Batch(batch) => self.batch(batch),
            Event::Expelled(_) => assert!(self.peers.is_empty(), "all links were lost before"),
            _ => {}
        }
        Some(event)
    }

    fn batch(&mut self, batch: &Batch) {
        let peer = self.peers.get(&batch.from().node).expect("a link");
        assert_eq!(batch.from(), peer.id(), "of the link that there is");
        let number = self.received.entry(batch.from()).or_default();
        let mut bytes = &batch.bytes()[..];
        assert_eq!(
            bytes.get_u64(),
            batch.from().number,
            "sent on the same link"
        );
        assert_eq!(bytes.get_u64(), *number, "in order, exactly once");
        assert!(bytes.iter().all(|byte| *byte == *number as u8));
        *number += 1;
        if self.keeps {
            self.kept.push(batch.clone());
        }
    }

    /// Until something came that is wanted.
    pub(crate) fn wait<T>(&mut self, mut wanted: impl FnMut(&Self, &Event) -> Option<T>) -> T {
        let until = Instant::now() + WAIT;
        loop {
            if let Some(event) = self.look(Duration::from_millis(100))
                && let Some(found) = wanted(self, &event)
            {
                return found;
            }
            assert!(Instant::now() < until, "it does not come");
        }
    }

    /// Until it is linked to a node.
    pub(crate) fn linked_to(&mut self, node: NodeId) {
        if !self.peers.contains_key(&node) {
            self.wait(|own, _| own.peers.contains_key(&node).then_some(()));
        }
    }

    /// Until so many batches came from a node over the link that there is.
    pub(crate) fn received_from(&mut self, node: NodeId, batches: u64) {
        let count = |own: &Self| {
            let peer = own.peers.get(&node)?;
            own.received.get(&peer.id()).copied()
        };
        if count(self) < Some(batches) {
            self.wait(|own, _| (count(own) >= Some(batches)).then_some(()));
        }
    }
}

/// All of them are linked to each other.
pub(crate) fn link_all(nodes: &mut [Node]) {
    let ids: Vec<_> = nodes.iter().map(Node::id).collect();
    for node in nodes {
        for id in &ids {
            if *id != node.id() {
                node.linked_to(*id);
            }
        }
    }
}
