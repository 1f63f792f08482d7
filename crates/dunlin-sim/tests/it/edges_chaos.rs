//! Clients at homes and at edges, while edges die and come back, connections break and the
//! process of the homes crashes. What was acknowledged is delivered: QoS 1 at least once,
//! QoS 2 of a durable publisher exactly once, in order, and nothing may be left over.
//!
//! `EDGE_SEEDS=0..1000` in the environment runs that many.

use core::time::Duration;
use std::collections::BTreeSet;

use dunlin_base::QoS;
use dunlin_base::transport::Transport;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Peer, Random, Setup, World, crash_edge, is_lost, is_ready, is_up, join_edge};

use super::ledger::{Ledger, Promise, Subscriber, brief, payloads, peer};
use super::seeds::{play_all, seeds};

const EDGES: u16 = 3;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Chaos {
    /// Edges die, and come back.
    edges: bool,
    cuts: bool,
    /// The process of the homes crashes.
    crashes: bool,
    /// A member of the group has a durable session.
    durable_member: bool,
}

/// Clients that publish; the sessions of the last two end with their connections.
const PUBLISHERS: [&str; 4] = ["publisher-1", "publisher-2", "short-1", "short-2"];

/// Members of the group. The last one stays at a home, and its connection stands.
const MEMBERS: [&str; 4] = ["member-1", "member-2", "member-3", "member-stays"];

fn cast(chaos: Chaos) -> Vec<Peer> {
    let (v5, v4) = (Version::V5, Version::V311);
    let mut peers = vec![
        peer(PUBLISHERS[0], v5, &[]),
        peer(PUBLISHERS[1], v4, &[]),
        brief(PUBLISHERS[2], v5, &[]),
        brief(PUBLISHERS[3], v4, &[]),
        peer("sub-exact", v5, &[("t/#", QoS::ExactlyOnce)]),
        peer("sub-least", v5, &[("t/+", QoS::AtLeastOnce)]),
        peer("sub-old", v4, &[("t/1", QoS::ExactlyOnce)]),
        brief("sub-short", v5, &[("t/#", QoS::AtLeastOnce)]),
        peer("watcher", v5, &[("wills", QoS::AtLeastOnce)]),
    ];
    peers[3].will = Some("wills".into());
    let share = [("$share/g/t/#", QoS::AtLeastOnce)];
    for id in MEMBERS {
        let durable = chaos.durable_member && id == "member-3";
        let mut member = match durable {
            true => peer(id, v5, &share),
            false => brief(id, v5, &share),
        };
        member.at = (id == "member-stays").then_some(0);
        peers.push(member);
    }
    peers
}

fn start(homes: u16, seed: u64, chaos: Chaos) -> Ledger {
    let mut setup = Setup::new(homes, seed);
    setup.edges = EDGES;
    setup.transport = match seed % 2 {
        0 => Transport::Quic,
        _ => Transport::Tcp,
    };
    setup.config.sessions.queue_held_max = 3;
    let chance = Random::new(seed ^ 0xed6e);
    let mut run = Ledger::new(World::new(setup), cast(chaos), chance);
    run.pass(Duration::from_millis(100));
    assert!((0..3).all(|edge| is_ready(&run.world, edge)), "edges join");
    run.begin();
    run
}

fn disturb(run: &mut Ledger, chaos: Chaos) {
    // All but the one that stays.
    let who = run.chance.below(run.peers.len() as u64 - 1) as usize;
    let edge = run.chance.below(u64::from(EDGES)) as usize;
    let world = &mut run.world;
    match run.chance.below(12) {
        0 if chaos.cuts => {
            run.peers[who].cut(world);
            run.peers[who].connect(world);
        }
        1 if chaos.cuts => run.peers[who].take_over(world),
        2..=3 if chaos.edges => crash_edge(world, edge),
        4..=7 if chaos.edges && !is_ready(world, edge) => revive(world, edge),
        8 if chaos.crashes && run.chance.one_in(3) => world.crash(),
        _ => {}
    }
}

