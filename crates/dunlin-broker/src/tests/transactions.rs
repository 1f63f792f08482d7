//! Transactions over queues and topics of two shards: all of one or none of it, one
//! batch of the store, time-out, limits, links that are lost.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Coordinator, DeliveryState, Map, Message as Scanned, Modified, Outcome,
    ReceiverSettleMode, Rejected, Role, SerialNumber, Source, Symbol, TransactionalState, Value,
};
use dunlin_amqp::{Delivery, Demand, LinkId, Sending, State, Tag};
use dunlin_base::ConnId;

use super::amqp::{Client, NOW, OPEN, World, addressed, conn, message, payloads, receiver};
use super::queues::{address, lose, named};
use crate::config::Config;
use crate::queues::options::QueueOptions;
use crate::random::home_shard;

/// A client with a link to the coordinator.
pub(super) struct Controller {
    pub(super) client: Client,
    pub(super) link: LinkId,
    /// States of deliveries that came before an answer.
    concluded: Vec<State>,
}

pub(super) type Id = Vec<u8>;

impl Controller {
    pub(super) fn new(world: &mut World, shard: u16, number: u64) -> Self {
        let mut client = Client::new(world, conn(shard, number), None);
        let attach = Attach {
            name: "controller",
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AnyTarget::Coordinator(Coordinator::default())),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        let link = client.attach(world, &attach);
        Self {
            client,
            link,
            concluded: Vec::new(),
        }
    }

    fn demand(&mut self, world: &mut World, demand: &Demand) {
        let bytes = demand.encode().expect("small");
        let link = self.link;
        self.client.send(world, link, false, bytes.to_vec());
    }

