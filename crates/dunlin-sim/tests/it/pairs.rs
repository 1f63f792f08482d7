//! Client engines against shards, with lost connections, take-overs, crashes
//! and a full disk. All that was acknowledged to a publisher is delivered: QoS 1
//! at least once, QoS 2 exactly once, in order, and nothing may be left over.

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::QoS;
use dunlin_base::transport::Transport;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Fault, Peer, PeerOptions, Random, Setup, World, run};

use super::ledger::{Ledger, Promise, Subscriber, payloads, peer};
use super::seeds::{play_all, seeds};

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Chaos {
    cuts: bool,
    take_overs: bool,
    crashes: bool,
    full_disk: bool,
    shared: bool,
    /// Two members of the group have sessions that end with their connection.
    leaving: bool,
    /// So has the third.
    all_leave: bool,
    /// Members of the group subscribe with QoS 2.
    exact: bool,
}

fn cast(chaos: Chaos) -> Vec<Peer> {
    let mut peers = vec![
        peer("publisher-1", Version::V5, &[]),
        peer("publisher-2", Version::V311, &[]),
        peer("sub-exact", Version::V5, &[("t/#", QoS::ExactlyOnce)]),
        peer("sub-least", Version::V5, &[("t/+", QoS::AtLeastOnce)]),
        peer("sub-old", Version::V311, &[("t/1", QoS::ExactlyOnce)]),
        peer("both-ways", Version::V5, &[("t/0", QoS::ExactlyOnce)]),
    ];
    if chaos.shared {
        for id in ["member-1", "member-2", "member-3"] {
            let qos = match chaos.exact {
                true => QoS::ExactlyOnce,
                false => QoS::AtLeastOnce,
            };
            let stays = (id == "member-3" && !chaos.all_leave) || !chaos.leaving;
            peers.push(Peer::new(PeerOptions {
                expiry_secs: if stays { 3600 } else { 0 },
                ..PeerOptions::new(id, &[("$share/g/t/#", qos)])
            }));
        }
    }
    peers
}

/// Publishers are the first two and "both-ways".
const PUBLISHERS: [usize; 3] = [0, 1, 5];

/// Where members of the group begin.
const MEMBERS: usize = 6;

fn start(shards: u16, seed: u64, chaos: Chaos) -> Ledger {
    let mut setup = Setup::new(shards, seed);
    setup.transport = transport(seed);
    // Small, so that queues are shed and loaded.
    setup.config.sessions.queue_held_max = 3;
    let chance = Random::new(seed ^ 0x5eed);
    let mut run = Ledger::new(World::new(setup), cast(chaos), chance);
    run.begin();
    run
}

fn disturb(run: &mut Ledger, chaos: Chaos) {
    let who = run.chance.below(run.peers.len() as u64) as usize;
    match run.chance.below(12) {
        0..=2 if chaos.cuts => {
            run.peers[who].cut(&mut run.world);
            if run.chance.one_in(2) {
                run.pass(Duration::from_millis(10));
            }
            run.peers[who].connect(&mut run.world);
        }
        3 if chaos.take_overs => run.peers[who].take_over(&mut run.world),
        4 if chaos.crashes && run.chance.one_in(3) => run.world.crash(),
        5 if chaos.full_disk => run.world.disk.fault = Fault::Full,
        6 if chaos.full_disk => run.world.disk.fault = Fault::Broken,
        7 | 8 => run.world.disk.fault = Fault::None,
        _ => {}
    }
}

