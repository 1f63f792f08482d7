//! What homes may keep for those of other stores.

use core::time::Duration;

use dunlin_base::QoS;
use dunlin_broker::{Event, Part};
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Fault, Setup, World, crash_store, is_store_ready, run, start_store};

use super::{DURABLE, at, connect, payloads, peer};

/// Two homes with a store each, that know each other.
fn two_stores(change: impl FnOnce(&mut Setup)) -> World {
    let mut setup = Setup::new(2, 1);
    setup.config.nodes.homes_per_store = 1;
    change(&mut setup);
    let mut world = World::new(setup);
    run(&mut world, &mut [], Duration::from_millis(200));
    assert!((0..2).all(|store| is_store_ready(&world, store)));
    world
}

/// Bytes that the first home has of messages in queues, and may have.
fn queued(world: &World) -> (usize, usize) {
    let mut parts = world.shards()[0].memory();
    let queued = parts.find(|(part, ..)| *part == Part::Queued);
    let (_, here, limit) = queued.expect("a part");
    (here, limit)
}

#[test]
fn what_is_posted_counts_in_the_memory_budget() {
    const COUNT: usize = 1500;
    let mut world = two_stores(|setup| setup.config.memory.bytes = 256 << 10);
    let mut peers = [
        at("publisher", 0, DURABLE, &[]),
        at("subscriber", 1, DURABLE, &[("t", QoS::AtLeastOnce)]),
    ];
    connect(&mut world, &mut peers);
    crash_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(100));
    drop(world.take_log());
    for number in 0..COUNT {
        let payload = format!("{number:04}");
        peers[0].publish(&mut world, "t", payload, QoS::AtLeastOnce);
    }
    run(&mut world, &mut peers, Duration::from_secs(10));
    let (taken, refused) = (peers[0].acknowledged.len(), peers[0].refused.len());
    assert_eq!(taken + refused, COUNT);
    assert!(taken > 0 && refused > 0, "{taken}, {refused}");
    let (here, limit) = queued(&world);
    assert!(here > limit / 2 && here <= limit, "{here} of {limit}");
    assert_eq!(
        world.shards()[0].stats().memory_refused_queued,
        refused as u64
    );
    let log = world.take_log();
    let full = |event: &Event| matches!(event, Event::MemoryFull(Part::Queued));
    assert_eq!(log.iter().filter(|event| full(event)).count(), 1);
    assert_eq!(world.census().miscounted_bytes, 0);
    // After a restart it counts as before.
    crash_store(&mut world, 0);
    run(&mut world, &mut peers, Duration::from_millis(100));
    start_store(&mut world, 0);
    run(&mut world, &mut peers, Duration::from_millis(100));
    assert_eq!(queued(&world).0, here);
    assert_eq!(world.census().miscounted_bytes, 0);
    start_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_secs(1));
    connect(&mut world, &mut peers);
    run(&mut world, &mut peers, Duration::from_secs(10));
    assert_eq!(payloads(&peers[1]).count(), taken);
    assert_eq!(queued(&world).0, 0);
    peers[0].publish(&mut world, "t", "more".into(), QoS::AtLeastOnce);
    run(&mut world, &mut peers, Duration::from_secs(1));
    assert_eq!(peers[0].acknowledged.len(), taken + 1);
    assert_eq!(world.census().miscounted_bytes, 0);
}