    /// What the coordinator said: an id, nothing, or the condition of a refusal.
    pub(super) fn answer(&mut self) -> Result<Id, String> {
        let link = self.link;
        let state = loop {
            let (of, state) = self.client.outcome().expect("an answer");
            match of.link == link {
                true => break state,
                false => self.concluded.push(state),
            }
        };
        match state.get() {
            DeliveryState::Outcome(Outcome::Declared(it)) => Ok(it.txn_id.to_vec()),
            DeliveryState::Outcome(Outcome::Accepted) => Ok(Id::new()),
            DeliveryState::Outcome(Outcome::Rejected(why)) => {
                Err(why.error.expect("why").condition.as_str().to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn declare(&mut self, world: &mut World) -> Id {
        self.demand(world, &Demand::Declare { global_id: None });
        self.answer().expect("declared")
    }

    pub(super) fn discharge(&mut self, world: &mut World, id: &Id, fail: bool) {
        let txn_id = Bytes::copy_from_slice(id);
        self.demand(world, &Demand::Discharge { txn_id, fail });
    }

    pub(super) fn commit(&mut self, world: &mut World, id: &Id) -> Result<(), String> {
        self.discharge(world, id, false);
        self.answer().map(drop)
    }

    pub(super) fn roll_back(&mut self, world: &mut World, id: &Id) {
        self.discharge(world, id, true);
        assert_eq!(self.answer(), Ok(Id::new()));
    }

    /// Posts a message; its presumptive outcome.
    fn post(&mut self, world: &mut World, link: LinkId, id: &Id, byte: u8) -> Option<bool> {
        self.post_as(world, link, id, false, message(true, &[byte]));
        let (_, state) = self.client.outcome()?;
        match state.get() {
            DeliveryState::Transactional(said) => {
                assert_eq!(said.txn_id, &id[..]);
                Some(said.outcome == Some(Outcome::Accepted))
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn post_as(
        &mut self,
        world: &mut World,
        link: LinkId,
        id: &Id,
        settled: bool,
        bytes: Vec<u8>,
    ) {
        self.client.tag += 1;
        let sending = Sending {
            state: Some(DeliveryState::Transactional(TransactionalState {
                txn_id: id,
                outcome: None,
            })),
            ..Sending::new(Tag::from(self.client.tag), settled)
        };
        let engine = &mut self.client.engine;
        let sent = engine.send(link, &sending, &bytes, &Bytes::new());
        sent.expect("credit");
        self.client.exchange(world);
    }

    /// Says an outcome of a delivery that counts with the transaction.
    pub(super) fn retire(
        &mut self,
        world: &mut World,
        id: &Id,
        of: Delivery,
        outcome: Outcome<'_>,
        settled: bool,
    ) {
        let state = DeliveryState::Transactional(TransactionalState {
            txn_id: id,
            outcome: Some(outcome),
        });
        let engine = &mut self.client.engine;
        let said = match settled {
            true => engine.settle(of, Some(&state)),
            false => engine.update(of, &state),
        };
        said.expect("open");
        self.client.exchange(world);
    }
}

/// What a client of MQTT was sent: the payloads of one byte.
fn published(world: &mut World, to: ConnId) -> String {
    let bytes = world.take_sent(to);
    let mut rest = &bytes[..];
    let mut out = String::new();
    while let [first, len, tail @ ..] = rest {
        let (packet, after) = tail.split_at(usize::from(*len));
        if first >> 4 == 3 {
            out.push(char::from(*packet.last().expect("a payload")));
        }
        rest = after;
    }
    out
}

#[test]
fn a_commit_is_one_batch_and_nothing_is_seen_before_it() {
    let queue = address();
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (mut consumer, _) = Client::receiving(&mut world, conn(1 - shard, 2), &queue, 10);
        let (kept, brief) = (conn(0, 3), conn(1, 4));
        world.mqtt(kept, 60);
        world.mqtt(brief, 0);
        let mut from = Controller::new(&mut world, shard, 1);
        let to = from.client.sender(&mut world, None);
        let id = from.declare(&mut world);
        for (at, byte) in [
            (&*queue, b'1'),
            ("t/a", b'2'),
            (&*queue, b'3'),
            ("t/b", b'4'),
        ] {
            let bytes = addressed(at, &[byte]);
            from.post_as(&mut world, to, &id, false, bytes);
            assert!(from.client.outcome().is_some());
        }
        assert_eq!(world.store.stored_messages(), 0);
        world.held = Some(Vec::new());
        from.discharge(&mut world, &id, false);
        consumer.exchange(&mut world);
        let held = world.held.as_ref().expect("held");
        let sizes: Vec<usize> = held.iter().map(|(_, batch)| batch.ops.len()).collect();
        assert_eq!(sizes, [4], "one batch");
        assert_eq!(consumer.taken().len(), 0);
        let seen = [kept, brief].map(|to| published(&mut world, to));
        assert_eq!(seen, ["", ""]);
        assert!(from.client.outcome().is_none(), "not stored yet");
        world.release_store();
        from.client.exchange(&mut world);
        assert_eq!(from.answer(), Ok(Id::new()));
        assert_eq!(consumer.payloads(&mut world), "13");
        let seen = [kept, brief].map(|to| published(&mut world, to));
        assert_eq!(seen, ["24", "24"]);
        world.check();
    }
}

#[test]
fn what_is_rolled_back_was_never_there() {
    let queue = address();
    for (shard, lost) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut world = World::new(2, OPEN);
        let mut from = Controller::new(&mut world, shard, 1);
        let to = from.client.sender(&mut world, Some(&queue));
        let first = from.declare(&mut world);
        let second = from.declare(&mut world);
        assert_eq!(from.post(&mut world, to, &first, b'1'), Some(true));
        assert_eq!(from.post(&mut world, to, &second, b'2'), Some(true));
        from.roll_back(&mut world, &first);
        if lost {
            lose(&mut world, conn(shard, 1));
        } else {
            assert_eq!(from.commit(&mut world, &second), Ok(()));
            let unknown = "amqp:transaction:unknown-id".to_string();
            assert_eq!(from.commit(&mut world, &second), Err(unknown.clone()));
            assert_eq!(from.commit(&mut world, &b"x".to_vec()), Err(unknown));
        }
        let (mut late, _) = Client::receiving(&mut world, conn(0, 5), &queue, 10);
        let expected = if lost { "" } else { "2" };
        assert_eq!(payloads(&late.taken()), expected);
        world.check();
    }
}

/// What happens to a transaction that has outcomes of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    RollBack,
    /// The receiver's link is closed before the commit.
    CloseAndCommit,
    CloseAndRollBack,
    Lose,
    /// The store refuses.
    Refuse,
}

#[test]
fn outcomes_count_with_the_commit() {
    let queue = address();
    let ends = [
        End::Commit,
        End::RollBack,
        End::CloseAndCommit,
        End::CloseAndRollBack,
        End::Lose,
        End::Refuse,
    ];
    for (shard, settled, end) in [0, 1]
        .into_iter()
        .flat_map(|shard| [true, false].map(|settled| (shard, settled)))
        .flat_map(|(shard, settled)| ends.map(|end| (shard, settled, end)))
    {
        let mut world = World::new(2, OPEN);
        let mut by = Controller::new(&mut world, shard, 1);
        let to = by.client.sender(&mut world, Some(&queue));
        for byte in *b"123" {
            by.client
                .send(&mut world, to, false, message(true, &[byte]));
            by.client.outcome().expect("accepted");
        }
        let attach = Attach {
            rcv_settle_mode: match settled {
                true => ReceiverSettleMode::First,
                false => ReceiverSettleMode::Second,
            },
            ..receiver(&queue)
        };
        let link = by.client.take(&mut world, &attach, 2);
        let two = by.client.taken();
        assert_eq!(payloads(&two), "12");
        let id = by.declare(&mut world);
        for (of, ..) in &two {
            by.retire(&mut world, &id, *of, Outcome::Accepted, settled);
        }
        assert_eq!(world.store.stored_messages(), 3);
        let (mut other, _) = Client::receiving(&mut world, conn(0, 5), &queue, 10);
        assert_eq!(payloads(&other.taken()), "3", "the others are not free");
        if matches!(end, End::CloseAndCommit | End::CloseAndRollBack) {
            by.client.detach(&mut world, link, true);
            other.exchange(&mut world);
            assert_eq!(other.taken().len(), 0);
        }
        match end {
            End::Commit | End::CloseAndCommit => {
                assert_eq!(by.commit(&mut world, &id), Ok(()));
            }
            End::RollBack | End::CloseAndRollBack => by.roll_back(&mut world, &id),
            End::Lose => lose(&mut world, conn(shard, 1)),
            End::Refuse => {
                world.refuses = true;
                let rolled_back = "amqp:transaction:rollback".to_string();
                assert_eq!(by.commit(&mut world, &id), Err(rolled_back));
                world.refuses = false;
            }
        }
        let concluded = match end {
            End::Commit | End::Refuse if !settled => 2,
            _ => 0,
        };
        assert_eq!(by.concluded.len(), concluded, "{end:?} {settled}");
        other.exchange(&mut world);
        let again = other.taken();
        let committed = matches!(end, End::Commit | End::CloseAndCommit);
        // What its receiver has not settled is still its own.
        let stays = end == End::RollBack && !settled;
        let expected = if committed || stays { "" } else { "12" };
        let mut seen: Vec<char> = payloads(&again).chars().collect();
        seen.sort_unstable();
        let seen: String = seen.into_iter().collect();
        assert_eq!(seen, expected, "{end:?} {settled} {shard}");
        assert!(again.iter().all(|(_, _, count)| *count == 1));
        assert_eq!(world.store.stored_messages(), if committed { 1 } else { 3 });
        if !committed {
            world.restart();
            let (mut late, _) = Client::receiving(&mut world, conn(1, 9), &queue, 10);
            assert_eq!(late.taken().len(), 3);
        }
        world.check();
    }
}

#[test]
fn what_becomes_of_messages_is_in_the_batch_of_their_commit() {
    let queue = address();
    for (shard, dead_at) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut names = (0..).map(|number| alloc::format!("/queues/dead{number}"));
        let dead = names.find(|name| home_shard(name, 2) == dead_at);
        let dead = dead.expect("one of many");
        let options = QueueOptions {
            dead_letter: Some(dead.as_str().into()),
            ..QueueOptions::default()
        };
        let both = [(&queue, options), (&dead, QueueOptions::default())];
        let changes = both.map(|(name, options)| named(name, &[], &options));
        let mut world = World::configured(2, OPEN, |config| {
            changes.iter().for_each(|change| change(config));
        });
        let mut by = Controller::new(&mut world, shard, 1);
        let to = by.client.sender(&mut world, Some(&queue));
        for byte in *b"123" {
            by.client
                .send(&mut world, to, false, message(true, &[byte]));
            by.client.outcome().expect("accepted");
        }
        by.client.receiver(&mut world, &queue, 3);
        let all = by.client.taken();
        assert_eq!(payloads(&all), "123");
        let note = [(
            Value::Symbol(Symbol::from_static("x-opt-note")),
            Value::String("seen"),
        )];
        let noted = Modified {
            message_annotations: Some(Map::new(&note)),
            ..Modified::default()
        };
        let failed = Modified {
            delivery_failed: true,
            ..Modified::default()
        };
        let outcomes = [
            Outcome::Rejected(Rejected::default()),
            Outcome::Modified(failed),
            Outcome::Modified(noted),
        ];
        let id = by.declare(&mut world);
        for ((of, ..), outcome) in all.iter().zip(outcomes) {
            by.retire(&mut world, &id, *of, outcome, true);
        }
        world.held = Some(Vec::new());
        by.discharge(&mut world, &id, false);
        let held = world.held.as_ref().expect("held");
        let sizes: Vec<usize> = held.iter().map(|(_, batch)| batch.ops.len()).collect();
        // One away, one to the dead, two in their places.
        assert_eq!(sizes, [4], "one batch; {shard} {dead_at}");
        world.release_store();
        by.client.exchange(&mut world);
        assert_eq!(by.answer(), Ok(Id::new()));
        assert_eq!(world.store.stored_messages(), 3);
        world.restart();
        let (mut last, _) = Client::receiving(&mut world, conn(0, 2), &dead, 9);
        assert_eq!(payloads(&last.taken()), "1", "{shard} {dead_at}");
        let (mut rest, _) = Client::receiving(&mut world, conn(1, 3), &queue, 9);
        let mut seen = Vec::new();
        while let Some((_, _, bytes)) = rest.message() {
            let scanned = Scanned::scan(&bytes).expect("a message");
            let count = scanned
                .header()
                .expect("valid")
                .map_or(0, |it| it.delivery_count);
            let annotations = scanned.message_annotations().expect("valid");
            let note = annotations.and_then(|map| map.get("x-opt-note")?.as_str());
            seen.push((bytes.last().copied(), count, note.map(ToString::to_string)));
        }
        let expected = [
            (Some(b'2'), 1, None),
            (Some(b'3'), 0, Some("seen".to_string())),
        ];
        assert_eq!(seen, expected, "{shard} {dead_at}");
        world.check();
    }
}

#[test]
fn a_commit_that_one_queue_has_no_room_for_is_none_at_all() {
    let queue = address();
    let options = QueueOptions {
        messages_max: 1,
        ..QueueOptions::default()
    };
    for shard in [0, 1] {
        let mut world = World::configured(2, OPEN, named(&queue, &[], &options));
        let (kept, brief) = (conn(0, 3), conn(1, 4));
        world.mqtt(kept, 60);
        world.mqtt(brief, 0);
        let mut by = Controller::new(&mut world, shard, 1);
        let to = by.client.sender(&mut world, None);
        let id = by.declare(&mut world);
        for (at, byte) in [("t/a", b'1'), (&*queue, b'2'), (&*queue, b'3')] {
            let bytes = addressed(at, &[byte]);
            by.post_as(&mut world, to, &id, false, bytes);
            assert!(by.client.outcome().is_some());
        }
        let rolled_back = "amqp:transaction:rollback".to_string();
        assert_eq!(by.commit(&mut world, &id), Err(rolled_back));
        let seen = [kept, brief].map(|to| published(&mut world, to));
        assert_eq!(
            (seen, world.store.stored_messages()),
            (["", ""].map(String::from), 0)
        );
        // Its room is free again.
        let id = by.declare(&mut world);
        let bytes = addressed(&queue, b"4");
        by.post_as(&mut world, to, &id, true, bytes);
        assert_eq!(by.commit(&mut world, &id), Ok(()));
        world.check();
    }
}

#[test]
fn a_transaction_that_takes_too_long_is_rolled_back() {
    let queue = address();
    let timeout = Duration::from_secs(5);
    let brief = |config: &mut Config| config.transactions.timeout = timeout;
    let mut world = World::configured(2, OPEN, brief);
    let mut by = Controller::new(&mut world, 1, 1);
    let to = by.client.sender(&mut world, Some(&queue));
    let id = by.declare(&mut world);
    assert_eq!(by.post(&mut world, to, &id, b'1'), Some(true));
    let shard = &mut world.shards[1];
    let before = timeout - Duration::from_micros(1);
    shard.handle_timeout(NOW + before);
    world.run();
    assert_eq!(by.post(&mut world, to, &id, b'2'), Some(true));
    world.shards[1].handle_timeout(NOW + timeout);
    world.run();
    assert_eq!(by.post(&mut world, to, &id, b'3'), Some(false));
    let timed_out = "amqp:transaction:timeout".to_string();
    assert_eq!(by.commit(&mut world, &id), Err(timed_out));
    let unknown = "amqp:transaction:unknown-id".to_string();
    assert_eq!(by.commit(&mut world, &id), Err(unknown));
    assert_eq!(world.store.stored_messages(), 0);
    world.check();
}

#[test]
fn transactions_have_limits() {
    let queue = address();
    let few = |config: &mut Config| {
        config.transactions.max = 2;
        config.transactions.operations_max = 3;
        config.transactions.bytes_max = 5000;
    };
    let mut world = World::configured(2, OPEN, few);
    let mut by = Controller::new(&mut world, 0, 1);
    let to = by.client.sender(&mut world, Some(&queue));
    let many = by.declare(&mut world);
    let large = by.declare(&mut world);
    by.demand(&mut world, &Demand::Declare { global_id: None });
    let full = "amqp:resource-limit-exceeded".to_string();
    assert_eq!(by.answer(), Err(full));
    for byte in *b"123" {
        assert_eq!(by.post(&mut world, to, &many, byte), Some(true));
    }
    assert_eq!(by.post(&mut world, to, &many, b'4'), Some(false));
    by.post_as(&mut world, to, &large, true, message(true, &[b'x'; 6000]));
    let rolled_back = "amqp:transaction:rollback".to_string();
    assert_eq!(by.commit(&mut world, &large), Err(rolled_back));
    // One that was rolled back makes room.
    by.declare(&mut world);
    by.declare(&mut world);
    let unknown = "amqp:transaction:unknown-id".to_string();
    assert_eq!(by.commit(&mut world, &many), Err(unknown));
    assert_eq!(world.store.stored_messages(), 0);
    world.check();
}

#[test]
fn a_commit_with_too_many_deliveries_is_none_at_all() {
    for (shard, other) in [(0, 0), (0, 1)] {
        let few = |config: &mut Config| config.transactions.deliveries_max = 2;
        let mut world = World::configured(2, OPEN, few);
        let mut by = Controller::new(&mut world, shard, 1);
        let subscriber = conn(other, 3);
        world.mqtt(subscriber, 0);
        let to = by.client.sender(&mut world, None);
        let mut commit = |world: &mut World, topics: &[&str]| {
            let id = by.declare(world);
            for topic in topics {
                by.post_as(world, to, &id, false, addressed(topic, b"1"));
                assert!(by.client.outcome().is_some());
            }
            by.commit(world, &id)
        };
        assert_eq!(commit(&mut world, &["t/a"]), Ok(()));
        let rolled_back = "amqp:transaction:rollback".to_string();
        let refused = commit(&mut world, &["t/a", "t/b", "t/c"]);
        assert_eq!(refused, Err(rolled_back));
        assert_eq!(published(&mut world, subscriber), "1");
        assert_eq!(commit(&mut world, &["t/d"]), Ok(()));
        assert_eq!(published(&mut world, subscriber), "1");
        world.check();
    }
}

#[test]
fn a_transaction_that_there_is_not_ends_the_link() {
    let queue = address();
    let mut world = World::new(2, OPEN);
    let mut by = Controller::new(&mut world, 0, 1);
    let to = by.client.sender(&mut world, Some(&queue));
    by.post_as(
        &mut world,
        to,
        &b"none".to_vec(),
        false,
        message(true, b"1"),
    );
    let unknown = Some("amqp:transaction:unknown-id".to_string());
    assert_eq!(by.client.refusal(), unknown);
    by.demand(
        &mut world,
        &Demand::Declare {
            global_id: Some(Bytes::from_static(b"xa")),
        },
    );
    assert_eq!(by.answer(), Err("amqp:not-implemented".to_string()));
    world.check();
}
