//! The suite that every back end runs: a back end is right when it cannot be
//! distinguished from [`MemoryStore`]. It knows back ends only through [`Backend`].
//!
//! It panics on the first difference, as tests do.

#![allow(
    clippy::indexing_slicing,
    reason = "a test fails by panicking, wherever it is compiled"
)]

mod history;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Instant, Message, MessageProperties, QoS, ShardId, Text};

use crate::limits::{LOAD_SEQS_MAX, META_VALUE_BYTES_MAX};
use crate::{
    Batch, InflightState, MemoryStore, Recovered, Request, Seq, SessionKey, SessionRecord,
    StoreDone, StoreError, StoreOp, StoredWill, Target,
};

pub use history::Histories;

/// An open back end under test. Dropping it closes it.
pub trait Backend {
    /// Submits a request. The suite has at most [`IN_FLIGHT_MAX`] unanswered.
    fn submit(&mut self, request: Request);

    /// Waits for the next answer.
    fn wait(&mut self) -> StoreDone;
}

/// Most requests that the suite leaves unanswered.
pub const IN_FLIGHT_MAX: usize = 64;

/// How the suite opens the back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// An empty store; what was stored before may go.
    Empty,
    /// What the last one kept.
    Again,
}

/// Opens the back end; the one opened before is closed by then.
pub type Open<'a> = &'a mut dyn FnMut(Start) -> (Box<dyn Backend>, Recovered);

/// Runs the whole suite, with this many random histories.
pub fn run(open: Open<'_>, histories: u64) {
    empty(open);
    one_of_each(open);
    partial_acknowledgement(open);
    deleting_a_session_takes_everything(open);
    operations_on_missing_sessions(open);
    a_sequence_number_twice(open);
    a_sequence_number_again(open);
    queues_are_in_order(open);
    a_post_and_how_far_it_is_taken(open);
    limits(open);
    for seed in 0..histories {
        random_history(open, seed);
    }
}

/// The back end under test beside the reference.
struct Pair<'a, 'b> {
    open: &'a mut (dyn FnMut(Start) -> (Box<dyn Backend>, Recovered) + 'b),
    backend: Option<Box<dyn Backend>>,
    reference: MemoryStore,
    next_token: u64,
    waiting: Vec<u64>,
}

impl<'a, 'b> Pair<'a, 'b> {
    fn new(open: &'a mut (dyn FnMut(Start) -> (Box<dyn Backend>, Recovered) + 'b)) -> Self {
        let (backend, recovered) = open(Start::Empty);
        assert_eq!(recovered, Recovered::default(), "an empty store is empty");
        Self {
            open,
            backend: Some(backend),
            reference: MemoryStore::new(),
            next_token: 1,
            waiting: Vec::new(),
        }
    }

    fn backend(&mut self) -> &mut dyn Backend {
        self.backend.as_mut().expect("open").as_mut()
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Submits a batch without waiting.
    fn write(&mut self, ops: Vec<StoreOp>) {
        let token = self.token();
        let batch = Batch { token, ops };
        self.reference.apply(&batch);
        self.waiting.push(token);
        self.backend().submit(Request::Write(batch));
        if self.waiting.len() == IN_FLIGHT_MAX {
            self.settle();
        }
    }

    /// Waits until everything written is committed.
    fn settle(&mut self) {
        for token in core::mem::take(&mut self.waiting) {
            let done = self.backend().wait();
            assert_eq!(done, StoreDone::Committed { token }, "in order");
        }
    }

    /// Asks the back end and the reference for the same.
    fn load(&mut self, seqs: Vec<Seq>) {
        self.settle();
        let token = self.token();
        let request = Request::Load { token, seqs };
        let want = self.reference.handle(&request);
        self.backend().submit(request);
        assert_eq!(self.backend().wait(), want, "loaded messages");
    }

    /// Closes, opens again and compares everything.
    fn reopen(&mut self) -> Recovered {
        self.settle();
        self.backend = None;
        let (backend, recovered) = (self.open)(Start::Again);
        self.backend = Some(backend);
        compare(&recovered, &self.reference);
        for seqs in self.reference.stored_seqs().chunks(LOAD_SEQS_MAX) {
            self.load(seqs.to_vec());
        }
        recovered
    }
}

