//! Links whose state is kept: what they had when they end, come back, or when the broker
//! begins again, in the middle of something.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Coordinator, DeliveryState, Modified, Outcome, ReceiverSettleMode,
    Role, SenderSettleMode, SerialNumber, Source, Target, TerminusDurability, TerminusExpiryPolicy,
    TransactionalState, Unsettled,
};
use dunlin_amqp::{Delivery, Demand, Event, LinkId, Tag};
use dunlin_base::Text;

use super::amqp::{Client, NOW, OPEN, World, conn, is_accepted, message, never, payloads};
use super::queues::{address, lose};
use crate::config::{Config, NamedQueue};
use crate::queues::options::QueueOptions;

/// A receiver that settles last, whose state is kept.
fn receiver(source: Source<'_>) -> Attach<'_> {
    Attach {
        name: "kept",
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(source),
        ..super::amqp::receiver("")
    }
}

/// A sender that settles last, whose state is kept.
fn sender(target: Target<'_>) -> Attach<'_> {
    Attach {
        name: "kept",
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..super::amqp::sender(target)
    }
}

fn fill(world: &mut World, serial: u64, address: &str, payloads: &str) {
    let (mut from, link) = Client::sending(world, conn(1, serial), address);
    from.send_all(world, link, payloads);
    lose(world, conn(1, serial));
}

/// Deliveries that have come, with their tags.
fn tagged(client: &mut Client) -> Vec<(Delivery, Tag)> {
    let events = client.events.drain(..);
    let messages = events.filter_map(|event| match event {
        Event::Message(message) => Some((message.delivery, message.tag)),
        _ => None,
    });
    messages.collect()
}

const NOT_HERE: DeliveryState<'static> = DeliveryState::Outcome(Outcome::Modified(Modified {
    delivery_failed: false,
    undeliverable_here: true,
    message_annotations: None,
}));

/// Another client gets these messages and settles them; nothing is left.
fn check_drained(world: &mut World, serial: u64, address: &str, all: &str) {
    let (mut last, _) = Client::receiving(world, conn(1, serial), address, 100);
    assert_eq!(last.accept_all(world), all);
    let in_flight: usize = world.shards.iter().map(|it| it.census().in_flight).sum();
    assert_eq!((in_flight, world.store.stored_messages()), (0, 0));
    assert!(world.store.recover().meta.is_empty());
    world.check();
}

#[test]
fn what_is_not_for_a_client_that_is_back_after_a_restart_goes_to_another() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    fill(&mut world, 1, &queue, "a");
    let mut one = Client::new(&mut world, conn(0, 2), None);
    one.take(&mut world, &receiver(never(&queue)), 1);
    let [(_, tag)] = tagged(&mut one)[..] else {
        panic!("one message");
    };
    world.restart();
    let (mut two, _) = Client::receiving(&mut world, conn(1, 3), &queue, 1);
    let mut one = Client::new(&mut world, conn(0, 4), None);
    let map = [(tag.as_bytes(), Some(NOT_HERE))];
    let back = Attach {
        unsettled: Some(Unsettled::new(&map)),
        ..receiver(never(&queue))
    };
    let link = one.take(&mut world, &back, 1);
    one.events.clear();
    two.exchange(&mut world);
    let came = two.taken();
    assert_eq!(payloads(&came), "a");
    // Its other receiver does not take it either: it is over.
    two.settle(&mut world, came[0].0, &NOT_HERE);
    one.give_credit(&mut world, link, 2);
    assert!(tagged(&mut one).is_empty());
    check_drained(&mut world, 5, &queue, "");
}

