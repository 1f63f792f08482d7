//! Shared subscriptions with members at homes of several stores.

use core::time::Duration;

use dunlin_base::QoS;
use dunlin_sim::{Fault, Peer, World, crash_store, is_store_ready, run, start_store};
use dunlin_store::StoreOp;

use super::{DURABLE, at, connect, payloads, two_stores};

fn pass(world: &mut World, peers: &mut [Peer], secs: u64) {
    run(world, peers, Duration::from_secs(secs));
}

/// Numbers of so many messages.
fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:02}")).collect()
}

fn publish(world: &mut World, peers: &mut [Peer], count: usize, qos: QoS) {
    for number in numbers(count) {
        peers[0].publish(world, "t", number, qos);
    }
    pass(world, peers, 1);
    assert_eq!(peers[0].acknowledged.len(), count);
}

fn sorted(peer: &Peer) -> Vec<&str> {
    let mut payloads: Vec<&str> = payloads(peer).collect();
    payloads.sort_unstable();
    payloads
}

fn stored(world: &World) -> [usize; 2] {
    [&world.disk, &world.disks[0]].map(|disk| disk.stored_messages())
}

#[test]
fn a_group_prefers_members_whose_home_is_there() {
    for (seed, qos) in [(1, QoS::AtLeastOnce), (2, QoS::AtLeastOnce)] {
        let mut world = two_stores(seed);
        let share = [("$share/g/t", qos)];
        let mut peers = [
            at("publisher", 0, DURABLE, &[]),
            at("member", 0, DURABLE, &share),
            at("member", 1, DURABLE, &share),
        ];
        connect(&mut world, &mut peers);
        crash_store(&mut world, 1);
        pass(&mut world, &mut peers, 1);
        publish(&mut world, &mut peers, 20, qos);
        assert_eq!(sorted(&peers[1]), numbers(20), "seed {seed}");
        assert_eq!(stored(&world), [0, 0], "nothing waits for the other home");
        // Where there is no other member, it is for that one.
        peers[1].leave(&mut world, Some(0));
        pass(&mut world, &mut peers, 1);
        peers[0].publish(&mut world, "t", "last".into(), qos);
        pass(&mut world, &mut peers, 1);
        assert_eq!((peers[0].acknowledged.len(), stored(&world)), (21, [1, 0]));
        start_store(&mut world, 1);
        pass(&mut world, &mut peers, 1);
        connect(&mut world, &mut peers);
        pass(&mut world, &mut peers, 1);
        assert_eq!(sorted(&peers[2]), ["last"], "seed {seed}");
    }
}

/// A publisher; a member at its home that takes nothing of ten messages; one that comes
/// then, at the home of another store.
fn waiting(seed: u64, expiry_secs: u32, qos: QoS) -> (World, [Peer; 3]) {
    let mut world = two_stores(seed);
    let share = [("$share/g/t", qos)];
    let mut peers = [
        at("publisher", 0, DURABLE, &[]),
        at("leaves", 0, expiry_secs, &share),
        at("stays", 1, DURABLE, &share),
    ];
    peers[2].parked = true;
    connect(&mut world, &mut peers);
    let stalled = peers[1].conn().expect("connected");
    world.stall(stalled, true);
    publish(&mut world, &mut peers, 10, qos);
    peers[2].parked = false;
    connect(&mut world, &mut peers);
    assert_eq!(peers[2].received, []);
    (world, peers)
}

fn leave(world: &mut World, peers: &mut [Peer]) {
    peers[1].parked = true;
    peers[1].cut(world);
}

fn check_left(world: &World, seed: u64) {
    assert_eq!(stored(world), [0, 0], "seed {seed}");
    let census = world.census();
    assert_eq!((census.pending, census.prepared), (0, 0), "seed {seed}");
    assert_eq!(census.miscounted_bytes, 0, "seed {seed}");
}

