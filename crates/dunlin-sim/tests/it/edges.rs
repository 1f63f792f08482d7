//! Several processes: homes with a store, and edges that come and go.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Coordinator, DeliveryState, Message, Modified, Outcome, ReceiverSettleMode,
    Role, SerialNumber, Source, Symbols, Target, TerminusExpiryPolicy,
};
use dunlin_amqp::{Connection, Delivery, Limits, SaslPolicy, Settings, Side};
use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, QoS, StreamId, Text};
use dunlin_broker::{HomeLost, NamedQueue};
use dunlin_mqtt_codec::{Version, decode, peek};
use dunlin_sim::{
    AmqpClient, Peer, PeerEvent, PeerOptions, Seen, Setup, ToClient, World, crash_edge,
    crash_homes, encode, is_lost, is_ready, join_edge, open_on, run, run_amqp, show,
};

const HOMES: u16 = 2;

/// Places of shards.
const HOME: usize = 0;
const EDGES: [usize; 2] = [2, 3];

const ALL_QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn setup(seed: u64) -> Setup {
    let mut setup = Setup::new(HOMES, seed);
    setup.edges = 2;
    setup.transport = match seed % 2 {
        0 => Transport::Quic,
        _ => Transport::Tcp,
    };
    setup
}

fn begin(setup: Setup) -> World {
    let mut world = World::new(setup);
    settle(&mut world);
    assert!(is_ready(&world, 0) && is_ready(&world, 1));
    world
}

fn settle(world: &mut World) {
    while world.next_before_quiet().is_some() {}
}

fn peer_at(place: usize, id: &str, expiry_secs: u32, filters: &[(&str, QoS)]) -> Peer {
    let filters = filters.iter();
    let mut peer = Peer::new(PeerOptions {
        client_id: id.to_owned(),
        version: Version::V5,
        expiry_secs,
        filters: filters
            .map(|(filter, qos)| ((*filter).to_owned(), *qos))
            .collect(),
        receive_maximum: 8,
    });
    peer.at = Some(place);
    peer.clean = expiry_secs == 0;
    peer
}

fn pass(world: &mut World, peers: &mut [Peer]) {
    run(world, peers, Duration::from_secs(1));
}

fn payloads(peer: &Peer) -> Vec<&str> {
    let received = peer.received.iter();
    received.map(|message| message.payload.as_str()).collect()
}

/// Nothing waits and nothing is left of those that have gone.
fn check_quiet(world: &World) {
    let census = world.census();
    let waits = (census.pending, census.prepared, census.store_requests);
    assert_eq!(waits, (0, 0, 0), "{census:?}");
    assert_eq!(census.miscounted_bytes, 0, "{census:?}");
}

/// What a client without an engine sees.
#[derive(Default)]
struct Raw {
    seen: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
}

impl Raw {
    fn settle(&mut self, world: &mut World) {
        while let Some((conn, event)) = world.next_before_quiet() {
            match event {
                ToClient::Bytes(_, bytes) => self.seen.entry(conn).or_default().extend(bytes),
                ToClient::Closed(_) => self.closed.push(conn),
                _ => {}
            }
        }
    }

    fn say(&mut self, world: &mut World, conn: ConnId, line: &str) {
        let version = match line.contains(" v4 ") {
            true => Version::V311,
            false => Version::V5,
        };
        world.send(conn, StreamId::CONTROL, &encode(line, version));
        self.settle(world);
    }

    /// Packets since the last call.
    fn take(&mut self, conn: ConnId) -> Vec<String> {
        let bytes = self.seen.remove(&conn).unwrap_or_default();
        let (mut rest, mut lines) = (&bytes[..], Vec::new());
        while let Ok(Some(head)) = peek(rest, u32::MAX) {
            let (packet, behind) = rest.split_at(head.total_len);
            let packet = decode(packet, Version::V5).expect("a packet");
            lines.push(show(&packet, Version::V5));
            rest = behind;
        }
        lines
    }
}

