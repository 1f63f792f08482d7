//! Two owners at once: only what the newer one writes counts, and the older one learns.

use core::time::Duration;
use std::sync::mpsc::{Receiver, channel};

use dunlin_store::{StoreDone, StoreError};
use dunlin_store_nats::{GaveUp, NatsConfig, NatsStore, OpenError};
use serde_json::json;

use crate::support::{Open, Server, Sync, WAIT, enqueue, numbers};

#[test]
fn a_former_owner_is_refused_and_gives_up() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (old, _) = Open::new(server.config("old"));
    old.commit(1..=10);
    let (new, recovered) = Open::new(server.config("new"));
    assert_eq!(numbers(&recovered), (1..=10).collect::<Vec<_>>());
    let refused = old.write(11);
    let given_up = |done: &StoreDone| {
        let StoreDone::Failed { error, .. } = done else {
            return false;
        };
        matches!(error, StoreError::GivenUp(_))
    };
    assert!(given_up(&refused), "{refused:?}");
    assert_eq!(old.store.gave_up(), Some(GaveUp::TakenOver));
    let refused = old.write(12);
    assert!(given_up(&refused), "{refused:?}");
    new.commit(13..=15);
    new.store.close();
    let (_, recovered) = Open::new(server.config("third"));
    let want: Vec<u64> = (1..=10).chain(13..=15).collect();
    assert_eq!(numbers(&recovered), want);
}

/// A machine that is to take only what is its own does not take the partition back from one
/// that has it since.
#[test]
fn a_former_owner_does_not_take_the_partition_back() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let own = |copy: &str| NatsConfig {
        own_only: true,
        ..server.config(copy)
    };
    let refused = |copy: &str| {
        let refused = NatsStore::open(own(copy)).expect_err("refused");
        assert!(matches!(refused, OpenError::TakenOver), "{refused}");
    };
    // It has no owner yet; then it is this one's, with or without a record, and without
    // its copy.
    drop(Open::new(own("first")));
    Open::new(own("first")).0.commit(1..=3);
    std::fs::remove_file(server.copy("first")).expect("removed");
    drop(Open::new(own("first")));
    refused("second");
    drop(Open::new(server.config("second")));
    refused("first");
    let (second, recovered) = Open::new(own("second"));
    assert_eq!(numbers(&recovered), [1, 2, 3]);
    refused("first");
    second.commit(4..=5);
    drop(second);
    let (_, recovered) = Open::new(server.config("first"));
    assert_eq!(numbers(&recovered), [1, 2, 3, 4, 5]);
    refused("second");
}

/// The former owner has much on its way when the partition is taken: what it was
/// answered is there, and nothing counts that came later.
#[test]
fn nothing_of_a_former_owner_counts_after_the_claim() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let config = |copy: &str| NatsConfig {
        unsynced_accepted: true,
        ..server.config(copy)
    };
    let (mut owner, _) = Open::new(config("copy-0"));
    let mut committed = Vec::new();
    let mut counter = 0;
    for round in 1..=5 {
        for _ in 0..1000 {
            counter += 1;
            owner.submitter.submit(enqueue(counter, 200)).expect("room");
        }
        // Some are answered, the others are on their way.
        let mut open = 1000;
        for _ in 0..50 {
            if let StoreDone::Committed { token } = owner.wait() {
                committed.push(token);
            }
            open -= 1;
        }
        let (new, recovered) = Open::new(config(&format!("copy-{round}")));
        while open > 0 {
            if let StoreDone::Committed { token } = owner.wait() {
                committed.push(token);
            }
            open -= 1;
        }
        let found = numbers(&recovered);
        let missing = committed.iter().find(|token| !found.contains(token));
        assert_eq!(missing, None, "was committed and is not there");
        assert!(found.is_sorted_by(|a, b| a < b), "each once, in order");
        // What the former owner wrote is a beginning of what was submitted.
        let of_round = found.iter().filter(|n| **n > counter - 1000).count() as u64;
        assert_eq!(found.last().copied(), Some(counter - 1000 + of_round));
        committed = found;
        owner = new;
    }
}

/// Records that another writes under the subject of the owner make it look, and
/// nothing of its own is lost.
#[test]
fn a_foreign_record_in_between_is_no_record() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=3);
    let info = server.info();
    let subject = info["config"]["subjects"][0].as_str().expect("one");
    let stored = server.publish(subject, b"no record");
    assert!(stored["seq"].is_u64(), "{stored}");
    let refused = open.write(4);
    assert!(matches!(refused, StoreDone::Failed { .. }), "{refused:?}");
    assert!(matches!(open.store.gave_up(), Some(GaveUp::Log(_))));
    drop(open);
    let refused = NatsStore::open(server.config("another")).expect_err("refused");
    assert!(matches!(refused, OpenError::Log(_)), "{refused}");
}

#[test]
fn a_stream_that_is_deleted_is_given_up() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=3);
    let gone = server.ask("$JS.API.STREAM.DELETE.dl-p-0", &json!({}));
    assert_eq!(gone["success"], json!(true));
    let refused = open.write(4);
    assert!(matches!(refused, StoreDone::Failed { .. }), "{refused:?}");
    assert_eq!(open.store.gave_up(), Some(GaveUp::StreamGone));
    drop(open);
    // Its copy remembers what the log has lost.
    let refused = NatsStore::open(server.config("copy")).expect_err("refused");
    assert!(matches!(refused, OpenError::Log(_)), "{refused}");
}

/// Hears why an owner gave up.
fn end_of(open: &Open) -> Receiver<GaveUp> {
    let (said, causes) = channel();
    let then = move |cause| said.send(cause).expect("waited for");
    open.store.when_given_up(Box::new(then));
    causes
}

/// It has nothing to write, and serves what needs no writing: it has to learn by itself.
#[test]
fn an_idle_owner_learns_that_it_was_taken_over() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (old, _) = Open::new(server.config("old"));
    old.commit(1..=3);
    let causes = end_of(&old);
    let (_new, _) = Open::new(server.config("new"));
    assert_eq!(causes.recv_timeout(WAIT), Ok(GaveUp::TakenOver));
    assert!(old.store.metrics().is_failing());
    // Asked late, it says it again; once to each.
    let late = end_of(&old);
    assert_eq!(late.try_recv(), Ok(GaveUp::TakenOver));
    old.write(4);
    assert!(causes.try_recv().is_err() && late.try_recv().is_err());
}

#[test]
fn an_idle_owner_learns_that_its_stream_is_gone() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    let causes = end_of(&open);
    let gone = server.ask("$JS.API.STREAM.DELETE.dl-p-0", &json!({}));
    assert_eq!(gone["success"], json!(true));
    assert_eq!(causes.recv_timeout(WAIT), Ok(GaveUp::StreamGone));
}

/// A server that is away for less than the patience costs an idle owner nothing; one that
/// stays away ends it, as another may have taken over.
#[test]
fn an_idle_owner_bears_a_silent_server_for_a_while() {
    let Some(mut server) = Server::start(Sync::Always) else {
        return;
    };
    let config = NatsConfig {
        patience: Duration::from_secs(20),
        ..server.config("copy")
    };
    let (open, _) = Open::new(config);
    open.commit([1]);
    let causes = end_of(&open);
    server.kill();
    let none = causes.recv_timeout(Duration::from_secs(8));
    assert!(none.is_err(), "{none:?}");
    server.run();
    open.commit([2]);
    assert!(!open.store.metrics().is_failing());
    server.kill();
    assert_eq!(causes.recv_timeout(WAIT), Ok(GaveUp::Silent(20)));
}