/// Fails with what differs rather than with both as a whole.
///
/// # Panics
/// When `recovered` is not what the reference would recover.
pub fn compare(recovered: &Recovered, reference: &MemoryStore) {
    let want = reference.recover();
    let keys = |r: &Recovered| r.sessions.iter().map(|s| s.key).collect::<Vec<_>>();
    assert_eq!(keys(recovered), keys(&want), "sessions");
    for (got, want) in recovered.sessions.iter().zip(&want.sessions) {
        let key = want.key;
        assert_eq!(got.record, want.record, "record of {key:?}");
        assert_eq!(got.subscriptions, want.subscriptions, "{key:?}");
        assert_eq!(got.inflight, want.inflight, "in flight of {key:?}");
        assert_eq!(got.inbound, want.inbound, "inbound ids of {key:?}");
        assert_eq!(got.queue, want.queue, "queue of {key:?}");
    }
    assert_eq!(recovered.retained, want.retained, "retained messages");
    assert_eq!(recovered.meta, want.meta, "named values");
    assert_eq!(recovered.last_seq, want.last_seq, "last sequence number");
    assert_eq!(recovered.next_session, want.next_session, "next session");
}

fn session(key: u64, client_id: &str) -> StoreOp {
    StoreOp::PutSession {
        key: SessionKey(key),
        record: SessionRecord {
            client_id: Text::from(client_id),
            version: 5,
            expiry_interval_secs: u32::MAX,
            ..SessionRecord::default()
        },
    }
}

fn seq(counter: u64) -> Seq {
    Seq::new(counter, ShardId(0))
}

fn message(topic: &str, payload: &str) -> Arc<Message> {
    Arc::new(Message {
        topic: Text::from(topic),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos: QoS::AtLeastOnce,
        ..Message::default()
    })
}

fn enqueue(counter: u64, payload: &str, sessions: &[u64]) -> StoreOp {
    let target = |key: &u64| Target::new(SessionKey(*key), QoS::AtLeastOnce);
    StoreOp::Enqueue {
        seq: seq(counter),
        message: message("a/b", payload),
        targets: sessions.iter().map(target).collect(),
    }
}

fn dequeue(counter: u64, session: u64) -> StoreOp {
    StoreOp::Dequeue {
        seq: seq(counter),
        session: SessionKey(session),
    }
}

/// A message with everything that a message can have.
fn full_message() -> Message {
    Message {
        topic: Text::from("é/long/topic"),
        payload: Bytes::from(vec![0xa5; 70_000]),
        qos: QoS::ExactlyOnce,
        retain: true,
        expires: Some(Instant::from_micros(1_800_000_000_000_001)),
        properties: Some(Box::new(MessageProperties {
            payload_is_utf8: Some(false),
            content_type: Some(Text::from("application/cbor")),
            response_topic: Some(Text::from("reply/to")),
            correlation_data: Some(Bytes::from_static(b"\x00\xff")),
            user_properties: vec![
                (Text::from("b"), Text::from("2")),
                (Text::from("a"), Text::from("")),
                (Text::from("b"), Text::from("2")),
            ],
        })),
        extra: None,
    }
}

/// An empty store stays empty, and flushing it works.
pub fn empty(open: Open<'_>) {
    let mut pair = Pair::new(open);
    let token = pair.token();
    pair.backend().submit(Request::Flush { token });
    assert_eq!(pair.backend().wait(), StoreDone::Committed { token });
    pair.write(Vec::new());
    pair.load(vec![seq(1), Seq(0), Seq(u64::MAX)]);
    pair.reopen();
}

