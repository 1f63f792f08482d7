//! What a store on disk has becomes the beginning of an empty log; what is not finished is
//! served by none, and begun again.

use core::time::Duration;
use std::path::{Path, PathBuf};

use dunlin_base::{QoS, ShardId, Text};
use dunlin_store::conformance::Histories;
use dunlin_store::{
    Batch, Recovered, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreOp, Target,
};
use dunlin_store_nats::{
    Counts, Import, ImportError, LogError, NatsConfig, NatsStandby, NatsStore, OpenError,
};
use dunlin_store_redb::{EngineConfig, Stopped, open_engine};

use crate::support::{Open, SESSION, Server, Sync, enqueue, numbers};

/// A store on disk with these batches, and what it comes back with.
fn disk(dir: &Path, batches: impl IntoIterator<Item = Vec<StoreOp>>) -> (PathBuf, Recovered) {
    let path = dir.join("store.redb");
    let config = EngineConfig {
        sync: false,
        ..EngineConfig::new(&path)
    };
    let (mut engine, _) = open_engine(&path, config).expect("opens");
    for ops in batches {
        let written = engine.write(&[Batch { token: 0, ops }]);
        assert_eq!(written, [Ok(())]);
    }
    let (recovered, damaged) = engine.recovered().expect("read");
    assert_eq!(damaged, 0);
    (path, recovered)
}

/// Adds all that a store has.
fn add(import: &mut Import, path: &Path) {
    let stopped = Stopped::take(path).expect("it is not open");
    let report = stopped.read(&mut |op| import.push(op)).expect("read");
    assert!(report.is_sound(), "{report:?}");
}

fn import(config: NatsConfig, path: &Path) -> Counts {
    let mut import = Import::begin(config).expect("begun");
    add(&mut import, path);
    let counts = import.check().expect("the same");
    import.finish().expect("finished");
    counts
}

fn message(counter: u64, bytes: usize) -> StoreOp {
    let Request::Write(batch) = enqueue(counter, bytes) else {
        unreachable!("it writes")
    };
    batch.ops.into_iter().nth(1).expect("a message")
}

fn session() -> StoreOp {
    StoreOp::PutSession {
        key: SESSION,
        record: SessionRecord::default(),
    }
}

/// So many messages, of which some take several records.
fn messages(count: u64) -> impl Iterator<Item = Vec<StoreOp>> {
    let bytes = |counter: u64| {
        if counter.is_multiple_of(40) {
            1_200_000
        } else {
            3000
        }
    };
    let message = move |counter| vec![message(counter, bytes(counter))];
    [vec![session()]]
        .into_iter()
        .chain((1..=count).map(message))
}

#[test]
fn a_log_has_what_the_store_on_disk_had() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    for seed in 0..3 {
        let dir = tempfile::tempdir().expect("a folder");
        let mut history = Histories::new(seed);
        let batches = (0..400).map(|_| history.batch());
        let (path, wanted) = disk(dir.path(), batches.collect::<Vec<_>>());
        let config = |copy: &str| NatsConfig {
            partition: seed as u16,
            compact_bytes: 40_000,
            ..server.config(&format!("{copy}-{seed}"))
        };
        let counts = import(config("importer"), &path);
        assert_eq!(counts.sessions, wanted.sessions.len() as u64);
        assert_eq!(counts.retained, wanted.retained.len() as u64);
        assert_eq!(counts.values, wanted.meta.len() as u64);
        let queued = wanted.sessions.iter().map(|session| session.queue.len());
        assert_eq!(counts.places, queued.sum::<usize>() as u64);
        assert!(
            counts.messages > 0 && counts.places > counts.messages,
            "{counts:?}"
        );
        // The machine that imported it has the copy, another one reads the log.
        for copy in ["importer", "other"] {
            let (open, found) = Open::new(config(copy));
            assert_eq!(found, wanted, "{seed} {copy}");
            drop(open);
        }
        // It goes on as any log, also when it is made shorter.
        let (open, _) = Open::new(config("third"));
        let from = wanted.last_seq.counter() + 1;
        let other = SessionKey(wanted.next_session);
        for counter in from..from + 300 {
            let target = |at: u64| {
                let StoreOp::Enqueue { seq, message, .. } = message(at, 300) else {
                    unreachable!("a message")
                };
                let targets = vec![Target::new(other, QoS::AtLeastOnce)];
                StoreOp::Enqueue {
                    seq,
                    message,
                    targets,
                }
            };
            let mut ops = vec![target(counter)];
            if counter == from {
                let record = SessionRecord::default();
                ops.insert(0, StoreOp::PutSession { key: other, record });
            } else {
                let seq = Seq::new(counter - 1, ShardId(0));
                ops.push(StoreOp::Dequeue {
                    seq,
                    session: other,
                });
            }
            let token = counter;
            open.submitter
                .submit(Request::Write(Batch { token, ops }))
                .expect("room");
            assert_eq!(open.wait(), StoreDone::Committed { token });
        }
        drop(open);
        let (_open, found) = Open::new(config("fourth"));
        let (last, before) = found.sessions.split_last().expect("sessions");
        assert_eq!(before, wanted.sessions, "{seed}");
        assert_eq!((last.key, last.queue.len()), (other, 1));
        assert_eq!(found.retained, wanted.retained);
    }
}

