//! Clients of MQTT at edges: what they send each other, retained messages, wills, sessions
//! that move.

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::{QoS, StreamId};
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Peer, crash_edge, encode, is_ready, join_edge, open_on, run};

use super::{ALL_QOS, EDGES, HOME, Raw, begin, check_quiet, pass, payloads, peer_at, setup};

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