#[test]
fn what_is_due_from_the_store_does_not_disturb_what_others_do_not_take() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    fill(&mut world, 1, &queue, "a");
    let mut one = Client::new(&mut world, conn(0, 2), None);
    one.take(&mut world, &receiver(never(&queue)), 1);
    let [(_, tag)] = tagged(&mut one)[..] else {
        panic!("one message");
    };
    world.restart();
    fill(&mut world, 3, &queue, "b");
    let mut two = Client::new(&mut world, conn(1, 4), None);
    Client::receiving(&mut world, conn(1, 5), &queue, 0);
    two.receiver(&mut world, &queue, 1);
    let came = two.taken();
    assert_eq!(payloads(&came), "b");
    two.settle(&mut world, came[0].0, &NOT_HERE);
    let mut one = Client::new(&mut world, conn(0, 6), None);
    let map = [(tag.as_bytes(), None)];
    let back = Attach {
        unsettled: Some(Unsettled::new(&map)),
        ..receiver(never(&queue))
    };
    let session = one.session.expect("a session");
    let link = one.engine.attach(session, &back).expect("attach");
    one.give_credit(&mut world, link, 2);
    assert_eq!(one.accept_all(&mut world), "ab");
    check_drained(&mut world, 7, &queue, "");
}

#[test]
fn what_has_no_key_yet_goes_back_when_its_link_has_gone() {
    let queue = address();
    for way in ["closed", "lost", "too late"] {
        let mut world = World::new(2, OPEN);
        fill(&mut world, 1, &queue, "ab");
        let mut one = Client::new(&mut world, conn(0, 2), None);
        let source = Source {
            expiry_policy: match way {
                "closed" => TerminusExpiryPolicy::Never,
                _ => TerminusExpiryPolicy::SessionEnd,
            },
            timeout: if way == "too late" { 5 } else { 0 },
            ..never(&queue)
        };
        let link = one.take(&mut world, &receiver(source), 0);
        world.held = Some(Vec::new());
        one.give_credit(&mut world, link, 2);
        match way {
            "closed" => {
                one.detach(&mut world, link, true);
            }
            _ => lose(&mut world, conn(0, 2)),
        }
        if way == "too late" {
            for shard in &mut world.shards {
                shard.handle_timeout(NOW + Duration::from_secs(6));
            }
        }
        world.run();
        world.release_store();
        assert_eq!(one.taken().len(), 0, "{way}");
        check_drained(&mut world, 3, &queue, "ab");
    }
}

#[test]
fn what_has_no_key_yet_goes_to_who_takes_a_subscription_over() {
    let mut world = World::new(2, OPEN);
    let mut one = Client::new(&mut world, conn(0, 2), None);
    let link = one.take(&mut world, &receiver(never("t/#")), 0);
    fill(&mut world, 1, "t/a", "ab");
    world.held = Some(Vec::new());
    one.give_credit(&mut world, link, 2);
    // A link of the same name that keeps nothing.
    let mut two = Client::new(&mut world, conn(0, 3), None);
    let brief = Attach {
        rcv_settle_mode: ReceiverSettleMode::First,
        source: Some(Source {
            expiry_policy: TerminusExpiryPolicy::LinkDetach,
            ..never("t/#")
        }),
        ..receiver(never("t/#"))
    };
    let link = two.take(&mut world, &brief, 10);
    world.release_store();
    assert_eq!(two.accept_all(&mut world), "ab");
    two.detach(&mut world, link, true);
    assert_eq!(world.store.stored_messages(), 0);
    assert!(world.store.recover().meta.is_empty());
    assert!(world.store.recover().sessions.is_empty(), "it has ended");
    world.check();
}

/// Two queues, of which one gets the dead messages of the other.
fn with_dead() -> World {
    World::configured(2, OPEN, |config: &mut Config| {
        config.queues.named = [("jobs", Some("/queues/dead")), ("dead", None)]
            .map(|(name, dead)| NamedQueue {
                name: Text::from_static(name),
                topics: Vec::new(),
                options: QueueOptions {
                    dead_letter: dead.map(Text::from_static),
                    deliveries_max: 1,
                    ..QueueOptions::default()
                },
            })
            .into();
    })
}

