//! Queues with links on their own shard and on another: whose turn it is, what a
//! lost link had, limits, restarts.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, DistributionMode, Header, Message as Scanned, Modified,
    Outcome, Properties, ReceiverSettleMode, Rejected, Role, SerialNumber, Source, Symbols, Target,
    TerminusDurability, TerminusExpiryPolicy, capability,
};
use dunlin_amqp::{Delivery, Event, LinkId};
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Text};

use super::amqp::{Client, NOW, OPEN, World, conn, is_accepted, message, publish, receiver};
use crate::access::{Access, Acl};
use crate::config::{Config, NamedQueue};
use crate::io::Input;
use crate::memory::Part;
use crate::queues::options::{Overflow, QueueOptions};
use crate::random::home_shard;

/// A message with a header, if it is durable, for this address.
pub(super) fn addressed(to: &str, durable: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match durable {
        true => message(true, b""),
        false => Vec::new(),
    };
    // The header alone.
    bytes.truncate(7);
    let properties = Properties {
        to: Some(to),
        ..Properties::default()
    };
    properties.encode(&mut bytes).expect("a vector");
    bytes.extend_from_slice(&message(false, payload));
    bytes
}

/// A queue whose home is shard 0 of two.
pub(super) fn address() -> String {
    let mut names = (0..).map(|number| format!("/queues/q{number}"));
    let here = |name: &String| home_shard(name, 2) == 0;
    names.find(here).expect("one of many")
}

/// Queues of this name, with these options, at the start.
pub(super) fn named(
    name: &str,
    topics: &[&str],
    options: &QueueOptions,
) -> impl Fn(&mut Config) + use<> {
    let queue = NamedQueue {
        name: Text::from(name.trim_start_matches("/queues/")),
        topics: topics.iter().map(|topic| Text::from(*topic)).collect(),
        options: options.clone(),
    };
    move |config| config.queues.named.push(queue.clone())
}

pub(super) fn lose(world: &mut World, conn: ConnId) {
    let cause = CloseCause::Local;
    let event = NetEvent::new(conn, NetEventKind::Closed { cause });
    world.input(usize::from(conn.shard().0), Input::Net(event));
}

/// All messages that have come: delivery, last byte, delivery count.
pub(super) fn taken(client: &mut Client) -> Vec<(Delivery, u8, u32)> {
    let all = core::iter::from_fn(|| client.message());
    all.map(|(delivery, _, bytes)| {
        let header = Scanned::scan(&bytes).expect("a message").header();
        let count = header.expect("valid").map_or(0, |h| h.delivery_count);
        (delivery, *bytes.last().expect("a payload"), count)
    })
    .collect()
}

pub(super) fn payloads(messages: &[(Delivery, u8, u32)]) -> String {
    messages
        .iter()
        .map(|(_, byte, _)| char::from(*byte))
        .collect()
}

fn settle(client: &mut Client, world: &mut World, of: Delivery, state: &DeliveryState<'_>) {
    client.engine.settle(of, Some(state)).expect("open");
    client.exchange(world);
}

fn send(client: &mut Client, world: &mut World, link: LinkId, payloads: &str) {
    for byte in payloads.bytes() {
        let sent = client.send(world, link, false, message(true, &[byte]));
        let (answered, state) = client.outcome().expect("an outcome");
        assert!(answered == sent && is_accepted(&state), "{state:?}");
    }
}

pub(super) fn miscounted(world: &World) -> usize {
    world
        .shards
        .iter()
        .map(|s| s.census().miscounted_bytes)
        .sum()
}

/// Bytes of messages in the memory budget, on all shards.
pub(super) fn queued(world: &World) -> usize {
    let parts = world.shards.iter().flat_map(|shard| shard.memory());
    let of_queues = parts.filter(|(part, ..)| *part == Part::Queued);
    of_queues.map(|(_, used, _)| used).sum()
}

pub(super) fn internal_errors(world: &World) -> u64 {
    world.shards.iter().map(|s| s.stats().internal_errors).sum()
}

