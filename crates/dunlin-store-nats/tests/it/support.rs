//! An open store on a server of its own.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use dunlin_base::{Message, QoS, ShardId, Text};
use dunlin_store::{
    Batch, Recovered, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreOp, Target,
};
use dunlin_store_nats::{NatsConfig, NatsStore, Submitter};
use serde_json::{Value, json};

pub(crate) use crate::server::{Server, Sync, WAIT};

impl Server {
    /// A file for a copy.
    pub(crate) fn copy(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A store whose server is asked whether it syncs.
    pub(crate) fn config(&self, copy: &str) -> NatsConfig {
        NatsConfig {
            system_urls: vec![self.url("sys:s")],
            ..NatsConfig::new(&self.url("dl:d"), self.copy(copy))
        }
    }

    pub(crate) fn info(&self) -> Value {
        self.ask("$JS.API.STREAM.INFO.dl-p-0", &Value::Null)
    }

    /// What the stream has of one message.
    pub(crate) fn message(&self, seq: u64) -> Value {
        let got = self.ask("$JS.API.STREAM.MSG.GET.dl-p-0", &json!({ "seq": seq }));
        got["message"].clone()
    }
}

/// A store and its answers.
pub(crate) struct Open {
    pub(crate) store: NatsStore,
    pub(crate) submitter: Submitter,
    pub(crate) answers: Receiver<StoreDone>,
}

impl Open {
    pub(crate) fn new(config: NatsConfig) -> (Self, Recovered) {
        let (store, recovered) = NatsStore::open(config).expect("opens");
        let (answer, answers) = channel();
        let submitter = store.submitter(Box::new(move |done| {
            let _ = answer.send(done);
        }));
        let open = Self {
            store,
            submitter,
            answers,
        };
        (open, recovered)
    }

    pub(crate) fn wait(&self) -> StoreDone {
        self.answers.recv_timeout(WAIT).expect("an answer")
    }

    /// Writes message number `counter` and waits for what becomes of it.
    pub(crate) fn write(&self, counter: u64) -> StoreDone {
        self.submitter.submit(enqueue(counter, 300)).expect("room");
        self.wait()
    }

    pub(crate) fn commit(&self, counters: impl IntoIterator<Item = u64>) {
        for counter in counters {
            let token = counter;
            assert_eq!(self.write(counter), StoreDone::Committed { token });
        }
    }
}

pub(crate) const SESSION: SessionKey = SessionKey(1);

/// A batch that queues message number `counter` for one session.
pub(crate) fn enqueue(counter: u64, bytes: usize) -> Request {
    let message = Message {
        topic: Text::from(format!("topic-{counter}").as_str()),
        payload: Bytes::from(vec![counter as u8; bytes]),
        ..Message::default()
    };
    Request::Write(Batch {
        token: counter,
        ops: vec![
            StoreOp::PutSession {
                key: SESSION,
                record: SessionRecord::default(),
            },
            StoreOp::Enqueue {
                seq: Seq::new(counter, ShardId(0)),
                message: message.into(),
                targets: vec![Target::new(SESSION, QoS::AtLeastOnce)],
            },
        ],
    })
}

/// The numbers of the messages that a store came back with.
pub(crate) fn numbers(recovered: &Recovered) -> Vec<u64> {
    let queue = recovered.sessions.first().map(|s| s.queue.as_slice());
    let queue = queue.unwrap_or_default();
    queue.iter().map(|queued| queued.seq().counter()).collect()
}
