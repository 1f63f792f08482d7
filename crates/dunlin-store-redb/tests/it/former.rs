//! Files that former releases wrote, as test data: they open, and everything
//! is in them.
//!
//! A file is kept as pieces: u32 how often, the byte that is repeated, u32
//! length, that many bytes, and so on; numbers are little-endian.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::{Instant, Message, MessageProperties, QoS, ShardId, Text};
use dunlin_store::conformance::compare;
use dunlin_store::{
    Batch, InflightState, MemoryStore, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreOp,
    StoredWill, Target,
};
use dunlin_store_redb::{Durability, RedbStore, StoreConfig};

use crate::support::TempDir;

const SESSIONS: u64 = 12;
const MESSAGES: u64 = 60;

pub(crate) fn config() -> StoreConfig {
    StoreConfig {
        durability: Durability::Os,
        reserve_bytes: 0,
        ..StoreConfig::default()
    }
}

fn message(number: u64) -> Arc<Message> {
    let size = if number == 20 { 6000 } else { 40 };
    let properties = MessageProperties {
        payload_is_utf8: Some(true),
        content_type: Some(Text::from("text/plain")),
        response_topic: Some(Text::from("answers/é")),
        correlation_data: Some(Bytes::from_static(b"\xff\0")),
        user_properties: vec![(Text::from("k"), Text::from("v"))],
    };
    Arc::new(Message {
        topic: Text::from(format!("topic/{number}")),
        payload: vec![b'a' + (number % 26) as u8; size].into(),
        qos: QoS::from_u8(1 + (number % 2) as u8).expect("1 or 2"),
        retain: number.is_multiple_of(4),
        expires: (number.is_multiple_of(3)).then(|| Instant::from_micros(1 << 60)),
        properties: (number.is_multiple_of(5)).then(|| Box::new(properties)),
        extra: None,
    })
}

fn session(number: u64) -> Vec<StoreOp> {
    let key = SessionKey(number);
    let will = StoredWill {
        message: (*message(number)).clone(),
        delay_secs: 5,
        message_expiry_secs: (number == 3).then_some(9),
    };
    let record = SessionRecord {
        client_id: Text::from(format!("client-{number}")),
        version: if number.is_multiple_of(2) { 4 } else { 5 },
        expiry_interval_secs: 3600 + number as u32,
        disconnected_at: (number.is_multiple_of(2)).then(|| Instant::from_micros(77)),
        will: (number.is_multiple_of(3)).then_some(will),
        user_name: (number.is_multiple_of(4)).then(|| Text::from("user")),
        ..SessionRecord::default()
    };
    let mut ops = vec![StoreOp::PutSession { key, record }];
    for (at, filter) in ["a/+/é", "$share/g/#", "b/#"].into_iter().enumerate() {
        ops.push(StoreOp::PutSubscription {
            key,
            filter: Text::from(filter),
            options: at as u8,
            identifier: (at > 0).then_some(at as u32),
        });
    }
    ops.push(StoreOp::PutInbound {
        session: key,
        packet_id: 700 + number as u16,
    });
    ops
}

/// What the files hold: every kind of row, with marks and acknowledgements.
fn content() -> Vec<StoreOp> {
    let mut ops: Vec<StoreOp> = (1..=SESSIONS).flat_map(session).collect();
    for number in 1..=MESSAGES {
        let seq = Seq::new(number, ShardId((number % 2) as u16));
        let of = |session| Target {
            identifiers: vec![number as u32],
            shared: (number.is_multiple_of(7)).then(|| Text::from("$share/g/#")),
            ..Target::new(SessionKey(session), QoS::AtLeastOnce)
        };
        let first = 1 + number % SESSIONS;
        ops.push(StoreOp::Enqueue {
            seq,
            message: message(number),
            targets: vec![of(first), of(1 + first % SESSIONS)],
        });
        ops.push(StoreOp::PutInflight {
            session: SessionKey(first),
            packet_id: number as u16,
            seq,
            state: InflightState::Published,
        });
    }
    for number in 1..=8 {
        ops.push(StoreOp::PutRetained {
            message: message(number * 20),
        });
    }
    for (name, len) in [("tickets", 900), ("register", 300), ("empty", 0)] {
        ops.push(StoreOp::PutMeta {
            key: Text::from(name),
            value: vec![0xa5; len].into(),
        });
    }
    ops
}

