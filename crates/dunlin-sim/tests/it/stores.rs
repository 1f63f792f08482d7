//! Homes with a store each, which die and begin again one by one, both, or all at once,
//! while connections break. What was acknowledged is delivered: QoS 1 at least once, QoS 2
//! of a durable publisher exactly once, in order, and nothing may be left over.
//!
//! `STORE_SEEDS=0..1000` in the environment runs that many.

#[cfg(feature = "amqp")]
mod amqp;
mod groups;
mod limits;
mod restarts;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use dunlin_base::QoS;
use dunlin_base::transport::Transport;
use dunlin_broker::home_shard;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{
    Disk, Fault, Peer, PeerEvent, PeerOptions, Random, Setup, World, crash_store, is_store_ready,
    is_store_up, run, start_store,
};

/// Protocol, in the store, of the queue of what one home posts to another.
const POSTS: u8 = 12;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Chaos {
    /// Homes of a store die, and begin again.
    crashes: bool,
    cuts: bool,
    full_disk: bool,
    /// Posts that wait in a store have a small limit.
    full_posts: bool,
}

/// Clients that publish; the session of the last one ends with its connection.
const PUBLISHERS: usize = 4;

const DURABLE: u32 = 3600;

/// A client whose home is this one.
fn peer(
    (name, home, homes): (&str, u16, u16),
    version: Version,
    expiry_secs: u32,
    filters: &[(&str, QoS)],
) -> Peer {
    let ids = (0..).map(|number| format!("{name}-{number}"));
    let mut ids = ids.filter(|id| home_shard(id, homes) == home % homes);
    let mut peer = Peer::new(PeerOptions {
        client_id: ids.next().expect("one of them"),
        version,
        expiry_secs,
        filters: filters
            .iter()
            .map(|(filter, qos)| ((*filter).to_owned(), *qos))
            .collect(),
        receive_maximum: 8,
    });
    peer.clean = expiry_secs == 0;
    peer
}

fn cast(homes: u16) -> Vec<Peer> {
    let (v5, v4) = (Version::V5, Version::V311);
    let (once, least) = (QoS::ExactlyOnce, QoS::AtLeastOnce);
    let at = |name, home| (name, home, homes);
    let share = [("$share/g/t/#", least)];
    vec![
        peer(at("publisher-v5", 0), v5, DURABLE, &[]),
        peer(at("publisher-v4", 1), v4, DURABLE, &[]),
        peer(at("publisher-third", 2), v5, DURABLE, &[]),
        peer(at("short", 0), v5, 0, &[]),
        peer(at("sub-exact", 1), v5, DURABLE, &[("t/#", once)]),
        peer(at("sub-least", 0), v5, DURABLE, &[("t/+", least)]),
        peer(at("sub-v4", 2), v4, DURABLE, &[("t/1", once)]),
        peer(
            at("sub-other", 0),
            v5,
            DURABLE,
            &[("t/#", once), ("t/2", least)],
        ),
        peer(at("sub-short", 1), v5, 0, &[("t/#", least)]),
        peer(at("member", 0), v5, DURABLE, &share),
        peer(at("member", 1), v5, DURABLE, &share),
    ]
}

struct Run {
    world: World,
    peers: Vec<Peer>,
    chance: Random,
    published: Vec<(usize, PeerEvent)>,
    stores: usize,
}

impl Run {
    fn start(homes: u16, per_store: u16, seed: u64, chaos: Chaos) -> Self {
        let mut setup = Setup::new(homes, seed);
        setup.config.nodes.homes_per_store = per_store;
        setup.transport = match seed % 2 {
            0 => Transport::Quic,
            _ => Transport::Tcp,
        };
        setup.config.sessions.queue_held_max = 3;
        if chaos.full_posts {
            setup.config.nodes.posts.messages_max = 2;
        }
        let mut run = Self {
            world: World::new(setup),
            peers: cast(homes),
            chance: Random::new(seed ^ 0x5703),
            published: Vec::new(),
            stores: usize::from(homes.div_ceil(per_store)),
        };
        run.pass(Duration::from_millis(200));
        let ready = (0..run.stores).all(|store| is_store_ready(&run.world, store));
        assert!(ready, "they know each other");
        run.connect();
        run.pass(Duration::from_millis(500));
        assert!(run.peers.iter().all(Peer::is_idle), "everybody is there");
        run
    }

