//! What packets meet on their ways through a network.

use super::*;
use crate::packet::tests::udp;

const MS: Duration = Duration::from_millis(1);

fn profile(settings: &[(&str, &str)]) -> Profile {
    let mut profile = Profile::default();
    for (name, value) in settings {
        profile.set(name, value).unwrap();
    }
    profile
}

fn both(settings: &[(&str, &str)]) -> [Profile; 2] {
    [profile(settings), profile(settings)]
}

/// Hosts `x`, `y` and `z` around the node `hub`.
fn star(settings: &[(&str, &str)]) -> Topology {
    let mut topology = Topology::new();
    topology.node("hub").unwrap();
    for name in ["x", "y", "z"] {
        topology.host(name).unwrap();
        topology.link(name, name, "hub", both(settings)).unwrap();
    }
    topology
}

/// A packet from host to host, counted from 1.
fn packet(from: u8, to: u8, what: &[u8]) -> Vec<u8> {
    udp(
        &format!("10.203.0.{from}:5000"),
        &format!("10.203.0.{to}:9"),
        what,
    )
}

fn pair(settings: &[(&str, &str)]) -> Network {
    Network::new(&Topology::pair(both(settings)), 1).unwrap()
}

fn exits(network: &mut Network, now: Duration) -> Vec<(Duration, Option<usize>, Fate)> {
    core::iter::from_fn(|| network.poll(now))
        .map(|exit| (exit.due, exit.to.map(|to| to.0), exit.fate))
        .collect()
}

#[test]
fn delays_add_up_on_the_way_however_late_it_is_asked() {
    let mut network = Network::new(&star(&[("delay", "10ms")]), 1).unwrap();
    for to in [2, 3] {
        network
            .handle_packet(MS * u32::from(to), HostId(0), packet(1, to, b"a"))
            .unwrap();
    }
    assert_eq!(network.next_timeout(), Some(MS * 12));
    assert_eq!(
        exits(&mut network, MS * 500),
        [
            (MS * 22, Some(1), Fate::Left),
            (MS * 23, Some(2), Fate::Left),
        ]
    );
    let counts = |link, side| network.counters(LinkId(link), side).unwrap().packets_out;
    assert_eq!(
        [counts(0, Side::A), counts(1, Side::B), counts(2, Side::B)],
        [2, 1, 1]
    );
    assert_eq!(counts(1, Side::A), 0);
}

#[test]
fn a_shared_link_is_a_bottleneck() {
    let mut topology = star(&[]);
    // A packet of 1250 bytes takes a millisecond, and four fit.
    let slow = both(&[("rate", "10mbit"), ("queue", "5kB")]);
    topology.set_profiles(Some("z"), &slow).unwrap();
    let mut network = Network::new(&topology, 1).unwrap();
    let body = [0; 1250 - 28];
    for from in [0, 1, 0, 1, 0, 1] {
        network
            .handle_packet(Duration::ZERO, HostId(from), {
                packet(u8::try_from(from + 1).unwrap(), 3, &body)
            })
            .unwrap();
    }
    let seen = exits(&mut network, MS * 9);
    let left: Vec<_> = seen.iter().filter(|x| x.2 == Fate::Left).collect();
    assert_eq!(
        left.iter().map(|x| x.0).collect::<Vec<_>>(),
        [MS, MS * 2, MS * 3, MS * 4]
    );
    assert_eq!(seen.iter().filter(|x| x.2 == Fate::QueueFull).count(), 2);
    assert_eq!(network.counters(LinkId(2), Side::B).unwrap().queue_full, 2);
}

#[test]
fn what_is_for_no_host_is_dropped() {
    let mut network = Network::new(&star(&[]), 1).unwrap();
    let drops = [
        (packet(1, 77, b"a"), Fate::NoRoute),
        (vec![0x60; 40], Fate::NotIp),
        (Vec::new(), Fate::NotIp),
    ];
    for (bytes, fate) in drops {
        let exit = network.handle_packet(MS, HostId(0), bytes).unwrap_err();
        assert_eq!((exit.fate, exit.to), (fate, None));
    }
    let counters = network.counters(LinkId(0), Side::A).unwrap();
    assert_eq!((counters.no_route, counters.not_ip), (1, 2));
    assert_eq!(counters.packets_in, 3);
    assert_eq!(network.next_timeout(), None);
    let unknown = network.handle_packet(MS, HostId(9), packet(1, 2, b"a"));
    assert_eq!(unknown.unwrap_err().fate, Fate::NoRoute);
}

