//! The threads: several submitters, back-pressure, closing; and what opening
//! says of files that are not right.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use dunlin_base::{Message, QoS, ShardId, Text};
use dunlin_store::{
    Batch, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreError, StoreOp, Target,
};
use dunlin_store_redb::{
    Durability, OpenError, RedbStore, StoreConfig, SubmitError, Submitter, WAITING_BYTES_MAX,
};

use crate::support::TempDir;

fn config() -> StoreConfig {
    StoreConfig {
        durability: Durability::Os,
        reserve_bytes: 0,
        ..StoreConfig::default()
    }
}

fn submitter(store: &RedbStore) -> (Submitter, Receiver<StoreDone>) {
    let (answer, answers) = channel();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    (submitter, answers)
}

fn put_session(token: u64, key: u64) -> Request {
    Request::Write(Batch {
        token,
        ops: vec![StoreOp::PutSession {
            key: SessionKey(key),
            record: SessionRecord::default(),
        }],
    })
}

fn enqueue(token: u64, seq: Seq, sessions: &[u64]) -> Request {
    let message = Message {
        topic: Text::from("t"),
        payload: vec![1; 100].into(),
        ..Message::default()
    };
    let target = |key: &u64| Target::new(SessionKey(*key), QoS::AtLeastOnce);
    Request::Write(Batch {
        token,
        ops: vec![StoreOp::Enqueue {
            seq,
            message: Arc::new(message),
            targets: sessions.iter().map(target).collect(),
        }],
    })
}

#[test]
fn shards_submit_side_by_side() {
    const SHARDS: u64 = 3;
    const MESSAGES: u64 = 300;
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let (store, _) = RedbStore::open(&path, config()).expect("opens");
    std::thread::scope(|scope| {
        for shard in 0..SHARDS {
            let (submitter, answers) = submitter(&store);
            scope.spawn(move || {
                submitter.submit(put_session(0, shard)).expect("room");
                for token in 1..=MESSAGES {
                    let seq = Seq::new(token, ShardId(shard as u16));
                    submitter
                        .submit(enqueue(token, seq, &[shard]))
                        .expect("room");
                }
                for token in 0..=MESSAGES {
                    assert_eq!(answers.recv(), Ok(StoreDone::Committed { token }));
                }
                let seqs = vec![Seq::new(7, ShardId(shard as u16)), Seq(3)];
                let load = Request::Load { token: 9999, seqs };
                submitter.submit(load).expect("room");
                let Ok(StoreDone::Loaded { token, messages }) = answers.recv() else {
                    panic!("a load is answered by its messages");
                };
                assert_eq!(token, 9999);
                assert!(matches!(messages.as_slice(), [(_, Some(_)), (_, None)]));
            });
        }
    });
    store.close();
    let (_store, recovered) = RedbStore::open(&path, config()).expect("opens");
    for session in &recovered.sessions {
        assert_eq!(session.queue.len(), MESSAGES as usize);
    }
    assert_eq!(recovered.sessions.len(), SHARDS as usize);
}

#[test]
fn a_full_queue_gives_the_request_back() {
    for in_memory in [false, true] {
        let dir = TempDir::new();
        let config = StoreConfig {
            queue_limit: 2,
            ..config()
        };
        let store = if in_memory {
            RedbStore::in_memory(config).expect("starts")
        } else {
            let path = dir.path().join("store");
            RedbStore::open(&path, config).expect("opens").0
        };
        // The writer waits in the first answer until the test lets it go on.
        let (reached, is_reached) = channel();
        let (go, may_go) = channel::<()>();
        let may_go = Mutex::new(may_go);
        let stuck = store.submitter(Box::new(move |_| {
            let _ = reached.send(());
            let _ = may_go.lock().expect("one thread at a time").recv();
        }));
        stuck.submit(put_session(1, 1)).expect("room");
        is_reached.recv().expect("an answer");
        let (submitter, answers) = submitter(&store);
        submitter.submit(put_session(2, 2)).expect("room");
        submitter.submit(put_session(3, 3)).expect("room");
        let refused = submitter.submit(put_session(4, 4));
        assert_eq!(refused, Err(SubmitError::Busy(put_session(4, 4))));
        drop(go);
        for token in [2, 3] {
            assert_eq!(answers.recv(), Ok(StoreDone::Committed { token }));
        }
        submitter.submit(put_session(4, 4)).expect("room again");
        assert_eq!(answers.recv(), Ok(StoreDone::Committed { token: 4 }));
    }
}

