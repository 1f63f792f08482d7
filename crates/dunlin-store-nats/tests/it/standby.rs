//! What a standby has in its copy is what a recovery from the log finds, also where the log
//! changes its owner or is made shorter meanwhile; and a standby writes nothing.

use core::time::Duration;
use std::time::Instant;

use dunlin_base::ShardId;
use dunlin_store::{Batch, Recovered, Request, Seq, StoreDone, StoreOp};
use dunlin_store_nats::{NatsConfig, NatsStandby, NatsStore};
use serde_json::Value;

use crate::support::{Open, SESSION, Server, Sync, WAIT, enqueue, numbers};

fn last_seq(server: &Server) -> u64 {
    server.info()["state"]["last_seq"]
        .as_u64()
        .expect("a number")
}

/// Waits until it has read everything that is there.
fn caught_up(standby: &NatsStandby) {
    let until = Instant::now() + WAIT;
    // As of a look that was begun after the last write.
    std::thread::sleep(2 * dunlin_store_nats::limits::TAIL_LOOK_EVERY);
    while standby.role().role().behind > 0 {
        assert!(Instant::now() < until, "{:?}", standby.role().role());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn taken(standby: NatsStandby) -> (NatsStore, Recovered) {
    standby.take_over().expect("taken over")
}

fn dequeue(counter: u64) -> Request {
    Request::Write(Batch {
        token: counter,
        ops: vec![StoreOp::Dequeue {
            seq: Seq::new(counter, ShardId(0)),
            session: SESSION,
        }],
    })
}

#[test]
fn a_standby_has_what_a_recovery_finds() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let config = |copy: &str| NatsConfig {
        compact_bytes: 40_000,
        ..server.config(copy)
    };
    let (mut owner, _) = Open::new(config("owner-0"));
    owner.commit(1..=5);
    let (mut standby, _says) = NatsStandby::start(config("standby")).expect("stands by");
    let mut counter = 5;
    for round in 1..=4 {
        for _ in 0..60 {
            counter += 1;
            owner.commit([counter]);
            // Most of what comes goes again, so that the log is made shorter.
            if counter % 4 != 0 {
                owner.submitter.submit(dequeue(counter)).expect("room");
                assert!(matches!(owner.wait(), StoreDone::Committed { .. }));
            }
        }
        // Several records that count together.
        counter += 1;
        owner
            .submitter
            .submit(enqueue(counter, 1_200_000))
            .expect("room");
        assert!(matches!(owner.wait(), StoreDone::Committed { .. }));
        owner.submitter.submit(dequeue(counter)).expect("room");
        assert!(matches!(owner.wait(), StoreDone::Committed { .. }));
        // Another owner, with much of the former one on its way.
        for _ in 0..200 {
            counter += 1;
            owner.submitter.submit(enqueue(counter, 200)).expect("room");
        }
        let (next, _) = Open::new(config(&format!("owner-{round}")));
        owner = next;
        if round % 2 == 0 {
            // It ends where it is, and comes back to what it has.
            drop(standby);
            owner.commit([counter + 1]);
            counter += 1;
            standby = NatsStandby::start(config("standby")).expect("stands by").0;
        }
    }
    assert_ne!(
        server.info()["state"]["first_seq"],
        Value::from(1),
        "it is made shorter"
    );
    caught_up(&standby);
    let before = last_seq(&server);
    let (store, recovered) = taken(standby);
    store.close();
    let claims = last_seq(&server) - before;
    assert_eq!(claims, 1, "one claim, and nothing else");
    let (_, found) = Open::new(config("nothing"));
    assert!(numbers(&found).contains(&counter));
    assert_eq!(recovered, found);
}

/// An idle standby, and one that begins, leave the log as it is, and the stream.
#[test]
fn a_standby_writes_nothing() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    // There is no stream yet, and none is made.
    let config = |copy: &str| NatsConfig {
        lease: WAIT,
        ..server.config(copy)
    };
    let (standby, _says) = NatsStandby::start(config("early")).expect("stands by");
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.info()["error"].is_object(), "{}", server.info());
    let (owner, _) = Open::new(config("owner"));
    owner.commit(1..=20);
    let (late, _says) = NatsStandby::start(config("late")).expect("stands by");
    let before = (
        last_seq(&server),
        server.info()["config"]["subjects"].clone(),
    );
    caught_up(&standby);
    caught_up(&late);
    let after = (
        last_seq(&server),
        server.info()["config"]["subjects"].clone(),
    );
    assert_eq!(before, after);
    let role = late.role().role();
    assert!(!role.is_owner && !role.holds_lease, "{role:?}");
    owner.commit(21..=30);
}

/// The log was made shorter while the standby was away, beyond what it has.
#[test]
fn a_standby_that_was_away_too_long_reads_again() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let config = |copy: &str| NatsConfig {
        compact_bytes: 20_000,
        ..server.config(copy)
    };
    let (owner, _) = Open::new(config("owner"));
    owner.commit(1..=3);
    let (standby, _says) = NatsStandby::start(config("standby")).expect("stands by");
    caught_up(&standby);
    drop(standby);
    let first = || {
        server.info()["state"]["first_seq"]
            .as_u64()
            .expect("a number")
    };
    let begin = first();
    let until = Instant::now() + WAIT;
    let mut counter = 3;
    while first() <= begin + 10 {
        assert!(Instant::now() < until, "the log is not made shorter");
        counter += 1;
        owner.commit([counter]);
        owner.submitter.submit(dequeue(counter)).expect("room");
        assert!(matches!(owner.wait(), StoreDone::Committed { .. }));
    }
    let (standby, _says) = NatsStandby::start(config("standby")).expect("stands by");
    caught_up(&standby);
    let (_, recovered) = taken(standby);
    assert_eq!(numbers(&recovered), [1, 2, 3]);
    drop(owner);
    let (_, found) = Open::new(config("nothing"));
    assert_eq!(recovered, found);
}

/// The server is away for a while: a standby waits for it, however long that is.
#[test]
fn a_standby_bears_a_server_that_is_away() {
    let Some(mut server) = Server::start(Sync::Always) else {
        return;
    };
    let (owner, _) = Open::new(server.config("owner"));
    owner.commit(1..=3);
    let impatient = NatsConfig {
        patience: Duration::from_millis(500),
        ..server.config("standby")
    };
    let (standby, _says) = NatsStandby::start(impatient).expect("stands by");
    caught_up(&standby);
    server.kill();
    std::thread::sleep(Duration::from_secs(2));
    server.run();
    owner.commit(4..=6);
    caught_up(&standby);
    drop(owner);
    // Its patience is for a take-over, with a server that has just been started.
    let (_, recovered) = taken(standby);
    assert_eq!(numbers(&recovered), [1, 2, 3, 4, 5, 6]);
}
