//! What becomes of deliveries whose outcome is on its way to the store: in transactions
//! on topics and queues, and of dead messages.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, LifetimePolicy, Map, Modified, Outcome, Received,
    ReceiverSettleMode, Rejected, Source, Symbol, Target, TerminusExpiryPolicy, TransactionalState,
    Value,
};
use dunlin_amqp::{Delivery, Demand, Event, LinkId, Sending, State, Tag};
use dunlin_base::Text;
use dunlin_store::StoreOp;

use super::amqp::{Client, OPEN, World, conn, message, payloads, receiver, sender};
use super::queues::{address, lose, named};
use super::transactions::Controller;
use crate::config::Config;
use crate::queues::options::QueueOptions;

const SHARE: &str = "$share/g/u/#";
const DEAD: &str = "/queues/dead";

fn second(address: &str) -> Attach<'_> {
    Attach {
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..receiver(address)
    }
}

fn send(world: &mut World, to: &str, payloads: &str) {
    let (mut from, link) = Client::sending(world, conn(1, 90), to);
    for byte in payloads.bytes() {
        from.send(world, link, false, message(true, &[byte]));
    }
    from.detach(world, link, true);
}

/// Deliveries that the broker has settled, with what it said.
fn settled(client: &mut Client) -> Vec<State> {
    let all = client.events.drain(..).filter_map(|event| match event {
        Event::Disposition {
            state,
            settled: true,
            ..
        } => state,
        _ => None,
    });
    all.collect()
}

/// A queue with dead messages of its own, and what gets them.
fn with_dead(queue: &str) -> impl Fn(&mut Config) + use<> {
    let options = QueueOptions {
        dead_letter: Some(Text::from_static(DEAD)),
        ..QueueOptions::default()
    };
    let both = [
        named(queue, &[], &options),
        named(DEAD, &[], &QueueOptions::default()),
    ];
    move |config: &mut Config| {
        both.iter().for_each(|change| change(config));
        config.queues.options = options.clone();
        config.queues.auto_create = false;
    }
}

/// A member of the group whose session outlives its connection, which is lost: the
/// group has a queue in the store.
fn absent_member(world: &mut World) {
    world.mqtt(conn(0, 80), 60);
    let mut subscribe = alloc::vec![0x82, 18, 0, 2, 0, 0, 12];
    subscribe.extend_from_slice(SHARE.as_bytes());
    subscribe.push(1);
    world.bytes(conn(0, 80), &subscribe);
    lose(world, conn(0, 80));
}

#[test]
fn a_commit_is_off_when_a_group_has_its_message_again() {
    for (is_kept, settled) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new(1, OPEN);
        if is_kept {
            absent_member(&mut world);
        }
        let mut by = Controller::new(&mut world, 0, 1);
        let link = by.client.take(&mut world, &second(SHARE), 1);
        let (mut from, to) = Client::sending(&mut world, conn(0, 90), "u/a");
        from.send(&mut world, to, false, message(true, b"1"));
        by.client.exchange(&mut world);
        let got = by.client.taken();
        assert_eq!(payloads(&got), "1");
        let mut other = Client::new(&mut world, conn(0, 2), None);
        other.take(&mut world, &second(SHARE), 5);
        let id = by.declare(&mut world);
        by.retire(&mut world, &id, got[0].0, Outcome::Accepted, settled);
        by.client.detach(&mut world, link, true);
        let committed = by.commit(&mut world, &id).is_ok();
        other.exchange(&mut world);
        let again = payloads(&other.taken());
        let expected = if committed { "" } else { "1" };
        assert_eq!(again, expected, "{is_kept} {settled}");
        world.check_counts();
    }
}