#[test]
fn no_way_leads_through_a_host() {
    let mut topology = Topology::new();
    for name in ["x", "y", "z"] {
        topology.host(name).unwrap();
    }
    topology.link("xy", "x", "y", both(&[])).unwrap();
    topology.link("yz", "y", "z", both(&[])).unwrap();
    let mut network = Network::new(&topology, 1).unwrap();
    let exit = network.handle_packet(MS, HostId(0), packet(1, 3, b"a"));
    assert_eq!(exit.unwrap_err().fate, Fate::NoRoute);
    network
        .handle_packet(MS, HostId(1), packet(2, 3, b"a"))
        .unwrap();
    assert_eq!(exits(&mut network, MS), [(MS, Some(2), Fate::Left)]);
}

#[test]
fn the_shorter_way_is_taken_also_in_a_ring() {
    let mut topology = Topology::new();
    for name in ["n0", "n1", "n2", "n3"] {
        topology.node(name).unwrap();
    }
    let ring = [("n0", "n1"), ("n1", "n2"), ("n2", "n3"), ("n3", "n0")];
    for (index, (from, to)) in ring.into_iter().enumerate() {
        let name = format!("r{index}");
        topology
            .link(&name, from, to, both(&[("delay", "5ms")]))
            .unwrap();
    }
    for (host, node) in [("x", "n0"), ("y", "n3")] {
        topology.host(host).unwrap();
        topology.link(host, host, node, both(&[])).unwrap();
    }
    topology.host("z").unwrap();
    topology.link("z", "z", "n2", both(&[])).unwrap();
    let mut network = Network::new(&topology, 1).unwrap();
    for to in [2, 3] {
        network
            .handle_packet(MS, HostId(0), packet(1, to, b"a"))
            .unwrap();
    }
    assert_eq!(
        exits(&mut network, MS * 100),
        [
            (MS * 6, Some(1), Fate::Left),
            (MS * 11, Some(2), Fate::Left),
        ]
    );
}

#[test]
fn hosts_are_found_at_their_new_addresses() {
    let mut network = Network::new(&star(&[]), 1).unwrap();
    let send = |network: &mut Network, to: &str| {
        let bytes = udp("10.203.0.1:5000", &format!("{to}:9"), b"a");
        let sent = network.handle_packet(MS, HostId(0), bytes);
        sent.map(|()| network.poll(MS).and_then(|exit| exit.to))
            .map_err(|exit| exit.fate)
    };
    let act = |network: &mut Network, action: &str| {
        network.apply(&Action::parse(action).unwrap()).unwrap();
    };
    assert_eq!(send(&mut network, "10.203.0.2"), Ok(Some(HostId(1))));
    act(&mut network, "move y 10.203.9.9");
    assert_eq!(send(&mut network, "10.203.0.2"), Err(Fate::NoRoute));
    assert_eq!(send(&mut network, "10.203.9.9"), Ok(Some(HostId(1))));
    act(&mut network, "add y 10.203.9.10");
    assert_eq!(send(&mut network, "10.203.9.9"), Ok(Some(HostId(1))));
    assert_eq!(send(&mut network, "10.203.9.10"), Ok(Some(HostId(1))));
    act(&mut network, "remove y 10.203.9.9");
    assert_eq!(send(&mut network, "10.203.9.9"), Err(Fate::NoRoute));
    // What another host takes over is not lost when the first lets go of it.
    act(&mut network, "add z 10.203.9.10");
    act(&mut network, "remove y 10.203.9.10");
    assert_eq!(send(&mut network, "10.203.9.10"), Ok(Some(HostId(2))));
}

