//! Messages that consumers do not take: for others, with what is added to them, dead.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::LinkId;
use dunlin_amqp::codec::{
    DeliveryState, Map, Message as Scanned, Modified, Outcome, Properties, Section, Symbol,
    Timestamp, Value,
};
use dunlin_base::Text;

use super::amqp::{Client, OPEN, World, conn, message};
use crate::config::{Config, NamedQueue};
use crate::queues::options::QueueOptions;

const JOBS: &str = "/queues/jobs";
const DEAD: &str = "/queues/dead";

/// Two queues, of which one gets the dead messages of the other.
fn queues(held_max: usize) -> World {
    World::configured(2, OPEN, move |config: &mut Config| {
        config.sessions.queue_held_max = held_max;
        config.queues.named = [("jobs", Some(DEAD)), ("dead", None)]
            .map(|(name, dead)| NamedQueue {
                name: Text::from_static(name),
                topics: Vec::new(),
                options: QueueOptions {
                    dead_letter: dead.map(Text::from_static),
                    deliveries_max: 3,
                    ..QueueOptions::default()
                },
            })
            .into();
    })
}

fn modified<'a>(undeliverable_here: bool, annotations: Option<Map<'a>>) -> DeliveryState<'a> {
    DeliveryState::Outcome(Outcome::Modified(Modified {
        delivery_failed: true,
        undeliverable_here,
        message_annotations: annotations,
    }))
}

/// An annotation of a message as text.
fn annotation(bytes: &Bytes, name: &str) -> Option<String> {
    let scanned = Scanned::scan(bytes).expect("a message");
    scanned.check().expect("valid");
    let map = scanned.message_annotations().expect("valid")?;
    map.get(name)?.as_str().map(ToString::to_string)
}

/// Why, and where, the next message of the dead was dead.
fn death(client: &mut Client, world: &mut World) -> Option<[Option<String>; 3]> {
    client.exchange(world);
    let (delivery, _, bytes) = client.message()?;
    client.settle(world, delivery, &DeliveryState::ACCEPTED);
    let names = [
        "x-first-death-reason",
        "x-last-death-queue",
        "x-opt-ORIG-ADDRESS",
    ];
    Some(names.map(|name| annotation(&bytes, name)))
}

fn reasons(reason: &str) -> Option<[Option<String>; 3]> {
    Some([reason, "jobs", JOBS].map(|it| Some(it.to_string())))
}

fn consumer(world: &mut World, shard: u16, serial: u64) -> (Client, LinkId) {
    Client::receiving(world, conn(shard, serial), JOBS, 1)
}

fn send(world: &mut World, serial: u64, bytes: Vec<u8>) {
    let (mut from, link) = Client::sending(world, conn(1, serial), JOBS);
    from.send(world, link, false, bytes);
}

#[test]
fn what_one_consumer_does_not_take_goes_to_another_and_is_dead_when_none_does() {
    let mut world = queues(1000);
    send(&mut world, 1, message(true, b"x"));
    let (mut one, link) = consumer(&mut world, 0, 2);
    let (mut two, _) = consumer(&mut world, 1, 3);
    let (first, ..) = one.message().expect("a message");
    one.settle(&mut world, first, &modified(true, None));
    // It has credit again, and does not get it again.
    one.give_credit(&mut world, link, 5);
    assert!(one.message().is_none());
    two.exchange(&mut world);
    let (second, _, bytes) = two.message().expect("the message");
    let header = Scanned::scan(&bytes).expect("a message").header();
    assert_eq!(header.expect("valid").expect("some").delivery_count, 1);
    world.check();
    let (mut dead, _) = Client::receiving(&mut world, conn(0, 4), DEAD, 5);
    two.settle(&mut world, second, &modified(true, None));
    one.exchange(&mut world);
    assert!(one.message().is_none() && two.message().is_none());
    assert_eq!(death(&mut dead, &mut world), reasons("rejected"));
    assert_eq!(world.store.stored_messages(), 0);
    world.check();
}

#[test]
fn what_waits_for_another_consumer_is_dead_when_that_has_gone() {
    for stays in [true, false] {
        let mut world = queues(1000);
        send(&mut world, 1, message(true, b"x"));
        let (mut one, link) = consumer(&mut world, 0, 2);
        // One without credit.
        let (mut two, other) = Client::receiving(&mut world, conn(1, 3), JOBS, 0);
        let (first, ..) = one.message().expect("a message");
        one.settle(&mut world, first, &modified(true, None));
        if !stays {
            one.detach(&mut world, link, true);
        }
        two.detach(&mut world, other, true);
        let (mut dead, _) = Client::receiving(&mut world, conn(0, 4), DEAD, 5);
        let expected = if stays { reasons("rejected") } else { None };
        assert_eq!(death(&mut dead, &mut world), expected);
        // Without any consumer it waits for the next.
        let (mut next, _) = consumer(&mut world, 1, 5);
        assert_eq!(next.message().is_some(), !stays);
        world.check();
        // And after a restart it waits in the queue.
        world.restart();
        let (mut last, _) = consumer(&mut world, 1, 6);
        assert_eq!(last.message().is_some(), !stays);
        world.check();
    }
}

