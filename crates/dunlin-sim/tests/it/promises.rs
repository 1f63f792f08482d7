//! What a crash at any moment may not take: wills, and the end of a session.

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::{ConnId, QoS, StreamId};
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Peer, PeerOptions, Random, Setup, ToClient, World, encode, run};

const SHARDS: u16 = 2;

fn send(world: &mut World, conn: ConnId, line: &str) {
    world.send(conn, StreamId::CONTROL, &encode(line, Version::V5));
}

/// A client that stays, and subscribes to all wills.
fn watcher(id: &str, qos: QoS) -> Peer {
    Peer::new(PeerOptions {
        receive_maximum: 20,
        ..PeerOptions::new(id, &[("will/#", qos)])
    })
}

/// Clients with wills are lost, and the process dies before, while or after
/// their wills are stored.
fn wills(seed: u64, qos: QoS) {
    let mut setup = Setup::new(SHARDS, seed);
    setup.pace.stores_apart = seed % 2 == 1;
    let mut world = World::new(setup);
    let mut random = Random::new(seed);
    let mut peers = ["w1", "w2", "w3"].map(|id| watcher(id, qos));
    for peer in &mut peers {
        peer.connect(&mut world);
    }
    run(&mut world, &mut peers, Duration::from_millis(500));
    let mut expected = Vec::new();
    for round in 0..4 {
        let mut conns = Vec::new();
        for client in 0..6 {
            let will = format!("will/{round}-{client}");
            let kept = if client % 2 == 0 { "expiry=600" } else { "" };
            let conn = world.open();
            let line = format!(
                "CONNECT d{client} clean {kept} will={will}:x wq={}",
                qos as u8
            );
            send(&mut world, conn, &line);
            conns.push(conn);
            expected.push(will);
        }
        // Until every CONNACK has come.
        run(&mut world, &mut peers, Duration::from_millis(100));
        for conn in conns {
            world.cut(conn);
            let pause = Duration::from_micros(random.below(800));
            run(&mut world, &mut peers, pause);
        }
        let pause = Duration::from_micros(random.below(9_000));
        run(&mut world, &mut peers, pause);
        world.crash();
        run(&mut world, &mut peers, Duration::from_secs(2));
        for peer in &mut peers {
            peer.connect(&mut world);
        }
        run(&mut world, &mut peers, Duration::from_secs(5));
    }
    for peer in &peers {
        let mut got: BTreeMap<&str, usize> = BTreeMap::new();
        for message in &peer.received {
            *got.entry(&message.topic).or_default() += 1;
        }
        for will in &expected {
            let count = got.get(will.as_str()).copied().unwrap_or(0);
            let id = peer.client_id();
            assert!(count >= 1, "{id} never got {will}, seed {seed}");
            assert!(
                qos != QoS::ExactlyOnce || count == 1,
                "{id} got {will} {count} times, seed {seed}"
            );
        }
    }
}

#[test]
fn no_crash_takes_a_will() {
    for seed in 0..120 {
        wills(seed, QoS::AtLeastOnce);
        wills(seed, QoS::ExactlyOnce);
    }
}

/// The first byte of each packet type.
const CONNACK: u8 = 0x20;

/// A client with a kept session begins again on another shard, and the process
/// dies meanwhile: accepted is accepted, and no client has two sessions.
fn begins_again(seed: u64) {
    let mut setup = Setup::new(SHARDS, seed);
    setup.pace.store = (500, 20_000);
    setup.pace.stores_apart = true;
    let mut world = World::new(setup);
    let mut random = Random::new(seed);
    let old = world.open();
    send(
        &mut world,
        old,
        "CONNECT a expiry=600 will=w:old wq=1 wdelay=300",
    );
    while world.next_before_quiet().is_some() {}
    send(&mut world, old, "SUBSCRIBE 1 t|q1");
    while world.next_before_quiet().is_some() {}
    if random.one_in(2) {
        world.cut(old);
        while world.next_before_quiet().is_some() {}
    }
    let new = world.open();
    send(
        &mut world,
        new,
        "CONNECT a clean will=w:new wq=1 wdelay=300",
    );
    let until = world.now() + Duration::from_micros(random.below(40_000));
    let mut accepted = false;
    while let Some((conn, event)) = world.next(until) {
        if let ToClient::Bytes(_, bytes) = event {
            accepted |= conn == new && bytes.first() == Some(&CONNACK);
        }
        let recovered = world.disk.recover();
        assert!(recovered.sessions.len() <= 1, "two sessions, seed {seed}");
    }
    world.crash();
    while world.next_before_quiet().is_some() {}
    let again = world.open();
    send(&mut world, again, "CONNECT a expiry=600");
    let mut present = None;
    while let Some((conn, event)) = world.next_before_quiet() {
        if let ToClient::Bytes(_, bytes) = event
            && conn == again
            && bytes.first() == Some(&CONNACK)
        {
            present = bytes.get(2).map(|flags| flags & 1 == 1);
        }
    }
    assert!(present.is_some(), "no CONNACK, seed {seed}");
    assert!(
        !(accepted && present == Some(true)),
        "a session that has ended is back, seed {seed}"
    );
}

