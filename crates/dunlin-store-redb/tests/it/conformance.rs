//! The conformance suite on a real file and on an engine in memory.

use std::sync::mpsc::{Receiver, channel};

use dunlin_store::conformance::{self, Backend, Start};
use dunlin_store::{Recovered, Request, StoreDone};
use dunlin_store_redb::{Durability, RedbStore, StoreConfig, Submitter};

use crate::support::TempDir;

struct Open {
    submitter: Submitter,
    answers: Receiver<StoreDone>,
    store: Option<RedbStore>,
}

impl Backend for Open {
    fn submit(&mut self, request: Request) {
        self.submitter.submit(request).expect("room in the queue");
    }

    fn wait(&mut self) -> StoreDone {
        self.answers.recv().expect("an answer to each request")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.close();
        }
    }
}

fn check(durability: Durability, histories: u64) {
    let dir = TempDir::new();
    let mut generation = 0;
    let mut open = |start| -> (Box<dyn Backend>, Recovered) {
        if start == Start::Empty {
            generation += 1;
        }
        let config = StoreConfig {
            durability,
            reserve_bytes: 0,
            ..StoreConfig::default()
        };
        let path = dir.path().join(format!("store-{generation}"));
        let (store, recovered) = RedbStore::open(&path, config).expect("opens");
        let (answer, answers) = channel();
        let submitter = store.submitter(Box::new(move |done| {
            let _ = answer.send(done);
        }));
        let open = Open {
            submitter,
            answers,
            store: Some(store),
        };
        (Box::new(open), recovered)
    };
    conformance::run(&mut open, histories);
}

#[test]
fn a_file_conforms() {
    check(Durability::Fsync, 3);
}

#[test]
fn a_file_without_syncing_conforms() {
    check(Durability::Os, 20);
}
