//! Consumers with filters at queues, and subscriptions that stay with filters: what
//! they get, what the others get, and what looking costs.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    Attach, Described, Descriptor, DistributionMode, Map, Section, Source, Symbol, Value,
};
use dunlin_amqp::{Event, LinkId};
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, QoS, Text};
use dunlin_store::{Batch, Seq, StoreOp, Target};

use super::amqp::{Client, NOW, OPEN, World, conn, message, never, payloads, receiver};
use super::queues::{address, queued};
use crate::config::Config;

const SELECTOR: &str = "apache.org:selector-filter:string";

/// A durable message with the application property `n`, its only byte.
fn numbered(n: u8) -> Vec<u8> {
    let mut bytes = alloc::vec![0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
    let entries = [(Value::String("n"), Value::Ubyte(n - b'0'))];
    let map = Value::Map(Map::new(&entries));
    let encoded = Section::ApplicationProperties.encode(&map, &mut bytes);
    encoded.expect("a vector");
    bytes.extend_from_slice(&message(false, &[n]));
    bytes
}

fn send(client: &mut Client, world: &mut World, link: LinkId, numbers: &str) {
    for n in numbers.bytes() {
        client.send_accepted(world, link, numbered(n));
    }
}

/// A described selector, as an entry of a filter set has it.
fn described(selector: &str) -> Vec<u8> {
    let name = Symbol::new(SELECTOR).expect("ASCII");
    let value = Value::String(selector);
    let it = Described::new(Descriptor::Symbol(name), &value);
    Value::Described(it).to_vec().expect("small")
}

/// Attaches a receiver with a selector.
fn select(
    client: &mut Client,
    world: &mut World,
    selector: &str,
    (attach, credit): (&Attach<'_>, u32),
) -> LinkId {
    let described = described(selector);
    let name = Value::Symbol(Symbol::new(SELECTOR).expect("ASCII"));
    let entries = [(name, Value::decode(&described).expect("valid"))];
    let source = attach.source.expect("a source");
    let attach = Attach {
        source: Some(Source {
            filter: Some(Map::new(&entries)),
            ..source
        }),
        ..*attach
    };
    client.take(world, &attach, credit)
}

/// Names of the filters that were granted.
fn granted(client: &Client) -> Vec<String> {
    let attached = client.events.iter().find_map(|event| match event {
        Event::Attached { attach, .. } => Some(attach.clone()),
        _ => None,
    });
    let attached = attached.expect("an answer");
    let source = attached.attach().and_then(|attach| attach.source);
    let filter = source.and_then(|source| source.filter).unwrap_or_default();
    let names = filter
        .iter()
        .filter_map(|(name, _)| name.as_str().map(String::from));
    names.collect()
}

#[test]
fn a_consumer_with_a_selector_takes_what_matches_and_the_rest_stays_in_order() {
    let queue = address();
    for shard in [0, 1] {
        for restarts in [false, true] {
            let mut world = World::new(2, OPEN);
            let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
            send(&mut from, &mut world, link, "123451234");
            if restarts {
                world.restart();
                from = Client::new(&mut world, conn(1, 4), None);
            }
            let mut odd = Client::new(&mut world, conn(shard, 2), None);
            let taker = receiver(&queue);
            select(&mut odd, &mut world, "n IN (3, 5)", (&taker, 10));
            assert_eq!(granted(&odd), [SELECTOR]);
            assert_eq!(payloads(&odd.taken()), "353", "{shard} {restarts}");
            let mut ones = Client::new(&mut world, conn(0, 3), None);
            let one = select(&mut ones, &mut world, "n = 1", (&taker, 1));
            assert_eq!(ones.accept_all(&mut world), "1");
            // What a link had that is gone is where it was.
            super::queues::lose(&mut world, conn(shard, 2));
            let (mut all, _) = Client::receiving(&mut world, conn(1, 5), &queue, 4);
            assert_eq!(all.accept_all(&mut world), "2345");
            ones.give_credit(&mut world, one, 5);
            assert_eq!(ones.accept_all(&mut world), "1");
            let link = match restarts {
                true => from.sender(&mut world, Some(&queue)),
                false => link,
            };
            send(&mut from, &mut world, link, "21");
            assert_eq!(ones.accept_all(&mut world), "1");
            let (mut last, _) = Client::receiving(&mut world, conn(0, 6), &queue, 10);
            assert_eq!(last.accept_all(&mut world), "2342");
            assert_eq!(world.store.stored_messages(), 0);
            world.check();
        }
    }
}

#[test]
fn credit_is_drained_when_nothing_that_matches_is_left() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut from, link) = Client::sending(&mut world, conn(0, 1), &queue);
        send(&mut from, &mut world, link, "1213");
        let mut to = Client::new(&mut world, conn(shard, 2), None);
        let taker = receiver(&queue);
        let link = select(&mut to, &mut world, "n = 1", (&taker, 0));
        assert!(to.drain(&mut world, link, 5));
        assert_eq!(to.accept_all(&mut world), "11");
        assert_eq!(world.shards[0].census().queued, 2);
    }
}

