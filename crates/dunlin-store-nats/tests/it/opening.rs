//! What a server and a stream have to be.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use dunlin_store::StoreDone;
use dunlin_store_nats::{GaveUp, NatsConfig, NatsStore, OpenError};
use serde_json::{Value, json};

use crate::support::{Open, Server, Sync, WAIT, enqueue, numbers};

#[test]
fn a_server_that_syncs_is_found_out() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=3);
}

#[test]
fn a_server_that_does_not_sync_is_refused() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let refused = NatsStore::open(server.config("copy")).expect_err("refused");
    assert!(matches!(refused, OpenError::Unsynced { .. }), "{refused}");
    let unknown = NatsConfig {
        system_urls: Vec::new(),
        ..server.config("copy")
    };
    let refused = NatsStore::open(unknown.clone()).expect_err("refused");
    assert!(matches!(refused, OpenError::SyncUnknown(_)), "{refused}");
    let accepted = NatsConfig {
        unsynced_accepted: true,
        ..unknown
    };
    Open::new(accepted).0.commit(1..=3);
}

/// One that said that it syncs is asked again: it may be started again with another
/// configuration.
#[test]
fn a_server_that_syncs_no_more_is_given_up() {
    let Some(mut server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=3);
    let (said, causes) = std::sync::mpsc::channel();
    let then = move |cause| said.send(cause).expect("waited for");
    open.store.when_given_up(Box::new(then));
    server.kill();
    server.forget_sync();
    server.run();
    let cause = causes.recv_timeout(WAIT);
    assert!(matches!(cause, Ok(GaveUp::Unsynced { .. })), "{cause:?}");
}

/// A user and a password may be written with `%` and two digits.
#[test]
fn users_in_urls_may_be_encoded() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let config = NatsConfig {
        urls: vec![server.url("d%6C:%64")],
        system_urls: vec![server.url("%73ys:s")],
        ..server.config("copy")
    };
    Open::new(config).0.commit(1..=3);
}

/// A server that says what servers of former releases say.
#[test]
fn an_old_server_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let info = json!({
            "server_id": "x", "version": "2.14.3", "headers": true, "jetstream": true,
            "max_payload": 1_048_576, "proto": 1,
        });
        write!(stream, "INFO {info}\r\n").expect("sent");
        let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        for line in lines.map_while(Result::ok) {
            if line.starts_with("PING") && stream.write_all(b"PONG\r\n").is_err() {
                break;
            }
        }
    });
    let dir = tempfile::tempdir().expect("a folder");
    let config = NatsConfig::new(&format!("nats://{address}"), dir.path().join("copy"));
    let refused = NatsStore::open(config).expect_err("refused");
    assert!(matches!(refused, OpenError::OldServer { .. }), "{refused}");
    server.join().expect("it ends with its client");
}

#[test]
fn a_stream_that_forgets_is_refused() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let made = server.ask(
        "$JS.API.STREAM.CREATE.dl-p-0",
        &json!({
            "name": "dl-p-0", "subjects": ["dl.p.0.1-0"], "storage": "file",
            "retention": "limits", "max_age": 60_000_000_000_u64, "allow_direct": true,
        }),
    );
    assert!(made["error"].is_null(), "{made}");
    let refused = NatsStore::open(server.config("copy")).expect_err("refused");
    assert!(matches!(refused, OpenError::Stream { .. }), "{refused}");
}

/// A batch of several records is one, and one that is too large leaves nothing.
#[test]
fn batches_larger_than_a_record() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    let before = server.info()["state"]["last_seq"]
        .as_u64()
        .expect("a number");
    open.submitter.submit(enqueue(1, 2_000_000)).expect("room");
    assert_eq!(open.wait(), StoreDone::Committed { token: 1 });
    let after = server.info()["state"]["last_seq"]
        .as_u64()
        .expect("a number");
    assert_eq!(after - before, 4, "four records");
    open.submitter.submit(enqueue(2, 65 << 20)).expect("room");
    let refused = open.wait();
    assert!(
        matches!(refused, StoreDone::Failed { token: 2, .. }),
        "{refused:?}"
    );
    open.commit([3]);
    open.store.close();
    let (_, recovered) = Open::new(server.config("another copy"));
    assert_eq!(numbers(&recovered), [1, 3]);
}

