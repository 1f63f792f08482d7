//! The anonymous relay: where a message goes that says so itself, as other links would
//! have it, and whose rights count.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_amqp::codec::{
    Attach, DeliveryState, Map, Outcome, Properties, Section, Source, Symbols, Value, capability,
};
use dunlin_amqp::{Event, LinkId, State};

use super::amqp::{
    Client, NOW, OPEN, World, addressed, conn, is_accepted, message, payloads, receiver,
};
use super::queues::{address, lose, named};
use super::transactions::Controller;
use crate::access::{Access, Acl};
use crate::queues::options::{Overflow, QueueOptions};

/// A world of two shards, where these rules hold.
fn ruled(rules: &str) -> World {
    let mut world = World::new(2, OPEN);
    let acl = Arc::new(Acl::parse(rules).expect("rules"));
    for shard in &mut world.shards {
        let access = Access {
            acl: Some(Arc::clone(&acl)),
            ..Access::default()
        };
        shard.set_access(NOW, access);
    }
    world.run();
    world
}

/// The condition with which a message was rejected; `accepted` if it was not.
fn said(state: &State) -> String {
    match state.get() {
        _ if is_accepted(state) => "accepted".to_string(),
        DeliveryState::Outcome(Outcome::Rejected(why)) => {
            why.error.expect("why").condition.as_str().to_string()
        }
        other => format!("{other:?}"),
    }
}

/// Sends a durable message; what became of it.
fn send(client: &mut Client, world: &mut World, link: LinkId, to: &str, byte: u8) -> String {
    client.send(world, link, false, addressed(to, &[byte]));
    said(&client.outcome().expect("an outcome").1)
}

#[test]
fn both_addresses_of_a_topic_are_one() {
    let mut world = ruled("topic write a/b\ntopic read a/#");
    let (mut to, _) = Client::receiving(&mut world, conn(1, 2), "a/#", 10);
    let mut from = Client::new(&mut world, conn(0, 1), None);
    let link = from.sender(&mut world, None);
    let refused = "amqp:unauthorized-access";
    for (address, byte, outcome) in [
        ("a/b", b'1', "accepted"),
        ("/topics/a/b", b'2', "accepted"),
        ("/topics/a/c", b'3', refused),
        ("a/c", b'4', refused),
        ("/topics/", b'5', "amqp:not-found"),
    ] {
        let said = send(&mut from, &mut world, link, address, byte);
        assert_eq!(said, outcome, "{address}");
    }
    assert_eq!(to.payloads(&mut world), "12");
    world.check();
}

#[test]
fn both_addresses_of_a_topic_are_one_in_a_transaction() {
    let mut world = ruled("topic write a/b\ntopic read a/#");
    let (mut to, _) = Client::receiving(&mut world, conn(1, 2), "a/#", 10);
    let mut from = Controller::new(&mut world, 0, 1);
    let link = from.client.sender(&mut world, None);
    let id = from.declare(&mut world);
    for (address, byte) in [("a/b", b'1'), ("/topics/a/b", b'2')] {
        from.post_as(&mut world, link, &id, false, addressed(address, &[byte]));
        assert!(from.client.outcome().is_some(), "{address}");
    }
    assert_eq!(from.commit(&mut world, &id), Ok(()));
    assert_eq!(to.payloads(&mut world), "12");
    world.check();
}

/// What a client of JMS sends to.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Queue = 0,
    Topic = 1,
    TemporaryQueue = 2,
}

/// A message as a client of JMS sends it by the relay.
fn of_jms(to: &str, kind: Kind, byte: u8) -> Vec<u8> {
    let entries = [(
        Value::Symbol(capability::JMS_DESTINATION),
        Value::Byte(kind as i8),
    )];
    let mut bytes = message(true, b"");
    // The header alone.
    bytes.truncate(7);
    let annotations = Value::Map(Map::new(&entries));
    let written = Section::MessageAnnotations.encode(&annotations, &mut bytes);
    written.expect("a vector");
    let properties = Properties {
        to: Some(to),
        ..Properties::default()
    };
    properties.encode(&mut bytes).expect("small");
    bytes.extend_from_slice(&message(false, &[byte]));
    bytes
}

/// A receiver of JMS, which says that its source is a queue.
fn consume(client: &mut Client, world: &mut World, name: &str) {
    let attach = Attach {
        source: Some(Source {
            address: Some(name),
            capabilities: Some(Symbols::new(&[capability::QUEUE])),
            ..Source::default()
        }),
        ..receiver(name)
    };
    client.take(world, &attach, 10);
}