#[test]
fn what_dies_after_a_restart_goes_to_the_dead() {
    const JOBS: &str = "/queues/jobs";
    let rejected = DeliveryState::Outcome(Outcome::Rejected(dunlin_amqp::codec::Rejected {
        error: None,
    }));
    // Without a map it may have had them; a link that does not come back has had them.
    for way in ["rejected", "no map", "too late"] {
        let mut world = with_dead();
        fill(&mut world, 1, JOBS, "ab");
        let mut one = Client::new(&mut world, conn(0, 2), None);
        let source = Source {
            expiry_policy: TerminusExpiryPolicy::ConnectionClose,
            timeout: 5,
            ..never(JOBS)
        };
        one.take(&mut world, &receiver(source), 2);
        let tags: Vec<Tag> = tagged(&mut one).into_iter().map(|(_, tag)| tag).collect();
        assert_eq!(tags.len(), 2);
        world.restart();
        let map: Vec<_> = tags
            .iter()
            .map(|tag| (tag.as_bytes(), Some(rejected)))
            .collect();
        let back = Attach {
            unsettled: (way == "rejected").then(|| Unsettled::new(&map)),
            ..receiver(source)
        };
        match way {
            "too late" => {
                world.pass(Duration::from_secs(6));
            }
            _ => {
                let mut one = Client::new(&mut world, conn(0, 3), None);
                one.take(&mut world, &back, 0);
            }
        }
        assert_eq!(world.store.stored_messages(), 2, "{way}");
        check_drained(&mut world, 4, "/queues/dead", "ab");
    }
}

#[test]
fn a_source_is_said_to_be_as_durable_as_it_is() {
    let queue = address();
    for (mode, expected) in [
        (ReceiverSettleMode::First, TerminusDurability::Configuration),
        (
            ReceiverSettleMode::Second,
            TerminusDurability::UnsettledState,
        ),
    ] {
        for address in ["t/#", &*queue] {
            let mut world = World::new(2, OPEN);
            let mut to = Client::new(&mut world, conn(0, 1), None);
            let asked = Attach {
                rcv_settle_mode: mode,
                ..receiver(never(address))
            };
            to.attach(&mut world, &asked);
            let answer = to.events.drain(..).find_map(|event| match event {
                Event::Attached { attach, .. } => Some(attach),
                _ => None,
            });
            let answer = answer.expect("an answer");
            let source = answer.attach().and_then(|attach| attach.source);
            let durable = source.map(|source| source.durable);
            assert_eq!(durable, Some(expected), "{address} {mode:?}");
        }
    }
}

#[test]
fn what_a_sender_has_not_settled_is_forgotten_with_its_link() {
    let queue = address();
    for closed in [true, false] {
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(0, 1), None);
        let target = Target {
            address: Some(&queue),
            durable: TerminusDurability::UnsettledState,
            expiry_policy: TerminusExpiryPolicy::Never,
            ..Target::default()
        };
        let link = from.attach(&mut world, &sender(target));
        from.send_all(&mut world, link, "abc");
        assert_eq!(world.store.recover().meta.len(), 3);
        from.detach(&mut world, link, closed);
        let rows = world.store.recover().meta.len();
        assert_eq!(rows, if closed { 0 } else { 3 });
        world.check();
    }
}

#[test]
fn links_that_come_and_go_leave_one_reminder() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    let timers = |world: &World| -> usize {
        let shards = world.shards.iter();
        shards.map(|shard| shard.census().timers).sum()
    };
    let mut from = Client::new(&mut world, conn(0, 1), None);
    let before = timers(&world);
    for round in 0..50 {
        let target = Target {
            address: Some(&queue),
            expiry_policy: TerminusExpiryPolicy::LinkDetach,
            timeout: 1_000_000 + round,
            ..Target::default()
        };
        let link = from.attach(&mut world, &sender(target));
        from.send(&mut world, link, false, message(true, b"x"));
        from.detach(&mut world, link, false);
        let more = timers(&world) - before;
        assert!(more <= 2, "{more} in round {round}");
    }
    world.check();
}

/// Begins a transaction; its id.
fn declare(client: &mut Client, world: &mut World, link: LinkId) -> Bytes {
    demand(client, world, link, &Demand::Declare { global_id: None });
    let (_, state) = client.outcome().expect("an answer");
    match state.get() {
        DeliveryState::Outcome(Outcome::Declared(it)) => Bytes::copy_from_slice(it.txn_id),
        other => panic!("{other:?}"),
    }
}

fn demand(client: &mut Client, world: &mut World, link: LinkId, demand: &Demand) {
    let bytes = demand.encode().expect("small");
    client.send(world, link, false, bytes.to_vec());
}