#[test]
fn consumers_of_all_shards_take_turns_within_their_credit() {
    let queue = address();
    for sender in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(sender, 1), None);
        let mut here = Client::new(&mut world, conn(0, 2), None);
        let mut there = Client::new(&mut world, conn(1, 3), None);
        let link = from.sender(&mut world, Some(&queue));
        send(&mut from, &mut world, link, "123456");
        assert_eq!(world.store.stored_messages(), 6);
        here.receiver(&mut world, &queue, 0);
        let second = there.receiver(&mut world, &queue, 2);
        here.exchange(&mut world);
        let first = taken(&mut there);
        assert_eq!(
            (payloads(&first).as_str(), taken(&mut here).len()),
            ("12", 0)
        );
        let mut late = Client::new(&mut world, conn(0, 4), None);
        late.receiver(&mut world, &queue, 10);
        let rest = taken(&mut late);
        assert_eq!(payloads(&rest), "3456");
        for (delivery, ..) in rest {
            settle(&mut late, &mut world, delivery, &DeliveryState::ACCEPTED);
        }
        for (delivery, ..) in first {
            settle(&mut there, &mut world, delivery, &DeliveryState::ACCEPTED);
        }
        assert_eq!(world.store.stored_messages(), 0);
        // Both have credit now: they take turns.
        there.engine.set_credit(second, 5, false).expect("credit");
        there.exchange(&mut world);
        send(&mut from, &mut world, link, "abcdef");
        late.exchange(&mut world);
        there.exchange(&mut world);
        let shares = (taken(&mut late).len(), taken(&mut there).len());
        assert_eq!(shares, (3, 3));
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}

#[test]
fn what_a_lost_consumer_had_goes_back_in_order_and_counts() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(1, 1), None);
        let link = from.sender(&mut world, Some(&queue));
        send(&mut from, &mut world, link, "1234");
        let mut lost = Client::new(&mut world, conn(shard, 2), None);
        lost.receiver(&mut world, &queue, 3);
        let had = taken(&mut lost);
        assert_eq!(payloads(&had), "123");
        settle(&mut lost, &mut world, had[1].0, &DeliveryState::ACCEPTED);
        lose(&mut world, conn(shard, 2));
        let mut next = Client::new(&mut world, conn(0, 3), None);
        let link = next.receiver(&mut world, &queue, 10);
        let got = taken(&mut next);
        let got: Vec<_> = got.iter().map(|(_, byte, count)| (*byte, *count)).collect();
        assert_eq!(got, [(b'1', 1), (b'3', 1), (b'4', 0)], "shard {shard}");
        // A link that is detached gives them back as well.
        next.engine.detach(link, true, None).expect("detach");
        next.exchange(&mut world);
        assert_eq!(world.shards[0].census().queued, 3);
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
        // The count outlives the broker, and so do the messages.
        world.restart();
        let mut last = Client::new(&mut world, conn(1, 4), None);
        last.receiver(&mut world, &queue, 10);
        let got = taken(&mut last);
        let got: Vec<_> = got.iter().map(|(_, byte, count)| (*byte, *count)).collect();
        assert_eq!(got, [(b'1', 2), (b'3', 2), (b'4', 1)], "shard {shard}");
        assert_eq!(miscounted(&world), 0);
    }
}

#[test]
fn a_transfer_to_a_queue_is_accepted_when_the_store_has_it() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.sender(&mut world, Some(&queue));
        world.held = Some(Vec::new());
        let sent = from.send(&mut world, link, false, message(true, b"x"));
        assert!(from.outcome().is_none(), "before the store has it");
        world.release_store();
        from.exchange(&mut world);
        let (answered, state) = from.outcome().expect("an outcome");
        assert!(answered == sent && is_accepted(&state));
    }
}

#[test]
fn the_second_mode_is_settled_when_the_store_has_removed_the_message() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(0, 1), None);
        let link = from.sender(&mut world, Some(&queue));
        send(&mut from, &mut world, link, "1");
        let mut to = Client::new(&mut world, conn(shard, 2), None);
        let second = Attach {
            rcv_settle_mode: ReceiverSettleMode::Second,
            ..receiver(&queue)
        };
        let link = to.attach(&mut world, &second);
        to.engine.set_credit(link, 5, false).expect("credit");
        to.exchange(&mut world);
        let got = taken(&mut to);
        world.held = Some(Vec::new());
        let accepted = to.engine.update(got[0].0, &DeliveryState::ACCEPTED);
        accepted.expect("open");
        to.exchange(&mut world);
        let settled = |to: &mut Client| {
            to.events
                .drain(..)
                .any(|event| matches!(event, Event::Disposition { settled: true, .. }))
        };
        assert!(!settled(&mut to), "the store still has it");
        world.release_store();
        to.exchange(&mut world);
        assert!(settled(&mut to));
        assert_eq!(world.store.stored_messages(), 0);
    }
}