#[test]
fn what_a_group_has_in_the_store_leaves_it_with_the_commit() {
    for refused in [false, true] {
        let mut world = World::new(1, OPEN);
        absent_member(&mut world);
        let mut by = Controller::new(&mut world, 0, 1);
        by.client.take(&mut world, &second(SHARE), 2);
        let (mut from, to) = Client::sending(&mut world, conn(0, 90), "u/a");
        for byte in *b"12" {
            from.send(&mut world, to, false, message(true, &[byte]));
        }
        assert_eq!(world.store.stored_messages(), 2);
        by.client.exchange(&mut world);
        let got = by.client.taken();
        assert_eq!(payloads(&got), "12");
        let id = by.declare(&mut world);
        by.retire(&mut world, &id, got[0].0, Outcome::Accepted, true);
        by.retire(&mut world, &id, got[1].0, Outcome::Released, true);
        world.held = Some(Vec::new());
        by.discharge(&mut world, &id, false);
        assert!(by.client.outcome().is_none(), "not stored yet");
        let held = world.held.take().unwrap_or_default();
        let ops: Vec<_> = held.iter().flat_map(|(_, batch)| &batch.ops).collect();
        assert!(matches!(ops[..], [StoreOp::Dequeue { .. }]), "{ops:?}");
        world.refuses = refused;
        world.held = Some(held);
        world.release_store();
        world.refuses = false;
        by.client.exchange(&mut world);
        assert_eq!(by.answer().is_ok(), !refused);
        assert_eq!(world.store.stored_messages(), if refused { 2 } else { 1 });
        // What it has not taken comes again.
        by.client.exchange(&mut world);
        let mut other = Client::new(&mut world, conn(0, 2), None);
        other.take(&mut world, &second(SHARE), 5);
        lose(&mut world, conn(0, 1));
        other.exchange(&mut world);
        let mut again: Vec<u8> = other.taken().iter().map(|it| it.1).collect();
        again.sort_unstable();
        assert_eq!(again, if refused { &b"12"[..] } else { b"2" });
        world.check_counts();
    }
}

#[test]
fn a_commit_concludes_without_the_link_that_asked_for_it() {
    let queue = address();
    for of in [SHARE, &queue] {
        let mut world = World::new(2, OPEN);
        absent_member(&mut world);
        let mut by = Controller::new(&mut world, 0, 1);
        by.client.take(&mut world, &second(of), 1);
        let to = if of == SHARE { "u/a" } else { of };
        send(&mut world, to, "1");
        by.client.exchange(&mut world);
        let got = by.client.taken();
        assert_eq!(payloads(&got), "1", "{of}");
        let id = by.declare(&mut world);
        by.retire(&mut world, &id, got[0].0, Outcome::Accepted, false);
        world.held = Some(Vec::new());
        by.discharge(&mut world, &id, false);
        let link = by.link;
        by.client.detach(&mut world, link, true);
        by.client.events.clear();
        world.release_store();
        by.client.exchange(&mut world);
        assert_eq!(settled(&mut by.client).len(), 1, "{of}");
        let census = world.shards[0].census();
        assert_eq!((census.in_flight, world.store.stored_messages()), (0, 0));
        world.check();
    }
}