    fn pass(&mut self, time: Duration) {
        run(&mut self.world, &mut self.peers, time);
    }

    fn connect(&mut self) {
        for peer in &mut self.peers {
            peer.connect(&mut self.world);
        }
    }

    fn publish(&mut self) {
        let who = self.chance.below(PUBLISHERS as u64) as usize;
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

    fn disk(&mut self, store: usize) -> &mut Disk {
        match store.checked_sub(1) {
            Some(at) => &mut self.world.disks[at],
            None => &mut self.world.disk,
        }
    }

    fn disturb(&mut self, chaos: Chaos) {
        let who = self.chance.below(self.peers.len() as u64) as usize;
        let store = self.chance.below(self.stores as u64) as usize;
        match self.chance.below(16) {
            0 | 1 if chaos.cuts => {
                self.peers[who].cut(&mut self.world);
                self.peers[who].connect(&mut self.world);
            }
            2 if chaos.cuts => self.peers[who].take_over(&mut self.world),
            3 | 4 if chaos.crashes => crash_store(&mut self.world, store),
            5 if chaos.crashes && self.chance.one_in(2) => {
                (0..self.stores).for_each(|store| crash_store(&mut self.world, store));
            }
            6 if chaos.crashes && self.chance.one_in(3) => self.world.crash(),
            7..=11 => revive(&mut self.world, store),
            12 if chaos.full_disk => self.disk(store).fault = Fault::Full,
            13 if chaos.full_disk => self.disk(store).fault = Fault::Broken,
            14 | 15 => self.disk(store).fault = Fault::None,
            _ => {}
        }
        self.connect();
    }

    fn calm(&mut self, chaos: Chaos) {
        for store in 0..self.stores {
            self.disk(store).fault = Fault::None;
            revive(&mut self.world, store);
        }
        for _ in 0..200 {
            self.connect();
            self.pass(Duration::from_millis(100));
            if self.peers.iter().all(Peer::is_idle) {
                break;
            }
        }
        // What is still owed to subscribers.
        self.pass(Duration::from_secs(10));
        let ready = (0..self.stores).all(|store| is_store_ready(&self.world, store));
        assert!(ready, "a home does not come up");
        // All are there and have acknowledged what came: nothing waits for a restart, or
        // for the next publish. A broken disk may have refused to remove it.
        for store in 0..self.stores {
            let waits = self.disk(store).stored_messages();
            assert!(waits == 0 || chaos.full_disk, "{waits} wait");
        }
    }

    fn check(&self, chaos: Chaos) {
        for (index, peer) in self.peers.iter().enumerate() {
            let id = peer.client_id();
            assert!(peer.is_idle(), "{id} waits for ever");
            let sent = self.published.iter().filter(|(who, _)| *who == index);
            let answered = peer.acknowledged.len() + peer.refused.len();
            assert_eq!(sent.count(), answered, "{id}");
            let lasts = !id.contains("short");
            assert!(!lasts || peer.sessions_lost == 0, "{id}");
        }
        let once = QoS::ExactlyOnce;
        self.check_subscriber(4, |_| once, |_| true);
        self.check_subscriber(5, |_| QoS::AtLeastOnce, |_| true);
        self.check_subscriber(6, |_| once, |topic| topic == "t/1");
        self.check_subscriber(7, |_| once, |_| true);
        let refused = self.peers.iter().any(|peer| !peer.refused.is_empty());
        assert!(refused || !chaos.full_posts, "a full store refuses none");
        // After a crash a PUBREL may be for an identifier that is not known any more.
        let may_be = chaos.crashes || chaos.full_disk;
        assert!(!refused || may_be, "some is refused");
        self.check_group();
        assert_eq!(self.world.census().miscounted_bytes, 0);
    }

    /// Whether a store has refused a message once.
    fn is_refused(&self, payload: &str) -> bool {
        let mut disks = self.world.disks.iter().chain([&self.world.disk]);
        disks.any(|disk| disk.has_refused(payload))
    }

    fn acknowledged(&self, message: &PeerEvent) -> bool {
        let mut peers = self.peers.iter();
        peers.any(|peer| peer.acknowledged.contains(message))
    }

    fn check_subscriber(
        &self,
        index: usize,
        granted: impl Fn(&str) -> QoS,
        matches: impl Fn(&str) -> bool,
    ) {
        let id = self.peers[index].client_id();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for payload in payloads(&self.peers[index]) {
            *counts.entry(payload).or_default() += 1;
        }
        for (who, message) in self.published.iter().filter(|(_, m)| matches(&m.topic)) {
            let count = counts.get(message.payload.as_str()).copied().unwrap_or(0);
            let qos = message.qos.min(granted(&message.topic));
            if self.acknowledged(message) {
                assert!(count >= 1, "{id} never got {message:?}");
            }
            // Of a session that ends with its connection nothing says that it was sent.
            if qos == QoS::ExactlyOnce && *who < PUBLISHERS - 1 {
                assert!(count <= 1, "{id} got {message:?} {count} times");
            }
        }
        // In order of each publisher, topic and QoS, repetitions aside.
        let mut last: BTreeMap<(&str, &str, QoS), &str> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for message in &self.peers[index].received {
            assert!(matches(&message.topic), "{id} did not want {message:?}");
            let publisher = &message.payload[..1];
            let is_short = publisher == format!("{}", PUBLISHERS - 1);
            // One of 5.0 publishes on when it is refused. What it has not heard of comes
            // again, behind what was taken since.
            let is_again = publisher != "1" && self.is_refused(&message.payload);
            if is_short || is_again || !seen.insert(message.payload.as_str()) {
                continue;
            }
            let key = (publisher, message.topic.as_str(), message.qos);
            if let Some(before) = last.insert(key, &message.payload) {
                let in_order = before < message.payload.as_str();
                assert!(in_order, "{id} got {before} before {message:?}");
            }
        }
    }

    /// Every acknowledged message reached some member of the group.
    fn check_group(&self) {
        let members = &self.peers[9..];
        let got: BTreeSet<&str> = members.iter().flat_map(payloads).collect();
        for (_, message) in &self.published {
            if self.acknowledged(message) {
                let is_there = got.contains(message.payload.as_str());
                assert!(is_there, "no member got {message:?}");
            }
        }
    }

    /// Everybody leaves for good: nothing may be left.
    fn clear(&mut self) {
        for peer in &mut self.peers {
            peer.leave(&mut self.world, Some(0));
        }
        self.pass(Duration::from_secs(5));
        // 3.1.1 has no expiry: those sessions end with a clean one.
        for index in [1, 6] {
            let id = self.peers[index].client_id().to_owned();
            let mut last = [Peer::new(PeerOptions {
                client_id: id,
                version: Version::V311,
                expiry_secs: 0,
                filters: Vec::new(),
                receive_maximum: 8,
            })];
            last[0].clean = true;
            last[0].connect(&mut self.world);
            run(&mut self.world, &mut last, Duration::from_secs(1));
            last[0].leave(&mut self.world, None);
            run(&mut self.world, &mut last, Duration::from_secs(1));
        }
        self.pass(Duration::from_secs(5));
        let census = self.world.census();
        assert_eq!(census, dunlin_broker::Census::default(), "left behind");
        for store in 0..self.stores {
            let disk = self.disk(store);
            assert_eq!(disk.stored_messages(), 0, "left in the store");
            let left = disk.recover().sessions;
            let left = left.iter().find(|it| it.record.version != POSTS);
            assert_eq!(left, None, "left in the store");
        }
    }
}

fn payloads(peer: &Peer) -> impl Iterator<Item = &str> {
    peer.received.iter().map(|message| message.payload.as_str())
}

fn revive(world: &mut World, store: usize) {
    if !is_store_up(world, store) {
        start_store(world, store);
    }
}

fn play((homes, per_store): (u16, u16), seed: u64, chaos: Chaos) -> u64 {
    let mut run = Run::start(homes, per_store, seed, chaos);
    for _ in 0..80 {
        if run.chance.below(4) > 0 {
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

/// Homes, and how many have one store.
const SHAPES: [(u16, u16); 3] = [(2, 1), (3, 1), (4, 2)];

/// Runs seeds; the message of a failure says which.
fn play_all(usual: core::ops::Range<u64>, chaos: Chaos) {
    let chosen = std::env::var("STORE_SEEDS").ok();
    let chosen = chosen.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    for seed in chosen.unwrap_or(usual) {
        let shape = SHAPES[(seed / 2 % 3) as usize];
        let outcome = std::panic::catch_unwind(|| play(shape, seed, chaos));
        assert!(outcome.is_ok(), "failed: {shape:?}, seed {seed}, {chaos:?}");
    }
}

#[test]
fn nothing_goes_wrong_between_stores() {
    play_all(0..12, Chaos::default());
}

#[test]
fn homes_die_and_begin_again() {
    let chaos = Chaos {
        crashes: true,
        ..Chaos::default()
    };
    play_all(0..60, chaos);
}

#[test]
fn homes_die_and_connections_break() {
    let chaos = Chaos {
        crashes: true,
        cuts: true,
        ..Chaos::default()
    };
    play_all(0..60, chaos);
}

#[test]
fn homes_die_and_disks_are_full() {
    let chaos = Chaos {
        crashes: true,
        cuts: true,
        full_disk: true,
        ..Chaos::default()
    };
    play_all(0..60, chaos);
}

/// The disk takes the identifier of a QoS 2 message and refuses that of one before it, then
/// the home dies: after that, the later one may not be sent first.
#[test]
fn a_home_dies_whose_disk_took_a_later_identifier() {
    let chaos = Chaos {
        crashes: true,
        cuts: true,
        full_disk: true,
        ..Chaos::default()
    };
    for seed in [111, 179, 182, 300, 314] {
        play(SHAPES[(seed / 2 % 3) as usize], seed, chaos);
    }
}

#[test]
fn what_is_posted_has_a_limit() {
    let chaos = Chaos {
        crashes: true,
        full_posts: true,
        ..Chaos::default()
    };
    play_all(0..12, chaos);
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_several_stores() {
    let chaos = Chaos {
        crashes: true,
        cuts: true,
        full_disk: true,
        ..Chaos::default()
    };
    for seed in 0..3 {
        let shape = SHAPES[seed as usize];
        assert_eq!(play(shape, seed, chaos), play(shape, seed, chaos), "{seed}");
    }
    assert_ne!(play((2, 1), 1, chaos), play((2, 1), 2, chaos));
}

/// Two homes with a store each, that know each other.
fn two_stores(seed: u64) -> World {
    let mut setup = Setup::new(2, seed);
    setup.config.nodes.homes_per_store = 1;
    let mut world = World::new(setup);
    run(&mut world, &mut [], Duration::from_millis(200));
    assert!((0..2).all(|store| is_store_ready(&world, store)));
    world
}

/// A client whose home is this one of two, and that connects there.
fn at(name: &str, home: u16, expiry_secs: u32, filters: &[(&str, QoS)]) -> Peer {
    let mut peer = peer((name, home, 2), Version::V5, expiry_secs, filters);
    peer.at = Some(usize::from(home));
    peer
}

/// A topic whose home is this one of two.
fn topic(home: u16) -> String {
    let mut topics = (0..).map(|number| format!("topic/{number}"));
    let of = topics.find(|topic| home_shard(topic, 2) == home);
    of.expect("one of them")
}

fn connect(world: &mut World, peers: &mut [Peer]) {
    for peer in peers.iter_mut() {
        peer.connect(world);
    }
    run(world, peers, Duration::from_millis(300));
}

#[test]
fn a_publish_is_acknowledged_while_its_receiver_s_home_is_away() {
    for (seed, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
        let mut world = two_stores(seed);
        let mut peers = [
            at("publisher", 0, DURABLE, &[]),
            at("subscriber", 1, DURABLE, &[("t", QoS::ExactlyOnce)]),
        ];
        connect(&mut world, &mut peers);
        crash_store(&mut world, 1);
        run(&mut world, &mut peers, Duration::from_millis(100));
        let payloads: Vec<String> = (0..600).map(|number| format!("{number:03}")).collect();
        for payload in &payloads {
            peers[0].publish(&mut world, "t", payload.clone(), qos);
        }
        run(&mut world, &mut peers, Duration::from_secs(20));
        assert_eq!(peers[0].acknowledged.len(), payloads.len());
        assert_eq!(world.disk.stored_messages(), payloads.len());
        // It begins again, too, and does not serve before it knows what the other wants.
        crash_store(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_millis(100));
        start_store(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_secs(2));
        assert!(!is_store_ready(&world, 0));
        assert_eq!(peers[1].received, []);
        start_store(&mut world, 1);
        run(&mut world, &mut peers, Duration::from_millis(300));
        assert!(is_store_ready(&world, 0) && is_store_ready(&world, 1));
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(20));
        let received: Vec<&str> = self::payloads(&peers[1]).collect();
        assert_eq!(received, payloads);
        assert_eq!(world.disk.stored_messages(), 0);
        assert_eq!(world.disks[0].stored_messages(), 0);
    }
}

#[test]
fn what_ended_with_a_home_is_forgotten_when_it_is_back() {
    let mut world = two_stores(3);
    let topic = topic(1);
    let mut peers = [
        at("publisher", 0, DURABLE, &[]),
        at("stays", 1, DURABLE, &[("t/stays", QoS::AtLeastOnce)]),
        at(
            "goes",
            1,
            0,
            &[
                ("t/goes", QoS::AtLeastOnce),
                ("$share/g/t/goes", QoS::AtLeastOnce),
            ],
        ),
    ];
    connect(&mut world, &mut peers);
    peers[0].retain = true;
    for payload in ["retained", ""] {
        peers[0].publish(&mut world, &topic, payload.into(), QoS::AtLeastOnce);
    }
    peers[0].publish(&mut world, "t/stays", "x".into(), QoS::AtLeastOnce);
    run(&mut world, &mut peers, Duration::from_millis(300));
    let subscriptions = world.shards()[0].census().subscriptions;
    peers[2].parked = true;
    crash_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(300));
    assert_eq!(world.shards()[0].census().subscriptions, subscriptions);
    start_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(300));
    assert_eq!(world.shards()[0].census().subscriptions, subscriptions - 2);
    assert_eq!(world.shards()[0].census().retained, 1);
}

#[test]
fn a_retained_message_is_in_the_store_of_its_topic_s_home() {
    let mut world = two_stores(4);
    let topic = topic(1);
    let mut peers = [
        at("publisher", 0, DURABLE, &[]),
        at("late", 0, DURABLE, &[(&topic, QoS::AtLeastOnce)]),
    ];
    peers[1].parked = true;
    connect(&mut world, &mut peers);
    peers[0].retain = true;
    // Acknowledged while that home is away.
    crash_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(100));
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        peers[0].publish(&mut world, &topic, format!("{qos:?}"), qos);
    }
    run(&mut world, &mut peers, Duration::from_millis(500));
    assert_eq!(peers[0].acknowledged.len(), 2);
    start_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(500));
    let retained = world.disks[0].recover().retained;
    assert_eq!(retained.len(), 1);
    assert_eq!(&retained[0].payload[..], b"ExactlyOnce");
    assert!(
        world.disk.recover().retained.is_empty(),
        "it is not its home"
    );
    // The other home has it from that one, also after it has begun again.
    crash_store(&mut world, 0);
    run(&mut world, &mut peers, Duration::from_millis(100));
    start_store(&mut world, 0);
    run(&mut world, &mut peers, Duration::from_millis(300));
    peers[1].parked = false;
    connect(&mut world, &mut peers);
    run(&mut world, &mut peers, Duration::from_secs(1));
    let received: Vec<&str> = payloads(&peers[1]).collect();
    assert_eq!(received, ["ExactlyOnce"]);
}

