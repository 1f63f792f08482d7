//! A process of its own that is killed while it writes: what it reported
//! committed is there. The process is this test again, which learns it from its
//! environment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;

use dunlin_base::{Message, QoS, Text};
use dunlin_store::{Batch, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreOp, Target};
use dunlin_store_redb::{Durability, RedbStore, StoreConfig};

use crate::support::TempDir;

/// Names the file to write to, in the environment of the process to kill.
const FILE: &str = "DUNLIN_STORE_TEST_FILE";

fn config(durability: Durability) -> StoreConfig {
    StoreConfig {
        durability,
        reserve_bytes: 0,
        ..StoreConfig::default()
    }
}

/// Writes until killed; a line with the token for each answer.
fn write_until_killed(path: &Path, durability: Durability) {
    let (store, recovered) = RedbStore::open(path, config(durability)).expect("opens");
    let (answer, answers) = channel();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    let mut token = recovered.last_seq.counter();
    let mut waiting = 0;
    let key = SessionKey(1);
    let mut out = std::io::stdout().lock();
    loop {
        while waiting < 20 {
            token += 1;
            let message = Message {
                topic: Text::from("t"),
                payload: vec![token as u8; 300].into(),
                ..Message::default()
            };
            let ops = vec![
                StoreOp::PutSession {
                    key,
                    record: SessionRecord::default(),
                },
                StoreOp::Enqueue {
                    seq: Seq(token << 16),
                    message: Arc::new(message),
                    targets: vec![Target::new(key, QoS::AtLeastOnce)],
                },
            ];
            let batch = Batch { token, ops };
            submitter.submit(Request::Write(batch)).expect("room");
            waiting += 1;
        }
        let done = answers.recv().expect("an answer");
        assert!(matches!(done, StoreDone::Committed { .. }), "{done:?}");
        waiting -= 1;
        if writeln!(out, "committed {}", done.token()).is_err() {
            return;
        }
    }
}

fn check(durability: Durability, test: &str) {
    if let Some(path) = std::env::var_os(FILE) {
        return write_until_killed(Path::new(&path), durability);
    }
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let mut committed = 0;
    for round in 1..=4_usize {
        let this = std::env::current_exe().expect("this test");
        let mut child = Command::new(this)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut tokens = lines.map_while(Result::ok).filter_map(|line| {
            let (_, token) = line.split_once("committed ")?;
            token.parse::<u64>().ok()
        });
        committed = tokens.nth(50 * round).unwrap_or(committed);
        child.kill().expect("it runs");
        // Lines that it wrote before it died count too.
        committed = tokens.last().unwrap_or(committed);
        child.wait().expect("it has ended");
        let (store, recovered) = RedbStore::open(&path, config(durability)).expect("opens");
        let queue = recovered.sessions.first().map(|s| s.queue.as_slice());
        let queue = queue.unwrap_or_default();
        let seqs: Vec<u64> = queue.iter().map(|q| q.seq().counter()).collect();
        assert!(seqs.len() as u64 >= committed, "{committed} were committed");
        let all: Vec<u64> = (1..=seqs.len() as u64).collect();
        assert_eq!(seqs, all, "each once, none missing");
        store.close();
    }
    assert!(committed > 0);
}

#[test]
fn a_killed_process_loses_nothing_committed() {
    check(
        Durability::Fsync,
        "kill::a_killed_process_loses_nothing_committed",
    );
}

#[test]
fn a_killed_process_loses_nothing_left_to_the_system() {
    check(
        Durability::Os,
        "kill::a_killed_process_loses_nothing_left_to_the_system",
    );
}