/// The log does not grow with what is written, but with what is live.
#[test]
fn a_log_is_made_shorter() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let config = NatsConfig {
        compact_bytes: 20_000,
        ..server.config("copy")
    };
    let (open, _) = Open::new(config);
    // Each replaces the one before.
    for round in 0..300 {
        for request in [enqueue(1, 1000), dequeue(1, round)] {
            open.submitter.submit(request).expect("room");
            assert!(matches!(open.wait(), StoreDone::Committed { .. }));
        }
    }
    open.commit([2]);
    let bytes = || server.info()["state"]["bytes"].as_u64().expect("a number");
    let until = std::time::Instant::now() + WAIT;
    let mut counter = 2;
    while bytes() > 100_000 {
        assert!(std::time::Instant::now() < until, "{} bytes", bytes());
        counter += 1;
        open.commit([counter]);
    }
    open.store.close();
    let (_, recovered) = Open::new(server.config("another copy"));
    assert_eq!(numbers(&recovered), (2..=counter).collect::<Vec<_>>());
    assert_ne!(server.info()["state"]["first_seq"], Value::from(1));
}

fn dequeue(counter: u64, round: u64) -> dunlin_store::Request {
    dunlin_store::Request::Write(dunlin_store::Batch {
        token: round,
        ops: vec![dunlin_store::StoreOp::Dequeue {
            seq: dunlin_store::Seq::new(counter, dunlin_base::ShardId(0)),
            session: crate::support::SESSION,
        }],
    })
}

#[test]
fn what_is_written_and_refused_is_counted() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=5);
    open.submitter.submit(enqueue(6, 65 << 20)).expect("room");
    assert!(matches!(open.wait(), StoreDone::Failed { token: 6, .. }));
    open.commit([7]);
    let totals = open.store.metrics().totals();
    let found = (totals.commits, totals.batches, totals.operations);
    assert_eq!(found, (6, 6, 12));
    assert!(totals.bytes >= 6 * 300, "{} bytes", totals.bytes);
    assert_eq!(totals.failed, 1);
    assert!(!open.store.metrics().is_failing());
}

/// A view is of what was acknowledged before, and has not what is the copy's own.
#[test]
fn a_view_shows_what_is_acknowledged() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=10);
    let snapshots = open.store.snapshots();
    let view = snapshots.take().expect("a view");
    open.commit([11]);
    let mut found = Vec::new();
    let report = view.read(&mut |op| {
        found.push(op);
        Ok(())
    });
    assert!(report.expect("readable").is_sound());
    let queued = |op: &dunlin_store::StoreOp| match op {
        dunlin_store::StoreOp::Enqueue { seq, .. } => Some(seq.counter()),
        _ => None,
    };
    let queued: Vec<_> = found.iter().filter_map(queued).collect();
    assert_eq!(queued, (1..=10).collect::<Vec<_>>());
    let is_named =
        |op: &&dunlin_store::StoreOp| matches!(op, dunlin_store::StoreOp::PutMeta { .. });
    assert_eq!(found.iter().find(is_named), None);
    open.store.close();
    assert!(snapshots.take().is_err());
}

/// As after a loss of power, when all machines start at once.
#[test]
fn a_server_that_starts_later_is_waited_for() {
    let Some(mut server) = Server::start(Sync::Always) else {
        return;
    };
    server.kill();
    let config = server.config("copy");
    let impatient = NatsConfig {
        patience: core::time::Duration::from_millis(100),
        ..config.clone()
    };
    let refused = NatsStore::open(impatient).expect_err("refused");
    assert!(matches!(refused, OpenError::Connect(_)), "{refused}");
    let opening = std::thread::spawn(|| Open::new(config).0);
    std::thread::sleep(core::time::Duration::from_secs(1));
    server.run();
    opening.join().expect("opened").commit([1]);
    // A wrong password does not become right.
    let stranger = NatsConfig::new(&server.url("dl:wrong"), server.copy("other"));
    let begin = std::time::Instant::now();
    let refused = NatsStore::open(stranger).expect_err("refused");
    assert!(matches!(refused, OpenError::Connect(_)), "{refused}");
    assert!(begin.elapsed() < dunlin_store_nats::limits::PATIENCE);
}