#[test]
fn what_a_member_had_that_ends_goes_to_a_member_of_another_store() {
    for (seed, expiry_secs) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        let (mut world, mut peers) = waiting(seed, expiry_secs, QoS::AtLeastOnce);
        leave(&mut world, &mut peers);
        pass(&mut world, &mut peers, 5);
        assert_eq!(sorted(&peers[2]), numbers(10), "seed {seed}");
        check_left(&world, seed);
    }
}

/// What was not sent to the member that ends, which may have what was.
#[test]
fn what_was_not_sent_exactly_once_goes_to_a_member_of_another_store() {
    for (seed, expiry_secs) in [(1, 1), (2, 1)] {
        let (mut world, mut peers) = waiting(seed, expiry_secs, QoS::ExactlyOnce);
        leave(&mut world, &mut peers);
        pass(&mut world, &mut peers, 5);
        assert_eq!(sorted(&peers[2]), numbers(10)[8..], "seed {seed}");
    }
}

#[test]
fn what_a_member_had_that_ends_waits_for_a_home_that_is_away() {
    for seed in [1, 2] {
        let (mut world, mut peers) = waiting(seed, 1, QoS::AtLeastOnce);
        crash_store(&mut world, 1);
        pass(&mut world, &mut peers, 1);
        leave(&mut world, &mut peers);
        pass(&mut world, &mut peers, 5);
        assert_eq!(stored(&world), [10, 0], "seed {seed}");
        start_store(&mut world, 1);
        pass(&mut world, &mut peers, 1);
        connect(&mut world, &mut peers);
        pass(&mut world, &mut peers, 5);
        assert_eq!(sorted(&peers[2]), numbers(10), "seed {seed}");
        check_left(&world, seed);
    }
}

/// Its time ends after a restart: the messages are in the store only.
#[test]
fn what_a_member_had_that_ends_after_a_restart_goes_to_one_of_another_store() {
    for seed in [1, 2] {
        let (mut world, mut peers) = waiting(seed, 2, QoS::AtLeastOnce);
        peers[1].parked = true;
        crash_store(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_millis(100));
        start_store(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_millis(300));
        assert!(is_store_ready(&world, 0));
        pass(&mut world, &mut peers, 5);
        assert_eq!(sorted(&peers[2]), numbers(10), "seed {seed}");
        check_left(&world, seed);
    }
}

#[test]
fn what_a_member_had_that_ends_waits_for_room_in_the_store() {
    for seed in [1, 2] {
        let (mut world, mut peers) = waiting(seed, 1, QoS::AtLeastOnce);
        world.disk.fault = Fault::Full;
        leave(&mut world, &mut peers);
        pass(&mut world, &mut peers, 4);
        assert_eq!((peers[2].received.len(), stored(&world)), (0, [10, 0]));
        world.disk.fault = Fault::None;
        pass(&mut world, &mut peers, 5);
        assert_eq!(sorted(&peers[2]), numbers(10), "seed {seed}");
        check_left(&world, seed);
    }
}

/// The member is gone from the store, and what it had is not.
#[test]
fn what_no_member_had_before_a_restart_goes_to_one_of_another_store() {
    for seed in [1, 2] {
        let (mut world, mut peers) = waiting(seed, DURABLE, QoS::AtLeastOnce);
        peers[1].parked = true;
        crash_store(&mut world, 0);
        run(&mut world, &mut peers, Duration::from_millis(100));
        let found = world.disk.recover().sessions;
        let mut sessions = found.iter();
        let member = sessions.find(|it| it.record.client_id == *peers[1].client_id());
        let key = member.expect("its session").key;
        world.disk.write(vec![StoreOp::DeleteSession { key }]);
        assert_eq!(stored(&world), [10, 0]);
        start_store(&mut world, 0);
        pass(&mut world, &mut peers, 5);
        assert_eq!(sorted(&peers[2]), numbers(10), "seed {seed}");
        check_left(&world, seed);
    }
}
