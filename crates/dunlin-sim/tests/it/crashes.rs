//! What is acknowledged arrives, and wills are published, through lost
//! connections and crashes, where that is hard: groups with members that keep
//! nothing, a session in several groups, a will at the moment of a crash.
//!
//! `PROMISE_SEEDS=0..1000` in the environment runs that many.

use core::time::Duration;
use std::collections::BTreeSet;

use dunlin_base::QoS;
use dunlin_broker::home_shard;
use dunlin_sim::{Peer, PeerOptions, Random, Setup, World, run};

use super::seeds::{check_all, seeds};

/// Places of the clients.
const PUBLISHER: usize = 0;
const KEEPING: usize = 1;
const VOLATILE: usize = 2;
const GROUPS: usize = 3;
const WILLS: usize = 4;
const LEAVING: usize = 5;

fn peer(client_id: &str, expiry_secs: u32, filters: &[&str]) -> Peer {
    let filters: Vec<_> = filters.iter().map(|it| (*it, QoS::AtLeastOnce)).collect();
    Peer::new(PeerOptions {
        expiry_secs,
        receive_maximum: 5,
        ..PeerOptions::new(client_id, &filters)
    })
}

/// A client identifier whose session lives on another shard than that of this one:
/// a will is stored when that shard has said what it needs.
fn away_from(client_id: &str) -> String {
    let all = (0..100).map(|n| format!("wills-{n}"));
    let mut away = all.filter(|id| home_shard(id, 2) != home_shard(client_id, 2));
    away.next().expect("one of a hundred")
}

fn program(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut setup = Setup::new(2, seed);
    // Not a number of copies of whole messages for three groups.
    setup.config.sessions.queue_messages_max = 10;
    setup.pace.stores_apart = random.one_in(2);
    let mut world = World::new(setup);
    let mut peers = [
        peer("publisher", 1000, &[]),
        peer("keeping", 1000, &["$share/g/g/#"]),
        peer("volatile", 0, &["$share/g/g/#"]),
        peer(
            "groups",
            1000,
            &["$share/x/m/#", "$share/y/m/#", "$share/z/m/#"],
        ),
        peer(&away_from("leaving"), 1000, &["w/#"]),
        peer("leaving", 1000, &[]),
    ];
    peers[LEAVING].will = Some("w/leaving".into());
    for peer in &mut peers {
        peer.connect(&mut world);
    }
    run(&mut world, &mut peers, Duration::from_secs(1));
    for number in 0..60 {
        let stalled = random.one_in(2);
        match random.below(9) {
            0..=2 => {
                peers[PUBLISHER].publish(&mut world, "g/t", format!("g{number}"), QoS::AtLeastOnce)
            }
            3 | 4 => {
                peers[PUBLISHER].publish(&mut world, "m/t", format!("m{number}"), QoS::AtLeastOnce)
            }
            5 => {
                for at in [VOLATILE, GROUPS] {
                    if let Some(conn) = peers[at].conn() {
                        world.stall(conn, stalled);
                    }
                }
            }
            6 => {
                let at = random.between(1, LEAVING as u64) as usize;
                peers[at].cut(&mut world);
                peers[at].connect(&mut world);
            }
            7 => {
                peers[LEAVING].cut(&mut world);
                // While its will is on its way to the store.
                let time = Duration::from_micros(random.below(9_000));
                run(&mut world, &mut peers, time);
                world.crash();
            }
            _ => world.crash(),
        }
        // Shorter than the store takes, or longer.
        let time = Duration::from_micros(random.between(100, 20_000));
        run(&mut world, &mut peers, time);
        peers[LEAVING].connect(&mut world);
    }
    peers[VOLATILE].leave(&mut world, None);
    peers[LEAVING].leave(&mut world, None);
    for peer in &peers {
        if let Some(conn) = peer.conn() {
            world.stall(conn, false);
        }
    }
    run(&mut world, &mut peers, Duration::from_secs(60));
    check(&peers)
}

fn check(peers: &[Peer]) -> Result<(), String> {
    let received = |at: usize| peers[at].received.iter().map(|message| &message.payload);
    for payload in &peers[LEAVING].wills_due {
        if !received(WILLS).any(|got| got == payload) {
            return Err(format!("no will of connection `{payload}`"));
        }
    }
    let group: BTreeSet<_> = received(KEEPING).chain(received(VOLATILE)).collect();
    for message in &peers[PUBLISHER].acknowledged {
        let payload = &message.payload;
        if payload.starts_with('g') && !group.contains(payload) {
            return Err(format!("{payload} went to no member of its group"));
        }
        let copies = received(GROUPS).filter(|copy| *copy == payload).count();
        if payload.starts_with('m') && copies < 3 {
            return Err(format!("{payload} came {copies} times, for three groups"));
        }
    }
    Ok(())
}

#[test]
fn what_was_promised_is_kept() {
    check_all(seeds("PROMISE_SEEDS", 0..80), program);
}
