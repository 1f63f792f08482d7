//! Clients that have not said who they are.

use core::time::Duration;

use dunlin_amqp::codec::{Open, Performative, SaslFrame, SaslInit, SaslResponse, Symbol};
use dunlin_base::StreamId;
use dunlin_base::transport::Transport;
use dunlin_broker::Part;
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_sim::Setup;
use dunlin_sim::frames::{HEADER, RawAmqp, SASL_HEADER, frame, sasl_frame};

use super::{Scene, begin, setup};

/// Clients on this machine need no password; others do.
fn closed() -> Setup {
    let mut setup = setup(2);
    setup.users = &[("alice", "secret")];
    setup.config.listeners = vec![AuthPolicy {
        anonymous: Anonymous::Loopback,
        passwords: true,
        certificates: false,
        tokens: false,
        ..AuthPolicy::default()
    }];
    setup
}

fn init(mechanism: &str, initial_response: Option<&[u8]>) -> Vec<u8> {
    sasl_frame(&SaslFrame::Init(SaslInit {
        mechanism: Symbol::new(mechanism).expect("ASCII"),
        initial_response,
        hostname: None,
    }))
}

fn response(response: &[u8]) -> Vec<u8> {
    sasl_frame(&SaslFrame::Response(SaslResponse { response }))
}

fn stranger(scene: &mut Scene) -> RawAmqp {
    RawAmqp::new(
        scene.world.open_from("192.0.2.1:9", None),
        StreamId::CONTROL,
    )
}

#[test]
fn sasl_that_loops_ends() {
    let scram = "SCRAM-SHA-256";
    let first = b"n,,n=alice,r=of-the-client";
    let long = "X".repeat(3000);
    let cases: [(&str, Vec<u8>, Vec<u8>); 7] = [
        (
            "init again",
            init(scram, Some(first)),
            init(scram, Some(first)),
        ),
        ("an empty answer", init(scram, Some(first)), response(b"")),
        (
            "the first message again",
            init(scram, Some(first)),
            response(first),
        ),
        ("no first message", init(scram, None), response(b"")),
        ("an unknown mechanism", init(&long, None), init(&long, None)),
        ("an answer to nothing", response(b""), response(b"")),
        (
            "the header again",
            SASL_HEADER.to_vec(),
            SASL_HEADER.to_vec(),
        ),
    ];
    let mut scene = Scene::new(closed());
    for (name, begins, again) in cases {
        let mut wire = stranger(&mut scene);
        wire.send(&mut scene.world, SASL_HEADER);
        wire.send(&mut scene.world, &begins);
        scene.run(&mut [&mut wire]);
        let mut rounds = 0;
        while !wire.is_over && rounds < 20 {
            wire.send(&mut scene.world, &again);
            scene.run(&mut [&mut wire]);
            rounds += 1;
        }
        assert!(wire.is_over && rounds <= 8, "{name}: {rounds} rounds");
        let lines = &wire.lines;
        let let_in = |line: &String| line == "outcome Ok" || line == "open";
        assert!(!lines.iter().any(let_in), "{name}: {lines:?}");
        scene.check_served(name);
    }
    scene.check_empty("SASL");
}

#[test]
fn sasl_that_is_silent_ends() {
    let mut scene = Scene::new(closed());
    let first = init("SCRAM-SHA-256", Some(b"n,,n=alice,r=of-the-client"));
    let wait = init("SCRAM-SHA-256", None);
    let half = &first[..first.len() - 1];
    let mut wires = Vec::new();
    let beginnings: [&[&[u8]]; 7] = [
        &[],
        &[&SASL_HEADER[..4]],
        &[SASL_HEADER],
        &[SASL_HEADER, half],
        &[SASL_HEADER, &first],
        &[SASL_HEADER, &wait],
        &[HEADER],
    ];
    for bytes in beginnings {
        let wire = stranger(&mut scene);
        for bytes in bytes {
            wire.send(&mut scene.world, bytes);
        }
        wires.push(wire);
    }
    let mut all: Vec<&mut RawAmqp> = wires.iter_mut().collect();
    scene.wait(Duration::from_secs(9), &mut all);
    assert!(all.iter().all(|wire| !wire.is_over), "it may take so long");
    scene.wait(Duration::from_secs(7), &mut all);
    for (number, wire) in all.iter().enumerate() {
        assert!(wire.is_over, "{number}: {:?}", wire.lines);
    }
    scene.check_served("silent");
    scene.check_empty("silent");
}

