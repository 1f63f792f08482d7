//! What it costs to write and read messages between shards as bytes, as between machines:
//! messages of 256 bytes, each on its own and gathered.
//!
//! ```text
//! cargo run --release -p dunlin-broker --example bus
//! ```
//!
//! Prints nanoseconds and bytes a message.

#![allow(clippy::print_stdout, reason = "its lines are its answer")]

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant as Clock;

use bytes::Bytes;
use dunlin_base::{Instant, Message, QoS, ShardId, Text};
use dunlin_broker::bus::{Batch, begin, encode};
use dunlin_broker::{BusMessage, Forward, Manner};

/// Messages of one batch that go one by one.
const TOGETHER: usize = 64;

/// Bytes of a message of publishers, all of it, as it is gathered: token, version, PUBLISH.
const GATHERED_BYTES: usize = 9 + 256 + 20;

/// Bytes of a buffer of gathered ones.
const BUFFER_BYTES: usize = 64 * 1024;

const NOW: Instant = Instant::from_micros(1_764_000_000_000_000);

fn forward() -> BusMessage {
    let message = Message {
        topic: Text::from_static("sites/7/lines/3/sensors/temperature"),
        payload: Bytes::from_static(&[7; 256]),
        qos: QoS::AtLeastOnce,
        ..Message::default()
    };
    BusMessage::Forward {
        forward: Forward {
            message: message.into(),
            plain: true,
            shares: Vec::new(),
            retain: false,
            queue: false,
            manner: Manner::Usual,
        },
        token: Some(1),
    }
}

/// Writes and reads a batch of these many times; `of`: messages in it.
fn measure(name: &str, all: &[BusMessage], of: usize) {
    const ROUNDS: usize = 20_000;
    let write = || {
        let mut out = Vec::with_capacity(128 * 1024);
        begin(NOW, &mut out);
        for message in black_box(all) {
            encode(ShardId(1), ShardId(2), message, &mut out).expect("within limits");
        }
        Bytes::from(out)
    };
    let batch = write();
    let clock = Clock::now();
    for _ in 0..ROUNDS {
        black_box(write());
    }
    let written = clock.elapsed();
    let clock = Clock::now();
    for _ in 0..ROUNDS {
        let read = Batch::open(black_box(batch.clone()), NOW).expect("a batch");
        assert_eq!(black_box(read.map(Result::unwrap)).count(), all.len());
    }
    let read = clock.elapsed();
    let a_message = |time: Duration| time.as_nanos() as f64 / (ROUNDS * of) as f64;
    println!(
        "{name}: {:.1} ns to write, {:.1} ns to read, {:.1} bytes",
        a_message(written),
        a_message(read),
        batch.len() as f64 / of as f64
    );
}

fn main() {
    let forwards: Vec<_> = (0..TOGETHER).map(|_| forward()).collect();
    measure("Forward", &forwards, TOGETHER);
    let count = BUFFER_BYTES / GATHERED_BYTES;
    let buffer = BusMessage::Messages(vec![7; count * GATHERED_BYTES]);
    measure("Messages", &[buffer], count);
    let tokens = BusMessage::Received((0..1000).collect());
    measure("Received", &[tokens], 1000);
}
