//! What one shard computes for a message of MQTT 5.0, without sockets: ten publishers,
//! each with a subscriber of its own.
//!
//! ```text
//! cargo run --release -p dunlin-broker --example messages [QOS] [MESSAGES]
//! ```
//!
//! Prints nanoseconds a message. On a busy machine count instructions instead:
//! `valgrind --tool=callgrind target/release/examples/messages 0 200000`.

#![allow(clippy::print_stdout, reason = "its line is its answer")]

use core::mem;
use core::time::Duration;
use std::env;
use std::time::Instant as Clock;

use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, ShardId, StreamId, Text};
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_broker::{Config, Input, Output, Shard};
use dunlin_store::MemoryStore;

const PAIRS: u64 = 10;

/// Bytes of a payload.
const PAYLOAD: usize = 64;

/// Messages of one publisher that arrive together.
const TOGETHER: u16 = 16;

/// Messages, unless the command line says how many.
const MESSAGES: u64 = 200_000;

/// A broker of one shard, and what its clients were sent.
struct World {
    shard: Shard,
    store: MemoryStore,
    now: Instant,
    sent: Vec<(ConnId, SendBuf)>,
}

impl World {
    fn new() -> Self {
        let mut config = Config {
            listeners: vec![AuthPolicy {
                anonymous: Anonymous::Always,
                ..AuthPolicy::default()
            }],
            ..Config::default()
        };
        config.sys.interval = Duration::ZERO;
        let now = Instant::from_micros(1_000_000);
        Self {
            shard: Shard::new(config, now),
            store: MemoryStore::new(),
            now,
            sent: Vec::new(),
        }
    }

    fn event(&mut self, conn: ConnId, kind: NetEventKind<&[u8]>) {
        let event = NetEvent::new(conn, kind);
        self.shard.handle(self.now, Input::Net(event));
    }

    fn bytes(&mut self, conn: ConnId, data: &[u8]) {
        let stream = StreamId::CONTROL;
        self.event(conn, NetEventKind::Bytes { stream, data });
    }

    /// Does what the shard asks for, until it asks for nothing.
    fn turn(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Net(command) => {
                    if let NetCommandKind::Send { stream, data } = command.kind {
                        let (conn, bytes) = (command.conn, data.len());
                        self.sent.push((conn, data));
                        self.event(conn, NetEventKind::Sent { stream, bytes });
                    }
                }
                Output::Store(request) => {
                    let done = self.store.handle(&request);
                    self.shard.handle(self.now, Input::Store(done));
                }
                _ => {}
            }
        }
    }

    /// A client that is connected, with what it says after CONNECT.
    fn client(&mut self, number: u64, name: &str, then: &[u8]) -> ConnId {
        let conn = ConnId::new(ShardId(0), number);
        let peer = Peer {
            addr: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: Text::from_static("mqtt"),
            early_data: false,
            binding: None,
        };
        self.event(conn, NetEventKind::Opened { peer });
        // Clean start, no keep alive.
        let mut head = b"\0\x04MQTT\x05\x02\0\0\0".to_vec();
        head.extend(string(name));
        self.bytes(conn, &packet(0x10, &head));
        self.bytes(conn, then);
        self.turn();
        conn
    }

    /// Messages that left.
    fn messages(&self) -> u64 {
        let stats = self.shard.stats();
        stats.messages_sent_qos0 + stats.messages_sent_qos1 + stats.messages_sent_qos2
    }

    /// The packet ids of what a client was sent are acknowledged by it.
    fn acknowledge(&mut self, qos: u8) {
        for (conn, mut buf) in mem::take(&mut self.sent) {
            let mut data = Vec::with_capacity(buf.len());
            buf.slices().for_each(|it| data.extend_from_slice(it));
            buf.clear();
            self.shard.recycle(buf);
            let mut answers = Vec::new();
            let mut rest = &data[..];
            while let [first, len, ..] = *rest {
                let len = usize::from(len);
                assert!(len < 128, "all packets here are short");
                let body = &rest[2..2 + len];
                let id = match (first >> 4, qos) {
                    (3, 1 | 2) => {
                        let topic = 2 + usize::from(body[1]);
                        // PUBACK or PUBREC.
                        Some((0x30 + 0x10 * qos, &body[topic..topic + 2]))
                    }
                    // PUBREL for PUBREC, PUBCOMP for PUBREL.
                    (5, _) => Some((0x62, &body[..2])),
                    (6, _) => Some((0x70, &body[..2])),
                    _ => None,
                };
                if let Some((kind, id)) = id {
                    answers.extend(packet(kind, id));
                }
                rest = &rest[2 + len..];
            }
            if !answers.is_empty() {
                self.bytes(conn, &answers);
            }
        }
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

/// A packet of less than 128 bytes.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, body.len() as u8], body].concat()
}

fn main() {
    let mut args = env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut number = |default| args.next().map_or(default, |it| it.expect("a number"));
    let qos = number(0).min(2) as u8;
    let messages = number(MESSAGES);
    let mut world = World::new();
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        let topic = string(&format!("fleet/{pair}/state"));
        let filter = [&[0, 1, 0][..], &topic, &[qos]].concat();
        let name = format!("sub-{pair}");
        world.client(2 * pair + 1, &name, &packet(0x82, &filter));
        let name = format!("pub-{pair}");
        let conn = world.client(2 * pair + 2, &name, &[]);
        let mut together = Vec::new();
        for id in 1..=TOGETHER {
            let id = id.to_be_bytes();
            let id: &[u8] = if qos == 0 { &[] } else { &id };
            let body = [&topic, id, &[0], &[b'x'; PAYLOAD]].concat();
            together.extend(packet(0x30 | qos << 1, &body));
        }
        pairs.push((conn, together));
    }
    world.sent.clear();
    let before = world.messages();
    let begun = Clock::now();
    let rounds = messages.div_ceil(PAIRS * u64::from(TOGETHER));
    for _ in 0..rounds {
        for (conn, together) in &pairs {
            world.bytes(*conn, together);
        }
        world.turn();
        while !world.sent.is_empty() {
            world.acknowledge(qos);
            world.turn();
        }
    }
    let sent = world.messages() - before;
    assert_eq!(
        sent,
        rounds * PAIRS * u64::from(TOGETHER),
        "all are delivered"
    );
    let nanos = begun.elapsed().as_nanos() as f64 / sent as f64;
    println!("QoS {qos}: {sent} messages, {nanos:.0} ns each");
}
