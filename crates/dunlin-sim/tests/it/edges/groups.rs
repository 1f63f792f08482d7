//! Shared subscriptions with members at edges, to which a home lends messages.

use core::time::Duration;

use dunlin_base::{ConnId, QoS};
use dunlin_sim::{Peer, PeerEvent, crash_edge, open_on, run};

use super::{EDGES, HOME, Raw, begin, check_quiet, pass, payloads, peer_at, setup};

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

/// No other node has a member that could be asked instead.
#[test]
fn what_the_only_edge_with_members_has_no_room_for_waits_for_it() {
    for seed in 0..6 {
        let mut setup = setup(seed);
        setup.config.sessions.queue_messages_max = 2;
        let mut world = begin(setup);
        let share = [("$share/g/t", QoS::AtLeastOnce)];
        let mut peers = vec![
            peer_at(HOME, "publisher", 0, &[]),
            peer_at(EDGES[0], "m1", 0, &share),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        let stalled = peers[1].conn().expect("connected");
        world.stall(stalled, true);
        for at in 0..60 {
            peers[0].publish(&mut world, "t", format!("{at}"), QoS::AtLeastOnce);
        }
        pass(&mut world, &mut peers);
        assert_eq!(acknowledged(&peers[0]).len(), 60, "seed {seed}");
        assert!(world.is_quiet(), "nothing goes to and fro, seed {seed}");
        world.stall(stalled, false);
        run(&mut world, &mut peers, Duration::from_secs(30));
        let got = payloads(&peers[1]).into_iter();
        let mut got: Vec<u32> = got.filter_map(|payload| payload.parse().ok()).collect();
        got.sort_unstable();
        assert_eq!(got, (0..60).collect::<Vec<u32>>(), "seed {seed}");
        check_quiet(&world);
    }
}

/// The session of a member ends before what it is to get is stored: a member at an edge gets
/// that, and with its acknowledgement it leaves the queue of the group.
#[test]
fn what_another_member_acknowledges_does_not_come_back_with_a_restart() {
    for seed in 0..6 {
        let mut setup = setup(seed);
        // Of another one is not known whether its members are there.
        setup.shards = 1;
        setup.pace.store = (30_000, 30_000);
        let mut world = begin(setup);
        let share = [("$share/g/t", QoS::AtLeastOnce)];
        let mut peers = vec![
            peer_at(HOME, "publisher", 0, &[]),
            peer_at(HOME, "kept", 1000, &share),
            peer_at(HOME, "guest", 0, &share),
            peer_at(1, "at-edge", 0, &share),
        ];
        peers.iter_mut().for_each(|peer| peer.connect(&mut world));
        pass(&mut world, &mut peers);
        assert!(peers.iter().all(Peer::is_idle));
        peers[1].parked = true;
        peers[1].cut(&mut world);
        pass(&mut world, &mut peers);
        for at in 0..12 {
            peers[0].publish(&mut world, "t", format!("{at}"), QoS::AtLeastOnce);
        }
        run(&mut world, &mut peers, Duration::from_millis(8));
        peers[2].parked = true;
        peers[2].cut(&mut world);
        pass(&mut world, &mut peers);
        assert_eq!(acknowledged(&peers[0]).len(), 12, "seed {seed}");
        assert!(peers[2].received.is_empty(), "it was too early");
        assert_eq!(payloads(&peers[3]).len(), 12, "seed {seed}");
        check_quiet(&world);
        assert_eq!(world.disk.stored_messages(), 0, "seed {seed}");
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