/// Every kind of row, with every field set, survives as it was.
pub fn one_of_each(open: Open<'_>) {
    let mut pair = Pair::new(open);
    let key = SessionKey(7);
    let full = Arc::new(full_message());
    let mut ops = vec![
        StoreOp::PutSession {
            key,
            record: SessionRecord {
                client_id: Text::from("client/é"),
                version: 4,
                expiry_interval_secs: 3600,
                disconnected_at: Some(Instant::from_micros(1)),
                will: Some(StoredWill {
                    message: full_message(),
                    delay_secs: 5,
                    message_expiry_secs: Some(0),
                }),
                user_name: Some(Text::new()),
                owner: Text::from("owner/é"),
                options: b"\0\xff"[..].into(),
            },
        },
        StoreOp::PutMeta {
            key: Text::from("tickets"),
            value: Bytes::from(vec![1; META_VALUE_BYTES_MAX]),
        },
        StoreOp::PutMeta {
            key: Text::new(),
            value: Bytes::new(),
        },
        StoreOp::PutRetained {
            message: full.clone(),
        },
        StoreOp::Enqueue {
            seq: seq(3),
            message: full,
            targets: vec![Target {
                session: key,
                qos: QoS::ExactlyOnce,
                retain: true,
                identifiers: vec![1, 268_435_455],
                shared: Some(Text::from("$share/g/é/#")),
                failed: u16::MAX,
                priority: Some(0),
                not_before: Some(Instant::from_micros(1 << 51)),
                added: Some(Arc::from(&b"added"[..])),
            }],
        },
    ];
    for (filter, options, identifier) in [
        ("é/#", 0x2c, Some(268_435_455)),
        ("$share/g/é/#", 0, None),
        ("é/", 2, Some(1)),
    ] {
        ops.push(StoreOp::PutSubscription {
            key,
            filter: Text::from(filter),
            options,
            identifier,
        });
    }
    for packet_id in [u16::MAX, 1, 256] {
        ops.push(StoreOp::PutInbound {
            session: key,
            packet_id,
        });
        let state = if packet_id == 1 {
            InflightState::Published
        } else {
            InflightState::Released
        };
        ops.push(StoreOp::PutInflight {
            session: key,
            packet_id,
            seq: seq(u64::from(packet_id)),
            state,
        });
    }
    pair.write(ops);
    let recovered = pair.reopen();
    assert_eq!(recovered.last_seq, seq(65_535), "in-flight ids count too");
    assert_eq!(recovered.next_session, 8);
    pair.write(vec![
        session(7, "replaced"),
        StoreOp::DeleteRetained {
            topic: Text::from("é/long/topic"),
        },
        StoreOp::DeleteMeta {
            key: Text::from("tickets"),
        },
        StoreOp::DeleteSubscription {
            key,
            filter: Text::from("é/"),
        },
        StoreOp::DeleteInflight {
            session: key,
            packet_id: 256,
        },
        StoreOp::DeleteInbound {
            session: key,
            packet_id: 256,
        },
    ]);
    let recovered = pair.reopen();
    assert_eq!(recovered.sessions[0].subscriptions.len(), 2);
    assert_eq!(
        recovered.sessions[0].queue.len(),
        1,
        "records replace alone"
    );
}

/// A message goes with its last target, in any order of acknowledgement.
pub fn partial_acknowledgement(open: Open<'_>) {
    let mut pair = Pair::new(open);
    let sessions: Vec<StoreOp> = (1..=5).map(|key| session(key, "c")).collect();
    pair.write(sessions);
    pair.write(vec![enqueue(1, "five", &[1, 2, 3, 4, 5])]);
    pair.reopen();
    for acknowledging in [3, 1, 5, 1, 4] {
        pair.write(vec![dequeue(1, acknowledging)]);
        pair.load(vec![seq(1)]);
        pair.reopen();
    }
    assert_eq!(pair.reference.stored_messages(), 1, "2 still has it");
    pair.write(vec![dequeue(1, 2)]);
    pair.load(vec![seq(1)]);
    let recovered = pair.reopen();
    assert!(recovered.sessions.iter().all(|s| s.queue.is_empty()));
    // The number is free again, and nothing is left of its marks.
    pair.write(vec![enqueue(1, "again", &[1, 3])]);
    pair.reopen();
    pair.write(vec![
        enqueue(2, "short-lived", &[1, 3]),
        dequeue(2, 3),
        dequeue(2, 1),
    ]);
    pair.reopen();
}

