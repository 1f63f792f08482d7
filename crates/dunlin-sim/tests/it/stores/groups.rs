//! Shared subscriptions with members at homes of several stores.

use core::time::Duration;

use dunlin_base::QoS;
use dunlin_sim::{Peer, World, crash_store, run, start_store};

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