fn check(run: &Ledger, chaos: Chaos) {
    run.check_answers();
    for peer in &run.peers {
        let leaves = chaos.leaving && peer.client_id().starts_with("member");
        assert!(leaves || peer.sessions_lost == 0, "{}", peer.client_id());
    }
    // A publish is refused and its publisher learns nothing of it, because it is away or
    // speaks 3.1.1: it sends it again, and later ones may have found room on the disk
    // before.
    let in_order =
        |publisher: usize| !chaos.full_disk || !(chaos.cuts || chaos.crashes || publisher == 1);
    let subscribers: [Subscriber; 4] = [
        (2, QoS::ExactlyOnce, |_| true),
        (3, QoS::AtLeastOnce, |_| true),
        (4, QoS::ExactlyOnce, |topic| topic == "t/1"),
        (5, QoS::ExactlyOnce, |topic| topic == "t/0"),
    ];
    for (index, granted, matches) in subscribers {
        let promise = Promise {
            granted,
            matches,
            is_exact: &|_| true,
            in_order: &in_order,
        };
        run.check_subscriber(index, &promise);
    }
    if chaos.shared {
        run.check_group(MEMBERS, |_| !chaos.all_leave);
    }
    if chaos.shared && chaos.exact {
        check_once(run);
    }
}

/// What was published with QoS 2 reached no two members of the group.
fn check_once(run: &Ledger) {
    let published = run.published.iter().map(|(_, message)| message);
    for message in published.filter(|message| message.qos == QoS::ExactlyOnce) {
        let members = run.peers[MEMBERS..].iter();
        let got = members.filter(|peer| payloads(peer).any(|it| it == message.payload));
        assert!(got.count() <= 1, "several members got {message:?}");
    }
}

fn play(shards: u16, seed: u64, chaos: Chaos) -> u64 {
    let mut run = start(shards, seed, chaos);
    for _ in 0..60 {
        if run.chance.below(3) > 0 {
            let who = PUBLISHERS[run.chance.below(3) as usize];
            run.publish(who);
        }
        disturb(&mut run, chaos);
        let pause = run.chance.below(8_000);
        run.pass(Duration::from_micros(pause));
    }
    run.world.disk.fault = Fault::None;
    run.calm();
    // All are there and have acknowledged what came: nothing waits for a restart, or for
    // the next publish. A broken disk may have refused to remove it.
    let waits = run.world.disk.stored_messages();
    assert!(waits == 0 || chaos.full_disk, "{waits} wait");
    check(&run, chaos);
    run.clear_store(&[1, 4]);
    run.world.trace()
}

/// Over QUIC a connection keeps its shard, over TCP it moves to its session's.
const fn transport(seed: u64) -> Transport {
    match seed % 2 {
        0 => Transport::Quic,
        _ => Transport::Tcp,
    }
}

/// `SIM_SEEDS=5000..6000` in the environment runs others.
fn play_each(usual: core::ops::Range<u64>, chaos: Chaos) {
    play_all(seeds("SIM_SEEDS", usual), chaos, |seed| {
        for shards in [1, 2] {
            play(shards, seed, chaos);
        }
    });
}

#[test]
fn nothing_goes_wrong() {
    play_each(0..20, Chaos::default());
}

#[test]
fn connections_break() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        ..Chaos::default()
    };
    play_each(0..150, chaos);
}

#[test]
fn the_process_crashes() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        crashes: true,
        ..Chaos::default()
    };
    play_each(0..150, chaos);
}

#[test]
fn the_disk_fills() {
    let chaos = Chaos {
        full_disk: true,
        ..Chaos::default()
    };
    play_each(0..80, chaos);
}

#[test]
fn everything_goes_wrong() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        crashes: true,
        full_disk: true,
        ..Chaos::default()
    };
    play_each(1000..1080, chaos);
}

#[test]
fn members_of_a_group_come_and_go() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        shared: true,
        ..Chaos::default()
    };
    play_each(0..80, chaos);
}

#[test]
fn members_of_a_group_leave_for_good() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        shared: true,
        leaving: true,
        ..Chaos::default()
    };
    play_each(0..80, chaos);
}

#[test]
fn groups_outlive_crashes() {
    let chaos = Chaos {
        cuts: true,
        crashes: true,
        shared: true,
        ..Chaos::default()
    };
    play_each(0..80, chaos);
}