#[test]
fn floods_before_authentication_are_bounded() {
    let mut setup = closed();
    setup.config.memory.bytes = 4 << 20;
    let mut scene = Scene::new(setup);
    // All but the end of the largest frame that may come then, with SASL and without.
    let mut sasl = SASL_HEADER.to_vec();
    sasl.extend_from_slice(&[0, 0, 0x10, 0, 2, 1, 0, 0]);
    sasl.extend_from_slice(&[0; 4087]);
    let mut open = HEADER.to_vec();
    open.extend_from_slice(&[0, 0, 0x10, 0, 2, 0, 0, 0]);
    open.extend_from_slice(&[0; 4087]);
    // What may only follow, ahead of the answer.
    let mut ahead = SASL_HEADER.to_vec();
    ahead.extend(init("SCRAM-SHA-256", Some(b"n,,n=alice,r=of-the-client")));
    ahead.extend_from_slice(HEADER);
    ahead.extend(frame(0, &Performative::Open(Open::default()), b""));
    ahead.extend(frame(0, &Performative::Begin(begin()), b"").repeat(500));
    let mut wires = Vec::new();
    for number in 0..300 {
        let bytes = [&sasl, &open, &ahead][number % 3];
        let mut wire = stranger(&mut scene);
        wire.send(&mut scene.world, bytes);
        scene.run(&mut [&mut wire]);
        wires.push(wire);
    }
    let shards = scene.world.shards().iter();
    let of = shards.filter_map(|shard| shard.memory().find(|it| it.0 == Part::Unfinished));
    let (bytes, limit) = of.fold((0, 0), |(sum, _), (_, bytes, limit)| (sum + bytes, limit));
    assert!(
        bytes <= limit + limit / 4 + (16 << 10),
        "{bytes} of {limit}"
    );
    scene.check_served("a flood");
    let mut all: Vec<&mut RawAmqp> = wires.iter_mut().collect();
    scene.wait(Duration::from_secs(16), &mut all);
    assert!(all.iter().all(|wire| wire.is_over));
    scene.check_served("after a flood");
    scene.check_empty("a flood");
}

#[test]
fn sasl_on_stream_after_stream_ends_the_connection() {
    let scram: &[u8] = b"n,,n=alice,r=of-the-client";
    for (mechanism, first) in [("PLAIN", &b"\0alice\0guess"[..]), ("SCRAM-SHA-256", scram)] {
        let mut setup = closed();
        setup.transport = Transport::Quic;
        let mut scene = Scene::new(setup);
        let conn = scene.world.open_from("192.0.2.1:9", None);
        let mut asked = 0;
        for number in 0..100 {
            let mut wire = RawAmqp::new(conn, StreamId(4 * number));
            wire.send(&mut scene.world, SASL_HEADER);
            wire.send(&mut scene.world, &init(mechanism, Some(first)));
            scene.run(&mut [&mut wire]);
            let is_said =
                |line: &&String| line.starts_with("outcome") || line.starts_with("challenge");
            asked += wire.lines.iter().filter(is_said).count();
        }
        // As many as a transport has tries, and its connection is gone.
        assert_eq!(asked, 16, "{mechanism}");
        assert_eq!(scene.world.census().conns, 1, "{mechanism}");
        scene.check_served("streams");
    }
}
