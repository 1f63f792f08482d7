//! What a batch of 256 bytes between two processes costs, beside a plain publish of
//! async-nats: `nodes URL` starts the other process itself and prints both.
//!
//! `nodes seal` prints what encryption of a message costs, beside HMAC-SHA-256.
//!
//! First one batch at a time, there and back, for the time it takes; then as many as the link
//! takes, in turns of so many batches, for the CPU of both processes.

use core::time::Duration;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use bytes::Bytes;
use dunlin_bus::{About, Bus, Config, Event, Peer};
use dunlin_store_nats::{Servers, connect};
use futures_util::StreamExt as _;

const SECRET: &[u8] = b"only for measurements";
const BYTES: usize = 256;
const ROUNDS: usize = 5_000;
const WAIT: Duration = Duration::from_secs(30);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match &args[..] {
        [_, what] if what == "seal" => seal(),
        [_, url] => measure(url),
        [_, url, other] if other == "bus" => bus_echo(url),
        [_, url, other] if other == "plain" => plain_echo(url),
        _ => say("nodes nats://user:password@host:port, or nodes seal"),
    }
}

fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").expect("standard output");
}

/// CPU time of a process so far, user and system.
fn cpu(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
    // A tick is 10 ms on every Linux that this runs on.
    Duration::from_millis(ticks * 10)
}

fn config(url: &str) -> Config {
    let mut config = Config::new(url, SECRET, About::default());
    config.prefix = "links-example".to_owned();
    config
}

/// A node, its first link, and what comes on it.
fn node(url: &str) -> (Bus, Peer, Receiver<Bytes>) {
    let (linked, links) = channel();
    let (to, batches) = channel();
    let bus = Bus::join(config(url), move |event| match event {
        Event::Linked(peer) => drop(linked.send(peer)),
        Event::Batch(batch) => drop(to.send(batch.bytes().clone())),
        _ => {}
    });
    let peer = links.recv_timeout(WAIT).expect("a link");
    (bus.expect("joined"), peer, batches)
}

