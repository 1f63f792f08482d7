//! Receivers at queues and subscriptions that stay, which do not want what their own
//! container sent: who sent a message is known on all shards, and after a restart.

use alloc::vec::Vec;

use dunlin_amqp::codec::{
    Attach, Described, Descriptor, DistributionMode, Map, Source, Symbols, Value, capability,
};
use dunlin_amqp::{Event, LinkId};

use super::amqp::{Client, OPEN, World, conn, never, receiver};
use super::queues::{address, lose};

const NO_LOCAL: &str = capability::NO_LOCAL_FILTER.as_str();

/// A client of a container.
fn client(world: &mut World, (shard, serial): (u16, u64), container: &str) -> Client {
    Client::of(world, conn(shard, serial), None, container)
}

/// Sends one durable message for each byte.
fn send(client: &mut Client, world: &mut World, address: &str, bodies: &str) {
    let link = client.sender(world, Some(address));
    client.events.clear();
    client.send_all(world, link, bodies);
    client.detach(world, link, true);
}

/// Attaches a receiver with the filter, with credit; whether it was granted.
fn receive_others(client: &mut Client, world: &mut World, attach: &Attach<'_>) -> (LinkId, bool) {
    let value = Value::List(Default::default());
    let described = Described::new(Descriptor::Symbol(capability::NO_LOCAL_FILTER), &value);
    let described = Value::Described(described).to_vec().expect("small");
    let described = Value::decode(&described).expect("valid");
    let entries = [(Value::Symbol(capability::NO_LOCAL_FILTER), described)];
    let source = attach.source.expect("a source");
    let attach = Attach {
        source: Some(Source {
            filter: Some(Map::new(&entries)),
            ..source
        }),
        ..*attach
    };
    client.events.clear();
    let link = client.take(world, &attach, 10);
    let granted = client.events.iter().find_map(|event| match event {
        Event::Attached { attach, .. } => attach.attach()?.source,
        _ => None,
    });
    let granted = granted.expect("an answer").filter.unwrap_or_default();
    let names: Vec<_> = granted
        .iter()
        .filter_map(|(name, _)| name.as_str())
        .collect();
    assert!(names.is_empty() || names == [NO_LOCAL], "{names:?}");
    (link, !names.is_empty())
}

#[test]
fn a_consumer_leaves_what_its_container_sent_to_others() {
    let queue = address();
    for shard in [0, 1] {
        for restarts in [false, true] {
            let mut world = World::new(2, OPEN);
            let mut own = client(&mut world, (0, 1), "own");
            let mut other = client(&mut world, (1, 2), "other");
            send(&mut own, &mut world, &queue, "12");
            send(&mut other, &mut world, &queue, "3");
            send(&mut own, &mut world, &queue, "4");
            if restarts {
                world.restart();
                own = client(&mut world, (1, 3), "own");
            }
            let mut from = client(&mut world, (shard, 4), "own");
            let (_, granted) = receive_others(&mut from, &mut world, &receiver(&queue));
            assert!(granted);
            assert_eq!(from.accept_all(&mut world), "3", "{shard} {restarts}");
            // One that browses sees none of its own either.
            let copy = Attach {
                source: Some(Source {
                    address: Some(&queue),
                    distribution_mode: Some(DistributionMode::Copy),
                    ..Source::default()
                }),
                ..receiver(&queue)
            };
            for (serial, container, seen) in [(7, "own", ""), (8, "third", "124")] {
                let mut browser = client(&mut world, (1, serial), container);
                receive_others(&mut browser, &mut world, &copy);
                assert_eq!(browser.accept_all(&mut world), seen, "{container}");
                lose(&mut world, conn(1, serial));
            }
            send(&mut own, &mut world, &queue, "5");
            assert_eq!(from.accept_all(&mut world), "");
            let mut all = client(&mut world, (0, 6), "own");
            all.receiver(&mut world, &queue, 10);
            assert_eq!(all.accept_all(&mut world), "1245");
            assert_eq!(world.store.stored_messages(), 0);
            world.check();
        }
    }
}

/// A receiver of a subscription that stays.
fn subscription(name: &'static str) -> Attach<'static> {
    Attach {
        name,
        source: Some(never("t/#")),
        ..receiver("t/#")
    }
}

#[test]
fn a_subscription_that_stays_keeps_out_what_its_container_sends() {
    // Names whose homes differ.
    for name in ["a", "b", "c"] {
        let mut world = World::new(2, OPEN);
        let mut to = client(&mut world, (0, 1), "own");
        let (_, granted) = receive_others(&mut to, &mut world, &subscription(name));
        assert!(granted);
        let bodies = [("own", "13"), ("other", "2")];
        for (at, (container, bodies)) in bodies.into_iter().enumerate() {
            let mut from = client(&mut world, (1, 2 + at as u64), container);
            send(&mut from, &mut world, "t/x", bodies);
        }
        assert_eq!(to.accept_all(&mut world), "2", "{name}");
        lose(&mut world, conn(0, 1));
        world.restart();
        for (at, (container, bodies)) in bodies.into_iter().enumerate() {
            let mut from = client(&mut world, (0, 5 + at as u64), container);
            send(&mut from, &mut world, "t/x", bodies);
        }
        assert_eq!(world.store.stored_messages(), 1, "only what it wants");
        let mut to = client(&mut world, (1, 9), "own");
        receive_others(&mut to, &mut world, &subscription(name));
        assert_eq!(to.accept_all(&mut world), "2");
        world.check();
    }
}

#[test]
fn it_is_not_granted_where_no_message_is_a_clients_own() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    let mut nameless = client(&mut world, (0, 1), "");
    send(&mut nameless, &mut world, &queue, "1");
    let (_, granted) = receive_others(&mut nameless, &mut world, &receiver(&queue));
    assert!(!granted);
    assert_eq!(nameless.accept_all(&mut world), "1");
    // Of all containers together.
    let shared = [capability::SHARED, capability::GLOBAL];
    let shared = Some(Symbols::new(&shared));
    let mut wanted = subscription("s|global");
    if let Some(source) = &mut wanted.source {
        source.capabilities = shared;
    }
    let mut to = client(&mut world, (0, 2), "own");
    let (_, granted) = receive_others(&mut to, &mut world, &wanted);
    assert!(!granted);
    let mut from = client(&mut world, (1, 3), "own");
    send(&mut from, &mut world, "t/x", "2");
    assert_eq!(to.accept_all(&mut world), "2");
    world.check();
}