/// It would wait for ever: what its session has is at the home that is away.
#[test]
fn a_client_whose_home_is_away_is_refused() {
    let mut world = two_stores(5);
    let mut peers = [
        at("stays", 0, DURABLE, &[]),
        at("durable", 1, DURABLE, &[("t", QoS::AtLeastOnce)]),
        at("short", 1, 0, &[("t", QoS::AtLeastOnce)]),
    ];
    for peer in &mut peers[1..] {
        peer.at = Some(0);
    }
    connect(&mut world, &mut peers);
    assert!(
        peers
            .iter()
            .all(|peer| peer.connections == 1 && peer.subscribed)
    );
    crash_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(500));
    assert!(peers[0].conn().is_some() && peers[0].connections == 1);
    assert!(
        peers[1..].iter().all(|peer| peer.connections == 1),
        "no CONNACK"
    );
    start_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(500));
    connect(&mut world, &mut peers);
    assert!(peers[1..].iter().all(|peer| peer.connections == 2));
    assert_eq!((peers[1].sessions_lost, peers[2].sessions_lost), (0, 1));
}

/// Nothing of it is seen before it is stored there, and it is asked for once more.
#[test]
fn what_a_home_cannot_store_is_given_again() {
    for fault in [Fault::Full, Fault::Broken] {
        let mut world = two_stores(6);
        let filters = [("t/1", QoS::ExactlyOnce), ("t/2", QoS::AtLeastOnce)];
        let mut peers = [
            at("publisher", 0, DURABLE, &[]),
            at("durable", 1, DURABLE, &filters),
            at("short", 1, 0, &filters),
        ];
        connect(&mut world, &mut peers);
        world.disks[0].fault = fault;
        for (number, qos) in [
            (1, QoS::ExactlyOnce),
            (2, QoS::AtLeastOnce),
            (1, QoS::ExactlyOnce),
        ] {
            let payload = peers[0].acknowledged.len().to_string();
            peers[0].publish(&mut world, &format!("t/{number}"), payload, qos);
            run(&mut world, &mut peers, Duration::from_secs(1));
        }
        assert_eq!(peers[0].acknowledged.len(), 3);
        assert!(
            peers.iter().all(|peer| peer.received.is_empty()),
            "{fault:?}"
        );
        world.disks[0].fault = Fault::None;
        run(&mut world, &mut peers, Duration::from_secs(5));
        for peer in &peers[1..] {
            assert_eq!(payloads(peer).collect::<Vec<_>>(), ["0", "1", "2"]);
        }
        assert_eq!(
            world.disk.stored_messages() + world.disks[0].stored_messages(),
            0
        );
    }
}

