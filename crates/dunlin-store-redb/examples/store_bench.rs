//! Durable messages a second, CPU and bytes written for each, by batch size
//! and by number of publishers; what opening costs. Linux only for the last
//! columns.
//!
//! `cargo run --release -p dunlin-store-redb --example store_bench -- FOLDER`

#![allow(clippy::print_stdout, reason = "it is a program")]

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use dunlin_base::{Message, QoS, Text};
use dunlin_store::{
    Batch, InflightState, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreOp, Target,
};
use dunlin_store_redb::{Durability, RedbStore, StoreConfig, Submitter};

const SESSIONS: u64 = 1000;
const QUEUED: u64 = 20_000;
const PAYLOAD_BYTES: usize = 256;

fn enqueue(counter: u64) -> StoreOp {
    let message = Message {
        topic: Text::from("sensors/building-7/temperature"),
        payload: vec![counter as u8; PAYLOAD_BYTES].into(),
        qos: QoS::AtLeastOnce,
        ..Message::default()
    };
    StoreOp::Enqueue {
        seq: Seq(counter << 16),
        message: Arc::new(message),
        targets: vec![Target::new(
            SessionKey(counter % SESSIONS),
            QoS::AtLeastOnce,
        )],
    }
}

fn dequeue(counter: u64) -> StoreOp {
    StoreOp::Dequeue {
        seq: Seq(counter << 16),
        session: SessionKey(counter % SESSIONS),
    }
}

/// One message in, the oldest out.
fn churn(counter: u64) -> [StoreOp; 2] {
    [enqueue(counter), dequeue(counter - QUEUED)]
}

/// As [`churn`], with the packet id of the delivery kept too.
fn churn_with_ids(counter: u64) -> [StoreOp; 4] {
    let session = SessionKey(counter % SESSIONS);
    let packet_id = (counter / SESSIONS % 1000) as u16;
    let put = StoreOp::PutInflight {
        session,
        packet_id,
        seq: Seq(counter << 16),
        state: InflightState::Published,
    };
    let delete = StoreOp::DeleteInflight {
        session,
        packet_id: ((counter - QUEUED) / SESSIONS % 1000) as u16,
    };
    let [enqueue, dequeue] = churn(counter);
    [enqueue, put, dequeue, delete]
}

fn fill(submitter: &Submitter) {
    let sessions = (0..SESSIONS).map(|key| StoreOp::PutSession {
        key: SessionKey(key),
        record: SessionRecord {
            client_id: Text::from(format!("client-{key}")),
            version: 5,
            expiry_interval_secs: u32::MAX,
            ..SessionRecord::default()
        },
    });
    let ops = sessions.chain((1..=QUEUED).map(enqueue)).collect();
    submitter
        .submit(Request::Write(Batch { token: 0, ops }))
        .expect("room");
}

/// CPU time of this process in milliseconds, and bytes that it sent to disk.
fn spent() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| -> f64 {
        let field = after_name.split_whitespace().nth(n);
        field.and_then(|f| f.parse().ok()).unwrap_or(0.0)
    };
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let written = io.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    let written = written.and_then(|w| w.parse().ok()).unwrap_or(0.0);
    ((field(11) + field(12)) * 10.0, written)
}

struct Run {
    name: String,
    messages: u64,
    wall: Duration,
    cpu_ms: f64,
    written: f64,
    waits: Vec<Duration>,
}

impl Run {
    fn print(mut self) {
        self.waits.sort();
        let at = |part: f64| {
            let at = (self.waits.len() as f64 * part) as usize;
            let wait = self.waits.get(at.min(self.waits.len().saturating_sub(1)));
            wait.map_or(0.0, |w| w.as_secs_f64() * 1e3)
        };
        let n = self.messages as f64;
        println!(
            "{:<34} {:>9.0}/s  {:>6.2} µs CPU  {:>6.0} B written  p50 {:>7.2} ms  p99 {:>7.2} ms",
            self.name,
            n / self.wall.as_secs_f64(),
            self.cpu_ms * 1e3 / n,
            self.written / n,
            at(0.5),
            at(0.99),
        );
    }
}