#[test]
fn a_full_queue_does_what_its_policy_says() {
    let queue = address();
    for (overflow, durable, outcomes, left) in [
        (Overflow::Reject, true, "++--", "12"),
        (Overflow::Reject, false, "++--", "12"),
        (Overflow::DropNewest, true, "++++", "12"),
        (Overflow::DropOldest, true, "++++", "34"),
        (Overflow::DropOldest, false, "++++", "34"),
    ] {
        for shard in [0, 1] {
            let options = QueueOptions {
                messages_max: 2,
                overflow,
                ..QueueOptions::default()
            };
            let change = named(&queue, &[], &options);
            let mut world = World::configured(2, OPEN, change);
            let mut from = Client::new(&mut world, conn(shard, 1), None);
            // A link to the queue itself has no credit when it refuses.
            let link = from.sender(&mut world, None);
            let mut got = String::new();
            for byte in b'1'..=b'4' {
                from.send(&mut world, link, false, addressed(&queue, durable, &[byte]));
                let (_, state) = from.outcome().expect("an outcome");
                got.push(if is_accepted(&state) { '+' } else { '-' });
            }
            assert_eq!(got, outcomes, "{overflow:?} {durable}");
            let mut to = Client::new(&mut world, conn(0, 2), None);
            to.receiver(&mut world, &queue, 10);
            assert_eq!(payloads(&taken(&mut to)), left, "{overflow:?} {durable}");
            assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
        }
    }
}

#[cfg(feature = "mqtt")]
#[test]
fn publishes_of_mqtt_come_through_what_a_queue_is_bound_to() {
    let queue = address();
    let change = named(&queue, &["t/#", "t/a"], &QueueOptions::default());
    let mut world = World::configured(2, OPEN, change);
    world.mqtt(conn(1, 1), 0);
    world.bytes(conn(1, 1), &publish(1, b"1"));
    world.restart();
    world.mqtt(conn(0, 2), 0);
    world.bytes(conn(0, 2), &publish(1, b"2"));
    // QoS 0.
    world.bytes(conn(0, 2), &[0x30, 7, 0, 3, b't', b'/', b'a', 0, b'3']);
    let mut to = Client::new(&mut world, conn(1, 3), None);
    to.receiver(&mut world, &queue, 10);
    let got = taken(&mut to);
    assert_eq!(payloads(&got), "123");
    for (delivery, ..) in got {
        settle(&mut to, &mut world, delivery, &DeliveryState::ACCEPTED);
    }
    assert_eq!(world.store.stored_messages(), 0);
    // No longer bound after its configuration has changed.
    assert!(world.shards[1].census().subscriptions > 0);
    assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
}

#[test]
fn credit_that_is_drained_comes_back_when_the_queue_is_empty() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(0, 1), None);
        let sender = from.sender(&mut world, Some(&queue));
        send(&mut from, &mut world, sender, "12");
        let mut to = Client::new(&mut world, conn(shard, 2), None);
        let link = to.attach(&mut world, &receiver(&queue));
        to.engine.set_credit(link, 5, true).expect("credit");
        to.exchange(&mut world);
        let drained = |event: &Event<'_>| {
            matches!(
                event,
                Event::Flow {
                    credit: 0,
                    drained: true,
                    ..
                }
            )
        };
        assert!(to.events.iter().any(drained), "shard {shard}");
        assert_eq!(payloads(&taken(&mut to)), "12");
        send(&mut from, &mut world, sender, "3");
        to.exchange(&mut world);
        assert!(taken(&mut to).is_empty(), "no credit is left");
        to.engine.set_credit(link, 1, false).expect("credit");
        to.exchange(&mut world);
        assert_eq!(payloads(&taken(&mut to)), "3");
    }
}