/// MQTT 3.1.1 has no way to refuse: a client that is cut off sends the same again.
#[test]
fn a_publisher_that_cannot_be_refused_waits_for_room() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut world = two_stores(|setup| setup.config.nodes.posts.messages_max = 2);
        let mut v4 = peer(("v4", 0, 2), Version::V311, DURABLE, &[("here", qos)]);
        v4.at = Some(0);
        let mut peers = [
            v4,
            at("v5", 0, DURABLE, &[]),
            at("subscriber", 1, DURABLE, &[("t", qos)]),
            at("here", 0, DURABLE, &[("t", qos)]),
        ];
        connect(&mut world, &mut peers);
        crash_store(&mut world, 1);
        run(&mut world, &mut peers, Duration::from_millis(100));
        let all = ["0", "1", "2", "3", "4"];
        for payload in all {
            peers[0].publish(&mut world, "t", payload.into(), qos);
        }
        run(&mut world, &mut peers, Duration::from_secs(5));
        assert_eq!(peers[0].acknowledged.len(), 2);
        assert_eq!(peers[0].connections, 1, "it is not cut off");
        assert_eq!(payloads(&peers[3]).collect::<Vec<_>>(), ["0", "1"]);
        // The others are served, and so is it; who can be refused is.
        peers[1].publish(&mut world, "here", "x".into(), qos);
        peers[1].publish(&mut world, "t", "y".into(), qos);
        run(&mut world, &mut peers, Duration::from_secs(1));
        assert_eq!(
            (peers[1].acknowledged.len(), peers[1].refused.len()),
            (1, 1)
        );
        assert_eq!(payloads(&peers[0]).collect::<Vec<_>>(), ["x"]);
        assert_eq!(world.census().miscounted_bytes, 0);
        start_store(&mut world, 1);
        run(&mut world, &mut peers, Duration::from_secs(1));
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(5));
        assert_eq!((peers[0].acknowledged.len(), peers[0].connections), (5, 1));
        for peer in &peers[2..] {
            assert_eq!(payloads(peer).collect::<Vec<_>>(), all);
        }
        let census = world.census();
        assert_eq!((census.pending, census.miscounted_bytes), (0, 0));
    }
}

/// It was acknowledged: it waits where it was published, and what has room goes past it.
#[test]
fn what_a_receiver_of_another_store_has_no_room_for_waits() {
    const MAX: usize = 3;
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut world = two_stores(|setup| setup.config.sessions.queue_messages_max = MAX);
        let mut peers = [
            at("publisher", 0, DURABLE, &[]),
            at("full", 1, DURABLE, &[("t", qos)]),
            at("other", 1, DURABLE, &[("u", qos)]),
        ];
        connect(&mut world, &mut peers);
        peers[1].parked = true;
        peers[1].cut(&mut world);
        run(&mut world, &mut peers, Duration::from_millis(300));
        let numbers: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
        for number in &numbers {
            peers[0].publish(&mut world, "t", number.clone(), qos);
            peers[0].publish(&mut world, "u", number.clone(), qos);
        }
        run(&mut world, &mut peers, Duration::from_secs(3));
        assert_eq!(payloads(&peers[2]).collect::<Vec<_>>(), numbers);
        // As at home, its publishers hear of it.
        peers[0].publish(&mut world, "t", "late".into(), qos);
        run(&mut world, &mut peers, Duration::from_secs(1));
        assert_eq!(peers[0].refused.last().map(|it| &*it.payload), Some("late"));
        // Both homes begin again meanwhile.
        for store in [1, 0] {
            crash_store(&mut world, store);
            run(&mut world, &mut peers, Duration::from_millis(100));
            start_store(&mut world, store);
            run(&mut world, &mut peers, Duration::from_secs(2));
        }
        assert_eq!(world.disks[0].stored_messages(), MAX);
        assert!(world.disk.stored_messages() > 0, "at the publisher's");
        peers[1].parked = false;
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(20));
        let acknowledged = peers[0].acknowledged.iter().filter(|it| it.topic == "t");
        let acknowledged: Vec<&str> = acknowledged.map(|it| &*it.payload).collect();
        assert!(acknowledged.len() > MAX, "{acknowledged:?}");
        assert_eq!(payloads(&peers[1]).collect::<Vec<_>>(), acknowledged);
        let stored = world.disk.stored_messages() + world.disks[0].stored_messages();
        let census = world.census();
        assert_eq!((stored, census.pending, census.miscounted_bytes), (0, 0, 0));
        connect(&mut world, &mut peers);
        peers[0].publish(&mut world, "t", "last".into(), qos);
        run(&mut world, &mut peers, Duration::from_secs(1));
        assert_eq!(payloads(&peers[1]).last(), Some("last"));
    }
}