/// `publishers` that each wait for the answer to a batch of `size` messages.
fn closed_loop(
    path: &Path,
    config: StoreConfig,
    name: String,
    publishers: usize,
    size: u64,
    ops_of: impl Fn(u64) -> Vec<StoreOp>,
) -> Run {
    let (store, _) = RedbStore::open(path, config).expect("opens");
    let (answer, answers) = channel::<StoreDone>();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    fill(&submitter);
    let done = answers.recv().expect("an answer");
    assert_eq!(done, StoreDone::Committed { token: 0 });
    let mut counter = QUEUED;
    let mut submitted = vec![Instant::now(); publishers];
    let mut publish = |token: usize, submitted: &mut Vec<Instant>| {
        let ops = (1..=size).flat_map(|n| ops_of(counter + n)).collect();
        counter += size;
        submitted[token] = Instant::now();
        let token = token as u64;
        submitter
            .submit(Request::Write(Batch { token, ops }))
            .expect("room");
    };
    let started = Instant::now();
    let before = spent();
    let mut waits = Vec::new();
    for token in 0..publishers {
        publish(token, &mut submitted);
    }
    while started.elapsed() < Duration::from_secs(2) {
        let done = answers.recv().expect("an answer");
        assert!(matches!(done, StoreDone::Committed { .. }), "{done:?}");
        let token = done.token() as usize;
        waits.push(submitted[token].elapsed());
        publish(token, &mut submitted);
    }
    let wall = started.elapsed();
    let after = spent();
    store.close();
    Run {
        name,
        messages: waits.len() as u64 * size,
        wall,
        cpu_ms: after.0 - before.0,
        written: after.1 - before.1,
        waits,
    }
}

fn opening(path: &Path, messages: u64) {
    let open = || {
        let started = Instant::now();
        let (store, recovered) = RedbStore::open(path, StoreConfig::default()).expect("opens");
        (started.elapsed(), store, recovered)
    };
    let (_, store, _) = open();
    let (answer, answers) = channel::<StoreDone>();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    fill(&submitter);
    let mut waiting = 1;
    for first in (QUEUED + 1..messages).step_by(1000) {
        let ops = (first..first + 1000).map(enqueue).collect();
        submitter
            .submit(Request::Write(Batch { token: 0, ops }))
            .expect("room");
        waiting += 1;
    }
    for _ in 0..waiting {
        answers.recv().expect("an answer");
    }
    let seqs: Vec<Seq> = (1..=messages).map(|n| Seq(n << 16)).collect();
    let started = Instant::now();
    for seqs in seqs.chunks(1000) {
        let (token, seqs) = (0, seqs.to_vec());
        submitter
            .submit(Request::Load { token, seqs })
            .expect("room");
        answers.recv().expect("an answer");
    }
    let load = messages as f64 / started.elapsed().as_secs_f64();
    store.close();
    let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    let (wall, store, recovered) = open();
    let queued: usize = recovered.sessions.iter().map(|s| s.queue.len()).sum();
    println!(
        "{queued} messages queued, file {} MB: opened in {wall:.0?}, loading {load:.0} messages/s",
        bytes / 1_000_000
    );
    drop(store);
}

fn main() {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("store-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to work in");
    let mut nth = 0;
    let mut path = || {
        nth += 1;
        folder.join(format!("store-{nth}"))
    };
    let config = |durability| StoreConfig {
        durability,
        reserve_bytes: 0,
        ..StoreConfig::default()
    };
    for durability in [Durability::Fsync, Durability::Os] {
        for size in [1, 10, 100, 1000] {
            let name = format!("{durability:?}, 1 publisher, batches of {size}");
            let ops = |n| churn(n).to_vec();
            closed_loop(&path(), config(durability), name, 1, size, ops).print();
        }
        for publishers in [10, 100, 1000] {
            let name = format!("{durability:?}, {publishers} publishers, batches of 1");
            let ops = |n| churn(n).to_vec();
            closed_loop(&path(), config(durability), name, publishers, 1, ops).print();
        }
    }
    let name = "Fsync, 1 of 100 with packet ids".to_owned();
    let ops = |n| churn_with_ids(n).to_vec();
    closed_loop(&path(), config(Durability::Fsync), name, 1, 100, ops).print();
    let name = "Fsync, 1 of 100, acknowledged at once".to_owned();
    let ops = |n| vec![enqueue(n), dequeue(n)];
    closed_loop(&path(), config(Durability::Fsync), name, 1, 100, ops).print();
    opening(&path(), 300_000);
    std::fs::remove_dir_all(&folder).expect("removable");
}