#[test]
fn rejected_messages_and_those_that_fail_too_often_go_to_the_dead() {
    let queue = address();
    for dead in ["/queues/dead0", "/queues/dead1", "/queues/dead2"] {
        let options = QueueOptions {
            dead_letter: Some(Text::from(dead)),
            deliveries_max: 2,
            ..QueueOptions::default()
        };
        let (first, second) = (
            named(&queue, &[], &options),
            named(dead, &[], &QueueOptions::default()),
        );
        let change = |config: &mut Config| {
            first(config);
            second(config);
        };
        let mut world = World::configured(2, OPEN, change);
        let mut from = Client::new(&mut world, conn(0, 1), None);
        let link = from.sender(&mut world, Some(&queue));
        send(&mut from, &mut world, link, "123");
        let mut to = Client::new(&mut world, conn(1, 2), None);
        to.receiver(&mut world, &queue, 10);
        let got = taken(&mut to);
        let rejected = DeliveryState::Outcome(Outcome::Rejected(Rejected { error: None }));
        settle(&mut to, &mut world, got[0].0, &rejected);
        let failed = DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed: true,
            ..Modified::default()
        }));
        settle(&mut to, &mut world, got[1].0, &failed);
        let again = taken(&mut to);
        assert_eq!((payloads(&again).as_str(), again[0].2), ("2", 1));
        settle(&mut to, &mut world, again[0].0, &failed);
        settle(&mut to, &mut world, got[2].0, &DeliveryState::ACCEPTED);
        assert_eq!(world.store.stored_messages(), 2, "each is in one queue");
        let mut digger = Client::new(&mut world, conn(0, 3), None);
        digger.receiver(&mut world, dead, 10);
        assert_eq!(payloads(&taken(&mut digger)), "12", "{dead}");
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}

#[test]
fn a_dynamic_node_ends_with_the_link_that_made_it() {
    let mut world = World::new(2, OPEN);
    let mut owner = Client::new(&mut world, conn(0, 1), None);
    let dynamic = Attach {
        name: "mine",
        role: Role::Receiver,
        source: Some(Source {
            dynamic: true,
            ..Source::default()
        }),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    };
    let link = owner.attach(&mut world, &dynamic);
    owner.engine.set_credit(link, 5, false).expect("credit");
    owner.exchange(&mut world);
    let address = owner.attached().expect("an answer with an address");
    assert!(address.starts_with("/queues/dynamic-"), "{address}");
    let mut other = Client::new(&mut world, conn(1, 2), None);
    let sender = other.sender(&mut world, Some(&address));
    other.send(&mut world, sender, false, message(true, b"1"));
    assert!(
        other
            .outcome()
            .is_some_and(|(_, state)| is_accepted(&state))
    );
    owner.exchange(&mut world);
    assert_eq!(payloads(&taken(&mut owner)), "1");
    assert_eq!(world.store.stored_messages(), 0, "it is in memory");
    owner.engine.detach(link, true, None).expect("detach");
    owner.exchange(&mut world);
    other.exchange(&mut world);
    assert_eq!(other.refusal().as_deref(), Some("amqp:resource-deleted"));
    let census = world.shards[0].census();
    assert_eq!((census.sessions, census.miscounted_bytes), (0, 0));
    assert_eq!(internal_errors(&world), 0);
}