#[test]
fn why_a_message_is_dead_is_kept_over_a_restart() {
    let rejected = DeliveryState::Outcome(Outcome::Rejected(Default::default()));
    for (state, times, reason) in [
        (rejected, 1, "rejected"),
        (modified(false, None), 3, "delivery_limit"),
    ] {
        let mut world = queues(1000);
        send(&mut world, 1, message(true, b"x"));
        let (mut to, _) = Client::receiving(&mut world, conn(0, 2), JOBS, 9);
        for _ in 0..times {
            let (delivery, ..) = to.message().expect("a message");
            to.settle(&mut world, delivery, &state);
        }
        assert!(to.message().is_none());
        world.restart();
        let (mut dead, _) = Client::receiving(&mut world, conn(1, 3), DEAD, 5);
        assert_eq!(death(&mut dead, &mut world), reasons(reason));
        assert_eq!(world.store.stored_messages(), 0);
        world.check();
    }
}

#[test]
fn what_is_past_its_time_is_dead_also_when_only_the_store_has_it() {
    for held_max in [1000, 0] {
        let mut world = queues(held_max);
        let mut bytes = message(true, b"");
        let properties = Properties {
            absolute_expiry_time: Some(Timestamp(500)),
            ..Properties::default()
        };
        bytes.truncate(7);
        properties.encode(&mut bytes).expect("encoded");
        Section::encode_data_start(1, &mut bytes).expect("encoded");
        bytes.push(b'x');
        for _ in 0..3 {
            send(&mut world, 1, bytes.clone());
        }
        let (mut to, _) = consumer(&mut world, 0, 2);
        assert!(to.message().is_none());
        let (mut dead, _) = Client::receiving(&mut world, conn(0, 4), DEAD, 5);
        for _ in 0..3 {
            assert_eq!(death(&mut dead, &mut world), reasons("expired"));
        }
        assert_eq!(world.store.stored_messages(), 0);
        world.check();
    }
}

#[test]
fn annotations_of_modified_come_with_the_message() {
    let name = |text| Value::Symbol(Symbol::from_static(text));
    let once = [
        (name("x-opt-a"), Value::String("1")),
        (name("x-opt-b"), Value::String("1")),
    ];
    let again = [(name("x-opt-b"), Value::String("2"))];
    let long = "x".repeat(5000);
    let long = [(name("x-opt-b"), Value::String(&long))];
    for address in [JOBS, "a/topic"] {
        let mut world = queues(1000);
        let (mut to, _) = Client::receiving(&mut world, conn(0, 1), address, 9);
        let (mut from, link) = Client::sending(&mut world, conn(1, 2), address);
        from.send(&mut world, link, false, message(true, b"x"));
        to.exchange(&mut world);
        for annotations in [&once[..], &again] {
            let (delivery, ..) = to.message().expect("a message");
            let state = modified(false, Some(Map::new(annotations)));
            to.settle(&mut world, delivery, &state);
        }
        let (delivery, _, bytes) = to.message().expect("a message");
        let said = ["x-opt-a", "x-opt-b"].map(|name| annotation(&bytes, name));
        assert_eq!(said, [Some("1".into()), Some("2".into())], "{address}");
        let payload: Vec<&[u8]> = Scanned::scan(&bytes)
            .expect("valid")
            .body()
            .data()
            .collect();
        assert_eq!(payload, [b"x"]);
        world.check();
        if address != JOBS {
            // What is too long is left out.
            let state = modified(false, Some(Map::new(&long)));
            to.settle(&mut world, delivery, &state);
            let (_, _, bytes) = to.message().expect("a message");
            assert_eq!(annotation(&bytes, "x-opt-b"), Some("2".into()));
            continue;
        }
        // The store has what was added, and the queue for the dead gets it.
        world.restart();
        let (mut to, _) = Client::receiving(&mut world, conn(1, 3), address, 9);
        let (delivery, _, bytes) = to.message().expect("a message");
        let said = ["x-opt-a", "x-opt-b"].map(|name| annotation(&bytes, name));
        assert_eq!(said, [Some("1".into()), Some("2".into())]);
        let rejected = DeliveryState::Outcome(Outcome::Rejected(Default::default()));
        to.settle(&mut world, delivery, &rejected);
        let (mut to, _) = Client::receiving(&mut world, conn(0, 4), DEAD, 9);
        let (_, _, bytes) = to.message().expect("a dead message");
        assert_eq!(annotation(&bytes, "x-opt-a"), Some("1".into()));
        world.check();
    }
}
