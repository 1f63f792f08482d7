//! Clients of MQTT in a world where things go wrong, and what they published: what was
//! acknowledged is to arrive, in order, and nothing may be left over.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use dunlin_base::QoS;
use dunlin_broker::Census;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Peer, PeerEvent, PeerOptions, Random, World, run};

/// A world with its clients.
pub(crate) struct Ledger {
    pub(crate) world: World,
    pub(crate) peers: Vec<Peer>,
    pub(crate) chance: Random,
    /// What was given to clients to publish, and to which.
    pub(crate) published: Vec<(usize, PeerEvent)>,
}

/// A subscriber: its place, the QoS it was granted, and the topics that it wants.
pub(crate) type Subscriber = (usize, QoS, fn(&str) -> bool);

/// What a subscriber may rely on.
pub(crate) struct Promise<'a> {
    pub(crate) granted: QoS,
    /// Topics that it wants.
    pub(crate) matches: fn(&str) -> bool,
    /// Publishers whose QoS 2 is exactly once.
    pub(crate) is_exact: &'a dyn Fn(usize) -> bool,
    /// Publishers whose messages come in order, for each topic and QoS, repetitions
    /// aside.
    pub(crate) in_order: &'a dyn Fn(usize) -> bool,
}

impl Ledger {
    /// Clients that are not connected.
    pub(crate) const fn new(world: World, peers: Vec<Peer>, chance: Random) -> Self {
        Self {
            world,
            peers,
            chance,
            published: Vec::new(),
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        run(&mut self.world, &mut self.peers, time);
    }

    /// Clients without a connection come back.
    pub(crate) fn connect(&mut self) {
        for peer in &mut self.peers {
            peer.connect(&mut self.world);
        }
    }

    /// All clients connect and subscribe.
    pub(crate) fn begin(&mut self) {
        self.connect();
        self.pass(Duration::from_millis(500));
        assert!(self.peers.iter().all(Peer::is_idle), "everybody is there");
    }

    /// A client publishes to one of three topics, with QoS 1 or 2.
    pub(crate) fn publish(&mut self, who: usize) {
        let topic = format!("t/{}", self.chance.below(3));
        let qos = QoS::from_u8(self.chance.between(1, 2) as u8).expect("QoS");
        let payload = format!("{who}-{:06}", self.published.len());
        let message = PeerEvent {
            topic: topic.clone(),
            payload: payload.clone(),
            qos,
        };
        self.published.push((who, message));
        self.peers[who].publish(&mut self.world, &topic, payload, qos);
    }

    /// Clients go on until nothing is under way.
    pub(crate) fn calm(&mut self) {
        for _ in 0..200 {
            self.connect();
            self.pass(Duration::from_millis(100));
            if self.peers.iter().all(Peer::is_idle) {
                break;
            }
        }
        // What the server still owes to subscribers.
        self.pass(Duration::from_secs(10));
    }

    /// All that was published was answered.
    pub(crate) fn check_answers(&self) {
        for (index, peer) in self.peers.iter().enumerate() {
            let id = peer.client_id();
            assert!(peer.is_idle(), "{id} waits for ever");
            let sent = self.published.iter().filter(|(who, _)| *who == index);
            let answered = peer.acknowledged.len() + peer.refused.len();
            assert_eq!(sent.count(), answered, "{id}");
        }
    }

    pub(crate) fn acknowledged(&self, message: &PeerEvent) -> bool {
        let mut peers = self.peers.iter();
        peers.any(|peer| peer.acknowledged.contains(message))
    }

    pub(crate) fn check_subscriber(&self, index: usize, promise: &Promise<'_>) {
        let Promise {
            granted,
            matches,
            is_exact,
            in_order,
        } = promise;
        let id = self.peers[index].client_id();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for payload in payloads(&self.peers[index]) {
            *counts.entry(payload).or_default() += 1;
        }
        for (who, message) in self.published.iter().filter(|(_, m)| matches(&m.topic)) {
            let count = counts.get(message.payload.as_str()).copied().unwrap_or(0);
            if self.acknowledged(message) {
                assert!(count >= 1, "{id} never got {message:?}");
            }
            if message.qos.min(*granted) == QoS::ExactlyOnce && is_exact(*who) {
                assert!(count <= 1, "{id} got {message:?} {count} times");
            }
        }
        let mut last: BTreeMap<(usize, &str, QoS), &str> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for message in &self.peers[index].received {
            assert!(matches(&message.topic), "{id} did not want {message:?}");
            let publisher = message.payload[..1].parse().expect("a publisher");
            if !in_order(publisher) || !seen.insert(message.payload.as_str()) {
                continue;
            }
            let key = (publisher, message.topic.as_str(), message.qos);
            if let Some(before) = last.insert(key, &message.payload) {
                let in_order = before < message.payload.as_str();
                assert!(in_order, "{id} got {before} before {message:?}");
            }
        }
    }

    /// Each acknowledged message that `counts` reached some member of a group; `first` is
    /// the first of its members, which are the last clients.
    pub(crate) fn check_group(&self, first: usize, counts: impl Fn(&PeerEvent) -> bool) {
        let got: BTreeSet<&str> = self.peers[first..].iter().flat_map(payloads).collect();
        let all = self.published.iter().map(|(_, message)| message);
        for message in all.filter(|message| counts(message) && self.acknowledged(message)) {
            let is_there = got.contains(message.payload.as_str());
            assert!(is_there, "no member got {message:?}");
        }
    }

    /// Everybody leaves for good: nothing may be left. 3.1.1 has no expiry: the sessions of
    /// the clients `old` end with a clean one.
    pub(crate) fn clear(&mut self, old: &[usize]) {
        for peer in &mut self.peers {
            peer.leave(&mut self.world, Some(0));
        }
        self.pass(Duration::from_secs(5));
        for index in old {
            let id = self.peers[*index].client_id();
            let mut last = [brief(id, Version::V311, &[])];
            last[0].connect(&mut self.world);
            run(&mut self.world, &mut last, Duration::from_secs(1));
            last[0].leave(&mut self.world, None);
            run(&mut self.world, &mut last, Duration::from_secs(1));
        }
        self.pass(Duration::from_secs(5));
        assert_eq!(self.world.census(), Census::default(), "left behind");
    }

    /// The same, and nothing is left in the store either.
    pub(crate) fn clear_store(&mut self, old: &[usize]) {
        self.clear(old);
        let disk = &self.world.disk;
        assert_eq!(disk.stored_messages(), 0, "left in the store");
        assert!(disk.recover().sessions.is_empty(), "left in the store");
    }
}

/// A client whose session outlives its connection.
pub(crate) fn peer(id: &str, version: Version, filters: &[(&str, QoS)]) -> Peer {
    Peer::new(PeerOptions {
        version,
        ..PeerOptions::new(id, filters)
    })
}

/// A client whose sessions begin empty and end with their connections.
pub(crate) fn brief(id: &str, version: Version, filters: &[(&str, QoS)]) -> Peer {
    let mut peer = Peer::new(PeerOptions {
        version,
        expiry_secs: 0,
        ..PeerOptions::new(id, filters)
    });
    peer.clean = true;
    peer
}

pub(crate) fn payloads(peer: &Peer) -> impl Iterator<Item = &str> {
    peer.received.iter().map(|message| message.payload.as_str())
}