/// Nothing of a deleted session comes back, not even with its key.
pub fn deleting_a_session_takes_everything(open: Open<'_>) {
    let mut pair = Pair::new(open);
    let fill = |key: u64| {
        let session_key = SessionKey(key);
        vec![
            session(key, "c"),
            StoreOp::PutSubscription {
                key: session_key,
                filter: Text::from("a/#"),
                options: 1,
                identifier: None,
            },
            StoreOp::PutInflight {
                session: session_key,
                packet_id: 9,
                seq: seq(1),
                state: InflightState::Published,
            },
            StoreOp::PutInbound {
                session: session_key,
                packet_id: 9,
            },
        ]
    };
    for key in [1, 2, 3, u64::MAX - 1] {
        pair.write(fill(key));
    }
    pair.write(vec![enqueue(1, "both", &[1, 2]), enqueue(2, "one", &[2])]);
    pair.reopen();
    let delete = |key| StoreOp::DeleteSession {
        key: SessionKey(key),
    };
    pair.write(vec![delete(2), session(2, "same key")]);
    pair.load(vec![seq(1), seq(2)]);
    let recovered = pair.reopen();
    assert_eq!(recovered.sessions[1].queue, vec![]);
    pair.write(vec![delete(1)]);
    pair.load(vec![seq(1)]);
    assert_eq!(pair.reference.stored_messages(), 0);
    pair.reopen();
    // All in one batch: what is between the two deletions is gone too.
    let mut ops = vec![delete(3)];
    ops.extend(fill(3));
    ops.push(enqueue(3, "x", &[3, 2]));
    ops.push(delete(3));
    ops.push(session(3, "empty"));
    pair.write(ops);
    pair.write(vec![delete(u64::MAX - 1)]);
    pair.reopen();
}

/// Operations on sessions that do not exist leave nothing behind.
pub fn operations_on_missing_sessions(open: Open<'_>) {
    let mut pair = Pair::new(open);
    let key = SessionKey(1);
    pair.write(vec![
        enqueue(1, "nobody", &[1]),
        dequeue(1, 1),
        StoreOp::PutSubscription {
            key,
            filter: Text::from("a"),
            options: 0,
            identifier: None,
        },
        StoreOp::PutInflight {
            session: key,
            packet_id: 1,
            seq: seq(1),
            state: InflightState::Published,
        },
        StoreOp::PutInbound {
            session: key,
            packet_id: 1,
        },
        StoreOp::DeleteSession { key },
        session(2, "exists"),
        enqueue(2, "somebody", &[1, 2]),
        dequeue(2, 1),
    ]);
    pair.load(vec![seq(1), seq(2)]);
    pair.write(vec![session(1, "now it does")]);
    let recovered = pair.reopen();
    assert_eq!(recovered.sessions[0].queue, vec![]);
    assert_eq!(recovered.sessions[1].queue.len(), 1);
}

