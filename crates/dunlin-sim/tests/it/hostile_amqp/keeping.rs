//! Clients that make the broker keep things for them.

use core::time::Duration;

use dunlin_amqp::Demand;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Coordinator, DeliveryState, Disposition, Error, Flow, Map, Outcome,
    Performative, ReceiverSettleMode, Rejected, Role, SerialNumber, Source, Target,
    TransactionalState, Transfer, Value, condition,
};
use dunlin_broker::Part;
use dunlin_sim::World;
use dunlin_sim::frames::{RawAmqp, frame};

use super::{HANDLE, Scene, first, from, message, receiver, sender, setup};

/// What all shards count of a part, and its limit.
fn counted(world: &World, part: Part) -> (usize, usize) {
    let shards = world.shards().iter();
    let of = shards.filter_map(|shard| shard.memory().find(|(of, ..)| *of == part));
    of.fold((0, 0), |(sum, _), (_, bytes, limit)| (sum + bytes, limit))
}

/// Credit for all that there is.
fn credit(handle: u32, credit: u32) -> Performative<'static> {
    Performative::Flow(Flow {
        incoming_window: 10_000,
        outgoing_window: 10_000,
        handle: Some(handle),
        delivery_count: Some(SerialNumber(0)),
        link_credit: Some(credit),
        ..Flow::default()
    })
}