#[test]
fn messages_that_wait_are_limited_in_bytes() {
    let store = RedbStore::in_memory(config()).expect("starts");
    let (reached, is_reached) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let stuck = store.submitter(Box::new(move |_| {
        let _ = reached.send(());
        let _ = may_go.lock().expect("one thread at a time").recv();
    }));
    let large = |token| {
        let message = Message {
            topic: Text::from("t"),
            payload: vec![1; WAITING_BYTES_MAX / 4].into(),
            ..Message::default()
        };
        Request::Write(Batch {
            token,
            ops: vec![StoreOp::PutRetained {
                message: message.into(),
            }],
        })
    };
    stuck.submit(large(1)).expect("room");
    is_reached.recv().expect("an answer");
    let (submitter, answers) = submitter(&store);
    for token in 2..6 {
        submitter.submit(large(token)).expect("room");
    }
    assert_eq!(submitter.submit(large(6)), Err(SubmitError::Busy(large(6))));
    assert_eq!(stuck.submit(large(6)), Err(SubmitError::Busy(large(6))));
    drop(go);
    for token in 2..6 {
        assert_eq!(answers.recv(), Ok(StoreDone::Committed { token }));
    }
    submitter.submit(large(6)).expect("room again");
    assert_eq!(answers.recv(), Ok(StoreDone::Committed { token: 6 }));
}

#[test]
fn closing_answers_what_was_submitted_and_refuses_the_rest() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let (store, _) = RedbStore::open(&path, config()).expect("opens");
    let (submitter, answers) = submitter(&store);
    for token in 0..50 {
        submitter.submit(put_session(token, token)).expect("room");
    }
    let flush = Request::Flush { token: 50 };
    submitter.submit(flush).expect("room");
    store.close();
    let tokens: Vec<u64> = answers
        .try_iter()
        .map(|done| {
            assert!(matches!(done, StoreDone::Committed { .. }));
            done.token()
        })
        .collect();
    assert_eq!(tokens, (0..=50).collect::<Vec<_>>());
    let refused = submitter.submit(put_session(51, 51));
    assert_eq!(refused, Err(SubmitError::Closed(put_session(51, 51))));
    let (_store, recovered) = RedbStore::open(&path, config()).expect("opens");
    assert_eq!(recovered.sessions.len(), 50);
}

#[test]
fn what_is_left_behind_the_closing_is_answered_too() {
    let store = RedbStore::in_memory(config()).expect("starts");
    let (reached, is_reached) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let stuck = store.submitter(Box::new(move |_| {
        let _ = reached.send(());
        let _ = may_go.lock().expect("one thread at a time").recv();
    }));
    stuck.submit(put_session(1, 1)).expect("room");
    is_reached.recv().expect("an answer");
    let (late, answers) = submitter(&store);
    std::thread::scope(|scope| {
        scope.spawn(move || store.close());
        // Whether this comes before or after the closing, it is answered.
        late.submit(put_session(2, 2)).expect("still open");
        drop(go);
        let done = answers.recv().expect("an answer");
        assert_eq!(done.token(), 2);
        assert!(matches!(
            done,
            StoreDone::Committed { .. }
                | StoreDone::Failed {
                    error: StoreError::Closed,
                    ..
                }
        ));
    });
}

#[test]
fn a_store_is_open_once() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let (store, _) = RedbStore::open(&path, config()).expect("opens");
    let error = RedbStore::open(&path, config()).expect_err("it is in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    store.close();
    RedbStore::open(&path, config()).expect("it is free again");
}

fn error_of(path: &Path) -> OpenError {
    RedbStore::open(path, config()).expect_err("it cannot be opened")
}

#[test]
fn files_that_are_no_stores_are_refused() {
    let dir = TempDir::new();
    let missing = error_of(&dir.path().join("no/such/folder"));
    assert!(matches!(missing, OpenError::Io { .. }), "{missing}");
    let folder = error_of(dir.path());
    assert!(matches!(folder, OpenError::Io { .. }), "{folder}");
    let foreign = dir.path().join("foreign");
    std::fs::write(&foreign, vec![b'x'; 100_000]).expect("writable");
    let error = error_of(&foreign);
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    let still = std::fs::read(&foreign).expect("readable");
    assert!(still.iter().all(|b| *b == b'x'), "and left alone");
}

#[test]
fn a_store_of_a_newer_release_is_refused() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    drop(RedbStore::open(&path, config()).expect("opens"));
    let table = redb::TableDefinition::<&str, u64>::new("format");
    let db = redb::Database::open(&path).expect("a database");
    let txn = db.begin_write().expect("writable");
    txn.open_table(table)
        .expect("the table")
        .insert("version", 3)
        .expect("writable");
    txn.commit().expect("writable");
    drop(db);
    let error = error_of(&path);
    assert!(
        matches!(error, OpenError::Format { found: 3, .. }),
        "{error}"
    );
}
