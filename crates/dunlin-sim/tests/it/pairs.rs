//! Client engines against shards, with lost connections, take-overs, crashes
//! and a full disk. All that was acknowledged to a publisher is delivered: QoS 1
//! at least once, QoS 2 exactly once, in order, and nothing may be left over.

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::QoS;
use dunlin_base::transport::Transport;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Fault, Peer, PeerEvent, PeerOptions, Random, Setup, World, run};

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Chaos {
    cuts: bool,
    take_overs: bool,
    crashes: bool,
    full_disk: bool,
    shared: bool,
    /// Two members of the group have sessions that end with their connection.
    leaving: bool,
    /// So has the third.
    all_leave: bool,
    /// Members of the group subscribe with QoS 2.
    exact: bool,
}

fn peer(id: &str, version: Version, filters: &[(&str, QoS)]) -> Peer {
    Peer::new(PeerOptions {
        client_id: id.to_owned(),
        version,
        expiry_secs: 3600,
        filters: filters
            .iter()
            .map(|(filter, qos)| ((*filter).to_owned(), *qos))
            .collect(),
        receive_maximum: 8,
    })
}

fn cast(chaos: Chaos) -> Vec<Peer> {
    let mut peers = vec![
        peer("publisher-1", Version::V5, &[]),
        peer("publisher-2", Version::V311, &[]),
        peer("sub-exact", Version::V5, &[("t/#", QoS::ExactlyOnce)]),
        peer("sub-least", Version::V5, &[("t/+", QoS::AtLeastOnce)]),
        peer("sub-old", Version::V311, &[("t/1", QoS::ExactlyOnce)]),
        peer("both-ways", Version::V5, &[("t/0", QoS::ExactlyOnce)]),
    ];
    if chaos.shared {
        for id in ["member-1", "member-2", "member-3"] {
            let qos = match chaos.exact {
                true => QoS::ExactlyOnce,
                false => QoS::AtLeastOnce,
            };
            let filters = vec![("$share/g/t/#".to_owned(), qos)];
            let stays = (id == "member-3" && !chaos.all_leave) || !chaos.leaving;
            peers.push(Peer::new(PeerOptions {
                client_id: id.to_owned(),
                version: Version::V5,
                expiry_secs: if stays { 3600 } else { 0 },
                filters,
                receive_maximum: 8,
            }));
        }
    }
    peers
}

/// Publishers are the first two and "both-ways".
const PUBLISHERS: [usize; 3] = [0, 1, 5];

struct Run {
    world: World,
    peers: Vec<Peer>,
    chance: Random,
    published: Vec<(usize, PeerEvent)>,
    counter: u32,
}

impl Run {
    fn start(shards: u16, seed: u64, chaos: Chaos) -> Self {
        let mut setup = Setup::new(shards, seed);
        setup.transport = transport(seed);
        // Small, so that queues are shed and loaded.
        setup.config.sessions.queue_held_max = 3;
        let mut run = Self {
            world: World::new(setup),
            peers: cast(chaos),
            chance: Random::new(seed ^ 0x5eed),
            published: Vec::new(),
            counter: 0,
        };
        for index in 0..run.peers.len() {
            run.peers[index].connect(&mut run.world);
        }
        run.pass(Duration::from_millis(500));
        assert!(run.peers.iter().all(Peer::is_idle), "everybody is there");
        run
    }

    fn pass(&mut self, time: Duration) {
        run(&mut self.world, &mut self.peers, time);
    }

    fn publish(&mut self) {
        let who = PUBLISHERS[self.chance.below(3) as usize];
        let topic = format!("t/{}", self.chance.below(3));
        let qos = QoS::from_u8(self.chance.between(1, 2) as u8).expect("QoS");
        self.counter += 1;
        let payload = format!("{who}-{:06}", self.counter);
        let message = PeerEvent {
            topic: topic.clone(),
            payload: payload.clone(),
            qos,
        };
        self.published.push((who, message));
        self.peers[who].publish(&mut self.world, &topic, payload, qos);
    }