/// A client of 3.1.1 that is refused is cut off and sends all again that is in flight: what
/// it has sent behind that is not stored before.
#[test]
fn what_3_1_1_sends_again_stays_in_order() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut setup = Setup::new(2, 7);
        setup.config.nodes.homes_per_store = 1;
        setup.pace.store = (20_000, 20_001);
        let mut world = World::new(setup);
        run(&mut world, &mut [], Duration::from_millis(500));
        let mut publisher = peer(("v4", 0, 2), Version::V311, DURABLE, &[]);
        publisher.at = Some(0);
        let mut peers = [
            publisher,
            at("here", 0, DURABLE, &[("t", qos)]),
            at("there", 1, DURABLE, &[("t", qos)]),
        ];
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(1));
        let connections = peers[0].connections;
        // The first is refused while the second is on its way.
        world.disk.fault = Fault::Full;
        peers[0].publish(&mut world, "t", "1".into(), qos);
        run(&mut world, &mut peers, Duration::from_millis(10));
        peers[0].publish(&mut world, "t", "2".into(), qos);
        for _ in 0..100 {
            run(&mut world, &mut peers, Duration::from_millis(1));
            if world.disk.has_refused("1") {
                break;
            }
        }
        world.disk.fault = Fault::None;
        run(&mut world, &mut peers, Duration::from_secs(10));
        assert!(peers[0].connections > connections, "it is cut off");
        assert_eq!(peers[0].acknowledged.len(), 2);
        for peer in &peers[1..] {
            let mut received: Vec<&str> = payloads(peer).collect();
            received.dedup();
            assert_eq!(received, ["1", "2"], "{qos:?}");
        }
    }
}