#[test]
fn jms_sends_to_a_queue_by_its_name() {
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut to = Client::new(&mut world, conn(0, 2), None);
        consume(&mut to, &mut world, "orders");
        let (mut subscriber, _) = Client::receiving(&mut world, conn(1, 3), "orders", 10);
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.sender(&mut world, None);
        for (address, kind, byte) in [
            ("orders", Kind::Queue, b'1'),
            ("/queues/orders", Kind::Queue, b'2'),
            ("/queues/orders", Kind::TemporaryQueue, b'3'),
            ("orders", Kind::Topic, b'4'),
        ] {
            from.send(&mut world, link, false, of_jms(address, kind, byte));
            let (_, state) = from.outcome().expect("an outcome");
            assert!(is_accepted(&state), "{address} {kind:?}");
        }
        let long = "x".repeat(600);
        for name in ["", "a/#", &long] {
            from.send(&mut world, link, false, of_jms(name, Kind::Queue, b'5'));
            let (_, state) = from.outcome().expect("an outcome");
            assert_eq!(said(&state), "amqp:not-found", "{name}");
        }
        assert_eq!(to.payloads(&mut world), "123");
        assert_eq!(subscriber.payloads(&mut world), "4");
        world.check();
    }
}

#[test]
fn open_says_what_names_of_queues_begin_with() {
    let mut world = World::new(1, OPEN);
    let mut client = Client::new(&mut world, conn(0, 1), None);
    let opened = client.events.drain(..).find_map(|event| match event {
        Event::Opened(body) => Some(body),
        _ => None,
    });
    let opened = opened.expect("open");
    let properties = opened.open().and_then(|open| open.properties);
    let properties = properties.expect("properties");
    for (name, value) in [
        ("product", "dunlin"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("queue-prefix", "/queues/"),
    ] {
        assert_eq!(properties.get(name), Some(Value::String(value)), "{name}");
    }
}

#[test]
fn a_message_makes_its_queue_and_is_stored_with_it() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.sender(&mut world, None);
        world.held = Some(Vec::new());
        from.send(&mut world, link, false, addressed(&queue, b"1"));
        from.send(&mut world, link, false, addressed(&queue, b"2"));
        assert!(from.outcome().is_none(), "before the store has it");
        world.release_store();
        from.exchange(&mut world);
        for _ in 0..2 {
            let (_, state) = from.outcome().expect("an outcome");
            assert!(is_accepted(&state));
        }
        assert_eq!(send(&mut from, &mut world, link, &queue, b'3'), "accepted");
        world.check();
        world.restart();
        let (mut to, _) = Client::receiving(&mut world, conn(1 - shard, 2), &queue, 10);
        assert_eq!(payloads(&to.taken()), "123");
        world.check();
    }
}

#[test]
fn a_message_does_not_wait_for_the_queue_that_a_link_makes() {
    let queue = address();
    for (shard, overflow) in [
        (0, Overflow::Reject),
        (1, Overflow::Reject),
        (0, Overflow::DropNewest),
        (1, Overflow::DropNewest),
    ] {
        let mut world =
            World::configured(2, OPEN, |config| config.queues.options.overflow = overflow);
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.sender(&mut world, None);
        let mut to = Client::new(&mut world, conn(1 - shard, 2), None);
        world.held = Some(Vec::new());
        let taking = to.attach(&mut world, &receiver(&queue));
        from.send(&mut world, link, false, addressed(&queue, b"1"));
        assert!(from.outcome().is_none(), "before the store has it");
        world.release_store();
        from.exchange(&mut world);
        let (_, state) = from.outcome().expect("an outcome");
        assert_eq!(said(&state), "accepted", "{shard} {overflow:?}");
        to.exchange(&mut world);
        to.give_credit(&mut world, taking, 10);
        assert_eq!(payloads(&to.taken()), "1", "{shard} {overflow:?}");
        world.check();
        world.restart();
        let (mut late, _) = Client::receiving(&mut world, conn(0, 3), &queue, 10);
        assert_eq!(payloads(&late.taken()), "1", "{shard} {overflow:?}");
        world.check();
    }
}