/// What a receiver says of deliveries.
fn said(first: u32, last: u32, settled: bool, state: DeliveryState<'_>) -> Performative<'_> {
    Performative::Disposition(Disposition {
        role: Role::Receiver,
        first: SerialNumber(first),
        last: Some(SerialNumber(last)),
        settled,
        state: Some(state),
        ..Disposition::default()
    })
}

/// Messages in a queue.
fn fill(scene: &mut Scene, address: &str, count: u32) {
    let mut wire = scene.sending(address);
    for id in 0..count {
        let tag = id.to_be_bytes();
        let payload = format!("m{id}");
        scene.transfer(&wire, first(id, &tag), &message(true, payload.as_bytes()));
    }
    scene.run(&mut [&mut wire]);
    scene.cut(&wire);
}

/// A client that receives from a queue, with credit.
fn taking(scene: &mut Scene, address: &str, limit: u32) -> RawAmqp {
    let mut wire = scene.begun();
    scene.say(&wire, 0, &receiver(address, HANDLE, from(address)));
    scene.say(&wire, 0, &credit(HANDLE, limit));
    scene.run(&mut [&mut wire]);
    wire
}

#[test]
fn transfers_never_finished_share_one_budget() {
    const MESSAGE_MAX: usize = 128 << 10;
    const PART: usize = 30 << 10;
    let mut setup = setup(2);
    setup.config.clients.packet_bytes_max = MESSAGE_MAX as u32;
    setup.config.memory.bytes = 4 << 20;
    let mut scene = Scene::new(setup);
    let mut wires = Vec::new();
    let mut closed = 0;
    for _ in 0..20 {
        let mut wire = scene.begun();
        for handle in 0..8 {
            let name = format!("link {handle}");
            scene.say(&wire, 0, &sender(&name, handle, "some/topic"));
        }
        scene.run(&mut [&mut wire]);
        for handle in 0..8 {
            let part = Transfer {
                handle,
                more: true,
                ..first(handle, b"t")
            };
            scene.transfer(&wire, part, &[b'x'; PART]);
            scene.run(&mut [&mut wire]);
        }
        let conditions: Vec<String> = wire
            .lines
            .drain(..)
            .filter(|line| line.contains("amqp:"))
            .collect();
        let link = "detach amqp:resource-limit-exceeded";
        let connection = "close amqp:resource-limit-exceeded";
        let known = conditions.iter().all(|it| it == link || it == connection);
        assert!(known && !conditions.is_empty(), "{conditions:?}");
        closed += usize::from(conditions.iter().any(|it| it == connection));
        let (bytes, limit) = counted(&scene.world, Part::Unfinished);
        assert!(bytes <= limit + limit / 4 + PART, "{bytes} of {limit}");
        wires.push(wire);
    }
    assert!(closed > 5, "all together have a limit: {closed}");
    scene.check_served("unfinished");
    for wire in &wires {
        scene.cut(wire);
    }
    assert_eq!(counted(&scene.world, Part::Unfinished).0, 0);
    scene.check_empty("unfinished");
}

#[test]
fn receivers_that_never_settle_hold_what_others_get_after_them() {
    for shards in [1, 2] {
        let mut setup = setup(shards);
        setup.config.sending.inflight_max = 10;
        let mut scene = Scene::new(setup);
        fill(&mut scene, "/queues/held", 50);
        let mut greedy = taking(&mut scene, "/queues/held", u32::MAX);
        let held = greedy.said("transfer").len();
        assert_eq!(held, 10, "as many as may be in flight");
        // Asking again does not help.
        for _ in 0..50 {
            scene.say(&greedy, 0, &credit(HANDLE, u32::MAX));
        }
        scene.run(&mut [&mut greedy]);
        assert!(greedy.said("transfer").is_empty());
        scene.check_served("held");
        let mut other = taking(&mut scene, "/queues/held", 1000);
        let mut taken = 0;
        loop {
            let came = other.said("transfer").len() as u32;
            if came == 0 {
                break;
            }
            taken += came;
            let accepted = said(0, taken - 1, true, DeliveryState::ACCEPTED);
            scene.say(&other, 0, &accepted);
            scene.run(&mut [&mut other, &mut greedy]);
        }
        assert_eq!(taken, 40);
        // What it held goes to the other when it goes.
        scene.world.cut(greedy.conn);
        scene.run(&mut [&mut other]);
        assert_eq!(other.said("transfer").len(), 10);
        let accepted = said(40, 49, true, DeliveryState::ACCEPTED);
        scene.say(&other, 0, &accepted);
        scene.run(&mut [&mut other]);
        let census = scene.world.census();
        assert_eq!((census.queued, census.in_flight), (0, 0));
        scene.cut(&other);
        scene.check_served("settled");
    }
}

#[test]
fn senders_that_never_settle_get_no_further_credit() {
    let mut setup = setup(2);
    setup.config.clients.receive_maximum = 10;
    let mut scene = Scene::new(setup);
    let mut wire = scene.begun();
    let attach = Performative::Attach(Attach {
        name: "second",
        handle: HANDLE,
        role: Role::Sender,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(Target {
            address: Some("some/topic"),
            ..Target::default()
        })),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    });
    scene.say(&wire, 0, &attach);
    scene.run(&mut [&mut wire]);
    assert_eq!(wire.said("flow"), ["flow 0 10"]);
    for id in 0..10 {
        scene.transfer(&wire, first(id, &[id as u8]), &message(true, b"x"));
        scene.run(&mut [&mut wire]);
    }
    // Each is accepted, and the client does not say that it knows.
    let flows: Vec<&String> = wire
        .lines
        .iter()
        .filter(|it| it.starts_with("flow"))
        .collect();
    assert!(flows.is_empty(), "{flows:?}");
    assert_eq!(wire.said("disposition").len(), 10);
    let settled = Performative::Disposition(Disposition {
        role: Role::Sender,
        first: SerialNumber(0),
        last: Some(SerialNumber(5)),
        settled: true,
        ..Disposition::default()
    });
    scene.say(&wire, 0, &settled);
    scene.run(&mut [&mut wire]);
    assert_eq!(wire.said("flow"), ["flow 0 6"]);
    scene.check_served("second");
    scene.cut(&wire);
    scene.check_empty("second");
}

/// A link to the coordinator, whose handle is 1.
fn controller() -> Performative<'static> {
    Performative::Attach(Attach {
        name: "controller",
        handle: 1,
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Coordinator(Coordinator::default())),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    })
}

/// What the coordinator said of a demand.
fn demand(scene: &mut Scene, [wire, other]: [&mut RawAmqp; 2], id: u32, demand: &Demand) -> String {
    let bytes = demand.encode().expect("small");
    let tag = id.to_be_bytes();
    let transfer = Transfer {
        handle: 1,
        ..first(id, &tag)
    };
    scene.transfer(wire, transfer, &bytes);
    scene.run(&mut [wire, other]);
    wire.said("disposition").concat()
}