fn check(run: &Ledger, chaos: Chaos) {
    run.check_answers();
    for peer in &run.peers {
        let id = peer.client_id();
        let lasts = id.starts_with("publisher") || id.starts_with("sub-exact");
        assert!(!lasts || peer.sessions_lost == 0, "{id}");
    }
    // One whose session ends before its publishes are stored, and which sends them again
    // in another, has no order. With a will it is at a home, also when its edge dies.
    let in_order = |publisher: usize| match publisher {
        2 => !chaos.cuts && !chaos.crashes,
        3 => !chaos.cuts && !chaos.crashes && !chaos.edges,
        _ => true,
    };
    let subscribers: [Subscriber; 3] = [
        (4, QoS::ExactlyOnce, |_| true),
        (5, QoS::AtLeastOnce, |_| true),
        (6, QoS::ExactlyOnce, |topic| topic == "t/1"),
    ];
    for (index, granted, matches) in subscribers {
        let promise = Promise {
            granted,
            matches,
            is_exact: &|publisher| publisher < 2,
            in_order: &in_order,
        };
        run.check_subscriber(index, &promise);
    }
    let seen: BTreeSet<&str> = payloads(&run.peers[8]).collect();
    // A crash of the store's process may come before its record.
    for due in run.peers[3].wills_due.iter().filter(|_| !chaos.crashes) {
        assert!(seen.contains(due.as_str()), "the will {due} is lost");
    }
    // Without a durable member a crash takes what the group had.
    if !chaos.crashes {
        let members = run.peers.len() - MEMBERS.len();
        run.check_group(members, |message| message.qos == QoS::AtLeastOnce);
    }
}

/// Has an edge come back, if it is not there or has lost a home.
fn revive(world: &mut World, edge: usize) {
    if is_lost(world, edge) {
        crash_edge(world, edge);
    }
    if !is_up(world, edge) {
        join_edge(world, edge);
    }
}

fn play(homes: u16, seed: u64, chaos: Chaos) -> u64 {
    let mut run = start(homes, seed, chaos);
    for _ in 0..80 {
        if run.chance.below(4) > 0 {
            let who = run.chance.below(PUBLISHERS.len() as u64) as usize;
            run.publish(who);
        }
        disturb(&mut run, chaos);
        let pause = run.chance.below(8_000);
        run.pass(Duration::from_micros(pause));
    }
    for edge in 0..usize::from(EDGES) {
        revive(&mut run.world, edge);
    }
    run.calm();
    let ready = (0..usize::from(EDGES)).all(|edge| is_ready(&run.world, edge));
    assert!(ready, "an edge does not come up");
    // All are there and have acknowledged what came: nothing waits for a restart, or for
    // the next publish.
    let waits = run.world.disk.stored_messages();
    assert_eq!(waits, 0, "messages wait");
    check(&run, chaos);
    run.clear_store(&[1, 6]);
    run.world.trace()
}

fn play_each(usual: core::ops::Range<u64>, chaos: Chaos) {
    play_all(seeds("EDGE_SEEDS", usual), chaos, |seed| {
        play(1 + (seed % 3) as u16, seed, chaos);
    });
}

#[test]
fn nothing_goes_wrong_at_edges() {
    play_each(0..15, Chaos::default());
}

#[test]
fn edges_die_and_come_back() {
    let chaos = Chaos {
        edges: true,
        ..Chaos::default()
    };
    play_each(0..60, chaos);
}

#[test]
fn edges_die_and_connections_break() {
    for durable_member in [false, true] {
        let chaos = Chaos {
            edges: true,
            cuts: true,
            durable_member,
            ..Chaos::default()
        };
        play_each(0..60, chaos);
    }
}

#[test]
fn edges_die_and_homes_crash() {
    for durable_member in [false, true] {
        let chaos = Chaos {
            edges: true,
            cuts: true,
            crashes: true,
            durable_member,
        };
        play_each(0..60, chaos);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_at_edges() {
    let chaos = Chaos {
        edges: true,
        cuts: true,
        crashes: true,
        durable_member: true,
    };
    for seed in 0..3 {
        assert_eq!(play(2, seed, chaos), play(2, seed, chaos), "seed {seed}");
    }
    assert_ne!(play(2, 1, chaos), play(2, 2, chaos));
}