#[test]
fn a_message_of_a_transaction_makes_its_queue() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Controller::new(&mut world, shard, 1);
        let link = from.client.sender(&mut world, None);
        let id = from.declare(&mut world);
        from.post_as(&mut world, link, &id, false, addressed(&queue, b"1"));
        assert!(from.client.outcome().is_some());
        world.held = Some(Vec::new());
        from.discharge(&mut world, &id, false);
        let held = world.held.as_ref().expect("held");
        let sizes: Vec<usize> = held.iter().map(|(_, batch)| batch.ops.len()).collect();
        assert_eq!(sizes, [2], "one batch with the record and the message");
        world.release_store();
        from.client.exchange(&mut world);
        assert!(from.answer().is_ok());
        for restarts in [false, true] {
            if restarts {
                world.restart();
            }
            let (mut to, _) = Client::receiving(&mut world, conn(0, 2), &queue, 10);
            assert_eq!(payloads(&to.taken()), "1");
            lose(&mut world, conn(0, 2));
            world.check();
        }
    }
}

/// Sessions and queues on all shards.
fn sessions(world: &World) -> usize {
    world.shards.iter().map(|it| it.census().sessions).sum()
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    RollBack,
    Lose,
    /// The store refuses it.
    Refuse,
    /// Another queue of it is full.
    Full,
}

#[test]
fn a_transaction_that_is_off_leaves_no_queue() {
    let queue = address();
    let options = QueueOptions {
        messages_max: 1,
        ..QueueOptions::default()
    };
    let full = named("/queues/full", &[], &options);
    let ends = [
        End::Commit,
        End::RollBack,
        End::Lose,
        End::Refuse,
        End::Full,
    ];
    for (shard, end) in ends.into_iter().flat_map(|end| [(0, end), (1, end)]) {
        let mut world = World::configured(2, OPEN, &full);
        let mut from = Controller::new(&mut world, shard, 1);
        let link = from.client.sender(&mut world, None);
        let said = send(&mut from.client, &mut world, link, "/queues/full", b'0');
        assert_eq!(said, "accepted");
        let before = sessions(&world);
        let id = from.declare(&mut world);
        for to in [Some(&*queue), (end == End::Full).then_some("/queues/full")] {
            let Some(to) = to else {
                continue;
            };
            from.post_as(&mut world, link, &id, false, addressed(to, b"1"));
            assert!(from.client.outcome().is_some());
        }
        assert_eq!(sessions(&world), before, "not made before the commit");
        world.refuses = end == End::Refuse;
        match end {
            End::Commit => assert_eq!(from.commit(&mut world, &id), Ok(())),
            End::RollBack => from.roll_back(&mut world, &id),
            End::Lose => {}
            End::Refuse | End::Full => {
                let rolled_back = "amqp:transaction:rollback".to_string();
                assert_eq!(from.commit(&mut world, &id), Err(rolled_back));
            }
        }
        world.refuses = false;
        lose(&mut world, conn(shard, 1));
        let queues = 1 + usize::from(end == End::Commit);
        assert_eq!(sessions(&world), queues, "{shard} {end:?}");
        world.check();
        world.restart();
        assert_eq!(sessions(&world), queues, "{shard} {end:?}, restarted");
    }
}

#[test]
fn a_queue_is_there_if_one_of_the_messages_that_make_it_is_stored() {
    let queue = address();
    for outcomes in [
        [false, false, false],
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [true, true, true],
    ] {
        let mut world = World::new(2, OPEN);
        let mut all = Vec::new();
        for shard in [1, 0] {
            let mut by = Controller::new(&mut world, shard, 1);
            let link = by.client.sender(&mut world, None);
            let id = by.declare(&mut world);
            let byte = b'1' + u8::from(shard == 0);
            by.post_as(&mut world, link, &id, false, addressed(&queue, &[byte]));
            all.push((by, id));
        }
        let mut plain = Client::new(&mut world, conn(1, 2), None);
        let link = plain.sender(&mut world, None);
        world.held = Some(Vec::new());
        for (by, id) in &mut all {
            by.discharge(&mut world, id, false);
        }
        plain.send(&mut world, link, false, addressed(&queue, b"3"));
        // What its home asks for alone is refused.
        let held = world.held.take().expect("held");
        let sizes: Vec<_> = held.iter().map(|(at, it)| (*at, it.ops.len())).collect();
        assert_eq!(sizes.len(), 4, "{sizes:?}");
        let alone = held.iter().filter(|(_, it)| it.ops.len() == 1);
        let others = held.iter().filter(|(_, it)| it.ops.len() > 1);
        let outcomes_of = core::iter::once(false).chain(outcomes);
        for ((at, batch), stored) in alone.chain(others).zip(outcomes_of) {
            world.refuses = !stored;
            world.commit(*at, batch);
            world.run();
        }
        world.refuses = false;
        world.pass(Duration::from_secs(2));
        for (shard, number) in [(1, 1), (0, 1), (1, 2)] {
            lose(&mut world, conn(shard, number));
        }
        let stored = ["1", "2", "3"].into_iter().zip(outcomes);
        let stored: String = stored.filter(|(_, it)| *it).map(|(byte, _)| byte).collect();
        let queues = usize::from(!stored.is_empty());
        assert_eq!(sessions(&world), queues, "{outcomes:?}");
        world.check();
        world.restart();
        assert_eq!(sessions(&world), queues, "{outcomes:?}, restarted");
        let (mut to, _) = Client::receiving(&mut world, conn(0, 3), &queue, 10);
        assert_eq!(payloads(&to.taken()), stored, "{outcomes:?}");
        world.check();
    }
}