#[test]
fn clients_at_two_edges_and_at_home_hear_each_other() {
    for seed in 0..6 {
        for expiry in [0, 1000] {
            let mut world = begin(setup(seed));
            let places = [EDGES[0], EDGES[1], HOME];
            let ids = ["a", "b", "c"];
            let filters = [("t/#", QoS::ExactlyOnce)];
            let of = |(place, id): (&usize, &&str)| peer_at(*place, id, expiry, &filters);
            let mut peers: Vec<Peer> = places.iter().zip(&ids).map(of).collect();
            peers.iter_mut().for_each(|peer| peer.connect(&mut world));
            pass(&mut world, &mut peers);
            assert!(peers.iter().all(Peer::is_idle));
            let mut sent = Vec::new();
            for (at, qos) in ALL_QOS.iter().cycle().take(9).enumerate() {
                let payload = format!("{at:02}");
                peers[at % 3].publish(&mut world, "t/1", payload.clone(), *qos);
                pass(&mut world, &mut peers);
                sent.push(payload);
            }
            for peer in &peers {
                assert!(peer.is_idle() && peer.sessions_lost == 0);
                assert_eq!(payloads(peer), sent, "{}, seed {seed}", peer.client_id());
            }
            check_quiet(&world);
            for peer in &mut peers {
                peer.leave(&mut world, Some(0));
            }
            pass(&mut world, &mut peers);
            check_quiet(&world);
            let census = world.census();
            let left = (census.sessions, census.elsewhere, census.subscriptions);
            assert_eq!(left, (0, 0, 0), "{census:?}");
            assert_eq!(world.disk.stored_messages(), 0);
        }
    }
}

#[test]
fn what_is_retained_is_at_every_edge_and_at_those_that_come() {
    for seed in 0..4 {
        let mut world = begin(setup(seed));
        let mut peers = vec![peer_at(EDGES[0], "a", 0, &[])];
        peers[0].retain = true;
        peers[0].connect(&mut world);
        pass(&mut world, &mut peers);
        // More than one step of an introduction has.
        for at in 0..300 {
            let qos = ALL_QOS[at % 3];
            peers[0].publish(&mut world, &format!("r/{at}"), format!("{at}"), qos);
        }
        peers[0].publish(&mut world, "r/7", String::new(), QoS::AtLeastOnce);
        pass(&mut world, &mut peers);
        assert!(peers[0].is_idle());
        crash_edge(&mut world, 1);
        run(&mut world, &mut peers, Duration::from_millis(1));
        join_edge(&mut world, 1);
        // What changes while it joins is there, too.
        peers[0].publish(&mut world, "r/8", "new".into(), QoS::AtLeastOnce);
        pass(&mut world, &mut peers);
        assert!(is_ready(&world, 1));
        for place in [HOME, EDGES[0], EDGES[1]] {
            let mut late = vec![peer_at(place, "late", 0, &[("r/#", QoS::ExactlyOnce)])];
            late[0].connect(&mut world);
            pass(&mut world, &mut late);
            let got: BTreeMap<&str, &str> = late[0]
                .received
                .iter()
                .map(|it| (it.topic.as_str(), it.payload.as_str()))
                .collect();
            assert_eq!(got.len(), 299, "place {place}, seed {seed}");
            assert_eq!(got.get("r/8"), Some(&"new"), "place {place}, seed {seed}");
            late[0].leave(&mut world, None);
            pass(&mut world, &mut late);
        }
        check_quiet(&world);
    }
}

#[test]
fn a_will_is_published_when_its_edge_dies() {
    for (seed, expiry) in [(0, 0), (1, 0), (2, 1000), (3, 1000)] {
        let mut world = begin(setup(seed));
        let mut peers = vec![
            peer_at(EDGES[0], "a", expiry, &[]),
            peer_at(EDGES[1], "watcher", 0, &[("will", QoS::AtLeastOnce)]),
        ];
        peers[0].will = Some("will".into());
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        peers[0].parked = true;
        crash_edge(&mut world, 0);
        pass(&mut world, &mut peers);
        assert_eq!(payloads(&peers[1]), ["a 1"], "seed {seed}");
        check_quiet(&world);
    }
}