#[test]
fn a_dead_message_is_settled_when_it_is_with_the_dead() {
    let queue = address();
    for (shard, refused) in [(0, false), (1, false), (0, true)] {
        let mut world = World::configured(2, OPEN, with_dead(&queue));
        send(&mut world, &queue, "1");
        let mut to = Client::new(&mut world, conn(shard, 2), None);
        to.take(&mut world, &second(&queue), 1);
        let got = to.taken();
        world.held = Some(Vec::new());
        let rejected = DeliveryState::Outcome(Outcome::Rejected(Rejected::default()));
        to.engine.update(got[0].0, &rejected).expect("open");
        to.exchange(&mut world);
        assert!(settled(&mut to).is_empty(), "the store has it here");
        let held = world.held.take().unwrap_or_default();
        let ops: Vec<_> = held.iter().flat_map(|(_, batch)| &batch.ops).collect();
        let [StoreOp::Enqueue { .. }, StoreOp::Dequeue { .. }] = ops[..] else {
            panic!("it is with the dead before it is not here: {ops:?}");
        };
        world.held = Some(held);
        world.refuses = refused;
        world.release_store();
        world.refuses = false;
        to.exchange(&mut world);
        if refused {
            assert!(settled(&mut to).is_empty(), "it is not with the dead");
            assert_eq!(world.store.stored_messages(), 1);
            world.pass(Duration::from_secs(1));
            to.exchange(&mut world);
        }
        assert_eq!(settled(&mut to).len(), 1, "{shard} {refused}");
        assert_eq!(world.store.stored_messages(), 1);
        let dead: u64 = world.shards.iter().map(|it| it.stats().messages_dead).sum();
        assert_eq!(dead, 1);
        world.restart();
        let (mut to, _) = Client::receiving(&mut world, conn(0, 3), "/queues/dead", 1);
        assert_eq!(payloads(&to.taken()), "1");
        world.check();
    }
}

#[test]
fn what_a_member_releases_before_it_goes_is_for_others_of_its_group() {
    for released in [true, false] {
        let mut world = World::new(2, OPEN);
        absent_member(&mut world);
        let mut to = Client::new(&mut world, conn(0, 1), None);
        let link = to.take(&mut world, &second(SHARE), 2);
        send(&mut world, "u/a", "1");
        to.exchange(&mut world);
        let got = to.taken();
        assert_eq!(payloads(&got), "1");
        // Both in one write.
        if released {
            let state = DeliveryState::RELEASED;
            to.engine.settle(got[0].0, Some(&state)).expect("open");
        }
        to.detach(&mut world, link, true);
        assert_eq!(world.store.stored_messages(), 1);
        // The one whose client is away has it.
        let queued: usize = world.shards.iter().map(|it| it.census().queued).sum();
        assert_eq!(queued, 1, "{released}");
        world.check_counts();
    }
}

#[test]
fn what_is_not_for_one_consumer_is_for_another_after_the_commit() {
    let queue = address();
    let elsewhere = Outcome::Modified(Modified {
        delivery_failed: true,
        undeliverable_here: true,
        ..Modified::default()
    });
    for (shard, stays) in [(0, true), (1, true), (0, false)] {
        let mut world = World::configured(2, OPEN, with_dead(&queue));
        send(&mut world, &queue, "1");
        let mut by = Controller::new(&mut world, shard, 1);
        let link = by.client.receiver(&mut world, &queue, 1);
        let got = by.client.taken();
        let (mut other, others) = Client::receiving(&mut world, conn(1, 2), &queue, 0);
        let id = by.declare(&mut world);
        by.retire(&mut world, &id, got[0].0, elsewhere, true);
        world.held = Some(Vec::new());
        by.discharge(&mut world, &id, false);
        if !stays {
            other.detach(&mut world, others, true);
        }
        world.release_store();
        by.client.exchange(&mut world);
        assert!(by.answer().is_ok());
        by.client.give_credit(&mut world, link, 5);
        assert!(by.client.taken().is_empty(), "not for this one");
        if stays {
            other.give_credit(&mut world, others, 5);
            let again = other.taken();
            assert_eq!((payloads(&again).as_str(), again[0].2), ("1", 1));
        } else {
            let (mut digger, _) = Client::receiving(&mut world, conn(0, 3), DEAD, 5);
            assert_eq!(payloads(&digger.taken()), "1");
        }
        world.check();
    }
}