/// Sends back what begins with 1, until the other one is gone.
fn bus_echo(url: &str) {
    let (_bus, peer, batches) = node(url);
    while let Ok(batch) = batches.recv_timeout(WAIT) {
        if batch.first() == Some(&1) && peer.send(batch).is_err() {
            return;
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

async fn plain_client(url: &str) -> async_nats::Client {
    let urls = [url.to_owned()];
    let servers = Servers {
        urls: &urls,
        tls_ca: None,
        patience: WAIT,
    };
    connect(&servers).await.expect("connected")
}

fn plain_echo(url: &str) {
    runtime().block_on(async {
        let client = plain_client(url).await;
        let mut messages = client
            .subscribe("links-example.there")
            .await
            .expect("subscribed");
        while let Some(message) = messages.next().await {
            if message.payload.first() == Some(&1) {
                let sent = client.publish("links-example.back", message.payload).await;
                sent.expect("sent");
            }
        }
    });
}

fn payload(first: u8) -> Bytes {
    let mut bytes = vec![7; BYTES];
    bytes[0] = first;
    bytes.into()
}

fn shown(name: &str, mut times: Vec<Duration>, cpu: Duration) {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 1000].as_micros();
    let each = cpu.as_micros() as f64 / times.len() as f64;
    say(&format!(
        "{name}: there and back p50 {} us, p99 {} us; CPU of both processes {each:.1} us a round",
        at(500),
        at(990),
    ));
}

fn measure(url: &str) {
    let program = std::env::current_exe().expect("this program");
    let start = |kind: &str| {
        let child = Command::new(&program)
            .args([url, kind])
            .stdin(Stdio::null())
            .spawn();
        child.expect("a process")
    };
    let mut other = start("plain");
    plain(url, &other.id().to_string());
    other.kill().expect("it runs");
    other.wait().expect("ended");
    let mut other = start("bus");
    bus(url, &other.id().to_string());
    other.kill().expect("it runs");
    other.wait().expect("ended");
}

/// CPU of this process and the other one.
fn both(other: &str) -> Duration {
    cpu("self") + cpu(other)
}

fn plain(url: &str, other: &str) {
    runtime().block_on(async {
        let client = plain_client(url).await;
        let mut back = client
            .subscribe("links-example.back")
            .await
            .expect("subscribed");
        let there = "links-example.there";
        // Until the other one has subscribed.
        loop {
            client.publish(there, payload(1)).await.expect("sent");
            if tokio::time::timeout(Duration::from_millis(100), back.next())
                .await
                .is_ok()
            {
                break;
            }
        }
        let (mut times, before) = (Vec::new(), both(other));
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            client.publish(there, payload(1)).await.expect("sent");
            back.next().await.expect("an answer");
            times.push(begun.elapsed());
        }
        shown("plain", times, both(other) - before);
        for turn in [1_usize, 16] {
            let (count, begun, before) = (200_000 / turn * turn, Instant::now(), both(other));
            for sent in 1..=count / turn {
                // As the bus does it: what a turn has goes in one message.
                let body = Bytes::from(vec![0; BYTES * turn]);
                client.publish(there, body).await.expect("sent");
                // As many may be under way as on a link.
                if sent % 512 == 0 {
                    client.publish(there, payload(1)).await.expect("sent");
                    back.next().await.expect("an answer");
                }
            }
            client.publish(there, payload(1)).await.expect("sent");
            back.next().await.expect("an answer");
            rate("plain", turn, count, begun.elapsed(), both(other) - before);
        }
    });
}

fn rate(name: &str, turn: usize, count: usize, time: Duration, cpu: Duration) {
    let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    say(&format!(
        "{name}, {turn} of 256 bytes a turn: {:.0} a second, CPU of both processes {:.2} us each",
        1e6 / per(time),
        per(cpu),
    ));
}

fn bus(url: &str, other: &str) {
    let (bus, peer, batches) = node(url);
    let answer = || match batches.recv_timeout(WAIT) {
        Ok(batch) => batch,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => panic!("no answer"),
    };
    let (mut times, before) = (Vec::new(), both(other));
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        peer.send(payload(1)).expect("linked");
        answer();
        times.push(begun.elapsed());
    }
    shown("bus", times, both(other) - before);
    for turn in [1_usize, 16] {
        let (count, begun, before) = (200_000 / turn * turn, Instant::now(), both(other));
        let messages = bus.metrics().totals().messages_sent;
        for _ in 0..count / turn {
            while peer.is_full() {
                std::thread::sleep(Duration::from_micros(100));
            }
            peer.send(Bytes::from(vec![0; BYTES * turn]))
                .expect("linked");
        }
        peer.send(payload(1)).expect("linked");
        answer();
        rate("bus", turn, count, begun.elapsed(), both(other) - before);
        let messages = bus.metrics().totals().messages_sent - messages;
        say(&format!("  in {messages} messages"));
    }
    bus.leave();
}

/// Encryption and HMAC of messages of two lengths.
fn seal() {
    let key = UnboundKey::new(&AES_256_GCM, &[1; 32]).expect("a key");
    let key = LessSafeKey::new(key);
    let mac = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
    for bytes in [BYTES, 16 * 1024] {
        let mut message = vec![7; bytes];
        let mut out = message.clone();
        let nonce = || Nonce::assume_unique_for_key([0; 12]);
        let aad = || Aad::from([0; 23]);
        let sealed = |message: &mut [u8]| {
            key.seal_in_place_separate_tag(nonce(), aad(), message)
                .expect("sealed")
        };
        let each = per_round(|| _ = sealed(&mut message));
        let tag = sealed(&mut message);
        let opened = per_round(|| {
            key.open_separate_gather(nonce(), aad(), &message, tag.as_ref(), &mut out)
                .expect("opened");
        });
        let proved = per_round(|| _ = core::hint::black_box(hmac::sign(&mac, &message)));
        say(&format!(
            "{bytes} bytes: AES-256-GCM sealed {each} ns, opened {opened} ns; HMAC-SHA-256 {proved} ns"
        ));
    }
}

/// The least of several means, in nanoseconds.
fn per_round(mut round: impl FnMut()) -> u128 {
    const EACH: u128 = 2_000;
    let mean = |_| {
        let begun = Instant::now();
        (0..EACH).for_each(|_| round());
        begun.elapsed().as_nanos() / EACH
    };
    (0..20).map(mean).min().unwrap_or_default()
}
