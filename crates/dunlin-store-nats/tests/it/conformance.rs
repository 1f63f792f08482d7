//! The suite of every back end, on a real server.

use dunlin_store::conformance::{self, Backend, Start};
use dunlin_store::{Recovered, Request, StoreDone};
use dunlin_store_nats::NatsConfig;

use crate::support::{Open, Server, Sync};

impl Backend for Open {
    fn submit(&mut self, request: Request) {
        self.submitter.submit(request).expect("room in the queue");
    }

    fn wait(&mut self) -> StoreDone {
        Self::wait(self)
    }
}

/// With the copies of before, or without them: then all comes from the log.
fn check(keep_copies: bool, compact_bytes: u64, histories: u64) {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut partition = 0;
    let mut opened = 0;
    let mut open = |start| -> (Box<dyn Backend>, Recovered) {
        if start == Start::Empty {
            partition += 1;
        }
        if !keep_copies {
            opened += 1;
        }
        let config = NatsConfig {
            partition,
            unsynced_accepted: true,
            compact_bytes,
            ..server.config(&format!("copy-{partition}-{opened}"))
        };
        let (open, recovered) = Open::new(config);
        (Box::new(open), recovered)
    };
    conformance::run(&mut open, histories);
}

#[test]
fn a_log_with_a_copy_conforms() {
    check(true, u64::MAX, 3);
}

#[test]
fn a_log_without_a_copy_conforms() {
    check(false, u64::MAX, 3);
}

/// The log is written again all the time, and deleted up to there.
#[test]
fn a_log_that_is_made_shorter_conforms() {
    check(false, 4096, 3);
}
