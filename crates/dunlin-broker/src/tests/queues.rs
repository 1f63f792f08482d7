//! Queues with links on their own shard and on another: whose turn it is, what a
//! lost link had, limits, restarts.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::Event;
use dunlin_amqp::codec::{
    Attach, DeliveryState, DistributionMode, Header, Message as Scanned, Modified, Outcome,
    Properties, ReceiverSettleMode, Rejected, Source, Symbols, Target, capability,
};
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Text};

use super::amqp::{
    Client, NOW, OPEN, World, conn, is_accepted, message, never, payloads, publish, receiver,
    sender,
};
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

/// Bytes of messages in the memory budget, on all shards.
pub(super) fn queued(world: &World) -> usize {
    let parts = world.shards.iter().flat_map(|shard| shard.memory());
    let of_queues = parts.filter(|(part, ..)| *part == Part::Queued);
    of_queues.map(|(_, used, _)| used).sum()
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
        from.send_all(&mut world, link, "123456");
        assert_eq!(world.store.stored_messages(), 6);
        here.receiver(&mut world, &queue, 0);
        let second = there.receiver(&mut world, &queue, 2);
        here.exchange(&mut world);
        let first = there.taken();
        assert_eq!((payloads(&first).as_str(), here.taken().len()), ("12", 0));
        let (mut late, _) = Client::receiving(&mut world, conn(0, 4), &queue, 10);
        assert_eq!(late.accept_all(&mut world), "3456");
        for (delivery, ..) in first {
            there.settle(&mut world, delivery, &DeliveryState::ACCEPTED);
        }
        assert_eq!(world.store.stored_messages(), 0);
        // Both have credit now: they take turns.
        there.give_credit(&mut world, second, 5);
        from.send_all(&mut world, link, "abcdef");
        late.exchange(&mut world);
        there.exchange(&mut world);
        let shares = (late.taken().len(), there.taken().len());
        assert_eq!(shares, (3, 3));
        world.check();
    }
}

#[test]
fn what_a_lost_consumer_had_goes_back_in_order_and_counts() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
        from.send_all(&mut world, link, "1234");
        let (mut lost, _) = Client::receiving(&mut world, conn(shard, 2), &queue, 3);
        let had = lost.taken();
        assert_eq!(payloads(&had), "123");
        lost.settle(&mut world, had[1].0, &DeliveryState::ACCEPTED);
        lose(&mut world, conn(shard, 2));
        let (mut next, link) = Client::receiving(&mut world, conn(0, 3), &queue, 10);
        let got = next.taken();
        let got: Vec<_> = got.iter().map(|(_, byte, count)| (*byte, *count)).collect();
        assert_eq!(got, [(b'1', 1), (b'3', 1), (b'4', 0)], "shard {shard}");
        // A link that is detached gives them back as well.
        next.detach(&mut world, link, true);
        assert_eq!(world.shards[0].census().queued, 3);
        world.check();
        // The count outlives the broker, and so do the messages.
        world.restart();
        let (mut last, _) = Client::receiving(&mut world, conn(1, 4), &queue, 10);
        let got = last.taken();
        let got: Vec<_> = got.iter().map(|(_, byte, count)| (*byte, *count)).collect();
        assert_eq!(got, [(b'1', 2), (b'3', 2), (b'4', 1)], "shard {shard}");
        world.check();
    }
}

#[test]
fn a_transfer_to_a_queue_is_accepted_when_the_store_has_it() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut from, link) = Client::sending(&mut world, conn(shard, 1), &queue);
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
        let (mut from, link) = Client::sending(&mut world, conn(0, 1), &queue);
        from.send_all(&mut world, link, "1");
        let mut to = Client::new(&mut world, conn(shard, 2), None);
        let second = Attach {
            rcv_settle_mode: ReceiverSettleMode::Second,
            ..receiver(&queue)
        };
        to.take(&mut world, &second, 5);
        let got = to.taken();
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
            let (mut to, _) = Client::receiving(&mut world, conn(0, 2), &queue, 10);
            assert_eq!(payloads(&to.taken()), left, "{overflow:?} {durable}");
            world.check();
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
    let (mut to, _) = Client::receiving(&mut world, conn(1, 3), &queue, 10);
    assert_eq!(to.accept_all(&mut world), "123");
    assert_eq!(world.store.stored_messages(), 0);
    // No longer bound after its configuration has changed.
    assert!(world.shards[1].census().subscriptions > 0);
    world.check();
}