#[test]
fn transactions_never_discharged_are_rolled_back() {
    let mut setup = setup(2);
    setup.config.transactions.timeout = Duration::from_secs(2);
    setup.config.transactions.max = 3;
    let mut scene = Scene::new(setup);
    fill(&mut scene, "/queues/held", 5);
    let mut wire = taking(&mut scene, "/queues/held", 100);
    assert_eq!(wire.said("transfer").len(), 5);
    scene.say(&wire, 0, &controller());
    scene.say(&wire, 0, &sender("/queues/held", 2, "/queues/held"));
    scene.run(&mut [&mut wire]);
    let mut other = scene.begun();
    let declare = Demand::Declare { global_id: None };
    let mut declared = Vec::new();
    for id in 0..5 {
        let answer = demand(&mut scene, [&mut wire, &mut other], id, &declare);
        match answer.split("declared ").nth(1) {
            Some(id) => declared.push(id.replace(" settled", "")),
            None => assert!(answer.contains("amqp:resource-limit-exceeded"), "{answer}"),
        }
    }
    assert_eq!(declared.len(), 3);
    let number = u64::from_str_radix(&declared[0], 16).expect("eight bytes");
    let txn_id = number.to_be_bytes();
    let within = |outcome| {
        DeliveryState::Transactional(TransactionalState {
            txn_id: &txn_id,
            outcome,
        })
    };
    // All messages are taken in it, and one is posted.
    let taken = said(0, 4, true, within(Some(Outcome::Accepted)));
    scene.say(&wire, 0, &taken);
    let post = Transfer {
        handle: 2,
        state: Some(within(None)),
        ..first(5, b"post")
    };
    scene.transfer(&wire, post, &message(true, b"posted"));
    scene.say(&other, 0, &receiver("other", HANDLE, from("/queues/held")));
    scene.say(&other, 0, &credit(HANDLE, 100));
    scene.run(&mut [&mut wire, &mut other]);
    assert!(other.said("transfer").is_empty(), "they are taken");
    scene.wait(Duration::from_secs(3), &mut [&mut wire, &mut other]);
    wire.lines.clear();
    let txn_id = txn_id.to_vec().into();
    let discharge = Demand::Discharge {
        txn_id,
        fail: false,
    };
    let answer = demand(&mut scene, [&mut wire, &mut other], 6, &discharge);
    assert!(
        answer.contains(condition::TRANSACTION_TIMEOUT.as_str()),
        "{answer}"
    );
    scene.world.cut(wire.conn);
    scene.run(&mut [&mut other]);
    assert_eq!(other.said("transfer").len(), 5, "and nothing was posted");
    scene.check_served("transactions");
    scene.cut(&other);
}

#[test]
fn outcomes_of_a_transaction_that_grow_count_against_it() {
    let mut setup = setup(2);
    setup.config.transactions.bytes_max = 200 << 10;
    let mut scene = Scene::new(setup);
    fill(&mut scene, "/queues/held", 10);
    let mut wire = taking(&mut scene, "/queues/held", 100);
    let mut other = scene.begun();
    scene.say(&wire, 0, &controller());
    let declare = Demand::Declare { global_id: None };
    let answer = demand(&mut scene, [&mut wire, &mut other], 0, &declare);
    let id = answer.split("declared ").nth(1).expect("one");
    let number = u64::from_str_radix(&id.replace(" settled", ""), 16);
    let txn_id = number.expect("eight bytes").to_be_bytes();
    let long = "y".repeat(50_000);
    for text in ["", &long] {
        for delivery in 0..10 {
            let error = Some(Error::new(condition::INTERNAL_ERROR, text));
            let state = DeliveryState::Transactional(TransactionalState {
                txn_id: &txn_id,
                outcome: Some(Outcome::Rejected(Rejected { error })),
            });
            scene.say(&wire, 0, &said(delivery, delivery, false, state));
            scene.run(&mut [&mut wire]);
        }
    }
    let discharge = Demand::Discharge {
        txn_id: txn_id.to_vec().into(),
        fail: false,
    };
    let answer = demand(&mut scene, [&mut wire, &mut other], 1, &discharge);
    let rollback = condition::TRANSACTION_ROLLBACK.as_str();
    assert!(answer.contains(rollback), "{answer}");
    scene.check_served("outcomes");
    scene.cut(&wire);
}