#[test]
fn a_durable_session_moves_between_edges() {
    for seed in 0..6 {
        let mut world = begin(setup(seed));
        let mut raw = Raw::default();
        let first = open_on(&mut world, EDGES[0], "mqtt");
        raw.say(&mut world, first, "CONNECT a expiry=100");
        raw.say(&mut world, first, "SUBSCRIBE 1 t|q1");
        assert_eq!(raw.take(first), ["CONNACK", "SUBACK 1 01"], "seed {seed}");
        let second = open_on(&mut world, EDGES[1], "mqtt");
        raw.say(&mut world, second, "CONNECT a expiry=100");
        assert_eq!(raw.take(first), ["DISCONNECT 0x8e"], "seed {seed}");
        assert_eq!(raw.closed, [first]);
        assert_eq!(raw.take(second), ["CONNACK present"], "seed {seed}");
        // Its edge dies: the messages wait for it.
        crash_edge(&mut world, 1);
        raw.settle(&mut world);
        let other = open_on(&mut world, EDGES[0], "mqtt");
        raw.say(&mut world, other, "CONNECT b clean");
        raw.say(&mut world, other, "PUBLISH t x q1 #1");
        assert_eq!(raw.take(other), ["CONNACK", "PUBACK 1"], "seed {seed}");
        let third = open_on(&mut world, HOME, "mqtt");
        raw.say(&mut world, third, "CONNECT a expiry=100");
        let got = raw.take(third);
        assert_eq!(got, ["CONNACK present", "PUBLISH t x q1 #1"], "seed {seed}");
        raw.say(&mut world, third, "PUBACK 1");
        check_quiet(&world);
        let census = world.census();
        assert_eq!((census.sessions, census.elsewhere), (2, 1), "{census:?}");
    }
}

#[test]
fn a_client_identifier_is_granted_to_one_edge_at_a_time() {
    for seed in 0..6 {
        let mut world = begin(setup(seed));
        let mut raw = Raw::default();
        let first = open_on(&mut world, EDGES[0], "mqtt");
        raw.say(&mut world, first, "CONNECT a clean");
        assert_eq!(raw.take(first), ["CONNACK"], "seed {seed}");
        let second = open_on(&mut world, EDGES[1], "mqtt");
        raw.say(&mut world, second, "CONNECT a clean");
        assert_eq!(raw.take(first), ["DISCONNECT 0x8e"], "seed {seed}");
        assert_eq!(raw.take(second), ["CONNACK"], "seed {seed}");
        // One that waits for an edge that dies gets the identifier, too.
        let third = open_on(&mut world, EDGES[0], "mqtt");
        let connect = encode("CONNECT a clean", Version::V5);
        world.send(third, StreamId::CONTROL, &connect);
        let until = world.now() + Duration::from_micros(1_000 * seed);
        while world.next(until).is_some() {}
        crash_edge(&mut world, 1);
        raw.settle(&mut world);
        assert_eq!(raw.take(third), ["CONNACK"], "seed {seed}");
        let census = world.census();
        assert_eq!((census.sessions, census.elsewhere), (1, 1), "{census:?}");
        // A server that assigns identifiers gives each one.
        for (line, lasts) in [("CONNECT - clean", false), ("CONNECT - expiry=9", true)] {
            let conn = open_on(&mut world, EDGES[0], "mqtt");
            raw.say(&mut world, conn, line);
            let got = raw.take(conn);
            assert!(got[0].starts_with("CONNACK"), "{got:?}");
            let census = world.census();
            assert_eq!(census.handed_over, usize::from(lasts), "{census:?}");
        }
        check_quiet(&world);
    }
}

fn acknowledged(peer: &Peer) -> Vec<&PeerEvent> {
    peer.acknowledged.iter().collect()
}