    fn disturb(&mut self, chaos: Chaos) {
        let who = self.chance.below(self.peers.len() as u64) as usize;
        match self.chance.below(12) {
            0..=2 if chaos.cuts => {
                self.peers[who].cut(&mut self.world);
                if self.chance.one_in(2) {
                    self.pass(Duration::from_millis(10));
                }
                self.peers[who].connect(&mut self.world);
            }
            3 if chaos.take_overs => self.peers[who].take_over(&mut self.world),
            4 if chaos.crashes && self.chance.one_in(3) => self.world.crash(),
            5 if chaos.full_disk => self.world.disk.fault = Fault::Full,
            6 if chaos.full_disk => self.world.disk.fault = Fault::Broken,
            7 | 8 => self.world.disk.fault = Fault::None,
            _ => {}
        }
    }

    fn calm(&mut self, chaos: Chaos) {
        self.world.disk.fault = Fault::None;
        for _ in 0..200 {
            for index in 0..self.peers.len() {
                self.peers[index].connect(&mut self.world);
            }
            self.pass(Duration::from_millis(100));
            let busy = |peer: &Peer| !peer.is_idle();
            if !self.peers.iter().any(busy) {
                break;
            }
        }
        // What the server still owes to subscribers.
        self.pass(Duration::from_secs(10));
        // All are there and have acknowledged what came: nothing waits for a restart, or
        // for the next publish. A broken disk may have refused to remove it.
        let waits = self.world.disk.stored_messages();
        assert!(waits == 0 || chaos.full_disk, "{waits} wait");
    }

    /// What `peer` got for a filter, by payload.
    fn count(&self, index: usize) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for message in &self.peers[index].received {
            *counts.entry(message.payload.as_str()).or_default() += 1;
        }
        counts
    }

    fn check(&self, chaos: Chaos) {
        for (index, peer) in self.peers.iter().enumerate() {
            assert!(peer.is_idle(), "{} waits for ever", peer.client_id());
            let leaves = chaos.leaving && peer.client_id().starts_with("member");
            assert!(leaves || peer.sessions_lost == 0, "{}", peer.client_id());
            let sent = self.published.iter().filter(|(who, _)| *who == index);
            let answered = peer.acknowledged.len() + peer.refused.len();
            assert_eq!(sent.count(), answered, "{}", peer.client_id());
        }
        self.check_subscriber(chaos, 2, QoS::ExactlyOnce, |_| true);
        self.check_subscriber(chaos, 3, QoS::AtLeastOnce, |_| true);
        self.check_subscriber(chaos, 4, QoS::ExactlyOnce, |topic| topic == "t/1");
        self.check_subscriber(chaos, 5, QoS::ExactlyOnce, |topic| topic == "t/0");
        if chaos.shared {
            self.check_group(chaos);
        }
    }

    fn acknowledged(&self, message: &PeerEvent) -> bool {
        self.peers
            .iter()
            .any(|peer| peer.acknowledged.contains(message))
    }

    fn check_subscriber(
        &self,
        chaos: Chaos,
        index: usize,
        granted: QoS,
        matches: impl Fn(&str) -> bool,
    ) {
        let id = self.peers[index].client_id();
        let counts = self.count(index);
        for (_, message) in self.published.iter().filter(|(_, m)| matches(&m.topic)) {
            let count = counts.get(message.payload.as_str()).copied().unwrap_or(0);
            let exactly = message.qos.min(granted) == QoS::ExactlyOnce;
            if self.acknowledged(message) {
                assert!(count >= 1, "{id} never got {message:?}");
            }
            if exactly {
                assert!(count <= 1, "{id} got {message:?} {count} times");
            }
        }
        // In order of each publisher, topic and QoS, repetitions aside.
        let mut last: BTreeMap<(String, String, QoS), &str> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for message in &self.peers[index].received {
            assert!(matches(&message.topic), "{id} did not want {message:?}");
            if !seen.insert(message.payload.as_str()) {
                continue;
            }
            let publisher = message.payload[..1].to_owned();
            // A publish is refused and its publisher learns nothing of it, because it
            // is away or speaks 3.1.1: it sends it again, and later ones may
            // have found room on the disk before.
            if chaos.full_disk && (chaos.cuts || chaos.crashes || publisher == "1") {
                continue;
            }
            let key = (publisher, message.topic.clone(), message.qos);
            if let Some(before) = last.insert(key, &message.payload) {
                assert!(
                    before < message.payload.as_str(),
                    "{id} got {before} before {message:?}"
                );
            }
        }
    }

    /// Every acknowledged message reached some member of the group.
    fn check_group(&self, chaos: Chaos) {
        for (_, message) in &self.published {
            let members = self.peers[6..].iter();
            let got = members
                .filter(|peer| peer.received.iter().any(|m| m.payload == message.payload))
                .count();
            if self.acknowledged(message) && !chaos.all_leave {
                assert!(got >= 1, "no member got {message:?}");
            }
            if chaos.exact && message.qos == QoS::ExactlyOnce {
                assert!(got <= 1, "{got} members got {message:?}");
            }
        }
    }

    /// Everybody leaves for good: nothing may be left.
    fn clear(&mut self) {
        for index in 0..self.peers.len() {
            self.peers[index].leave(&mut self.world, Some(0));
        }
        self.pass(Duration::from_secs(5));
        // 3.1.1 has no expiry: those sessions end with a clean one.
        for id in ["publisher-2", "sub-old"] {
            let mut last = Peer::new(PeerOptions {
                client_id: id.to_owned(),
                version: Version::V311,
                expiry_secs: 0,
                filters: Vec::new(),
                receive_maximum: 8,
            });
            last.connect(&mut self.world);
            let mut last = [last];
            run(&mut self.world, &mut last, Duration::from_secs(1));
            last[0].leave(&mut self.world, None);
            run(&mut self.world, &mut last, Duration::from_secs(1));
        }
        let census = self.world.census();
        assert_eq!(census, dunlin_broker::Census::default(), "left behind");
        assert_eq!(self.world.disk.stored_messages(), 0, "left in the store");
        assert!(
            self.world.disk.recover().sessions.is_empty(),
            "left in the store"
        );
    }
}

