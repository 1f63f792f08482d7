//! Links of AMQP at edges: queues, names of links, nodes, outcomes.

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Coordinator, DeliveryState, Message, Modified, Outcome, ReceiverSettleMode,
    Role, SerialNumber, Source, Symbols, Target, TerminusExpiryPolicy,
};
use dunlin_amqp::{Connection, Delivery, Limits, SaslPolicy, Settings, Side};
use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_broker::NamedQueue;
use dunlin_sim::{AmqpClient, Seen, Setup, World, crash_edge, run_amqp};

use super::{EDGES, HOME, HOMES, amqp_at, begin, check_quiet, settle, setup};

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

/// Why a client at this place gets no link to the coordinator of transactions.
fn refused_coordinator(world: &mut World, place: usize) -> Option<String> {
    let mut client = amqp_at(world, place);
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
    run_amqp(world, &mut [&mut client]);
    client.detached()
}

#[test]
fn an_edge_has_no_transactions() {
    let mut setup = setup(1);
    setup.transport = Transport::Tcp;
    let mut world = begin(setup);
    for (place, refused) in [(HOME, false), (EDGES[0], true)] {
        let condition = refused_coordinator(&mut world, place);
        let wanted = refused.then_some("amqp:not-implemented");
        assert_eq!(condition.as_deref(), wanted, "place {place}");
    }
}

/// Homes with a store each.
fn apart() -> World {
    let mut setup = Setup::new(HOMES, 1);
    setup.transport = Transport::Tcp;
    setup.config.nodes.homes_per_store = 1;
    setup.config.queues.named = vec![NamedQueue {
        name: Text::from("jobs"),
        ..NamedQueue::default()
    }];
    let mut world = World::new(setup);
    settle(&mut world);
    world
}

#[test]
fn homes_with_several_stores_have_no_transactions() {
    let condition = refused_coordinator(&mut apart(), HOME);
    assert_eq!(condition.as_deref(), Some("amqp:not-implemented"));
}

/// One of the two homes is that of the queue; a message is in its store when it is
/// accepted.
#[test]
fn a_queue_is_at_one_home_of_several_stores() {
    let mut world = apart();
    let mut from = [0, 1].map(|place| amqp_at(&mut world, place));
    let links = from.each_mut().map(|from| {
        let session = from.open(world.now()).expect("open");
        from.sender(session, "/queues/jobs").expect("a link")
    });
    let mut taker = amqp_at(&mut world, 0);
    let session = taker.open(world.now()).expect("open");
    {
        let [a, b] = &mut from;
        run_amqp(&mut world, &mut [a, b]);
    }
    for (byte, (from, link)) in (1..).zip(from.iter_mut().zip(links)) {
        from.send(link, &message(byte)).expect("credit");
        run_amqp(&mut world, &mut [from]);
        let stored = world.disk.stored_messages() + world.disks[0].stored_messages();
        assert_eq!(stored, usize::from(byte));
    }
    taker.receiver(session, "/queues/jobs", 10).expect("a link");
    run_amqp(&mut world, &mut [&mut taker]);
    let got: Vec<u8> = messages(&mut taker)
        .iter()
        .map(|(_, byte, _)| *byte)
        .collect();
    assert_eq!(got, [1, 2]);
}