/// The will of such a client does not go past what is held back of it.
#[test]
fn a_will_comes_behind_what_is_held_back() {
    for expiry_secs in [0, DURABLE] {
        let mut setup = Setup::new(2, 8);
        setup.config.nodes.homes_per_store = 1;
        setup.pace.store = (20_000, 20_001);
        let mut world = World::new(setup);
        run(&mut world, &mut [], Duration::from_millis(500));
        let mut publisher = peer(("v4", 0, 2), Version::V311, expiry_secs, &[]);
        (publisher.at, publisher.will) = (Some(0), Some("t".into()));
        let mut peers = [
            publisher,
            at("here", 0, DURABLE, &[("t", QoS::AtLeastOnce)]),
        ];
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(1));
        for payload in ["1", "2"] {
            peers[0].publish(&mut world, "t", payload.into(), QoS::AtLeastOnce);
            run(&mut world, &mut peers, Duration::from_millis(10));
        }
        peers[0].parked = true;
        peers[0].cut(&mut world);
        run(&mut world, &mut peers, Duration::from_secs(2));
        let received: Vec<&str> = payloads(&peers[1]).collect();
        let will = peers[0].wills_due[0].as_str();
        assert_eq!(received, ["1", "2", will], "{expiry_secs}");
    }
}

/// Each home stores its part of what is published there, and one of them has it that a
/// group's member of another store gets it.
#[test]
fn an_edge_publishes_to_homes_of_several_stores() {
    for seed in 0..4 {
        let mut setup = Setup::new(2, seed);
        (setup.edges, setup.config.nodes.homes_per_store) = (1, 1);
        let mut world = World::new(setup);
        run(&mut world, &mut [], Duration::from_millis(300));
        assert!(dunlin_sim::is_ready(&world, 0), "the edge");
        let (least, once) = (QoS::AtLeastOnce, QoS::ExactlyOnce);
        let groups = [("$share/a/t", least), ("$share/b/t", least)];
        let mut peers = [
            at("publisher", 0, 0, &[]),
            at("subscriber", 0, DURABLE, &[("t", once)]),
            at("subscriber", 1, DURABLE, &[("t", once)]),
            at("member", 1, DURABLE, &groups),
        ];
        peers[0].at = Some(2);
        connect(&mut world, &mut peers);
        for number in 0..20 {
            let qos = if number % 2 == 0 { least } else { once };
            peers[0].publish(&mut world, "t", format!("{number:02}"), qos);
        }
        run(&mut world, &mut peers, Duration::from_secs(3));
        assert_eq!(peers[0].acknowledged.len(), 20, "seed {seed}");
        for peer in &peers[1..3] {
            let mut received: Vec<&str> = payloads(peer).collect();
            received.sort_unstable();
            let all: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
            assert_eq!(received, all, "seed {seed}");
        }
        assert_eq!(peers[3].received.len(), 40, "seed {seed}");
        assert_eq!(
            world.disk.stored_messages() + world.disks[0].stored_messages(),
            0
        );
    }
}
