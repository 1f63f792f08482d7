//! Queues that fill up: links that send to them have no credit then, and have it again
//! when there is room.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, Properties, ReceiverSettleMode, Role, SenderSettleMode,
    SerialNumber, Source, Target, TerminusDurability, TerminusExpiryPolicy, Timestamp,
};
use dunlin_amqp::{Extent, LinkId, Sending, Tag};

use super::amqp::{Client, NOW, OPEN, World, conn, is_accepted, message};
use super::queues::{address, addressed, lose, named};
use crate::config::Config;
use crate::owners::senders::IDLE_MAX;
use crate::queues::options::{Overflow, QueueOptions};

fn limited(queue: &str, messages_max: usize) -> World {
    let options = QueueOptions {
        messages_max,
        ..QueueOptions::default()
    };
    World::configured(2, OPEN, named(queue, &[], &options))
}

/// Sends as far as the credit reaches, and no more than this; all is accepted. How many.
fn fill(client: &mut Client, world: &mut World, link: LinkId, max: usize) -> usize {
    client.exchange(world);
    let mut sent = 0;
    while sent < max && client.engine.credit(link) > 0 {
        client.send(world, link, false, message(true, b"x"));
        let (_, state) = client.outcome().expect("an outcome");
        assert!(is_accepted(&state), "message {sent}: {state:?}");
        sent += 1;
    }
    sent
}

/// Takes and settles so many messages.
fn take(client: &mut Client, world: &mut World, link: LinkId, count: u32) {
    client.give_credit(world, link, count);
    let all = client.taken();
    assert_eq!(all.len(), count as usize);
    for (delivery, ..) in all {
        let accepted = Some(&DeliveryState::ACCEPTED);
        client.engine.settle(delivery, accepted).expect("open");
    }
    client.exchange(world);
}

#[test]
fn credit_ends_when_a_queue_is_full_and_comes_back_with_room() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = limited(&queue, 10);
        let (mut from, link) = Client::sending(&mut world, conn(shard, 1), &queue);
        assert_eq!(fill(&mut from, &mut world, link, 100), 10, "shard {shard}");
        // A link that is attached then has none either.
        let (mut late, other) = Client::sending(&mut world, conn(1 - shard, 2), &queue);
        assert_eq!(late.engine.credit(other), 0);
        let (mut to, taking) = Client::receiving(&mut world, conn(0, 3), &queue, 0);
        take(&mut to, &mut world, taking, 4);
        let both = [
            fill(&mut from, &mut world, link, 100),
            fill(&mut late, &mut world, other, 100),
        ];
        assert_eq!(both.iter().sum::<usize>(), 4, "{both:?}");
        assert!(both.iter().all(|sent| *sent > 0), "{both:?}");
        // Also after a restart, for messages that are there already.
        world.restart();
        let (mut from, link) = Client::sending(&mut world, conn(shard, 4), &queue);
        assert_eq!(from.engine.credit(link), 0);
        let (mut to, taking) = Client::receiving(&mut world, conn(1, 5), &queue, 0);
        take(&mut to, &mut world, taking, 10);
        assert_eq!(fill(&mut from, &mut world, link, 100), 10);
        world.check();
    }
}

#[test]
fn other_limits_are_those_of_queues_that_are_made_then() {
    let queues = ["/queues/before", "/queues/after"];
    let mut world = World::new(2, OPEN);
    let mut sent = Vec::new();
    for (queue, serial) in queues.iter().zip(1..) {
        let (mut from, link) = Client::sending(&mut world, conn(0, serial), queue);
        sent.push(fill(&mut from, &mut world, link, 10));
        for shard in &mut world.shards {
            let mut limits = Config::default().running();
            limits.queue_options.messages_max = 3;
            shard.set_limits(&limits);
        }
    }
    assert_eq!(sent, [10, 3]);
    world.check();
}