#[test]
fn groups_of_durable_and_other_members_outlive_crashes() {
    for exact in [false, true] {
        let chaos = Chaos {
            cuts: true,
            crashes: true,
            shared: true,
            leaving: true,
            exact,
            ..Chaos::default()
        };
        play_each(0..80, chaos);
    }
}

#[test]
fn everything_goes_wrong_with_a_group() {
    for exact in [false, true] {
        let chaos = Chaos {
            cuts: true,
            take_overs: true,
            crashes: true,
            full_disk: true,
            shared: true,
            leaving: true,
            exact,
            ..Chaos::default()
        };
        play_each(3000..3030, chaos);
    }
}

#[test]
fn no_crash_gives_a_message_to_a_second_member() {
    let chaos = Chaos {
        crashes: true,
        shared: true,
        leaving: true,
        all_leave: true,
        exact: true,
        ..Chaos::default()
    };
    play_each(0..80, chaos);
}

/// Two publishers with topics of their own: what is retained in the end is the
/// last that each published, here, there and after a restart.
fn play_retained(shards: u16, seed: u64) {
    let mut setup = Setup::new(shards, seed);
    setup.transport = transport(seed);
    let mut world = World::new(setup);
    let mut chance = Random::new(seed);
    let mut peers = vec![
        peer("publisher-1", Version::V5, &[]),
        peer("publisher-2", Version::V311, &[]),
        peer("watcher", Version::V5, &[("r/#", QoS::AtLeastOnce)]),
    ];
    for peer in &mut peers {
        peer.retain = true;
        peer.connect(&mut world);
    }
    run(&mut world, &mut peers, Duration::from_millis(300));
    // One QoS: the order of messages with different QoS is open.
    let qos = QoS::from_u8(chance.between(1, 2) as u8).expect("QoS");
    let mut last = BTreeMap::new();
    for n in 0..60 {
        let who = chance.below(2) as usize;
        let topic = format!("r/{who}/{}", chance.below(3));
        let payload = format!("{n:04}");
        peers[who].publish(&mut world, &topic, payload.clone(), qos);
        last.insert(topic, payload);
        match chance.below(12) {
            0 => peers[who].cut(&mut world),
            1 => peers[who].take_over(&mut world),
            2 if chance.one_in(3) => world.crash(),
            _ => {}
        }
        peers[who].connect(&mut world);
        run(
            &mut world,
            &mut peers,
            Duration::from_micros(chance.below(5_000)),
        );
    }
    for restart in [false, true] {
        if restart {
            world.crash();
        }
        for _ in 0..100 {
            for peer in &mut peers {
                peer.connect(&mut world);
            }
            run(&mut world, &mut peers, Duration::from_millis(100));
        }
        assert!(peers.iter().all(Peer::is_idle));
        // On every shard.
        for id in ["late-1", "late-2", "late-3", "late-4"] {
            let mut late = peer(id, Version::V5, &[("r/#", QoS::AtLeastOnce)]);
            late.connect(&mut world);
            let mut late = [late];
            run(&mut world, &mut late, Duration::from_secs(1));
            let got: BTreeMap<String, String> = late[0]
                .received
                .iter()
                .map(|message| (message.topic.clone(), message.payload.clone()))
                .collect();
            assert_eq!(got, last, "shards {shards}, seed {seed}, {restart}");
            assert_eq!(late[0].received.len(), last.len());
            late[0].leave(&mut world, Some(0));
            run(&mut world, &mut late, Duration::from_secs(1));
        }
    }
}

#[test]
fn what_is_retained_is_the_last() {
    for seed in seeds("SIM_SEEDS", 0..60) {
        play_retained(1, seed);
        play_retained(2, seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let chaos = Chaos {
        cuts: true,
        take_overs: true,
        crashes: true,
        full_disk: true,
        shared: true,
        leaving: true,
        exact: false,
        all_leave: false,
    };
    for seed in 0..5 {
        let traces = [play(2, seed, chaos), play(2, seed, chaos)];
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
    assert_ne!(play(2, 1, chaos), play(2, 2, chaos));
}