#[test]
fn credit_that_is_drained_comes_back_when_the_queue_is_empty() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut from, sender) = Client::sending(&mut world, conn(0, 1), &queue);
        from.send_all(&mut world, sender, "12");
        let mut to = Client::new(&mut world, conn(shard, 2), None);
        let link = to.attach(&mut world, &receiver(&queue));
        assert!(to.drain(&mut world, link, 5), "shard {shard}");
        assert_eq!(payloads(&to.taken()), "12");
        from.send_all(&mut world, sender, "3");
        to.exchange(&mut world);
        assert!(to.taken().is_empty(), "no credit is left");
        to.give_credit(&mut world, link, 1);
        assert_eq!(payloads(&to.taken()), "3");
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
        let (mut from, link) = Client::sending(&mut world, conn(0, 1), &queue);
        from.send_all(&mut world, link, "123");
        let (mut to, _) = Client::receiving(&mut world, conn(1, 2), &queue, 10);
        let got = to.taken();
        let rejected = DeliveryState::Outcome(Outcome::Rejected(Rejected { error: None }));
        to.settle(&mut world, got[0].0, &rejected);
        let failed = DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed: true,
            ..Modified::default()
        }));
        to.settle(&mut world, got[1].0, &failed);
        let again = to.taken();
        assert_eq!((payloads(&again).as_str(), again[0].2), ("2", 1));
        to.settle(&mut world, again[0].0, &failed);
        to.settle(&mut world, got[2].0, &DeliveryState::ACCEPTED);
        assert_eq!(world.store.stored_messages(), 2, "each is in one queue");
        let (mut digger, _) = Client::receiving(&mut world, conn(0, 3), dead, 10);
        assert_eq!(payloads(&digger.taken()), "12", "{dead}");
        world.check();
    }
}

#[test]
fn a_dynamic_node_ends_with_the_link_that_made_it() {
    let mut world = World::new(2, OPEN);
    let mut owner = Client::new(&mut world, conn(0, 1), None);
    let dynamic = Attach {
        name: "mine",
        source: Some(Source {
            dynamic: true,
            ..Source::default()
        }),
        ..receiver("")
    };
    let link = owner.take(&mut world, &dynamic, 5);
    let address = owner.attached().expect("an answer with an address");
    assert!(address.starts_with("/queues/dynamic-"), "{address}");
    let (mut other, sender) = Client::sending(&mut world, conn(1, 2), &address);
    other.send(&mut world, sender, false, message(true, b"1"));
    assert!(
        other
            .outcome()
            .is_some_and(|(_, state)| is_accepted(&state))
    );
    assert_eq!(owner.payloads(&mut world), "1");
    assert_eq!(world.store.stored_messages(), 0, "it is in memory");
    owner.detach(&mut world, link, true);
    other.exchange(&mut world);
    assert_eq!(other.refusal().as_deref(), Some("amqp:resource-deleted"));
    assert_eq!(world.shards[0].census().sessions, 0);
    world.check();
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
            client.attach(&mut world, &sender(target));
            assert_eq!(client.refusal().as_deref(), refusal, "{name}");
            lose(&mut world, conn(0, 1));
        }
        assert_eq!(world.shards[0].census().conns, 0);
        world.check();
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
    let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
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
        let (mut to, _) = Client::receiving(&mut world, conn(0, 2), &queue, 10);
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
    world.check();
}

#[test]
fn a_backlog_comes_back_from_the_store_in_order() {
    let queue = address();
    let mut world = World::configured(2, OPEN, |config| config.sessions.queue_held_max = 2);
    let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
    let all: Bytes = (b'a'..=b'z').collect();
    let all = core::str::from_utf8(&all).expect("letters");
    from.send_all(&mut world, link, all);
    let (mut to, _) = Client::receiving(&mut world, conn(1, 2), &queue, 100);
    assert_eq!(payloads(&to.taken()), all);
    lose(&mut world, conn(1, 2));
    let (mut next, _) = Client::receiving(&mut world, conn(0, 3), &queue, 100);
    assert_eq!(payloads(&next.taken()), all);
    world.check();
}

/// A receiver's subscription to `t/#`.
fn subscription<'a>(name: &'a str, source: Source<'a>) -> Attach<'a> {
    Attach {
        name,
        source: Some(Source {
            address: Some("t/#"),
            ..source
        }),
        ..receiver("t/#")
    }
}