#[test]
fn a_message_that_others_do_not_take_stays_so_through_a_transaction() {
    let queue = address();
    let elsewhere = DeliveryState::Outcome(Outcome::Modified(Modified {
        undeliverable_here: true,
        ..Modified::default()
    }));
    for commits in [true, false] {
        let mut world = World::new(2, OPEN);
        send(&mut world, &queue, "1");
        let (mut first, link) = Client::receiving(&mut world, conn(1, 2), &queue, 1);
        let got = first.taken();
        let mut by = Controller::new(&mut world, 0, 1);
        by.client.receiver(&mut world, &queue, 1);
        first
            .engine
            .settle(got[0].0, Some(&elsewhere))
            .expect("open");
        first.give_credit(&mut world, link, 5);
        by.client.exchange(&mut world);
        let got = by.client.taken();
        assert_eq!(payloads(&got), "1");
        let id = by.declare(&mut world);
        by.retire(&mut world, &id, got[0].0, Outcome::Released, true);
        match commits {
            true => assert_eq!(by.commit(&mut world, &id), Ok(())),
            false => by.roll_back(&mut world, &id),
        }
        first.exchange(&mut world);
        assert!(first.taken().is_empty(), "{commits}");
        world.check();
    }
}

/// A node in memory that ends without links and messages, with one message that its
/// only link has.
fn brief_node(world: &mut World, client: &mut Client) -> (LinkId, Text) {
    let mut owner = Client::new(world, conn(0, 70), None);
    let policy = [(
        Value::Symbol(Symbol::from_static("lifetime-policy")),
        LifetimePolicy::DeleteOnNoLinksOrMessages.value(),
    )];
    let target = Target {
        dynamic: true,
        dynamic_node_properties: Some(Map::new(&policy)),
        ..Target::default()
    };
    let link = owner.attach(world, &sender(target));
    let mut address = None;
    while let Some(event) = owner.events.pop_front() {
        if let Event::Attached { attach, .. } = event
            && let Some(AnyTarget::Target(target)) = attach.attach().and_then(|it| it.target)
        {
            address = target.address.map(Text::from);
        }
    }
    let address = address.expect("an address");
    owner.send(world, link, false, message(true, b"1"));
    let taker = client.receiver(world, &address, 1);
    owner.detach(world, link, true);
    (taker, address)
}

#[test]
fn a_node_stays_for_messages_whose_outcome_is_under_way() {
    let queue = address();
    let rejected = || Outcome::Rejected(Rejected::default());
    for way in ["released", "refused", "bury", "burier"] {
        let mut world = World::configured(2, OPEN, with_dead(&queue));
        let mut by = Controller::new(&mut world, 1, 1);
        let (link, address) = brief_node(&mut world, &mut by.client);
        let got = by.client.taken();
        assert_eq!(payloads(&got), "1");
        let of = got[0].0;
        let id = by.declare(&mut world);
        let mut held = None;
        match way {
            "released" => by.retire(&mut world, &id, of, Outcome::Released, true),
            "refused" => {
                let to = by.client.sender(&mut world, Some(&queue));
                by.post_as(&mut world, to, &id, true, message(true, b"2"));
                by.retire(&mut world, &id, of, Outcome::Accepted, true);
                held = Some(Vec::new());
            }
            _ => {
                let state = DeliveryState::Outcome(rejected());
                by.client.engine.settle(of, Some(&state)).expect("open");
                held = (way == "bury").then(Vec::new);
            }
        }
        world.held = held;
        if matches!(way, "released" | "refused") {
            // In one write.
            let txn_id = Bytes::copy_from_slice(&id);
            let demand = Demand::Discharge {
                txn_id,
                fail: false,
            };
            let bytes = demand.encode().expect("small");
            by.client.tag += 1;
            let sending = Sending::new(Tag::from(by.client.tag), false);
            let to = by.link;
            let sent = by.client.engine.send(to, &sending, &bytes, &Bytes::new());
            sent.expect("credit");
        }
        by.client.detach(&mut world, link, true);
        world.refuses = true;
        world.release_store();
        world.refuses = false;
        by.client.exchange(&mut world);
        let mut last = Client::new(&mut world, conn(1, 2), None);
        let from = if way == "burier" { DEAD } else { &address };
        let link = last.receiver(&mut world, from, 5);
        let got = last.taken();
        assert_eq!(payloads(&got), "1", "{way}");
        last.engine
            .settle(got[0].0, Some(&DeliveryState::ACCEPTED))
            .expect("open");
        last.detach(&mut world, link, true);
        // Then it ends.
        last.events.clear();
        last.attach(&mut world, &receiver(&address));
        assert_eq!(last.refusal().as_deref(), Some("amqp:not-found"), "{way}");
        world.check();
    }
}