#[test]
fn queues_are_made_by_attaching_only_where_that_is_allowed() {
    let of = |auto_create, max| {
        move |config: &mut Config| {
            config.queues.auto_create = auto_create;
            config.queues.max = max;
        }
    };
    for (change, refusals) in [
        (of(false, 10), [Some("amqp:not-found"); 2]),
        (of(true, 1), [None, Some("amqp:resource-limit-exceeded")]),
    ] {
        let mut world = World::configured(1, OPEN, change);
        for (name, refusal) in ["a", "b"].iter().zip(refusals) {
            let mut client = Client::new(&mut world, conn(0, 1), None);
            let target = Target {
                address: Some(name),
                capabilities: Some(Symbols::new(&[capability::QUEUE])),
                ..Target::default()
            };
            client.attach(
                &mut world,
                &Attach {
                    name: "sender",
                    role: Role::Sender,
                    source: Some(Source::default()),
                    target: Some(AnyTarget::Target(target)),
                    initial_delivery_count: Some(SerialNumber(0)),
                    ..Attach::default()
                },
            );
            assert_eq!(client.refusal().as_deref(), refusal, "{name}");
            lose(&mut world, conn(0, 1));
        }
        assert_eq!(world.shards[0].census().conns, 0);
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}

#[test]
fn a_queue_has_priorities_and_a_time_of_its_own() {
    let queue = address();
    let options = QueueOptions {
        ttl: Some(core::time::Duration::from_secs(9)),
        ..QueueOptions::default()
    };
    let mut world = World::configured(2, OPEN, named(&queue, &["t/#"], &options));
    let mut from = Client::new(&mut world, conn(1, 1), None);
    let link = from.sender(&mut world, Some(&queue));
    for (byte, priority) in [(b'1', 4), (b'2', 0), (b'3', 9), (b'4', 4)] {
        let mut bytes = Vec::new();
        let header = Header {
            durable: true,
            priority,
            ..Header::default()
        };
        header.encode(&mut bytes).expect("a vector");
        bytes.extend_from_slice(&message(false, &[byte]));
        from.send(&mut world, link, false, bytes);
        assert!(from.outcome().is_some_and(|(_, state)| is_accepted(&state)));
    }
    for restart in [false, true] {
        if restart {
            world.restart();
        }
        let mut to = Client::new(&mut world, conn(0, 2), None);
        to.receiver(&mut world, &queue, 10);
        let got: Vec<_> = core::iter::from_fn(|| to.message()).collect();
        let last: Vec<_> = got
            .iter()
            .map(|(_, _, bytes)| bytes.last().copied())
            .collect();
        let want = [b'3', b'1', b'4', b'2'].map(Some);
        assert_eq!(last, want, "after a restart: {restart}");
        for (_, _, bytes) in &got {
            let header = Scanned::scan(bytes).expect("a message").header();
            let header = header.expect("valid").expect("a header");
            assert_eq!(header.ttl, Some(9000));
        }
        lose(&mut world, conn(0, 2));
    }
    assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
}

#[test]
fn a_backlog_comes_back_from_the_store_in_order() {
    let queue = address();
    let mut world = World::configured(2, OPEN, |config| config.sessions.queue_held_max = 2);
    let mut from = Client::new(&mut world, conn(1, 1), None);
    let link = from.sender(&mut world, Some(&queue));
    let all: Bytes = (b'a'..=b'z').collect();
    let all = core::str::from_utf8(&all).expect("letters");
    send(&mut from, &mut world, link, all);
    let mut to = Client::new(&mut world, conn(1, 2), None);
    to.receiver(&mut world, &queue, 100);
    assert_eq!(payloads(&taken(&mut to)), all);
    lose(&mut world, conn(1, 2));
    let mut next = Client::new(&mut world, conn(0, 3), None);
    next.receiver(&mut world, &queue, 100);
    assert_eq!(payloads(&taken(&mut next)), all);
    assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
}

/// A receiver's subscription to `t/#`.
fn subscription<'a>(name: &'a str, source: Source<'a>) -> Attach<'a> {
    Attach {
        name,
        role: Role::Receiver,
        source: Some(Source {
            address: Some("t/#"),
            ..source
        }),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    }
}

fn durable() -> Source<'static> {
    Source {
        durable: TerminusDurability::UnsettledState,
        expiry_policy: TerminusExpiryPolicy::Never,
        ..Source::default()
    }
}

fn subscribe(client: &mut Client, world: &mut World, attach: &Attach<'_>) -> LinkId {
    let link = client.attach(world, attach);
    client.engine.set_credit(link, 10, false).expect("credit");
    client.exchange(world);
    link
}

fn detach(client: &mut Client, world: &mut World, link: LinkId, closed: bool) {
    client.engine.detach(link, closed, None).expect("detach");
    client.exchange(world);
}