#[test]
fn a_durable_subscription_waits_for_its_receiver_until_it_is_closed() {
    // Names whose homes are both shards.
    for name in ["a", "b", "c", "d"] {
        let mut world = World::new(2, OPEN);
        let wanted = subscription(name, never("t/#"));
        let mut client = Client::new(&mut world, conn(0, 1), None);
        let link = client.take(&mut world, &wanted, 10);
        let (mut from, sender) = Client::sending(&mut world, conn(1, 9), "t/a");
        from.send_all(&mut world, sender, "1");
        client.exchange(&mut world);
        let got = client.taken();
        assert_eq!(payloads(&got), "1", "{name}");
        client.settle(&mut world, got[0].0, &DeliveryState::ACCEPTED);
        client.detach(&mut world, link, false);
        from.send_all(&mut world, sender, "2");
        world.restart();
        let (mut from, sender) = Client::sending(&mut world, conn(1, 10), "t/a");
        from.send_all(&mut world, sender, "3");
        let mut client = Client::new(&mut world, conn(1, 2), None);
        client.take(&mut world, &wanted, 10);
        assert_eq!(payloads(&client.taken()), "23", "{name}");
        // Another link of this name steals it.
        let mut thief = Client::new(&mut world, conn(0, 3), None);
        thief.take(&mut world, &wanted, 10);
        client.exchange(&mut world);
        assert_eq!(client.refusal().as_deref(), Some("amqp:link:stolen"));
        assert_eq!(payloads(&thief.taken()), "23", "{name}");
        lose(&mut world, conn(0, 3));
        // Its name is enough to close it.
        let by_name = Attach {
            source: None,
            ..wanted
        };
        let mut last = Client::new(&mut world, conn(0, 4), None);
        let link = last.attach(&mut world, &by_name);
        assert_eq!(last.attached().as_deref(), Some("t/#"));
        last.detach(&mut world, link, true);
        assert_eq!(world.store.stored_messages(), 0);
        assert!(world.store.recover().sessions.is_empty());
        last.events.clear();
        last.attach(&mut world, &by_name);
        assert_eq!(last.refusal().as_deref(), Some("amqp:not-found"));
        lose(&mut world, conn(0, 4));
        let subscriptions: usize = world.shards.iter().map(|s| s.census().subscriptions).sum();
        assert_eq!(subscriptions, 0);
        world.check();
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
        let link = client.take(&mut world, &wanted, 10);
        let is_there = |world: &World| {
            let nodes = world.shards.iter().map(|s| s.census().sessions);
            nodes.sum::<usize>() > 0
        };
        assert!(is_there(&world));
        let mut seen = [false; 4];
        client.detach(&mut world, link, false);
        seen[0] = is_there(&world);
        let session = client.session.take().expect("a session");
        client.engine.end(session, None).expect("end");
        client.exchange(&mut world);
        seen[1] = is_there(&world);
        lose(&mut world, conn(0, 1));
        seen[2] = is_there(&world);
        world.pass(core::time::Duration::from_secs(5));
        seen[3] = is_there(&world);
        assert_eq!(seen, there, "{policy:?}, {timeout} s");
        world.check();
    }
}

#[test]
fn a_shared_subscription_has_each_message_once_for_all_its_links() {
    let shared = [capability::SHARED, capability::GLOBAL];
    for (source, left) in [(never("t/#"), 1), (Source::default(), 0)] {
        let mut world = World::new(2, OPEN);
        let source = Source {
            capabilities: Some(Symbols::new(&shared)),
            ..source
        };
        let mut one = Client::new(&mut world, conn(0, 1), None);
        let mut two = Client::new(&mut world, conn(1, 2), None);
        one.take(&mut world, &subscription("s|global", source), 10);
        two.take(&mut world, &subscription("s|global2", source), 10);
        let (mut from, sender) = Client::sending(&mut world, conn(1, 9), "t/a");
        from.send_all(&mut world, sender, "1234");
        one.exchange(&mut world);
        two.exchange(&mut world);
        let (first, second) = (one.taken(), two.taken());
        assert_eq!((first.len(), second.len()), (2, 2));
        lose(&mut world, conn(0, 1));
        two.exchange(&mut world);
        assert_eq!(payloads(&two.taken()), payloads(&first), "it gets the rest");
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
        world.check();
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
            client.detach(&mut world, link, true);
            client.events.clear();
        }
        let link = client.attach(&mut world, &receiver(queue));
        assert_eq!(client.refusal().as_deref(), refused.filter(|_| !takes));
        if takes {
            client.detach(&mut world, link, true);
            client.events.clear();
        }
    }
    // A link that is there loses its right, and the queue what it had comes back.
    let sender = client.sender(&mut world, Some("/queues/jobs"));
    client.send_all(&mut world, sender, "1");
    client.receiver(&mut world, "/queues/jobs", 5);
    assert_eq!(payloads(&client.taken()), "1");
    world.shards[0].set_access(NOW, rules("topic write /queues/jobs"));
    world.run();
    client.exchange(&mut world);
    assert_eq!(
        client.refusal().as_deref(),
        Some("amqp:unauthorized-access")
    );
    assert_eq!(world.shards[0].census().queued, 1);
    world.check();
}

#[test]
fn who_browses_a_queue_takes_nothing_of_it() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut from, sender) = Client::sending(&mut world, conn(0, 1), &queue);
        from.send_all(&mut world, sender, "123");
        let mut browser = Client::new(&mut world, conn(shard, 2), None);
        let copy = Attach {
            source: Some(Source {
                address: Some(&queue),
                distribution_mode: Some(DistributionMode::Copy),
                ..Source::default()
            }),
            ..receiver(&queue)
        };
        let link = browser.take(&mut world, &copy, 2);
        assert_eq!(browser.accept_all(&mut world), "12");
        // What comes later is not shown.
        from.send_all(&mut world, sender, "4");
        assert!(browser.drain(&mut world, link, 9), "shard {shard}");
        assert_eq!(payloads(&browser.taken()), "3");
        browser.detach(&mut world, link, true);
        let (mut to, _) = Client::receiving(&mut world, conn(1, 3), &queue, 10);
        let got = to.taken();
        assert_eq!(payloads(&got), "1234");
        assert!(got.iter().all(|(_, _, count)| *count == 0));
        world.check();
    }
}