#[test]
fn an_import_that_was_not_finished_is_not_served_and_begun_again() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let (path, wanted) = disk(dir.path(), messages(200));
    let config = |copy: &str| server.config(copy);
    for (round, whole) in [false, true].into_iter().enumerate() {
        let mut import = Import::begin(config("importer")).expect("begun");
        if whole {
            add(&mut import, &path);
            import.check().expect("the same");
        } else {
            import.push(session()).expect("added");
            for counter in 1..=100 {
                import.push(message(counter, 4000)).expect("added");
            }
        }
        drop(import);
        for copy in ["importer", "other"] {
            let refused = NatsStore::open(config(&format!("{copy}-{round}")));
            let refused = refused.map(drop).expect_err("not whole");
            let unfinished = OpenError::Log(LogError::Unfinished);
            assert_eq!(refused.to_string(), unfinished.to_string());
        }
    }
    import(config("importer"), &path);
    let (_open, found) = Open::new(config("another"));
    assert_eq!(found, wanted);
}

/// One that begins with the first record, and no more.
#[test]
fn an_import_of_nothing_is_one() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let import = Import::begin(server.config("importer")).expect("begun");
    drop(import);
    let refused = NatsStore::open(server.config("copy")).map(drop);
    let refused = refused.expect_err("not whole").to_string();
    assert!(refused.contains("not finished"), "{refused}");
    let mut import = Import::begin(server.config("importer")).expect("begun");
    assert_eq!(import.check().expect("the same"), Counts::default());
    import.finish().expect("finished");
    let (open, found) = Open::new(server.config("copy"));
    assert_eq!(found, Recovered::default());
    open.commit(1..=3);
}

#[test]
fn only_an_empty_log_that_no_broker_has_is_filled() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let refused = |copy: &str| {
        let refused = Import::begin(server.config(copy)).map(drop);
        refused.expect_err("refused")
    };
    // An owner that has written nothing, and a standby.
    let (open, _) = Open::new(server.config("owner"));
    assert!(matches!(refused("copy"), ImportError::InUse));
    open.store.close();
    let (standby, _says) = NatsStandby::start(server.config("standby")).expect("stands by");
    let until = std::time::Instant::now() + crate::support::WAIT;
    while !standby.role().role().holds_lease {
        assert!(std::time::Instant::now() < until, "it has no lease");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(matches!(refused("copy"), ImportError::InUse));
    drop(standby);
    // A log with one record; it is still that owner's.
    let (open, _) = Open::new(server.config("owner"));
    open.commit(1..=1);
    open.store.close();
    let refused_with = refused("copy");
    assert!(
        matches!(refused_with, ImportError::NotEmpty),
        "{refused_with}"
    );
    // The copy here knows of more than the log that was emptied.
    let emptied = server.ask("$JS.API.STREAM.PURGE.dl-p-0", &serde_json::json!({}));
    assert_eq!(emptied["success"], true, "{emptied}");
    let refused_with = refused("owner");
    assert!(
        matches!(refused_with, ImportError::OtherCopy(_)),
        "{refused_with}"
    );
    assert!(Import::begin(server.config("copy")).is_ok());
}

/// A broker that takes the log by force meanwhile ends the import.
#[test]
fn an_import_whose_log_is_taken_over_ends() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut import = Import::begin(server.config("importer")).expect("begun");
    import.push(session()).expect("added");
    let refused = NatsStore::open(server.config("broker")).map(drop);
    assert!(refused.is_err(), "it is not whole");
    let ended = import.check().expect_err("it is another's");
    let taken_over = ImportError::Log(OpenError::TakenOver).to_string();
    assert_eq!(ended.to_string(), taken_over);
}

/// A standby that follows the empty log, or begins while it is filled, waits and has all.
#[test]
fn a_standby_has_what_was_imported() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let (path, wanted) = disk(dir.path(), messages(120));
    let mut import = Import::begin(server.config("importer")).expect("begun");
    let (during, _says) = NatsStandby::start(server.config("during")).expect("stands by");
    add(&mut import, &path);
    import.check().expect("the same");
    // It looks meanwhile.
    std::thread::sleep(2 * dunlin_store_nats::limits::REREAD_AFTER);
    import.finish().expect("finished");
    let (store, found) = during.take_over().expect("taken over");
    assert_eq!(found, wanted);
    store.close();
    let (standby, _says) = NatsStandby::start(server.config("after")).expect("stands by");
    let (_store, found) = standby.take_over().expect("taken over");
    assert_eq!(numbers(&found), (1..=120).collect::<Vec<_>>());
}

/// One operation that no record can have, and a name that is the copy's own.
#[test]
fn what_does_not_fit_is_refused() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut import = Import::begin(server.config("importer")).expect("begun");
    import.push(session()).expect("added");
    import.push(message(2, 200_000)).expect("added");
    // As much as one batch may have, beside what waits for more.
    import.push(message(3, (64 << 20) - 1000)).expect("added");
    assert_eq!(import.check().expect("the same").messages, 2);
    let refused = import.push(message(1, 80 << 20)).expect_err("too large");
    assert!(
        refused.to_string().contains("too large for the log"),
        "{refused}"
    );
    let own = StoreOp::PutMeta {
        key: Text::from_static(dunlin_store_nats::POSITION),
        value: Vec::new().into(),
    };
    let refused = import.push(own).expect_err("its own");
    assert!(refused.to_string().contains("copy of a log"), "{refused}");
}