fn play(shards: u16, seed: u64, chaos: Chaos) -> u64 {
    let mut run = Run::start(shards, seed, chaos);
    for _ in 0..60 {
        if run.chance.below(3) > 0 {
            run.publish();
        }
        run.disturb(chaos);
        let pause = run.chance.below(8_000);
        run.pass(Duration::from_micros(pause));
    }
    run.calm(chaos);
    run.check(chaos);
    run.clear();
    run.world.trace()
}

/// Over QUIC a connection keeps its shard, over TCP it moves to its session's.
const fn transport(seed: u64) -> Transport {
    match seed % 2 {
        0 => Transport::Quic,
        _ => Transport::Tcp,
    }
}

/// The seeds to run; `SIM_SEEDS=5000..6000` in the environment runs others.
fn seeds(usual: core::ops::Range<u64>) -> core::ops::Range<u64> {
    let chosen = std::env::var("SIM_SEEDS").ok();
    let chosen = chosen.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    chosen.unwrap_or(usual)
}

/// Runs seeds; the message of a failure says which.
fn play_all(usual: core::ops::Range<u64>, chaos: Chaos) {
    for seed in seeds(usual) {
        for shards in [1, 2] {
            let outcome = std::panic::catch_unwind(|| play(shards, seed, chaos));
            assert!(
                outcome.is_ok(),
                "failed: shards {shards}, seed {seed}, {chaos:?}"
            );
        }
    }
}

#[test]
fn nothing_goes_wrong() {
    play_all(0..20, Chaos::default());
}

#[test]
fn connections_break() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        ..Chaos::default()
    };
    play_all(0..150, chaos);
}

#[test]
fn the_process_crashes() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        crashes: true,
        ..Chaos::default()
    };
    play_all(0..150, chaos);
}

#[test]
fn the_disk_fills() {
    let chaos = Chaos {
        full_disk: true,
        ..Chaos::default()
    };
    play_all(0..80, chaos);
}

#[test]
fn everything_goes_wrong() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        crashes: true,
        full_disk: true,
        ..Chaos::default()
    };
    play_all(1000..1080, chaos);
}

#[test]
fn members_of_a_group_come_and_go() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        shared: true,
        ..Chaos::default()
    };
    play_all(0..80, chaos);
}

#[test]
fn members_of_a_group_leave_for_good() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        shared: true,
        leaving: true,
        ..Chaos::default()
    };
    play_all(0..80, chaos);
}