#[test]
fn a_message_makes_no_queue_where_that_is_not_allowed() {
    let queue = address();
    for (shard, auto_create, max) in [(0, false, 10), (1, false, 10), (0, true, 0), (1, true, 0)] {
        let mut world = World::configured(2, OPEN, |config| {
            config.queues.auto_create = auto_create;
            config.queues.max = max;
        });
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.sender(&mut world, None);
        let said = send(&mut from, &mut world, link, &queue, b'1');
        let expected = match auto_create {
            true => "amqp:resource-limit-exceeded",
            false => "amqp:not-found",
        };
        assert_eq!(said, expected);
        assert!(world.shards.iter().all(|it| it.census().sessions <= 1));
        world.check();
    }
}

#[test]
fn a_queue_whose_record_was_refused_stays_for_what_is_stored_with_it() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    let mut from = Client::new(&mut world, conn(1, 1), None);
    let link = from.sender(&mut world, None);
    world.held = Some(Vec::new());
    from.send(&mut world, link, false, addressed(&queue, b"1"));
    // The batch of its home is refused, that of the message is stored.
    let held = world.held.take().expect("held");
    let of = |shard| held.iter().filter(move |(at, _)| *at == shard);
    assert_eq!((of(0).count(), of(1).count()), (1, 1));
    for (at, batch) in of(0).chain(of(1)) {
        world.refuses = *at == 0;
        world.commit(*at, batch);
    }
    world.run();
    from.exchange(&mut world);
    let (_, state) = from.outcome().expect("an outcome");
    assert!(is_accepted(&state));
    world.check();
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        let (mut to, _) = Client::receiving(&mut world, conn(0, 2), &queue, 10);
        assert_eq!(payloads(&to.taken()), "1", "{restarts}");
        lose(&mut world, conn(0, 2));
    }
    // Nothing came: it ends, and the next message makes it again.
    let mut world = World::new(2, OPEN);
    world.refuses = true;
    let mut from = Client::new(&mut world, conn(1, 1), None);
    let link = from.sender(&mut world, None);
    assert_ne!(send(&mut from, &mut world, link, &queue, b'1'), "accepted");
    world.refuses = false;
    world.pass(Duration::from_secs(2));
    assert_eq!(world.shards[0].census().sessions, 0);
    assert_eq!(send(&mut from, &mut world, link, &queue, b'2'), "accepted");
    world.check();
}

#[test]
fn what_is_not_taken_says_why() {
    let queue = address();
    let options = QueueOptions {
        messages_max: 1,
        ..QueueOptions::default()
    };
    let named = named(&queue, &[], &options);
    for shard in [0, 1] {
        let mut world = World::configured(2, OPEN, |config| {
            named(config);
            config.queues.auto_create = false;
        });
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.sender(&mut world, None);
        let mut says = |world: &mut World, to: &str| send(&mut from, world, link, to, b'1');
        assert_eq!(says(&mut world, "/queues/none"), "amqp:not-found");
        world.refuses = true;
        assert_eq!(says(&mut world, &queue), "amqp:internal-error");
        world.refuses = false;
        assert_eq!(says(&mut world, &queue), "accepted");
        assert_eq!(says(&mut world, &queue), "amqp:resource-limit-exceeded");
        world.check();
    }
}