#[test]
fn what_a_consumer_has_and_has_not_settled_takes_room() {
    let queue = address();
    let mut world = limited(&queue, 4);
    let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
    assert_eq!(fill(&mut from, &mut world, link, 100), 4);
    let (mut to, _) = Client::receiving(&mut world, conn(1, 2), &queue, 10);
    assert_eq!(to.taken().len(), 4);
    assert_eq!(fill(&mut from, &mut world, link, 100), 0);
    lose(&mut world, conn(1, 2));
    assert_eq!(fill(&mut from, &mut world, link, 100), 0);
    world.check();
}

#[test]
fn senders_share_the_room_in_turn() {
    let queue = address();
    let mut world = limited(&queue, 12);
    let mut all: Vec<_> = (0..5)
        .map(|at| Client::sending(&mut world, conn(at % 2, u64::from(at) + 1), &queue))
        .collect();
    let (mut to, taking) = Client::receiving(&mut world, conn(0, 9), &queue, 0);
    let mut sent = [0; 5];
    for round in 0..40 {
        let mut waiting = 0;
        for (at, (client, link)) in all.iter_mut().enumerate() {
            // One of them takes all that it gets, the others a message each.
            let max = if at == 0 { 100 } else { 1 };
            let more = fill(client, &mut world, *link, max);
            sent[at] += more;
            waiting += more as u32;
        }
        assert!(waiting > 0, "round {round}: {sent:?}");
        take(&mut to, &mut world, taking, waiting);
    }
    assert!(sent.iter().all(|sent| *sent >= 30), "{sent:?}");
    world.check();
}

#[test]
fn who_does_not_use_credit_does_not_keep_others_out() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = limited(&queue, 8);
        let (mut idle, unused) = Client::sending(&mut world, conn(shard, 1), &queue);
        let has = idle.engine.credit(unused) as usize;
        assert!(has > 1, "{has}");
        let (mut from, link) = Client::sending(&mut world, conn(1 - shard, 2), &queue);
        assert_eq!(fill(&mut from, &mut world, link, 100), 8 - has);
        world.pass(IDLE_MAX - Duration::from_micros(1));
        assert_eq!(fill(&mut from, &mut world, link, 100), 0);
        world.pass(IDLE_MAX);
        assert_eq!(fill(&mut from, &mut world, link, 100), has);
        // It may send one message still: the queue does what its policy says.
        idle.exchange(&mut world);
        assert_eq!(idle.engine.credit(unused), 1);
        idle.send(&mut world, unused, false, message(true, b"x"));
        let (_, state) = idle.outcome().expect("an outcome");
        assert!(!is_accepted(&state));
        assert_eq!(idle.engine.credit(unused), 0);
        // And is in line then.
        let (mut to, taking) = Client::receiving(&mut world, conn(0, 3), &queue, 0);
        take(&mut to, &mut world, taking, 8);
        let both = [
            fill(&mut idle, &mut world, unused, 1),
            fill(&mut from, &mut world, link, 1),
        ];
        assert_eq!(both, [1, 1]);
        world.check();
    }
}

#[test]
fn what_a_link_has_not_used_is_for_others_when_it_goes() {
    let queue = address();
    for closed in [true, false] {
        let mut world = limited(&queue, 8);
        let (mut one, unused) = Client::sending(&mut world, conn(1, 1), &queue);
        let has = one.engine.credit(unused) as usize;
        let (mut two, link) = Client::sending(&mut world, conn(0, 2), &queue);
        assert_eq!(fill(&mut two, &mut world, link, 100), 8 - has);
        match closed {
            true => {
                one.detach(&mut world, unused, true);
            }
            false => lose(&mut world, conn(1, 1)),
        }
        assert_eq!(fill(&mut two, &mut world, link, 100), has);
        world.check();
    }
}