#[test]
fn a_subscription_waits_for_the_connection_that_left_it_last() {
    let wanted = Attach {
        name: "kept",
        source: Some(Source {
            address: Some("t/#"),
            expiry_policy: TerminusExpiryPolicy::ConnectionClose,
            ..Source::default()
        }),
        ..receiver("t/#")
    };
    let mut world = World::new(2, OPEN);
    for serial in [1, 2] {
        let mut client = Client::new(&mut world, conn(0, serial), None);
        let link = client.take(&mut world, &wanted, 5);
        client.detach(&mut world, link, false);
    }
    let sessions = |world: &World| {
        let all = world.shards.iter().map(|shard| shard.census().sessions);
        all.sum::<usize>()
    };
    lose(&mut world, conn(0, 1));
    assert_eq!(sessions(&world), 1, "the second connection is open");
    lose(&mut world, conn(0, 2));
    assert_eq!(sessions(&world), 0);
    world.check();
}

/// Says a state of a delivery that is not part of the transaction.
fn update(by: &mut Controller, world: &mut World, of: Delivery, state: &DeliveryState<'_>) {
    by.client.engine.update(of, state).expect("open");
    by.client.exchange(world);
}

#[test]
fn an_outcome_that_leaves_its_transaction_gives_back_its_room() {
    let queue = address();
    let mut world = World::configured(2, OPEN, |config: &mut Config| {
        config.transactions.bytes_max = 500;
    });
    send(&mut world, &queue, "12");
    let mut by = Controller::new(&mut world, 0, 1);
    by.client.take(&mut world, &second(&queue), 2);
    let got = by.client.taken();
    let id = by.declare(&mut world);
    by.retire(&mut world, &id, got[0].0, Outcome::Accepted, false);
    update(&mut by, &mut world, got[0].0, &DeliveryState::ACCEPTED);
    assert_eq!(world.store.stored_messages(), 1, "at once");
    by.retire(&mut world, &id, got[1].0, Outcome::Accepted, false);
    assert_eq!(by.commit(&mut world, &id), Ok(()));
    assert_eq!(world.store.stored_messages(), 0);
    world.check();
}

#[test]
fn a_state_that_is_no_outcome_changes_none_in_a_transaction() {
    let queue = address();
    let received = DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    });
    let mut world = World::configured(2, OPEN, with_dead(&queue));
    send(&mut world, &queue, "12");
    let mut by = Controller::new(&mut world, 0, 1);
    by.client.take(&mut world, &second(&queue), 2);
    let got = by.client.taken();
    let id = by.declare(&mut world);
    by.retire(&mut world, &id, got[0].0, Outcome::Accepted, false);
    update(&mut by, &mut world, got[0].0, &received);
    let rejected = Outcome::Rejected(Rejected::default());
    by.retire(&mut world, &id, got[1].0, rejected, false);
    let done = DeliveryState::Transactional(TransactionalState {
        txn_id: &id,
        outcome: None,
    });
    by.client.settle(&mut world, got[1].0, &done);
    assert_eq!(by.commit(&mut world, &id), Ok(()));
    assert_eq!(world.store.stored_messages(), 1, "the dead one");
    let (mut digger, _) = Client::receiving(&mut world, conn(0, 3), DEAD, 5);
    assert_eq!(payloads(&digger.taken()), "2");
    world.check();
}
