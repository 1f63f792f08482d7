//! Messages that say when they are delivered.

use alloc::vec::Vec;
use core::time::Duration;

use dunlin_amqp::Event;
use dunlin_amqp::codec::{Attach, DeliveryState, Map, Section, Symbol, Timestamp, Value};

use super::amqp::{Client, NOW, OPEN, World, conn, is_accepted, message, never, receiver};
use super::queues::{address, addressed, lose};

const TIME: &str = "x-opt-delivery-time";
const DELAY: &str = "x-opt-delivery-delay";

/// A message with this annotation.
fn annotated(durable: bool, payload: u8, name: &'static str, value: Value<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if durable {
        bytes.extend_from_slice(&[0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41]);
    }
    let entries = [(Value::Symbol(Symbol::from_static(name)), value)];
    let map = Value::Map(Map::new(&entries));
    let encoded = Section::MessageAnnotations.encode(&map, &mut bytes);
    encoded.expect("a vector");
    bytes.extend_from_slice(&message(false, &[payload]));
    bytes
}

/// Milliseconds after the beginning.
fn pass(world: &mut World, ms: u64) {
    world.pass(Duration::from_millis(ms));
}

/// Now, in milliseconds since 1970.
fn now_ms() -> i64 {
    NOW.as_micros() as i64 / 1000
}

#[test]
fn a_queue_keeps_a_message_back_until_its_time() {
    let queue = address();
    for shard in [0, 1] {
        for durable in [true, false] {
            let mut world = World::new(2, OPEN);
            let (mut from, link) = Client::sending(&mut world, conn(shard, 1), &queue);
            let (mut to, _) = Client::receiving(&mut world, conn(1, 2), &queue, 10);
            for (payload, name, value) in [
                (b'3', TIME, Value::Timestamp(Timestamp(now_ms() + 300))),
                (b'2', TIME, Value::Long(now_ms() + 200)),
                (b'1', DELAY, Value::Long(100)),
                (b'4', DELAY, Value::Uint(300)),
                (b'0', TIME, Value::Long(now_ms())),
                (b'0', DELAY, Value::Long(-5)),
                (b'0', DELAY, Value::String("soon")),
            ] {
                let bytes = annotated(durable, payload, name, value);
                from.send_accepted(&mut world, link, bytes);
            }
            assert_eq!(to.accept_all(&mut world), "000");
            // A link that comes and goes does not stop the clock.
            Client::receiving(&mut world, conn(0, 3), &queue, 0);
            lose(&mut world, conn(0, 3));
            pass(&mut world, 99);
            assert_eq!(to.accept_all(&mut world), "");
            pass(&mut world, 100);
            assert_eq!(to.accept_all(&mut world), "1");
            pass(&mut world, 299);
            assert_eq!(to.accept_all(&mut world), "2");
            world.check();
            if durable {
                assert_eq!(world.store.stored_messages(), 2);
                world.restart();
                to = Client::new(&mut world, conn(0, 4), None);
                to.receiver(&mut world, &queue, 10);
                pass(&mut world, 299);
                assert_eq!(to.accept_all(&mut world), "");
            }
            pass(&mut world, 300);
            assert_eq!(to.accept_all(&mut world), "34");
            assert_eq!(world.store.stored_messages(), 0);
            world.check();
        }
    }
}

#[test]
fn what_is_kept_back_has_its_place_among_the_messages_of_a_queue() {
    let queue = address();
    let options = crate::queues::options::QueueOptions {
        messages_max: 2,
        ..Default::default()
    };
    let change = super::queues::named(&queue, &[], &options);
    let mut world = World::configured(2, OPEN, change);
    let (mut from, link) = Client::sending(&mut world, conn(0, 1), &queue);
    for payload in [b'1', b'2'] {
        let bytes = annotated(true, payload, DELAY, Value::Long(100));
        from.send_accepted(&mut world, link, bytes);
    }
    assert_eq!(from.engine.credit(link), 0, "there is no room");
    let mut other = Client::new(&mut world, conn(0, 2), None);
    let relay = other.sender(&mut world, None);
    other.send(&mut world, relay, false, addressed(&queue, true, b"3"));
    let (_, state) = other.outcome().expect("an outcome");
    assert!(!is_accepted(&state), "there is no room");
    // Nothing is kept back for years.
    let years = annotated(true, b'4', DELAY, Value::Long(400 * 24 * 3_600_000));
    let (mut from, link) = Client::sending(&mut world, conn(0, 3), "t/a");
    from.send(&mut world, link, false, years);
    let (_, state) = from.outcome().expect("an outcome");
    let DeliveryState::Outcome(dunlin_amqp::codec::Outcome::Rejected(rejected)) = state.get()
    else {
        panic!("rejected");
    };
    let condition = rejected.error.expect("why").condition;
    assert_eq!(condition.as_str(), "amqp:invalid-field");
}

#[test]
fn a_subscription_that_stays_keeps_messages_back_too() {
    for name in ["a", "b", "c"] {
        let mut world = World::new(2, OPEN);
        let wanted = Attach {
            name,
            source: Some(never("t/#")),
            ..receiver("t/#")
        };
        let mut to = Client::new(&mut world, conn(0, 1), None);
        to.take(&mut world, &wanted, 10);
        let (mut from, link) = Client::sending(&mut world, conn(1, 2), "t/a");
        let bytes = annotated(true, b'1', DELAY, Value::Long(100));
        from.send_accepted(&mut world, link, bytes);
        assert_eq!(to.accept_all(&mut world), "");
        pass(&mut world, 100);
        assert_eq!(to.accept_all(&mut world), "1", "{name}");
    }
}

#[test]
fn a_connection_offers_it() {
    let mut world = World::new(1, OPEN);
    let client = Client::new(&mut world, conn(0, 1), None);
    let offered = client.events.iter().find_map(|event| match event {
        Event::Opened(body) => body.open()?.offered_capabilities,
        _ => None,
    });
    assert!(offered.is_some_and(|all| all.contains("DELAYED_DELIVERY")));
}