#[test]
fn a_queue_that_drops_messages_gives_credit() {
    let queue = address();
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        let options = QueueOptions {
            messages_max: 2,
            overflow,
            ..QueueOptions::default()
        };
        let mut world = World::configured(2, OPEN, named(&queue, &[], &options));
        let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
        assert_eq!(fill(&mut from, &mut world, link, 3000), 3000);
        world.check();
    }
}

#[test]
fn credit_ends_when_there_is_no_room_for_bytes() {
    let queue = address();
    let options = QueueOptions {
        bytes_max: 10_000,
        ..QueueOptions::default()
    };
    let mut world = World::configured(2, OPEN, named(&queue, &[], &options));
    let mut relay = Client::new(&mut world, conn(1, 1), None);
    let link = relay.sender(&mut world, None);
    let large = addressed(&queue, true, &[0; 2500]);
    for _ in 0..3 {
        relay.send(&mut world, link, false, large.clone());
        let (_, state) = relay.outcome().expect("an outcome");
        assert!(is_accepted(&state));
    }
    let (mut from, link) = Client::sending(&mut world, conn(0, 3), &queue);
    assert_eq!(from.engine.credit(link), 0);
    let (mut to, taking) = Client::receiving(&mut world, conn(0, 2), &queue, 0);
    take(&mut to, &mut world, taking, 3);
    assert_eq!(fill(&mut from, &mut world, link, 20), 20);
    world.check();
}

#[test]
fn what_is_past_its_time_makes_room() {
    let queue = address();
    let mut world = limited(&queue, 2);
    let (mut from, link) = Client::sending(&mut world, conn(1, 1), &queue);
    let brief = Properties {
        absolute_expiry_time: Some(Timestamp(NOW.as_micros() as i64 / 1000 + 100)),
        ..Properties::default()
    };
    for _ in 0..2 {
        let mut bytes = message(true, b"");
        bytes.truncate(7);
        brief.encode(&mut bytes).expect("a vector");
        bytes.extend_from_slice(&message(false, b"x"));
        from.send(&mut world, link, false, bytes);
    }
    let (mut late, other) = Client::sending(&mut world, conn(0, 2), &queue);
    assert_eq!(late.engine.credit(other), 0);
    world.pass(IDLE_MAX);
    late.exchange(&mut world);
    assert!(late.engine.credit(other) > 0);
    from.exchange(&mut world);
    assert!(from.engine.credit(link) > 0);
    world.check();
}

#[test]
fn a_message_that_is_given_up_does_not_end_the_credit() {
    let queue = address();
    for to in [&*queue, "t/a"] {
        let mut world = limited(&queue, 1);
        let (mut from, link) = Client::sending(&mut world, conn(1, 1), to);
        for round in 0..3000 {
            assert!(from.engine.credit(link) > 0, "{to}, round {round}");
            from.tag += 1;
            let part = Sending {
                extent: Extent::First,
                ..Sending::new(Tag::from(from.tag), false)
            };
            let sent = from.engine.send(link, &part, b"x", &Bytes::new());
            sent.expect("sent");
            from.engine.abort(link).expect("begun");
            from.exchange(&mut world);
        }
        assert_eq!(fill(&mut from, &mut world, link, 1), 1);
        world.check();
    }
}

#[test]
fn a_link_whose_state_is_kept_waits_for_room_too() {
    let queue = address();
    let mut world = limited(&queue, 3);
    let target = Target {
        address: Some(&queue),
        durable: TerminusDurability::UnsettledState,
        expiry_policy: TerminusExpiryPolicy::Never,
        ..Target::default()
    };
    let attach = Attach {
        name: "kept",
        role: Role::Sender,
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(target)),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    };
    for shard in [0, 1] {
        let mut from = Client::new(&mut world, conn(shard, 1), None);
        let link = from.attach(&mut world, &attach);
        let expected = if shard == 0 { 3 } else { 0 };
        assert_eq!(fill(&mut from, &mut world, link, 100), expected);
        lose(&mut world, conn(shard, 1));
    }
    assert_eq!(world.store.stored_messages(), 3);
    world.check();
}
