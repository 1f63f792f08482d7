//! Clients that misuse `$cbs`.

use core::time::Duration;

use dunlin_amqp::codec::{Detach, End, Performative};
use dunlin_broker::Part;
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_sim::Setup;
use dunlin_sim::frames::RawAmqp;

use super::{HANDLE, Scene, first, from, receiver, setup};
use crate::cbs::{put, set};

/// Clients on this machine need no user name, and may have one by a token.
fn open() -> Setup {
    let mut setup = setup(2);
    setup.users = &[("alice", "secret")];
    setup.config.listeners = vec![AuthPolicy {
        anonymous: Anonymous::Loopback,
        passwords: false,
        certificates: false,
        tokens: true,
        ..AuthPolicy::default()
    }];
    setup
}

fn send(scene: &mut Scene, wire: &RawAmqp, id: u32, message: &[u8]) {
    scene.transfer(wire, first(id, &id.to_be_bytes()), message);
}

#[test]
fn tokens_by_the_thousand_are_answered_and_few_of_them_verified() {
    for token in ["alice.60", "nonsense"] {
        let mut scene = Scene::new(open());
        let mut wire = scene.sending("$cbs");
        let begun = scene.world.now();
        let mut verified = 0;
        for id in 0..1000 {
            send(&mut scene, &wire, id, &set("jwt", token));
            scene.run(&mut [&mut wire]);
            let said = wire.said("disposition");
            let limited = "rejected amqp:resource-limit-exceeded";
            assert_eq!(said.len(), 1, "{id}");
            verified += u64::from(!said[0].contains(limited));
        }
        let secs = (scene.world.now() - begun).as_secs();
        assert!(verified >= 64 && verified <= 64 + secs, "{verified} {secs}");
        assert!(!wire.is_over);
        scene.check_served("tokens");
        // What it may do comes back with time.
        scene.wait(Duration::from_secs(3), &mut [&mut wire]);
        send(&mut scene, &wire, 1000, &set("jwt", "alice.60"));
        scene.run(&mut [&mut wire]);
        let said = wire.said("disposition");
        assert!(said[0].contains("accepted"), "{said:?}");
        scene.cut(&wire);
        scene.check_empty("tokens");
    }
}

#[test]
fn answers_that_are_never_read_are_dropped() {
    let mut scene = Scene::new(open());
    let mut wire = scene.sending("$cbs");
    // A receiver that gives no credit.
    scene.say(&wire, 0, &receiver("answers", HANDLE + 1, from("$cbs")));
    scene.run(&mut [&mut wire]);
    for id in 0..300 {
        send(&mut scene, &wire, id, &put("jwt", "nonsense", None));
        scene.run(&mut [&mut wire]);
    }
    assert!(wire.said("transfer").is_empty());
    let shards = scene.world.shards().iter();
    let dropped: u64 = shards.map(|it| it.stats().messages_dropped_slow).sum();
    assert_eq!(dropped, 300 - 64);
    scene.check_served("unread");
    scene.cut(&wire);
    scene.check_empty("unread");
}

#[test]
fn a_flight_of_long_tokens_is_bounded() {
    let mut scene = Scene::new(open());
    let mut wires: Vec<RawAmqp> = (0..50).map(|_| scene.sending("$cbs")).collect();
    let long = "x".repeat(8000);
    for wire in &wires {
        // As many as there is credit.
        for id in 0..16 {
            send(&mut scene, wire, id, &set("jwt", &long));
        }
    }
    let mut most = 0;
    while let Some((conn, event)) = scene.world.next_before_quiet() {
        let now = scene.world.now();
        if !scene.witness.take(now, conn, &event) {
            wires.iter_mut().any(|wire| wire.take(conn, &event));
        }
        let shards = scene.world.shards().iter();
        let parts = shards.filter_map(|it| it.memory().find(|it| it.0 == Part::Unfinished));
        most = most.max(parts.map(|(_, bytes, _)| bytes).sum());
    }
    // What waits is counted, and is what the limits say.
    let limit = 50 * 16 * (8000 + 100);
    assert!(most > 100_000 && most <= limit, "{most}");
    for wire in &mut wires {
        let said = wire.said("disposition");
        assert!(
            said.iter().all(|it| it.contains("unauthorized")),
            "{said:?}"
        );
    }
    scene.check_served("long");
    for wire in &wires {
        scene.cut(wire);
    }
    scene.check_empty("long");
}

#[test]
fn answers_go_to_the_client_itself_only() {
    let mut scene = Scene::new(open());
    let mut wire = scene.sending("$cbs");
    scene.say(&wire, 0, &receiver("own", HANDLE + 1, from("$management")));
    scene.run(&mut [&mut wire]);
    scene.witness.events.clear();
    // There is no receiver from `$cbs` at first.
    let addresses = [
        None,
        Some("witness/topic"),
        Some("/queues/witness"),
        Some("own"),
    ];
    for (id, reply_to) in (0..).zip(addresses) {
        send(&mut scene, &wire, id, &put("jwt", "alice.60", reply_to));
        scene.run(&mut [&mut wire]);
        let said = wire.said("disposition");
        let refused = format!("disposition {id}-{id} rejected amqp:precondition-failed settled");
        assert_eq!(said, [refused], "{reply_to:?}");
    }
    assert!(scene.witness.events.is_empty());
    scene.check_served("reply-to");
    scene.cut(&wire);
    scene.check_empty("reply-to");
}

#[test]
fn tokens_of_what_has_gone_are_forgotten() {
    let detach = Detach {
        handle: HANDLE,
        closed: true,
        error: None,
    };
    let ends = [
        Some(Performative::Detach(detach)),
        Some(Performative::End(End { error: None })),
        None,
    ];
    for (number, end) in ends.iter().enumerate() {
        let mut scene = Scene::new(open());
        let mut wire = scene.sending("$cbs");
        for id in 0..10 {
            send(&mut scene, &wire, id, &set("jwt", "nonsense"));
        }
        match end {
            Some(end) => scene.say(&wire, 0, end),
            None => scene.world.cut(wire.conn),
        }
        scene.run(&mut [&mut wire]);
        scene.check_served("gone");
        if end.is_some() {
            assert!(!wire.is_over, "{number}");
            scene.cut(&wire);
        }
        scene.check_empty("gone");
    }
}