#[test]
fn large_attaches_count_in_the_budget() {
    let mut setup = setup(2);
    setup.config.memory.bytes = 4 << 20;
    let mut scene = Scene::new(setup);
    let long = vec![b'x'; 50_000];
    let key = dunlin_amqp::codec::Symbol::from_static("k");
    let entries = [(Value::Symbol(key), Value::Binary(&long))];
    let mut wires = Vec::new();
    let mut attached = 0;
    for _ in 0..4 {
        let mut wire = scene.begun();
        for handle in 0..20 {
            let name = format!("{handle}");
            let attach = Performative::Attach(Attach {
                name: &name,
                handle,
                role: Role::Receiver,
                source: Some(from("/queues/large")),
                target: Some(AnyTarget::Target(Target::default())),
                properties: Some(Map::new(&entries)),
                ..Attach::default()
            });
            scene.say(&wire, 0, &attach);
            scene.run(&mut [&mut wire]);
        }
        let refused = wire.lines.iter().filter(|line| line.contains("amqp:"));
        assert!(
            refused
                .clone()
                .all(|line| line == "detach amqp:resource-limit-exceeded")
        );
        attached += 20 - refused.count();
        let (bytes, limit) = counted(&scene.world, Part::Sessions);
        assert!(bytes >= attached * long.len(), "{bytes} for {attached}");
        assert!(bytes <= limit + limit / 4 + 64 * 1024, "{bytes} of {limit}");
        wires.push(wire);
    }
    for wire in &wires {
        scene.cut(wire);
    }
    scene.check_served("large");
}

#[test]
fn a_large_outcome_is_not_repeated_for_each_delivery() {
    let mut scene = Scene::new(setup(2));
    fill(&mut scene, "/queues/held", 100);
    let mut wire = taking(&mut scene, "/queues/held", 100);
    assert_eq!(wire.said("transfer").len(), 100);
    for id in (0..100).step_by(2) {
        scene.say(&wire, 0, &said(id, id, true, DeliveryState::ACCEPTED));
    }
    scene.run(&mut [&mut wire]);
    let before = wire.received;
    let text = "y".repeat(50_000);
    let error = Some(Error::new(condition::INTERNAL_ERROR, &text));
    let rejected = DeliveryState::Outcome(Outcome::Rejected(Rejected { error }));
    scene.say(&wire, 0, &said(0, 99, false, rejected));
    scene.run(&mut [&mut wire]);
    assert_eq!(wire.said("disposition").len(), 50);
    let came = wire.received - before;
    assert!(came < 2 * text.len(), "{came} bytes");
    scene.cut(&wire);
    scene.check_served("outcomes");
}

#[test]
fn an_outcome_that_is_repeated_costs_nothing_more() {
    let mut setup = setup(2);
    // The store has not heard of it when it is said again.
    setup.pace.store = (50_000, 50_000);
    let mut scene = Scene::new(setup);
    fill(&mut scene, "/queues/held", 100);
    let mut wire = taking(&mut scene, "/queues/held", 100);
    assert_eq!(wire.said("transfer").len(), 100);
    let accepted = frame(0, &said(0, 99, false, DeliveryState::ACCEPTED), b"");
    wire.send(&mut scene.world, &accepted.repeat(100));
    scene.run(&mut [&mut wire]);
    let answer = wire.said("disposition");
    assert_eq!(answer, ["disposition 0-99 accepted settled"]);
    let census = scene.world.census();
    assert_eq!((census.queued, census.in_flight), (0, 0));
    scene.check_served("repeated");
    scene.cut(&wire);
}