#[test]
fn a_durable_subscription_waits_for_its_receiver_until_it_is_closed() {
    // Names whose homes are both shards.
    for name in ["a", "b", "c", "d"] {
        let mut world = World::new(2, OPEN);
        let wanted = subscription(name, durable());
        let mut client = Client::new(&mut world, conn(0, 1), None);
        let link = subscribe(&mut client, &mut world, &wanted);
        let mut from = Client::new(&mut world, conn(1, 9), None);
        let sender = from.sender(&mut world, Some("t/a"));
        send(&mut from, &mut world, sender, "1");
        client.exchange(&mut world);
        let got = taken(&mut client);
        assert_eq!(payloads(&got), "1", "{name}");
        settle(&mut client, &mut world, got[0].0, &DeliveryState::ACCEPTED);
        detach(&mut client, &mut world, link, false);
        send(&mut from, &mut world, sender, "2");
        world.restart();
        let mut from = Client::new(&mut world, conn(1, 10), None);
        let sender = from.sender(&mut world, Some("t/a"));
        send(&mut from, &mut world, sender, "3");
        let mut client = Client::new(&mut world, conn(1, 2), None);
        subscribe(&mut client, &mut world, &wanted);
        assert_eq!(payloads(&taken(&mut client)), "23", "{name}");
        // Another link of this name steals it.
        let mut thief = Client::new(&mut world, conn(0, 3), None);
        subscribe(&mut thief, &mut world, &wanted);
        client.exchange(&mut world);
        assert_eq!(client.refusal().as_deref(), Some("amqp:link:stolen"));
        assert_eq!(payloads(&taken(&mut thief)), "23", "{name}");
        lose(&mut world, conn(0, 3));
        // Its name is enough to close it.
        let by_name = Attach {
            source: None,
            ..wanted
        };
        let mut last = Client::new(&mut world, conn(0, 4), None);
        let link = last.attach(&mut world, &by_name);
        assert_eq!(last.attached().as_deref(), Some("t/#"));
        detach(&mut last, &mut world, link, true);
        assert_eq!(world.store.stored_messages(), 0);
        assert!(world.store.recover().sessions.is_empty());
        last.events.clear();
        last.attach(&mut world, &by_name);
        assert_eq!(last.refusal().as_deref(), Some("amqp:not-found"));
        lose(&mut world, conn(0, 4));
        let subscriptions: usize = world.shards.iter().map(|s| s.census().subscriptions).sum();
        assert_eq!(subscriptions, 0);
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}

#[test]
fn a_subscription_ends_when_its_policy_and_its_time_say() {
    use dunlin_amqp::codec::TerminusExpiryPolicy::{ConnectionClose, LinkDetach, SessionEnd};
    // Policy, seconds, and whether it is there after detach, end, close, and time.
    for (policy, timeout, there) in [
        (LinkDetach, 0, [false, false, false, false]),
        (LinkDetach, 5, [true, true, true, false]),
        (SessionEnd, 5, [true, true, true, false]),
        (ConnectionClose, 0, [true, true, false, false]),
        (ConnectionClose, 5, [true, true, true, false]),
    ] {
        let mut world = World::new(2, OPEN);
        let source = Source {
            expiry_policy: policy,
            timeout,
            ..Source::default()
        };
        let wanted = subscription("s", source);
        let mut client = Client::new(&mut world, conn(0, 1), None);
        let link = subscribe(&mut client, &mut world, &wanted);
        let is_there = |world: &World| {
            let nodes = world.shards.iter().map(|s| s.census().sessions);
            nodes.sum::<usize>() > 0
        };
        assert!(is_there(&world));
        let mut seen = [false; 4];
        detach(&mut client, &mut world, link, false);
        seen[0] = is_there(&world);
        let session = client.session.take().expect("a session");
        client.engine.end(session, None).expect("end");
        client.exchange(&mut world);
        seen[1] = is_there(&world);
        lose(&mut world, conn(0, 1));
        seen[2] = is_there(&world);
        let later = NOW + core::time::Duration::from_secs(5);
        for shard in &mut world.shards {
            shard.handle_timeout(later);
        }
        world.run();
        seen[3] = is_there(&world);
        assert_eq!(seen, there, "{policy:?}, {timeout} s");
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}

#[test]
fn a_shared_subscription_has_each_message_once_for_all_its_links() {
    let shared = [capability::SHARED, capability::GLOBAL];
    for (source, left) in [(durable(), 1), (Source::default(), 0)] {
        let mut world = World::new(2, OPEN);
        let source = Source {
            capabilities: Some(Symbols::new(&shared)),
            ..source
        };
        let mut one = Client::new(&mut world, conn(0, 1), None);
        let mut two = Client::new(&mut world, conn(1, 2), None);
        subscribe(&mut one, &mut world, &subscription("s|global", source));
        subscribe(&mut two, &mut world, &subscription("s|global2", source));
        let mut from = Client::new(&mut world, conn(1, 9), None);
        let sender = from.sender(&mut world, Some("t/a"));
        send(&mut from, &mut world, sender, "1234");
        one.exchange(&mut world);
        two.exchange(&mut world);
        let (first, second) = (taken(&mut one), taken(&mut two));
        assert_eq!((first.len(), second.len()), (2, 2));
        lose(&mut world, conn(0, 1));
        two.exchange(&mut world);
        assert_eq!(
            payloads(&taken(&mut two)),
            payloads(&first),
            "it gets the rest"
        );
        let mut other = Client::new(&mut world, conn(0, 3), None);
        let mut elsewhere = subscription("s|global3", source);
        if let Some(source) = &mut elsewhere.source {
            source.address = Some("u/#");
        }
        other.attach(&mut world, &elsewhere);
        assert_eq!(other.refusal().as_deref(), Some("amqp:resource-locked"));
        for client in [conn(1, 2), conn(0, 3), conn(1, 9)] {
            lose(&mut world, client);
        }
        let sessions: usize = world.shards.iter().map(|s| s.census().sessions).sum();
        assert_eq!(sessions, left);
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}

#[test]
fn the_rules_decide_who_sends_to_a_queue_and_who_takes() {
    let rules = |text: &str| Access {
        acl: Some(alloc::sync::Arc::new(Acl::parse(text).expect("rules"))),
        ..Access::default()
    };
    let mut world = World::new(1, OPEN);
    let may = "topic readwrite /queues/jobs\ntopic write /queues/in\ntopic read /queues/out";
    world.shards[0].set_access(NOW, rules(may));
    let mut client = Client::new(&mut world, conn(0, 1), None);
    for (queue, sends, takes) in [
        ("/queues/in", true, false),
        ("/queues/out", false, true),
        ("/queues/other", false, false),
    ] {
        let refused = Some("amqp:unauthorized-access");
        let link = client.sender(&mut world, Some(queue));
        assert_eq!(client.refusal().as_deref(), refused.filter(|_| !sends));
        if sends {
            detach(&mut client, &mut world, link, true);
            client.events.clear();
        }
        let link = client.attach(&mut world, &receiver(queue));
        assert_eq!(client.refusal().as_deref(), refused.filter(|_| !takes));
        if takes {
            detach(&mut client, &mut world, link, true);
            client.events.clear();
        }
    }
    // A link that is there loses its right, and the queue what it had comes back.
    let sender = client.sender(&mut world, Some("/queues/jobs"));
    send(&mut client, &mut world, sender, "1");
    client.receiver(&mut world, "/queues/jobs", 5);
    assert_eq!(payloads(&taken(&mut client)), "1");
    world.shards[0].set_access(NOW, rules("topic write /queues/jobs"));
    world.run();
    client.exchange(&mut world);
    assert_eq!(
        client.refusal().as_deref(),
        Some("amqp:unauthorized-access")
    );
    assert_eq!(world.shards[0].census().queued, 1);
    assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
}

#[test]
fn who_browses_a_queue_takes_nothing_of_it() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(0, 1), None);
        let sender = from.sender(&mut world, Some(&queue));
        send(&mut from, &mut world, sender, "123");
        let mut browser = Client::new(&mut world, conn(shard, 2), None);
        let copy = Attach {
            source: Some(Source {
                address: Some(&queue),
                distribution_mode: Some(DistributionMode::Copy),
                ..Source::default()
            }),
            ..receiver(&queue)
        };
        let link = browser.attach(&mut world, &copy);
        browser.engine.set_credit(link, 2, false).expect("credit");
        browser.exchange(&mut world);
        let seen = taken(&mut browser);
        assert_eq!(payloads(&seen), "12");
        for (delivery, ..) in seen {
            settle(&mut browser, &mut world, delivery, &DeliveryState::ACCEPTED);
        }
        // What comes later is not shown.
        send(&mut from, &mut world, sender, "4");
        browser.engine.set_credit(link, 9, true).expect("credit");
        browser.exchange(&mut world);
        let drained = |event: &Event<'_>| matches!(event, Event::Flow { drained: true, .. });
        assert!(browser.events.iter().any(drained), "shard {shard}");
        assert_eq!(payloads(&taken(&mut browser)), "3");
        detach(&mut browser, &mut world, link, true);
        let mut to = Client::new(&mut world, conn(1, 3), None);
        to.receiver(&mut world, &queue, 10);
        let got = taken(&mut to);
        assert_eq!(payloads(&got), "1234");
        assert!(got.iter().all(|(_, _, count)| *count == 0));
        assert_eq!((miscounted(&world), internal_errors(&world)), (0, 0));
    }
}