/// Targets that come later join the message that is there.
pub fn a_sequence_number_twice(open: Open<'_>) {
    let mut pair = Pair::new(open);
    pair.write((1..=4).map(|key| session(key, "c")).collect());
    pair.write(vec![enqueue(1, "first", &[1])]);
    pair.reopen();
    // Onto the disk's, replacing one and adding one.
    let mut later = Target::new(SessionKey(1), QoS::ExactlyOnce);
    later.identifiers = vec![5];
    let with_later = |later: &Target| StoreOp::Enqueue {
        seq: seq(1),
        message: message("other", "ignored"),
        targets: vec![later.clone(), Target::new(SessionKey(2), QoS::AtMostOnce)],
    };
    pair.write(vec![with_later(&later)]);
    pair.reopen();
    pair.write(vec![dequeue(1, 1), with_later(&later), dequeue(1, 2)]);
    pair.reopen();
    pair.write(vec![dequeue(1, 1)]);
    pair.reopen();
    assert_eq!(pair.reference.stored_messages(), 0);
    // Onto one of the same batch, and one that was there earlier in it.
    pair.write(vec![
        enqueue(1, "second", &[1, 3, 1]),
        with_later(&later),
        enqueue(1, "ignored", &[4]),
        dequeue(1, 3),
    ]);
    pair.reopen();
    pair.write(vec![
        dequeue(1, 1),
        dequeue(1, 2),
        dequeue(1, 4),
        enqueue(1, "third", &[4]),
    ]);
    pair.load(vec![seq(1)]);
    pair.reopen();
}

/// A number that was in use and is again, within one batch and across them.
pub fn a_sequence_number_again(open: Open<'_>) {
    let mut pair = Pair::new(open);
    pair.write((1..=4).map(|key| session(key, "c")).collect());
    pair.write(vec![enqueue(1, "stored", &[1])]);
    pair.reopen();
    pair.write(vec![
        dequeue(1, 1),
        enqueue(1, "brief", &[2]),
        dequeue(1, 2),
    ]);
    pair.load(vec![seq(1)]);
    pair.reopen();
    pair.write(vec![enqueue(1, "stored", &[1, 2, 3])]);
    pair.reopen();
    pair.write(vec![dequeue(1, 1), dequeue(1, 3), dequeue(1, 2)]);
    pair.write(vec![enqueue(1, "again", &[1, 2])]);
    pair.load(vec![seq(1)]);
    pair.reopen();
    pair.write(vec![dequeue(1, 1)]);
    pair.write(vec![
        dequeue(1, 2),
        enqueue(1, "other", &[1, 2]),
        dequeue(1, 2),
    ]);
    pair.load(vec![seq(1)]);
    pair.reopen();
}

/// Queues come back oldest first, in every order of submission.
pub fn queues_are_in_order(open: Open<'_>) {
    let mut pair = Pair::new(open);
    pair.write(vec![session(1, "c"), session(2, "d")]);
    let on_shard = |counter, shard| StoreOp::Enqueue {
        seq: Seq::new(counter, ShardId(shard)),
        message: message("t", "x"),
        targets: vec![Target::new(SessionKey(1), QoS::AtLeastOnce)],
    };
    for counter in [5, 300, 2, 70_000, 256, 1] {
        pair.write(vec![on_shard(counter, 0), on_shard(counter, 65_535)]);
    }
    let recovered = pair.reopen();
    let queue = &recovered.sessions[0].queue;
    assert_eq!(queue.len(), 12);
    assert!(queue.is_sorted_by(|a, b| a.seq() < b.seq()));
}