/// The publisher is refused and publishes it again; the store has both, and one is given.
#[test]
fn a_post_that_was_refused_and_is_stored_is_not_given() {
    for (qos, receiver) in [
        (QoS::AtLeastOnce, 1),
        (QoS::ExactlyOnce, 1),
        (QoS::ExactlyOnce, 0),
    ] {
        let mut world = two_stores(|_| {});
        let mut peers = [
            at("publisher", 0, DURABLE, &[]),
            at("subscriber", receiver, DURABLE, &[("t", QoS::ExactlyOnce)]),
        ];
        connect(&mut world, &mut peers);
        // Nothing of it is taken before the publisher's home begins again.
        peers[1].parked = true;
        peers[1].cut(&mut world);
        crash_store(&mut world, 1);
        run(&mut world, &mut peers, Duration::from_millis(300));
        world.disk.fault = Fault::Unsure;
        peers[0].publish(&mut world, "t", "x".into(), qos);
        run(&mut world, &mut peers, Duration::from_millis(500));
        assert_eq!(
            (peers[0].acknowledged.len(), peers[0].refused.len()),
            (0, 1)
        );
        world.disk.fault = Fault::None;
        peers[0].publish(&mut world, "t", "x".into(), qos);
        run(&mut world, &mut peers, Duration::from_secs(3));
        assert_eq!(peers[0].acknowledged.len(), 1);
        assert_eq!(world.disk.stored_messages(), 1, "{qos:?}, {receiver}");
        crash_store(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_millis(100));
        for store in [0, 1] {
            start_store(&mut world, store);
        }
        peers[1].parked = false;
        run(&mut world, &mut peers, Duration::from_secs(1));
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(5));
        assert_eq!(payloads(&peers[1]).collect::<Vec<_>>(), ["x"]);
    }
}

/// With the message goes that it came: after a restart it would be taken for a repetition.
#[test]
fn what_was_refused_and_is_stored_counts_as_new_after_a_restart() {
    for version in [Version::V311, Version::V5] {
        let mut world = two_stores(|_| {});
        let mut peers = [
            peer(("publisher", 0, 2), version, DURABLE, &[]),
            at("subscriber", 0, DURABLE, &[("t", QoS::ExactlyOnce)]),
        ];
        peers[0].at = Some(0);
        connect(&mut world, &mut peers);
        peers[1].parked = true;
        peers[1].cut(&mut world);
        world.disk.fault = Fault::Unsure;
        peers[0].publish(&mut world, "t", "x".into(), QoS::ExactlyOnce);
        for _ in 0..100 {
            run(&mut world, &mut peers, Duration::from_millis(1));
            if world.disk.has_refused("x") {
                break;
            }
        }
        peers[0].parked = true;
        run(&mut world, &mut peers, Duration::from_millis(200));
        peers[0].cut(&mut world);
        crash_store(&mut world, 0);
        let recovered = world.disk.recover();
        assert!(recovered.sessions.iter().all(|it| it.inbound.is_empty()));
        assert_eq!(world.disk.stored_messages(), 0);
        world.disk.fault = Fault::None;
        run(&mut world, &mut peers, Duration::from_millis(100));
        start_store(&mut world, 0);
        peers.iter_mut().for_each(|peer| peer.parked = false);
        run(&mut world, &mut peers, Duration::from_secs(1));
        connect(&mut world, &mut peers);
        if peers[0].refused.len() == 1 {
            peers[0].publish(&mut world, "t", "x".into(), QoS::ExactlyOnce);
        }
        run(&mut world, &mut peers, Duration::from_secs(5));
        assert_eq!(peers[0].acknowledged.len(), 1, "{version:?}");
        assert_eq!(payloads(&peers[1]).collect::<Vec<_>>(), ["x"]);
    }
}