#[test]
fn a_rebinding_loses_only_what_is_on_its_way_to_the_old_port() {
    let mut network = pair(&[("delay", "10ms")]);
    let there = packet(1, 2, b"there");
    let back = udp("10.203.0.2:9", "10.203.0.1:5000", b"back");
    let (a, b) = (HostId(0), HostId(1));
    network.handle_packet(MS, b, back).unwrap();
    network.handle_packet(MS * 2, a, there.clone()).unwrap();
    network.apply(&Action::parse("rebind a").unwrap()).unwrap();
    network.handle_packet(MS * 3, a, there).unwrap();
    let mut fates = Vec::new();
    while let Some(exit) = network.poll(MS * 20) {
        let from = Packet::new(&exit.bytes[..]).unwrap().source().end.port();
        fates.push((exit.to, exit.fate, from == 5000));
    }
    assert_eq!(
        fates,
        [
            (Some(a), Fate::NoMapping, false),
            (Some(b), Fate::Left, true),
            (Some(b), Fate::Left, false),
        ]
    );
    assert_eq!(network.counters(LinkId(0), Side::B).unwrap().no_mapping, 1);
    assert_eq!(network.counters(LinkId(0), Side::A).unwrap().packets_out, 2);
    assert_eq!(network.next_timeout(), None);
}

#[test]
fn a_nat_with_an_address_is_reached_at_it() {
    let mut network = Network::new(&star(&[]), 1).unwrap();
    let rebind = Action::parse("rebind x 10.203.7.7").unwrap();
    network.apply(&rebind).unwrap();
    network
        .handle_packet(MS, HostId(0), packet(1, 2, b"a"))
        .unwrap();
    let there = network.poll(MS).unwrap();
    let outside = Packet::new(&there.bytes[..]).unwrap().source().end;
    assert_eq!(outside.ip(), &Ipv4Addr::new(10, 203, 7, 7));
    let answer = udp("10.203.0.2:9", &outside.to_string(), b"b");
    network.handle_packet(MS, HostId(1), answer).unwrap();
    let back = network.poll(MS).unwrap();
    assert_eq!((back.to, back.fate), (Some(HostId(0)), Fate::Left));
    let host = Packet::new(&back.bytes[..]).unwrap().destination().end;
    assert_eq!(host, "10.203.0.1:5000".parse().unwrap());
}

#[test]
fn settings_reach_the_right_links_and_directions() {
    let mut network = Network::new(&star(&[]), 1).unwrap();
    for action in ["delay=9ms", "y.up.delay=8ms", "z.delay=7ms"] {
        network.apply(&Action::parse(action).unwrap()).unwrap();
    }
    let delays = [0, 1, 2].map(|link| {
        Side::BOTH.map(|side| {
            network
                .profile(LinkId(link), side)
                .unwrap()
                .delay
                .as_millis()
        })
    });
    assert_eq!(delays, [[9, 9], [8, 9], [7, 7]]);
    for (action, want) in [
        ("wan.delay=1ms", "there is no link `wan`; there are x, y, z"),
        ("rebind hub", "there is no host `hub`; there are x, y, z"),
    ] {
        let action = Action::parse(action).unwrap();
        assert_eq!(network.apply(&action).unwrap_err().to_string(), want);
    }
}