/// What a broker with several stores relies on: a message that is for sessions here and for
/// other stores is stored once, each of those has it until it is removed there, in any
/// order; what one of them takes is stored with how far that is.
pub fn a_post_and_how_far_it_is_taken(open: Open<'_>) {
    let mut pair = Pair::new(open);
    let posts = |number: u8| Target {
        added: Some(Arc::from([1, number])),
        ..Target::new(SessionKey(2), QoS::ExactlyOnce)
    };
    let taken = |number: u64| StoreOp::PutMeta {
        key: Text::from("taken"),
        value: Bytes::copy_from_slice(&number.to_le_bytes()),
    };
    let inbound = StoreOp::PutInbound {
        session: SessionKey(1),
        packet_id: 9,
    };
    let local = Target::new(SessionKey(1), QoS::ExactlyOnce);
    for number in 1..=3 {
        // The queue of another store is made with the first message that is for it.
        let make = [session(1, "client"), session(2, "0/1")];
        let make = make.into_iter().filter(|_| number == 1);
        let ops = make.chain([
            inbound.clone(),
            StoreOp::Enqueue {
                seq: seq(10 - u64::from(number)),
                message: message("a/b", "for both"),
                targets: vec![local.clone(), posts(number)],
            },
        ]);
        pair.write(ops.collect());
    }
    let recovered = pair.reopen();
    let queue = &recovered.sessions[1].queue;
    let numbers: Vec<Option<&[u8]>> = queue.iter().map(|it| it.added().map(|it| &**it)).collect();
    let want: [&[u8]; 3] = [&[1, 3], &[1, 2], &[1, 1]];
    assert_eq!(numbers, want.map(Some), "each with its number");
    pair.write(vec![dequeue(9, 2), dequeue(8, 2)]);
    pair.load(vec![seq(9), seq(8)]);
    let recovered = pair.reopen();
    assert_eq!(
        recovered.sessions[0].queue.len(),
        3,
        "those of the sessions here stay"
    );
    assert_eq!(recovered.sessions[1].queue.len(), 1);
    // The other side: what follows from a message, with how far messages are taken.
    for number in 1..=3 {
        pair.write(vec![enqueue(20 + number, "taken", &[1]), taken(number)]);
    }
    let recovered = pair.reopen();
    assert_eq!(recovered.meta.len(), 1);
    pair.write(vec![taken(1), dequeue(22, 1), dequeue(23, 1)]);
    pair.reopen();
}

/// What is over a limit is refused, alone.
pub fn limits(open: Open<'_>) {
    let mut pair = Pair::new(open);
    pair.write(vec![session(1, "c")]);
    pair.settle();
    let token = pair.token();
    let too_much = Batch {
        token,
        ops: vec![
            session(2, "not stored"),
            StoreOp::PutMeta {
                key: Text::from("k"),
                value: Bytes::from(vec![0; META_VALUE_BYTES_MAX + 1]),
            },
        ],
    };
    pair.backend().submit(Request::Write(too_much));
    pair.waiting.clear();
    let refused = pair.backend().wait();
    assert!(is_too_large(&refused, token), "{refused:?}");
    let token = pair.token();
    pair.backend().submit(Request::Load {
        token,
        seqs: vec![seq(1); LOAD_SEQS_MAX + 1],
    });
    let refused = pair.backend().wait();
    assert!(is_too_large(&refused, token), "{refused:?}");
    pair.write(vec![session(3, "stored")]);
    pair.reopen();
}

fn is_too_large(done: &StoreDone, want: u64) -> bool {
    let error = match done {
        StoreDone::Failed { token, error } if *token == want => error,
        _ => return false,
    };
    matches!(error, StoreError::TooLarge(_))
}

/// A random history with reopenings, compared with the reference throughout.
pub fn random_history(open: Open<'_>, seed: u64) {
    let mut pair = Pair::new(open);
    let mut history = Histories::new(seed);
    for _ in 0..4 {
        for _ in 0..=history.below(30) {
            let ops = history.batch();
            pair.write(ops);
            if history.below(8) == 0 {
                let seqs = (0..3).map(|_| history.some_seq()).collect();
                pair.load(seqs);
            }
        }
        pair.reopen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::rc::Rc;
    use core::cell::RefCell;

    struct Kept {
        store: Rc<RefCell<MemoryStore>>,
        answers: VecDeque<StoreDone>,
    }

    impl Backend for Kept {
        fn submit(&mut self, request: Request) {
            let done = self.store.borrow_mut().handle(&request);
            self.answers.push_back(done);
        }

        fn wait(&mut self) -> StoreDone {
            self.answers.pop_front().expect("an answer to each request")
        }
    }

    #[test]
    fn the_reference_conforms() {
        let store = Rc::new(RefCell::new(MemoryStore::new()));
        let mut open = |start| -> (Box<dyn Backend>, Recovered) {
            if start == Start::Empty {
                *store.borrow_mut() = MemoryStore::new();
            }
            let kept = Kept {
                store: store.clone(),
                answers: VecDeque::new(),
            };
            let recovered = store.borrow().recover();
            (Box::new(kept), recovered)
        };
        run(&mut open, 50);
    }
}