#[test]
fn who_browses_with_a_filter_sees_what_matches() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut from, link) = Client::sending(&mut world, conn(0, 1), &queue);
        send(&mut from, &mut world, link, "12131");
        // A consumer has gone past some of them.
        let mut passing = Client::new(&mut world, conn(0, 3), None);
        let taker = receiver(&queue);
        select(&mut passing, &mut world, "n = 3", (&taker, 1));
        assert_eq!(payloads(&passing.taken()), "3");
        let mut browser = Client::new(&mut world, conn(shard, 2), None);
        let copy = Attach {
            source: Some(Source {
                address: Some(&queue),
                distribution_mode: Some(DistributionMode::Copy),
                ..Source::default()
            }),
            ..taker
        };
        let link = select(&mut browser, &mut world, "n = 1", (&copy, 2));
        assert_eq!(granted(&browser), [SELECTOR]);
        assert_eq!(browser.accept_all(&mut world), "11");
        assert!(browser.drain(&mut world, link, 9), "shard {shard}");
        assert_eq!(browser.accept_all(&mut world), "1");
        super::queues::lose(&mut world, conn(0, 3));
        let (mut to, _) = Client::receiving(&mut world, conn(1, 4), &queue, 10);
        assert_eq!(payloads(&to.taken()), "12131");
    }
}

/// Has the store keep so many messages for a queue that is there, all with `n` 0.
fn fill(world: &mut World, queue: &str, count: u64) {
    let recovered = world.store.recover();
    let mut sessions = recovered.sessions.iter();
    let session = sessions.find(|it| *it.record.client_id == *queue);
    let session = session.expect("the queue").key;
    // The header is that of each delivery.
    let bytes = Bytes::from(numbered(b'0')).slice(7..);
    let message = Arc::new(Message {
        topic: Text::from(queue),
        payload: bytes.slice(bytes.len() - 1..),
        qos: QoS::AtLeastOnce,
        extra: Some(alloc::boxed::Box::new(MessageExtra {
            encoded: Some(Encoded {
                form: Form::Amqp,
                bytes,
            }),
            ..MessageExtra::default()
        })),
        ..Message::default()
    });
    let first = recovered.last_seq.0 + 1;
    for at in first..first + count {
        let op = StoreOp::Enqueue {
            seq: Seq(at * 65_536),
            message: message.clone(),
            targets: alloc::vec![Target::new(session, QoS::AtLeastOnce)],
        };
        let ops = alloc::vec![op];
        world.store.apply(&Batch { token: 0, ops });
    }
    world.restart();
}

/// Lets the shard of the queue go on until it has nothing to do for a while; how often
/// it did.
fn rounds(world: &mut World, now: &mut Instant) -> usize {
    const WHILE: Duration = Duration::from_millis(10);
    let mut rounds = 0;
    while let Some(at) = world.shards[0]
        .poll_timeout()
        .filter(|at| *at < *now + WHILE)
    {
        *now = at.max(*now);
        world.shards[0].handle_timeout(*now);
        world.run();
        rounds += 1;
    }
    rounds
}