#[test]
fn members_of_a_group_get_what_another_edge_had() {
    for seed in 0..12 {
        let durable = seed % 3 == 0;
        let mut world = begin(setup(seed));
        let share = [("$share/g/t", QoS::AtLeastOnce)];
        let mut peers = vec![
            peer_at(HOME, "publisher", 1000, &[]),
            peer_at(EDGES[0], "at-edge", 0, &[]),
            peer_at(EDGES[0], "m1", 0, &share),
            peer_at(EDGES[1], "m2", 0, &share),
            peer_at(HOME, "m3", if durable { 1000 } else { 0 }, &share),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        assert!(peers.iter().all(Peer::is_idle));
        // One takes nothing, and has what its edge was lent.
        let stalled = peers[2].conn().expect("connected");
        world.stall(stalled, true);
        for at in 0..30 {
            peers[0].publish(&mut world, "t", format!("a{at}"), QoS::AtLeastOnce);
            peers[1].publish(&mut world, "t", format!("b{at}"), QoS::AtLeastOnce);
        }
        pass(&mut world, &mut peers);
        assert_eq!(acknowledged(&peers[0]).len(), 30, "seed {seed}");
        assert_eq!(acknowledged(&peers[1]).len(), 30, "seed {seed}");
        assert!(world.census().prepared > 0, "something is lent");
        for peer in &mut peers[1..3] {
            peer.parked = true;
        }
        crash_edge(&mut world, 0);
        pass(&mut world, &mut peers);
        for message in peers[..2].iter().flat_map(acknowledged) {
            let got = peers[3..].iter().flat_map(|peer| &peer.received);
            let times = got.filter(|it| it.payload == message.payload).count();
            assert_eq!(times, 1, "{message:?}, seed {seed}");
        }
        check_quiet(&world);
        assert_eq!(world.disk.stored_messages(), 0);
    }
}

#[test]
fn a_member_that_leaves_its_edge_gives_back_what_it_had() {
    for seed in 0..6 {
        let mut world = begin(setup(seed));
        let share = [("$share/g/t", QoS::AtLeastOnce)];
        let mut peers = vec![
            peer_at(EDGES[1], "publisher", 0, &[]),
            peer_at(EDGES[0], "m1", 0, &share),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        let stalled = peers[1].conn().expect("connected");
        world.stall(stalled, true);
        for at in 0..10 {
            peers[0].publish(&mut world, "t", format!("{at}"), QoS::AtLeastOnce);
        }
        pass(&mut world, &mut peers);
        peers.push(peer_at(EDGES[1], "m2", 0, &share));
        peers[2].connect(&mut world);
        pass(&mut world, &mut peers);
        peers[1].parked = true;
        peers[1].cut(&mut world);
        pass(&mut world, &mut peers);
        let mut got = payloads(&peers[2]);
        got.sort_unstable();
        assert_eq!(got, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        check_quiet(&world);
    }
}

#[test]
fn what_an_edge_publishes_exactly_once_goes_to_durable_members() {
    for seed in 0..6 {
        let mut world = begin(setup(seed));
        let share = [("$share/g/t", QoS::ExactlyOnce)];
        let mut peers = vec![
            peer_at(EDGES[1], "publisher", 0, &[]),
            peer_at(HOME, "kept", 1000, &share),
            peer_at(HOME, "c1", 0, &share),
            peer_at(1, "c2", 0, &share),
            peer_at(EDGES[0], "c3", 0, &share),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        for at in 0..12 {
            peers[0].publish(&mut world, "t", format!("{at}"), QoS::ExactlyOnce);
            pass(&mut world, &mut peers);
        }
        let counts: Vec<usize> = peers.iter().map(|peer| peer.received.len()).collect();
        assert_eq!(counts, [0, 12, 0, 0, 0], "seed {seed}");
        // Without a durable member all of them may have it.
        peers[1].leave(&mut world, Some(0));
        pass(&mut world, &mut peers);
        for at in 12..24 {
            peers[0].publish(&mut world, "t", format!("{at}"), QoS::ExactlyOnce);
            pass(&mut world, &mut peers);
        }
        let others: usize = peers[2..].iter().map(|peer| peer.received.len()).sum();
        assert_eq!(others, 12, "seed {seed}");
        check_quiet(&world);
    }
}

#[test]
fn a_session_that_ends_at_an_edge_leaves_no_loan() {
    for seed in 0..4 {
        let mut world = begin(setup(seed));
        let mut raw = Raw::default();
        let publisher = open_on(&mut world, HOME, "mqtt");
        raw.say(&mut world, publisher, "CONNECT p clean");
        for _ in 0..3 {
            let member = open_on(&mut world, EDGES[0], "mqtt");
            raw.say(&mut world, member, "CONNECT m clean");
            raw.say(&mut world, member, "SUBSCRIBE 1 $share/g/t|q2");
            raw.take(member);
            raw.say(&mut world, publisher, "PUBLISH t x q2 #1");
            assert_eq!(raw.take(member), ["PUBLISH t x q2 #1"], "seed {seed}");
            raw.say(&mut world, publisher, "PUBREL 1");
            // PUBREC is never sent.
            raw.say(&mut world, member, "DISCONNECT");
        }
        check_quiet(&world);
    }
}

#[test]
fn what_no_edge_has_room_for_waits_until_one_has() {
    for seed in 0..6 {
        let mut setup = setup(seed);
        setup.config.sessions.queue_messages_max = 2;
        let mut world = begin(setup);
        let share = [("$share/g/t", QoS::AtLeastOnce)];
        let mut peers = vec![
            peer_at(HOME, "publisher", 0, &[]),
            peer_at(EDGES[0], "m1", 0, &share),
            peer_at(EDGES[1], "m2", 0, &share),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        let conns: Vec<ConnId> = peers[1..].iter().filter_map(Peer::conn).collect();
        conns.iter().for_each(|conn| world.stall(*conn, true));
        for at in 0..60 {
            peers[0].publish(&mut world, "t", format!("{at}"), QoS::AtLeastOnce);
        }
        pass(&mut world, &mut peers);
        assert_eq!(acknowledged(&peers[0]).len(), 60, "seed {seed}");
        assert!(world.census().prepared >= 50, "{:?}", world.census());
        assert!(world.is_quiet(), "nothing goes to and fro, seed {seed}");
        conns.iter().for_each(|conn| world.stall(*conn, false));
        run(&mut world, &mut peers, Duration::from_secs(30));
        let mut got: Vec<u32> = peers[1..]
            .iter()
            .flat_map(payloads)
            .filter_map(|payload| payload.parse().ok())
            .collect();
        got.sort_unstable();
        assert_eq!(got, (0..60).collect::<Vec<u32>>(), "seed {seed}");
        check_quiet(&world);
    }
}

#[test]
fn members_at_home_get_more_when_an_edge_has_much() {
    let mut world = begin(setup(1));
    let share = [("$share/g/t", QoS::AtLeastOnce)];
    let mut peers = vec![
        peer_at(HOME, "publisher", 0, &[]),
        peer_at(EDGES[0], "m1", 0, &share),
        peer_at(HOME, "m2", 0, &share),
    ];
    peers.iter_mut().for_each(|peer| peer.connect(&mut world));
    pass(&mut world, &mut peers);
    let stalled = peers[1].conn().expect("connected");
    world.stall(stalled, true);
    for at in 0..2600 {
        peers[0].publish(&mut world, "t", format!("{at}"), QoS::AtLeastOnce);
        if at % 8 == 0 {
            run(&mut world, &mut peers, Duration::from_millis(20));
        }
    }
    pass(&mut world, &mut peers);
    // An edge that has 1024 is not preferred; both sides count what is lent.
    let lent = world.census().prepared;
    assert!((2000..2200).contains(&lent), "{lent}");
    assert_eq!(acknowledged(&peers[0]).len(), 2600);
}

/// A durable message of AMQP with one byte.
fn message(byte: u8) -> Vec<u8> {
    let mut bytes = vec![0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
    bytes.extend([0x00, 0x53, 0x75, 0xa0, 1, byte]);
    bytes
}

/// The last byte of a message, and how often its delivery has failed.
fn read(bytes: &Bytes) -> (u8, u32) {
    let scanned = Message::scan(bytes).expect("a message");
    let header = scanned.header().expect("a header").unwrap_or_default();
    (bytes[bytes.len() - 1], header.delivery_count)
}

fn amqp_at(world: &mut World, place: usize) -> AmqpClient {
    let conn = open_on(world, place, "amqp");
    AmqpClient::new(world, conn, StreamId::CONTROL, None)
}

fn messages(client: &mut AmqpClient) -> Vec<(Delivery, u8, u32)> {
    let events = client.events.drain(..);
    let messages = events.filter_map(|event| match event {
        Seen::Message(delivery, bytes) => {
            let (byte, count) = read(&bytes);
            Some((delivery, byte, count))
        }
        _ => None,
    });
    messages.collect()
}

#[test]
fn a_queue_outlives_the_edges_of_its_links() {
    for seed in 0..4 {
        let mut setup = setup(seed);
        setup.transport = Transport::Tcp;
        setup.config.queues.named = vec![NamedQueue {
            name: Text::from("jobs"),
            ..NamedQueue::default()
        }];
        let mut world = begin(setup);
        let address = "/queues/jobs";
        let mut from = amqp_at(&mut world, EDGES[1]);
        let session = from.open(world.now()).expect("open");
        let link = from.sender(session, address).expect("a link");
        run_amqp(&mut world, &mut [&mut from]);
        let mut taker = amqp_at(&mut world, EDGES[0]);
        let session = taker.open(world.now()).expect("open");
        taker.receiver(session, address, 10).expect("a link");
        run_amqp(&mut world, &mut [&mut from, &mut taker]);
        for byte in 1..=3 {
            from.send(link, &message(byte)).expect("credit");
        }
        run_amqp(&mut world, &mut [&mut from, &mut taker]);
        let accepted = from.events.drain(..).filter(|event| match event {
            Seen::Disposition(_, state) => state
                .as_ref()
                .is_some_and(|state| state.get() == DeliveryState::ACCEPTED),
            _ => false,
        });
        assert_eq!(accepted.count(), 3, "seed {seed}");
        let got = messages(&mut taker);
        let firsts: Vec<_> = got.iter().map(|(_, byte, count)| (*byte, *count)).collect();
        assert_eq!(firsts, [(1, 0), (2, 0), (3, 0)], "seed {seed}");
        let settled = taker
            .engine
            .settle(got[0].0, Some(&DeliveryState::ACCEPTED));
        settled.expect("a delivery");
        run_amqp(&mut world, &mut [&mut from, &mut taker]);
        // Two are not settled: they come again, as deliveries that have failed.
        crash_edge(&mut world, 0);
        run_amqp(&mut world, &mut [&mut from, &mut taker]);
        let mut next = amqp_at(&mut world, HOME);
        let session = next.open(world.now()).expect("open");
        next.receiver(session, address, 10).expect("a link");
        run_amqp(&mut world, &mut [&mut from, &mut next]);
        let got = messages(&mut next);
        let again: Vec<_> = got.iter().map(|(_, byte, count)| (*byte, *count)).collect();
        assert_eq!(again, [(2, 1), (3, 1)], "seed {seed}");
        for (delivery, ..) in got {
            let settled = next.engine.settle(delivery, Some(&DeliveryState::ACCEPTED));
            settled.expect("a delivery");
        }
        run_amqp(&mut world, &mut [&mut from, &mut next]);
        // The edge of the sender dies, too: its credit goes to others.
        crash_edge(&mut world, 1);
        run_amqp(&mut world, &mut [&mut from, &mut next]);
        let census = world.census();
        assert_eq!((census.queued, census.in_flight), (0, 0), "{census:?}");
        assert_eq!(world.disk.stored_messages(), 0);
        check_quiet(&world);
    }
}

/// A client that sends to the queue by a link that is known again, at this place.
fn attach_kept(world: &mut World, place: usize) -> AmqpClient {
    let mut client = amqp_at(world, place);
    let settings = Settings {
        side: Side::Client,
        container_id: "container",
        sasl: SaslPolicy::Off,
        mechanisms: Symbols::default(),
        limits: Limits::default(),
    };
    client.engine = Connection::new(world.now(), &settings);
    let session = client.open(world.now()).expect("open");
    let target = Target {
        address: Some("/queues/jobs"),
        expiry_policy: TerminusExpiryPolicy::Never,
        ..Target::default()
    };
    let attach = Attach {
        name: "link",
        role: Role::Sender,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(target)),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    };
    client.engine.attach(session, &attach).expect("a session");
    client
}

#[test]
fn a_link_has_its_name_again_when_its_edge_is_gone() {
    for seed in 0..4 {
        let mut setup = setup(seed);
        setup.transport = Transport::Tcp;
        let mut world = begin(setup);
        let is_attached = |client: &mut AmqpClient| {
            let attached = |event: &Seen| matches!(event, Seen::Attached(..)).then_some(());
            client.find(attached).is_some()
        };
        let mut first = attach_kept(&mut world, EDGES[0]);
        run_amqp(&mut world, &mut [&mut first]);
        assert!(is_attached(&mut first), "seed {seed}");
        crash_edge(&mut world, 0);
        run_amqp(&mut world, &mut [&mut first]);
        // It does not wait for what the one before has.
        let mut second = attach_kept(&mut world, EDGES[1]);
        run_amqp(&mut world, &mut [&mut second]);
        assert!(is_attached(&mut second), "seed {seed}");
        check_quiet(&world);
    }
}

#[test]
fn an_edge_makes_nodes_for_clients() {
    for seed in 0..4 {
        let mut setup = setup(seed);
        setup.transport = Transport::Tcp;
        let mut world = begin(setup);
        let mut client = amqp_at(&mut world, EDGES[0]);
        let session = client.open(world.now()).expect("open");
        for name in ["a", "b", "c", "d"] {
            let attach = Attach {
                name,
                role: Role::Receiver,
                source: Some(Source {
                    dynamic: true,
                    ..Source::default()
                }),
                target: Some(AnyTarget::Target(Target::default())),
                ..Attach::default()
            };
            client.engine.attach(session, &attach).expect("a session");
        }
        run_amqp(&mut world, &mut [&mut client]);
        let events = client.events.iter();
        let attached = events.filter(|event| matches!(event, Seen::Attached(..)));
        assert_eq!(attached.count(), 4, "seed {seed}: {:?}", client.events);
        check_quiet(&world);
    }
}

#[test]
fn what_one_member_cannot_take_goes_to_another_edge() {
    for seed in 0..4 {
        let mut setup = setup(seed);
        setup.transport = Transport::Tcp;
        let mut world = begin(setup);
        let mut first = amqp_at(&mut world, EDGES[0]);
        let session = first.open(world.now()).expect("open");
        first.receiver(session, "$share/g/t", 10).expect("a link");
        run_amqp(&mut world, &mut [&mut first]);
        let mut from = amqp_at(&mut world, EDGES[1]);
        let session = from.open(world.now()).expect("open");
        let link = from.sender(session, "t").expect("a link");
        run_amqp(&mut world, &mut [&mut first, &mut from]);
        from.send(link, &message(7)).expect("credit");
        run_amqp(&mut world, &mut [&mut first, &mut from]);
        let got = messages(&mut first);
        assert_eq!(got.len(), 1, "seed {seed}");
        let mut second = amqp_at(&mut world, EDGES[1]);
        let session = second.open(world.now()).expect("open");
        second.receiver(session, "$share/g/t", 10).expect("a link");
        run_amqp(&mut world, &mut [&mut first, &mut from, &mut second]);
        let modified = DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed: true,
            undeliverable_here: true,
            ..Modified::default()
        }));
        let settled = first.engine.settle(got[0].0, Some(&modified));
        settled.expect("a delivery");
        run_amqp(&mut world, &mut [&mut first, &mut from, &mut second]);
        let got = messages(&mut second);
        let bytes: Vec<u8> = got.iter().map(|(_, byte, _)| *byte).collect();
        assert_eq!(bytes, [7], "seed {seed}");
        let settled = second
            .engine
            .settle(got[0].0, Some(&DeliveryState::ACCEPTED));
        settled.expect("a delivery");
        run_amqp(&mut world, &mut [&mut first, &mut from, &mut second]);
        check_quiet(&world);
    }
}

#[test]
fn what_is_published_later_waits_at_a_home() {
    for seed in 0..4 {
        let mut setup = setup(seed);
        setup.config.topics.delays.messages_max = 3;
        let mut world = begin(setup);
        let mut peers = vec![
            peer_at(EDGES[0], "a", 0, &[]),
            peer_at(EDGES[1], "b", 0, &[("t", QoS::ExactlyOnce)]),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        for (at, qos) in ALL_QOS.into_iter().enumerate() {
            peers[0].publish(&mut world, "$delayed/5/t", format!("{at}"), qos);
        }
        pass(&mut world, &mut peers);
        assert!(peers[0].is_idle() && peers[1].received.is_empty());
        // There is no room for more, wherever they come from.
        peers[0].publish(&mut world, "$delayed/5/t", "3".into(), QoS::AtLeastOnce);
        pass(&mut world, &mut peers);
        assert_eq!(peers[0].refused.len(), 1, "seed {seed}");
        peers[0].parked = true;
        crash_edge(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_secs(6));
        let mut got = payloads(&peers[1]);
        got.sort_unstable();
        assert_eq!(got, ["0", "1", "2"], "seed {seed}");
        check_quiet(&world);
        assert_eq!(world.disk.stored_messages(), 0);
    }
}

#[test]
fn an_edge_has_no_transactions() {
    let mut setup = setup(1);
    setup.transport = Transport::Tcp;
    let mut world = begin(setup);
    for (place, refused) in [(HOME, false), (EDGES[0], true)] {
        let mut client = amqp_at(&mut world, place);
        let session = client.open(world.now()).expect("open");
        let attach = Attach {
            name: "control",
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AnyTarget::Coordinator(Coordinator::default())),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        client.engine.attach(session, &attach).expect("a session");
        run_amqp(&mut world, &mut [&mut client]);
        let condition = client.find(|event| match event {
            Seen::Detached(_, condition) => Some(condition.clone()),
            _ => None,
        });
        let wanted = refused.then_some("amqp:not-implemented");
        assert_eq!(condition.as_deref(), wanted, "place {place}");
    }
}

#[test]
fn an_edge_ends_with_its_homes() {
    for (lost, code) in [
        (HomeLost::ShutDown, "DISCONNECT 0x8b"),
        (HomeLost::UseAnother("b:1883".into()), "DISCONNECT 0x9c"),
        (HomeLost::Moved("b:1883".into()), "DISCONNECT 0x9d"),
    ] {
        for seed in 0..2 {
            let mut setup = setup(seed);
            setup.config.nodes.home_lost = lost.clone();
            let mut world = begin(setup);
            let mut raw = Raw::default();
            let lines = [
                "CONNECT a clean",
                "CONNECT b expiry=9",
                "CONNECT c v4 clean",
            ];
            let conns = lines.map(|line| {
                let conn = open_on(&mut world, EDGES[0], "mqtt");
                raw.say(&mut world, conn, line);
                raw.seen.remove(&conn);
                conn
            });
            let mut amqp = amqp_at(&mut world, EDGES[0]);
            amqp.open(world.now()).expect("open");
            run_amqp(&mut world, &mut [&mut amqp]);
            crash_homes(&mut world);
            while let Some((conn, event)) = world.next_before_quiet() {
                let now = world.now();
                if !amqp.take(now, conn, &event) {
                    match event {
                        ToClient::Bytes(_, bytes) => {
                            raw.seen.entry(conn).or_default().extend(bytes);
                        }
                        ToClient::Closed(_) => raw.closed.push(conn),
                        _ => {}
                    }
                }
            }
            assert!(is_lost(&world, 0) && !is_ready(&world, 0));
            for conn in &conns[..2] {
                let got = raw.take(*conn);
                assert!(got.len() == 1 && got[0].starts_with(code), "{got:?}");
            }
            assert!(conns.iter().all(|conn| raw.closed.contains(conn)));
            let forced = |event: &Seen| match event {
                Seen::Closed(condition) => Some(condition.clone()),
                _ => None,
            };
            let condition = amqp.find(forced);
            assert_eq!(condition.as_deref(), Some("amqp:connection:forced"));
            // The homes begin again, and edges with them.
            world.crash();
            settle(&mut world);
            assert!(is_ready(&world, 0) && is_ready(&world, 1));
            let conn = open_on(&mut world, EDGES[0], "mqtt");
            raw.say(&mut world, conn, "CONNECT b expiry=9");
            assert_eq!(raw.take(conn), ["CONNACK present"]);
        }
    }
}

/// A subscription is made while an edge joins; what is accepted there once it takes
/// connections comes.
#[test]
fn a_newcomer_knows_every_subscription_that_was_acknowledged() {
    for seed in 0..60 {
        let mut world = begin(setup(seed));
        crash_edge(&mut world, 1);
        settle(&mut world);
        let places = [HOME, 1, EDGES[0]];
        let filters: Vec<String> = (0..12).map(|at| format!("t/{at}")).collect();
        let mut raw = Raw::default();
        let conns = places.map(|place| {
            let conn = open_on(&mut world, place, "mqtt");
            let line = format!("CONNECT c{place} clean");
            raw.say(&mut world, conn, &line);
            conn
        });
        join_edge(&mut world, 1);
        let mut subscribed = Vec::new();
        for (at, filter) in filters.iter().enumerate() {
            let conn = conns[at % 3];
            let line = format!("SUBSCRIBE {} {filter}|q1", at + 1);
            world.send(conn, StreamId::CONTROL, &encode(&line, Version::V5));
            subscribed.push((conn, filter));
            let until = world.now() + Duration::from_micros(300);
            while let Some((conn, event)) = world.next(until) {
                if let ToClient::Bytes(_, bytes) = event {
                    raw.seen.entry(conn).or_default().extend(bytes);
                }
            }
            if is_ready(&world, 1) {
                break;
            }
        }
        while !is_ready(&world, 1) {
            let seen = world.next_before_quiet();
            if let Some((conn, ToClient::Bytes(_, bytes))) = seen {
                raw.seen.entry(conn).or_default().extend(bytes);
            }
        }
        let known: Vec<String> = conns.iter().flat_map(|conn| raw.take(*conn)).collect();
        let publisher = open_on(&mut world, EDGES[1], "mqtt");
        raw.say(&mut world, publisher, "CONNECT p clean");
        for (at, (_, filter)) in subscribed.iter().enumerate() {
            let line = format!("PUBLISH {filter} x q1 #{}", at + 1);
            raw.say(&mut world, publisher, &line);
        }
        for (at, (conn, filter)) in subscribed.iter().enumerate() {
            if known.contains(&format!("SUBACK {} 01", at + 1)) {
                let seen = raw.seen.get(conn).cloned().unwrap_or_default();
                let text = String::from_utf8_lossy(&seen).into_owned();
                assert!(text.contains(filter.as_str()), "{filter} of seed {seed}");
            }
        }
    }
}