#[test]
fn no_crash_brings_back_a_session_that_another_has_replaced() {
    //= mqtt5#[MQTT-3.1.2-4] type=test
    for seed in 0..400 {
        begins_again(seed);
    }
}

/// A durable member of a group is away, one whose session ends with its
/// connection takes messages and acknowledges none of them, and the process
/// dies.
fn kept(shards: u16, seed: u64) {
    let mut world = World::new(Setup::new(shards, seed));
    let share = [("$share/g/t", QoS::AtLeastOnce)];
    let peer = |id: &str, filters: &[(&str, QoS)]| {
        Peer::new(PeerOptions {
            receive_maximum: 20,
            ..PeerOptions::new(id, filters)
        })
    };
    let mut peers = [peer("durable", &share), peer("publisher", &[])];
    for peer in &mut peers {
        peer.connect(&mut world);
    }
    run(&mut world, &mut peers, Duration::from_millis(300));
    let [durable, publisher] = &mut peers;
    durable.parked = true;
    durable.cut(&mut world);
    // Some on each shard.
    for member in 0..4 {
        let conn = world.open();
        send(&mut world, conn, &format!("CONNECT v{member} clean"));
        run(&mut world, &mut [], Duration::from_millis(20));
        send(&mut world, conn, "SUBSCRIBE 1 $share/g/t|q1");
    }
    run(&mut world, &mut [], Duration::from_millis(100));
    let mut random = Random::new(seed);
    for n in 0..20 {
        publisher.publish(&mut world, "t", format!("{n}"), QoS::AtLeastOnce);
        let pause = Duration::from_micros(random.below(2_000));
        run(&mut world, core::slice::from_mut(publisher), pause);
    }
    let pause = Duration::from_micros(random.below(20_000));
    run(&mut world, core::slice::from_mut(publisher), pause);
    let acknowledged = publisher.acknowledged.clone();
    world.crash();
    if random.one_in(3) {
        world.crash();
    }
    durable.parked = false;
    durable.connect(&mut world);
    run(&mut world, &mut peers, Duration::from_secs(5));
    let [durable, _] = &peers;
    for message in acknowledged {
        let got = durable.received.iter();
        assert!(
            got.clone().any(|m| m.payload == message.payload),
            "{message:?} is lost, {shards} shards, seed {seed}"
        );
    }
}

/// As [`kept`], with two durable members, and the session of the first ends before
/// the process dies.
fn kept_for_another(shards: u16, seed: u64) {
    let mut world = World::new(Setup::new(shards, seed));
    let peer = |id: &str, filters: &[(&str, QoS)]| {
        Peer::new(PeerOptions {
            receive_maximum: 20,
            ..PeerOptions::new(id, filters)
        })
    };
    let share = [("$share/g/t", QoS::AtLeastOnce)];
    let mut peers = [
        peer("first", &share),
        peer("second", &share),
        peer("publisher", &[]),
    ];
    for index in [0, 1, 2] {
        peers[index].connect(&mut world);
        run(&mut world, &mut peers, Duration::from_millis(300));
    }
    for peer in &mut peers[..2] {
        peer.parked = true;
        peer.cut(&mut world);
    }
    for member in 0..4 {
        let conn = world.open();
        send(&mut world, conn, &format!("CONNECT v{member} clean"));
        run(&mut world, &mut [], Duration::from_millis(20));
        send(&mut world, conn, "SUBSCRIBE 1 $share/g/t|q1");
    }
    run(&mut world, &mut [], Duration::from_millis(100));
    let [_, second, publisher] = &mut peers;
    for n in 0..20 {
        publisher.publish(&mut world, "t", format!("{n}"), QoS::AtLeastOnce);
    }
    let pause = Duration::from_millis(300);
    run(&mut world, core::slice::from_mut(publisher), pause);
    let acknowledged = publisher.acknowledged.clone();
    assert_eq!(acknowledged.len(), 20, "{shards} shards, seed {seed}");
    let first = world.open();
    send(&mut world, first, "CONNECT first clean");
    run(&mut world, core::slice::from_mut(publisher), pause);
    world.crash();
    second.parked = false;
    second.connect(&mut world);
    run(&mut world, &mut peers, Duration::from_secs(5));
    let [_, second, _] = &peers;
    for message in acknowledged {
        let mut got = second.received.iter();
        assert!(
            got.any(|m| m.payload == message.payload),
            "{message:?} is lost, {shards} shards, seed {seed}"
        );
    }
}

#[test]
fn the_end_of_a_session_takes_nothing_from_its_group() {
    for seed in 0..20 {
        kept_for_another(1, seed);
        kept_for_another(2, seed);
    }
}

#[test]
fn a_group_with_a_durable_member_keeps_what_none_has_acknowledged() {
    for seed in 0..100 {
        kept(1, seed);
        kept(2, seed);
    }
}