#[test]
fn one_seed_decides_everything() {
    let run = |seed| {
        let settings = [("loss", "20%"), ("jitter", "2ms"), ("delay", "5ms")];
        let mut network = Network::new(&star(&settings), seed).unwrap();
        let mut seen = Vec::new();
        for i in 0..240_u8 {
            let (from, to) = (i % 3, (i + 1) % 3);
            let bytes = packet(from + 1, to + 1, b"a");
            let sent = network.handle_packet(MS * u32::from(i), HostId(from.into()), bytes);
            seen.push(sent.is_ok());
        }
        (seen, exits(&mut network, MS * 1000))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Each packet that goes in comes out once, or twice if
/// it was duplicated, in the order of times.
#[test]
fn no_packet_is_forgotten() {
    let profiles = both(&[
        ("delay", "3ms"),
        ("jitter", "2ms"),
        ("order", "free"),
        ("rate", "1mbit"),
        ("queue", "2kB"),
        ("loss", "ge 5% 30%"),
        ("reorder", "5% 4ms"),
        ("duplicate", "5%"),
        ("corrupt", "5%"),
    ]);
    let topology = Topology::dumbbell(&profiles).unwrap();
    let addresses: Vec<Ipv4Addr> = topology.addresses().collect();
    let hosts = addresses.len() as u64;
    for seed in 0..20 {
        let mut network = Network::new(&topology, seed).unwrap();
        let mut random = Random::new(seed);
        let (mut now, mut sent, mut ends) = (Duration::ZERO, 0, 0);
        let mut last = Duration::ZERO;
        for round in 0..2_000_u32 {
            now += Duration::from_micros(random.below(400));
            if round == 1_000 {
                for action in ["c00.blackhole=on", "rebind c01", "move c02 10.203.7.7"] {
                    network.apply(&Action::parse(action).unwrap()).unwrap();
                }
            }
            let from = random.below(hosts) as usize;
            let to = addresses[random.below(hosts) as usize];
            let source = format!("{}:7", addresses[from]);
            let bytes = udp(&source, &format!("{to}:9"), b"some bytes");
            sent += 1;
            ends += u64::from(network.handle_packet(now, HostId(from), bytes).is_err());
            while random.chance(0.7)
                && let Some(exit) = network.poll(now)
            {
                assert!(last <= exit.due && exit.due <= now);
                (last, ends) = (exit.due, ends + 1);
            }
        }
        ends += core::iter::from_fn(|| network.poll(Duration::MAX)).count() as u64;
        let duplicated: u64 = topology
            .links()
            .flat_map(|link| Side::BOTH.map(|side| (link, side)))
            .map(|(link, side)| network.counters(link, side).unwrap())
            .inspect(|link| {
                let drops = link.queue_full + link.lost + link.swallowed;
                let drops = drops + link.no_mapping + link.not_ip + link.no_route;
                assert_eq!(link.packets_in + link.duplicated, link.packets_out + drops);
            })
            .map(|link| link.duplicated)
            .sum();
        assert_eq!(ends, sent + duplicated, "seed {seed}");
        assert_eq!(network.next_timeout(), None);
    }
}

#[test]
fn packets_go_around_a_link_that_failed_after_the_nodes_noticed() {
    // x - n1, n1 - n2 - n4 and n1 - n3 - n4, n4 - y: a cycle.
    let mut topology = Topology::new();
    for node in ["n1", "n2", "n3", "n4"] {
        topology.node(node).unwrap();
    }
    for (host, node) in [("x", "n1"), ("y", "n4"), ("z", "n4")] {
        topology.host(host).unwrap();
        topology.link(host, host, node, both(&[])).unwrap();
    }
    for (name, from, to, delay) in [
        ("a", "n1", "n2", "1ms"),
        ("b", "n2", "n4", "1ms"),
        ("c", "n1", "n3", "5ms"),
        ("d", "n3", "n4", "5ms"),
    ] {
        let delay = both(&[("delay", delay)]);
        topology.link(name, from, to, delay).unwrap();
    }
    let mut network = Network::new(&topology, 1).unwrap();
    let mut at = Duration::ZERO;
    let mut sent = |network: &mut Network| {
        at += MS * 100;
        let packet = packet(1, 2, b"a");
        let dropped = network.handle_packet(at, HostId(0), packet).is_err();
        let seen = exits(network, at + MS * 50);
        let left = seen.iter().find(|exit| exit.2 == Fate::Left);
        (!dropped).then_some(left).flatten().map(|exit| exit.0 - at)
    };
    let apply = |network: &mut Network, action: &str| {
        network.apply(&Action::parse(action).unwrap()).unwrap();
    };
    assert_eq!(sent(&mut network), Some(MS * 2), "the earlier links");
    apply(&mut network, "b.blackhole=on");
    assert_eq!(sent(&mut network), None, "until the nodes notice");
    apply(&mut network, "reroute");
    assert_eq!(sent(&mut network), Some(MS * 10), "the other way");
    apply(&mut network, "c.up.blackhole=on");
    apply(&mut network, "reroute");
    assert_eq!(sent(&mut network), None, "half a link is still a link");
    apply(&mut network, "c.down.blackhole=on");
    apply(&mut network, "reroute");
    assert_eq!(sent(&mut network), None, "there is no way left");
    apply(&mut network, "b.blackhole=off");
    apply(&mut network, "reroute");
    assert_eq!(sent(&mut network), Some(MS * 2), "the link is back");
}