#[test]
fn groups_outlive_crashes() {
    let chaos = Chaos {
        cuts: true,
        crashes: true,
        shared: true,
        ..Chaos::default()
    };
    play_all(0..80, chaos);
}

#[test]
fn groups_of_durable_and_other_members_outlive_crashes() {
    for exact in [false, true] {
        let chaos = Chaos {
            cuts: true,
            crashes: true,
            shared: true,
            leaving: true,
            exact,
            ..Chaos::default()
        };
        play_all(0..80, chaos);
    }
}

#[test]
fn everything_goes_wrong_with_a_group() {
    for exact in [false, true] {
        let chaos = Chaos {
            cuts: true,
            take_overs: true,
            crashes: true,
            full_disk: true,
            shared: true,
            leaving: true,
            exact,
            ..Chaos::default()
        };
        play_all(3000..3030, chaos);
    }
}

#[test]
fn no_crash_gives_a_message_to_a_second_member() {
    let chaos = Chaos {
        crashes: true,
        shared: true,
        leaving: true,
        all_leave: true,
        exact: true,
        ..Chaos::default()
    };
    play_all(0..80, chaos);
}

/// Two publishers with topics of their own: what is retained in the end is the
/// last that each published, here, there and after a restart.
fn play_retained(shards: u16, seed: u64) {
    let mut setup = Setup::new(shards, seed);
    setup.transport = transport(seed);
    let mut world = World::new(setup);
    let mut chance = Random::new(seed);
    let mut peers = vec![
        peer("publisher-1", Version::V5, &[]),
        peer("publisher-2", Version::V311, &[]),
        peer("watcher", Version::V5, &[("r/#", QoS::AtLeastOnce)]),
    ];
    for peer in &mut peers {
        peer.retain = true;
        peer.connect(&mut world);
    }
    run(&mut world, &mut peers, Duration::from_millis(300));
    // One QoS: the order of messages with different QoS is open.
    let qos = QoS::from_u8(chance.between(1, 2) as u8).expect("QoS");
    let mut last = BTreeMap::new();
    for n in 0..60 {
        let who = chance.below(2) as usize;
        let topic = format!("r/{who}/{}", chance.below(3));
        let payload = format!("{n:04}");
        peers[who].publish(&mut world, &topic, payload.clone(), qos);
        last.insert(topic, payload);
        match chance.below(12) {
            0 => peers[who].cut(&mut world),
            1 => peers[who].take_over(&mut world),
            2 if chance.one_in(3) => world.crash(),
            _ => {}
        }
        peers[who].connect(&mut world);
        run(
            &mut world,
            &mut peers,
            Duration::from_micros(chance.below(5_000)),
        );
    }
    for restart in [false, true] {
        if restart {
            world.crash();
        }
        for _ in 0..100 {
            for peer in &mut peers {
                peer.connect(&mut world);
            }
            run(&mut world, &mut peers, Duration::from_millis(100));
        }
        assert!(peers.iter().all(Peer::is_idle));
        // On every shard.
        for id in ["late-1", "late-2", "late-3", "late-4"] {
            let mut late = peer(id, Version::V5, &[("r/#", QoS::AtLeastOnce)]);
            late.connect(&mut world);
            let mut late = [late];
            run(&mut world, &mut late, Duration::from_secs(1));
            let got: BTreeMap<String, String> = late[0]
                .received
                .iter()
                .map(|message| (message.topic.clone(), message.payload.clone()))
                .collect();
            assert_eq!(got, last, "shards {shards}, seed {seed}, {restart}");
            assert_eq!(late[0].received.len(), last.len());
            late[0].leave(&mut world, Some(0));
            run(&mut world, &mut late, Duration::from_secs(1));
        }
    }
}

#[test]
fn what_is_retained_is_the_last() {
    for seed in seeds(0..60) {
        play_retained(1, seed);
        play_retained(2, seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        crashes: true,
        full_disk: true,
        shared: true,
        leaving: true,
        exact: false,
        all_leave: false,
    };
    for seed in 0..5 {
        let traces = [play(2, seed, chaos), play(2, seed, chaos)];
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
    assert_ne!(play(2, 1, chaos), play(2, 2, chaos));
}