/// Takes three messages, with the outcome of the second in a transaction.
fn enlist(world: &mut World, client: &mut Client, queue: &str, settled: bool) -> Enlisted {
    let link = client.take(world, &receiver(never(queue)), 3);
    let session = match settled {
        true => client.engine.begin(&Begin::default()).expect("a session"),
        false => client.session.expect("a session"),
    };
    let attach = Attach {
        name: "controller",
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Coordinator(Coordinator::default())),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    };
    let controller = client.engine.attach(session, &attach).expect("attach");
    client.exchange(world);
    let all = tagged(client);
    let id = declare(client, world, controller);
    let accepted = DeliveryState::Transactional(TransactionalState {
        txn_id: &id,
        outcome: Some(Outcome::Accepted),
    });
    let said = match settled {
        true => client.engine.settle(all[1].0, Some(&accepted)),
        false => client.engine.update(all[1].0, &accepted),
    };
    said.expect("open");
    client.exchange(world);
    Enlisted {
        link,
        controller,
        id,
        tags: all.into_iter().map(|(_, tag)| tag).collect(),
    }
}

struct Enlisted {
    link: LinkId,
    controller: LinkId,
    id: Bytes,
    tags: Vec<Tag>,
}

/// Attaches again with a map of these; what the broker has.
fn known(world: &mut World, client: &mut Client, queue: &str, tags: &[Tag]) -> Vec<Tag> {
    let map: Vec<_> = tags.iter().map(|tag| (tag.as_bytes(), None)).collect();
    let back = Attach {
        unsettled: Some(Unsettled::new(&map)),
        ..receiver(never(queue))
    };
    client.attach(world, &back);
    let answer = client.events.drain(..).find_map(|event| match event {
        Event::Attached { attach, .. } => Some(attach),
        _ => None,
    });
    let answer = answer.expect("an answer");
    let answer = answer.attach().expect("attach");
    let map = answer.unsettled.expect("a map");
    let tags = map.iter().map(|(tag, _)| Tag::new(tag).expect("a tag"));
    tags.collect()
}

#[test]
fn what_a_link_keeps_outlives_a_connection_with_a_transaction() {
    let queue = address();
    for settled in [false, true] {
        let mut world = World::new(2, OPEN);
        fill(&mut world, 1, &queue, "abc");
        let mut one = Client::new(&mut world, conn(0, 2), None);
        let Enlisted { tags, .. } = enlist(&mut world, &mut one, &queue, settled);
        lose(&mut world, conn(0, 2));
        let mut one = Client::new(&mut world, conn(1, 3), None);
        let mut wanted = tags;
        if settled {
            // The client has not kept it: it is delivered again.
            wanted.remove(1);
        }
        assert_eq!(known(&mut world, &mut one, &queue, &wanted), wanted);
        let (mut two, _) = Client::receiving(&mut world, conn(0, 4), &queue, 10);
        let came = two.taken();
        assert_eq!(payloads(&came), if settled { "b" } else { "" });
        world.check();
    }
}

#[test]
fn what_a_detached_link_keeps_is_retired_with_its_transaction() {
    let queue = address();
    for (settled, fail) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new(2, OPEN);
        fill(&mut world, 1, &queue, "abc");
        let mut one = Client::new(&mut world, conn(0, 2), None);
        let enlisted = enlist(&mut world, &mut one, &queue, settled);
        let Enlisted {
            link,
            controller,
            id,
            tags,
        } = enlisted;
        one.detach(&mut world, link, false);
        let discharge = Demand::Discharge { txn_id: id, fail };
        demand(&mut one, &mut world, controller, &discharge);
        let (_, state) = one.outcome().expect("an answer");
        assert!(is_accepted(&state), "{state:?}");
        assert_eq!(world.store.stored_messages(), if fail { 3 } else { 2 });
        let (mut wanted, all) = (tags.clone(), tags);
        if settled || !fail {
            wanted.remove(1);
        }
        assert_eq!(known(&mut world, &mut one, &queue, &all), wanted);
        world.check();
    }
}
