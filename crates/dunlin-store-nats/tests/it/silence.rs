//! A server that is killed, that stops, that does not answer.

use core::time::Duration;

use dunlin_store::{Batch, Request, StoreDone, StoreError};
use dunlin_store_nats::limits::{LOOK_EVERY, QUEUE_MAX, WAITING_BYTES_MAX};
use dunlin_store_nats::{GaveUp, NatsConfig};
use dunlin_store_redb::SubmitError;

use crate::support::{Open, Server, Sync, WAIT, enqueue, numbers};

/// `kill -9` of the server, with records on their way; it comes back, and what was
/// answered is there, each once and in order.
#[test]
fn a_server_that_is_killed_loses_nothing_that_was_answered() {
    let Some(mut server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    let mut counter = 0;
    let mut committed = 0;
    for _ in 0..3 {
        for _ in 0..400 {
            counter += 1;
            open.submitter.submit(enqueue(counter, 300)).expect("room");
        }
        for _ in 0..100 {
            committed += 1;
            assert_eq!(open.wait(), StoreDone::Committed { token: committed });
        }
        server.kill();
        server.run();
    }
    while committed < counter {
        committed += 1;
        assert_eq!(open.wait(), StoreDone::Committed { token: committed });
    }
    open.store.close();
    for copy in ["copy", "another copy"] {
        let (open, recovered) = Open::new(server.config(copy));
        assert_eq!(numbers(&recovered), (1..=counter).collect::<Vec<_>>());
        open.store.close();
    }
}

/// What waits for a server that stops is bounded, and all of it is answered when the
/// patience is over.
#[test]
fn a_server_that_stops_is_given_up_in_bounded_memory() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let patience = Duration::from_millis(500);
    let config = NatsConfig {
        patience,
        ..server.config("copy")
    };
    let (open, _) = Open::new(config);
    open.commit([1]);
    server.signal("-STOP");
    let mut taken = 0;
    let mut counter = 1;
    // More bytes than may wait: the thread takes some of them into records.
    loop {
        counter += 1;
        match open.submitter.submit(enqueue(counter, 100_000)) {
            Ok(()) => taken += 1,
            Err(SubmitError::Busy(_)) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(taken <= QUEUE_MAX);
    }
    assert!(taken * 100_000 <= WAITING_BYTES_MAX + 200_000, "{taken}");
    for _ in 0..taken {
        let done = open.wait();
        let StoreDone::Failed { error, .. } = &done else {
            panic!("{done:?}");
        };
        assert!(matches!(error, StoreError::GivenUp(_)), "{error}");
    }
    assert!(matches!(open.store.gave_up(), Some(GaveUp::Silent(_))));
    server.signal("-CONT");
    // Another owner finds what was answered, and a beginning of the rest, as soon as the
    // server has worked off what came while it was stopped.
    let another = NatsConfig {
        patience: 2 * WAIT,
        ..server.config("another copy")
    };
    let (_, recovered) = Open::new(another);
    let found = numbers(&recovered);
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
    assert!(!found.is_empty());
}

/// A server that stops for longer than an acknowledgement is waited for, and goes on:
/// everything is answered once and is there once.
#[test]
fn a_server_that_goes_on_is_asked_what_arrived() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit([1]);
    server.signal("-STOP");
    for counter in 2..=50 {
        open.submitter.submit(enqueue(counter, 300)).expect("room");
    }
    // None of them is answered before it is stored.
    let none = open.answers.recv_timeout(Duration::from_secs(7));
    assert!(none.is_err(), "{none:?}");
    server.signal("-CONT");
    for token in 2..=50 {
        assert_eq!(open.wait(), StoreDone::Committed { token });
    }
    open.store.close();
    let (_, recovered) = Open::new(server.config("another copy"));
    assert_eq!(numbers(&recovered), (1..=50).collect::<Vec<_>>());
}

/// A batch without operations writes nothing, and is answered by the owner alone: not by one
/// that does not hear of the server.
#[test]
fn nothing_is_answered_while_a_server_is_silent() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit([1]);
    let empty = |token| {
        let ops = Vec::new();
        let request = Request::Write(Batch { token, ops });
        open.submitter.submit(request).expect("room");
    };
    empty(2);
    assert_eq!(open.wait(), StoreDone::Committed { token: 2 });
    server.signal("-STOP");
    // What was heard last counts for 2 s.
    std::thread::sleep(LOOK_EVERY + Duration::from_secs(1));
    empty(3);
    let none = open.answers.recv_timeout(Duration::from_secs(3));
    assert!(none.is_err(), "{none:?}");
    server.signal("-CONT");
    assert_eq!(open.wait(), StoreDone::Committed { token: 3 });
    open.commit([4]);
}