#[test]
fn a_selector_that_matches_nothing_looks_at_a_large_queue_once_and_in_parts() {
    const MESSAGES: u64 = 100_000;
    let queue = address();
    // The cheapest look takes 32 steps, and 65,536 are taken at a time.
    let terms = "n = 1 OR n > 100 OR n LIKE '%a%a%a' OR ".repeat(20) + "n = 1";
    for (selector, messages, least) in [("n = 1", MESSAGES, 49), (&*terms, 10_000, 30)] {
        // Nearly full, a queue has no credit for senders.
        let large = |config: &mut Config| config.queues.options.messages_max *= 2;
        let mut world = World::configured(2, OPEN, large);
        let mut from = Client::new(&mut world, conn(0, 1), None);
        from.sender(&mut world, Some(&queue));
        fill(&mut world, &queue, messages);
        let mut now = NOW;
        let mut to = Client::new(&mut world, conn(0, 2), None);
        let taker = receiver(&queue);
        select(&mut to, &mut world, selector, (&taker, 10));
        // The others do not wait for it.
        let (mut other, _) = Client::receiving(&mut world, conn(0, 3), &queue, 3);
        assert_eq!(other.accept_all(&mut world), "000");
        let taken = rounds(&mut world, &mut now);
        assert!((least..4000).contains(&taken), "{taken} rounds");
        let census = world.shards[0].census();
        assert_eq!(census.queued as u64, messages - 3);
        // What comes later is found without another look at the rest.
        let (mut from, link) = Client::sending(&mut world, conn(0, 4), &queue);
        send(&mut from, &mut world, link, "1");
        assert!(rounds(&mut world, &mut now) <= 2);
        assert_eq!(to.accept_all(&mut world), "1");
        world.check();
    }
}

#[test]
fn what_is_passed_over_is_counted_in_the_memory_budget() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    let mut from = Client::new(&mut world, conn(0, 1), None);
    from.sender(&mut world, Some(&queue));
    fill(&mut world, &queue, 1000);
    let mut to = Client::new(&mut world, conn(0, 2), None);
    select(&mut to, &mut world, "n = 1", (&receiver(&queue), 10));
    let messages = world.shards[0].census().queued_bytes;
    let places = queued(&world) - messages;
    assert!((100_000..250_000).contains(&places), "{places}");
    let (mut all, link) = Client::receiving(&mut world, conn(1, 3), &queue, 1000);
    while !all.accept_all(&mut world).is_empty() {
        all.give_credit(&mut world, link, 1000);
    }
    assert_eq!((queued(&world), world.store.stored_messages()), (0, 0));
    world.check();
}

#[test]
fn a_subscription_that_stays_keeps_its_filter() {
    for name in ["a", "b", "c"] {
        let mut world = World::new(2, OPEN);
        let wanted = Attach {
            name,
            source: Some(never("t/#")),
            ..receiver("t/#")
        };
        let mut to = Client::new(&mut world, conn(0, 1), None);
        select(&mut to, &mut world, "n = 1", (&wanted, 10));
        assert_eq!(granted(&to), [SELECTOR]);
        super::queues::lose(&mut world, conn(0, 1));
        world.restart();
        let (mut from, publisher) = Client::sending(&mut world, conn(1, 2), "t/a");
        send(&mut from, &mut world, publisher, "1213");
        assert_eq!(world.store.stored_messages(), 2, "only what it wants");
        let mut to = Client::new(&mut world, conn(1, 3), None);
        select(&mut to, &mut world, "n = 1", (&wanted, 10));
        assert_eq!(to.accept_all(&mut world), "11");
        // With another filter it is another subscription.
        send(&mut from, &mut world, publisher, "1");
        super::queues::lose(&mut world, conn(1, 3));
        let mut to = Client::new(&mut world, conn(0, 4), None);
        select(&mut to, &mut world, "n = 2", (&wanted, 10));
        send(&mut from, &mut world, publisher, "123");
        assert_eq!(to.accept_all(&mut world), "2");
        let mut to = Client::new(&mut world, conn(1, 5), None);
        to.take(&mut world, &wanted, 9);
        send(&mut from, &mut world, publisher, "123");
        assert_eq!(to.accept_all(&mut world), "123");
        world.check();
    }
}
