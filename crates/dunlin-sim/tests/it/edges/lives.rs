//! How an edge joins, and how it ends with its homes.

use core::time::Duration;

use dunlin_base::StreamId;
use dunlin_broker::HomeLost;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{
    Seen, ToClient, crash_edge, crash_homes, encode, is_lost, is_ready, join_edge, open_on,
    run_amqp,
};

use super::{EDGES, HOME, Raw, amqp_at, begin, settle, setup};

#[test]
fn an_edge_ends_with_its_homes() {
    for (lost, code) in [
        (HomeLost::ShutDown, "DISCONNECT 0x8b"),
        (HomeLost::UseAnother("b:1883".into()), "DISCONNECT 0x9c"),
        (HomeLost::Moved("b:1883".into()), "DISCONNECT 0x9d"),
    ] {
        for seed in 0..2 {
            let mut setup = setup(seed);
            setup.config.nodes.home_lost = lost.clone();
            let mut world = begin(setup);
            let mut raw = Raw::default();
            let lines = [
                "CONNECT a clean",
                "CONNECT b expiry=9",
                "CONNECT c v4 clean",
            ];
            let conns = lines.map(|line| {
                let conn = open_on(&mut world, EDGES[0], "mqtt");
                raw.say(&mut world, conn, line);
                raw.seen.remove(&conn);
                conn
            });
            let mut amqp = amqp_at(&mut world, EDGES[0]);
            amqp.open(world.now()).expect("open");
            run_amqp(&mut world, &mut [&mut amqp]);
            crash_homes(&mut world);
            while let Some((conn, event)) = world.next_before_quiet() {
                let now = world.now();
                if !amqp.take(now, conn, &event) {
                    match event {
                        ToClient::Bytes(_, bytes) => {
                            raw.seen.entry(conn).or_default().extend(bytes);
                        }
                        ToClient::Closed(_) => raw.closed.push(conn),
                        _ => {}
                    }
                }
            }
            assert!(is_lost(&world, 0) && !is_ready(&world, 0));
            for conn in &conns[..2] {
                let got = raw.take(*conn);
                assert!(got.len() == 1 && got[0].starts_with(code), "{got:?}");
            }
            assert!(conns.iter().all(|conn| raw.closed.contains(conn)));
            let forced = |event: &Seen| match event {
                Seen::Closed(condition) => Some(condition.clone()),
                _ => None,
            };
            let condition = amqp.find(forced);
            assert_eq!(condition.as_deref(), Some("amqp:connection:forced"));
            // The homes begin again, and edges with them.
            world.crash();
            settle(&mut world);
            assert!(is_ready(&world, 0) && is_ready(&world, 1));
            let conn = open_on(&mut world, EDGES[0], "mqtt");
            raw.say(&mut world, conn, "CONNECT b expiry=9");
            assert_eq!(raw.take(conn), ["CONNACK present"]);
        }
    }
}

/// A subscription is made while an edge joins; what is accepted there once it takes
/// connections comes.
#[test]
fn a_newcomer_knows_every_subscription_that_was_acknowledged() {
    for seed in 0..60 {
        let mut world = begin(setup(seed));
        crash_edge(&mut world, 1);
        settle(&mut world);
        let places = [HOME, 1, EDGES[0]];
        let filters: Vec<String> = (0..12).map(|at| format!("t/{at}")).collect();
        let mut raw = Raw::default();
        let conns = places.map(|place| {
            let conn = open_on(&mut world, place, "mqtt");
            let line = format!("CONNECT c{place} clean");
            raw.say(&mut world, conn, &line);
            conn
        });
        join_edge(&mut world, 1);
        let mut subscribed = Vec::new();
        for (at, filter) in filters.iter().enumerate() {
            let conn = conns[at % 3];
            let line = format!("SUBSCRIBE {} {filter}|q1", at + 1);
            world.send(conn, StreamId::CONTROL, &encode(&line, Version::V5));
            subscribed.push((conn, filter));
            let until = world.now() + Duration::from_micros(300);
            while let Some((conn, event)) = world.next(until) {
                if let ToClient::Bytes(_, bytes) = event {
                    raw.seen.entry(conn).or_default().extend(bytes);
                }
            }
            if is_ready(&world, 1) {
                break;
            }
        }
        while !is_ready(&world, 1) {
            let seen = world.next_before_quiet();
            if let Some((conn, ToClient::Bytes(_, bytes))) = seen {
                raw.seen.entry(conn).or_default().extend(bytes);
            }
        }
        let known: Vec<String> = conns.iter().flat_map(|conn| raw.take(*conn)).collect();
        let publisher = open_on(&mut world, EDGES[1], "mqtt");
        raw.say(&mut world, publisher, "CONNECT p clean");
        for (at, (_, filter)) in subscribed.iter().enumerate() {
            let line = format!("PUBLISH {filter} x q1 #{}", at + 1);
            raw.say(&mut world, publisher, &line);
        }
        for (at, (conn, filter)) in subscribed.iter().enumerate() {
            if known.contains(&format!("SUBACK {} 01", at + 1)) {
                let seen = raw.seen.get(conn).cloned().unwrap_or_default();
                let text = String::from_utf8_lossy(&seen).into_owned();
                assert!(text.contains(filter.as_str()), "{filter} of seed {seed}");
            }
        }
    }
}