/// Comes in a later commit, so that it changes rows on disk.
fn changes() -> Vec<StoreOp> {
    let mut ops = Vec::new();
    for number in (1..=MESSAGES).step_by(3) {
        let seq = Seq::new(number, ShardId((number % 2) as u16));
        let session = SessionKey(1 + number % SESSIONS);
        ops.push(StoreOp::Dequeue { seq, session });
        ops.push(StoreOp::PutInflight {
            session,
            packet_id: number as u16,
            seq,
            state: InflightState::Released,
        });
        ops.push(StoreOp::Enqueue {
            seq,
            message: message(number),
            targets: vec![Target::new(SessionKey(5), QoS::ExactlyOnce)],
        });
    }
    ops.push(StoreOp::DeleteSession { key: SessionKey(2) });
    ops
}

fn batches() -> [Batch; 2] {
    [
        Batch {
            token: 1,
            ops: content(),
        },
        Batch {
            token: 2,
            ops: changes(),
        },
    ]
}

pub(crate) fn model() -> MemoryStore {
    let mut model = MemoryStore::new();
    for batch in batches() {
        model.apply(&batch);
    }
    model
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((head, rest)) = packed.split_first_chunk::<9>() {
        let [a, b, c, d, byte, e, f, g, h] = *head;
        let repeated = u32::from_le_bytes([a, b, c, d]) as usize;
        out.resize(out.len() + repeated, byte);
        let (piece, rest) = rest.split_at(u32::from_le_bytes([e, f, g, h]) as usize);
        out.extend_from_slice(piece);
        packed = rest;
    }
    out
}

fn pack(mut file: &[u8]) -> Vec<u8> {
    const RUN_MIN: usize = 16;
    let mut out = Vec::new();
    while let Some(byte) = file.first() {
        let repeated = file.iter().take_while(|b| *b == byte).count();
        let tail = &file[repeated..];
        let is_run = |w: &[u8]| w.iter().all(|b| *b == w[0]);
        let piece = tail.windows(RUN_MIN).position(is_run).unwrap_or(tail.len());
        out.extend_from_slice(&(repeated as u32).to_le_bytes());
        out.push(*byte);
        out.extend_from_slice(&(piece as u32).to_le_bytes());
        out.extend_from_slice(&tail[..piece]);
        file = &tail[piece..];
    }
    out
}

/// Makes a store with the content, and more; the file as it is before the store is closed.
pub(crate) fn make(path: &Path, more: &[Batch]) -> Vec<u8> {
    let (store, _) = RedbStore::open(path, config()).expect("opens");
    let (answer, answers) = std::sync::mpsc::channel();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    for batch in batches().iter().chain(more) {
        let token = batch.token;
        let batch = batch.clone();
        submitter.submit(Request::Write(batch)).expect("room");
        assert_eq!(answers.recv(), Ok(StoreDone::Committed { token }));
    }
    let killed = std::fs::read(path).expect("a file");
    store.close();
    killed
}

/// Opens the store in this file and compares all of it, payloads included,
/// with the model.
fn check(path: &Path) {
    let (store, recovered) = RedbStore::open(path, config()).expect("opens");
    let mut model = model();
    compare(&recovered, &model);
    let (answer, answers) = std::sync::mpsc::channel();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    let seqs = model.stored_seqs();
    assert!(seqs.len() > 50);
    let load = Request::Load { token: 1, seqs };
    submitter.submit(load.clone()).expect("room");
    assert_eq!(answers.recv(), Ok(model.handle(&load)));
    store.close();
}

fn opens(name: &str) {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let file = unpack(&std::fs::read(data(name)).expect("test data"));
    std::fs::write(&path, file).expect("a temporary file");
    check(&path);
    // What it was turned into opens as well.
    check(&path);
}

#[test]
fn a_file_of_format_1_opens() {
    opens("format-1");
}

#[test]
fn a_file_of_format_1_opens_after_a_kill() {
    opens("format-1-killed");
}

/// Writes test data in the format of now: for the release that changes it.
#[test]
#[ignore = "writes test data"]
fn write_test_data() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let killed = make(&path, &[]);
    let save = |name, file: Vec<u8>| {
        let packed = pack(&file);
        assert_eq!(unpack(&packed), file);
        std::fs::write(data(name), packed).expect("a folder");
    };
    std::fs::create_dir_all(data("")).expect("a folder");
    save("new-killed", killed);
    save("new", std::fs::read(&path).expect("a file"));
}
