//! Shards share a thread while one is enough, and clients do not notice when
//! they change it.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use dunlin_base::transport::Transport;
use dunlin_client::{Builder, Messages, Publish, QoS};

use crate::support::{Broker, PATIENCE, run};

/// Publishers, each on a thread of its own: together they are more than one
/// thread of the broker keeps up with, and some are on another shard than the
/// subscriber.
const PUBLISHERS: [Transport; 4] = [
    Transport::Tcp,
    Transport::Tcp,
    Transport::Quic,
    Transport::Ws,
];

const SHARDS: u16 = 2;

/// Messages that a publisher has on their way.
const BURST: u64 = 64;

/// Publishes numbers from `next` on until it is to stop; returns the one after
/// the last.
fn publish(builder: Builder, topic: &str, mut next: u64, stop: &AtomicBool) -> u64 {
    run(async {
        let (client, _) = builder.connect().await.expect("connected");
        while !stop.load(Ordering::Relaxed) {
            let numbers = next..next + BURST;
            let message = |n: u64| Publish::new(topic, n.to_string()).qos(QoS::AtLeastOnce);
            let burst: Vec<_> = numbers.map(|n| client.publish(message(n))).collect();
            for publish in burst {
                publish.await.expect("acknowledged");
            }
            next += BURST;
        }
    });
    next
}

/// Receives until the topic `n/end`; the numbers of each publisher come once
/// and in order.
async fn receive(messages: &mut Messages, next: &mut [u64; PUBLISHERS.len()]) {
    loop {
        let message = messages.next().await.expect("a message");
        let from = message.topic.strip_prefix("n/").expect("a publisher");
        let Ok(index) = from.parse::<usize>() else {
            return;
        };
        let text = core::str::from_utf8(&message.payload).expect("a number");
        assert_eq!(text.parse(), Ok(next[index]), "of publisher {from}");
        next[index] += 1;
    }
}

/// Publishes from all, until the shards have as many threads as there are
/// shards, or for a while.
fn load(broker: &Broker, sent: &mut [u64; PUBLISHERS.len()]) -> usize {
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    thread::scope(|scope| {
        let threads = (0..).zip(PUBLISHERS).zip(*sent);
        let threads = threads.map(|((from, transport), next)| {
            let (builder, stop) = (broker.client(transport), &stop);
            let topic = format!("n/{from}");
            scope.spawn(move || publish(builder, &topic, next, stop))
        });
        let threads: Vec<_> = threads.collect();
        while broker.threads() < usize::from(SHARDS) && started.elapsed() < PATIENCE / 3 {
            thread::sleep(Duration::from_millis(5));
        }
        let most = broker.threads();
        stop.store(true, Ordering::Relaxed);
        for (thread, sent) in threads.into_iter().zip(sent) {
            *sent = thread.join().expect("published");
        }
        most
    })
}

#[test]
fn shards_share_a_thread_until_it_is_busy_and_again_afterwards() {
    let broker = Broker::start_with(SHARDS, &["shard_threads=as-needed"]);
    let (mut sent, mut received) = ([0; PUBLISHERS.len()], [0; PUBLISHERS.len()]);
    let (client, mut messages) = run(async {
        let builder = broker.client(Transport::Tcp).client_id("s");
        let (client, messages) = builder.connect().await.expect("connected");
        let done = client.subscribe("n/+", QoS::AtLeastOnce).await;
        done.expect("subscribed");
        (client, messages)
    });
    // Twice, so that a shard leaves its thread for the second time too.
    for _ in 0..2 {
        thread::scope(|scope| {
            let receiver = scope.spawn(|| run(receive(&mut messages, &mut received)));
            assert_eq!(
                load(&broker, &mut sent),
                usize::from(SHARDS),
                "threads under load"
            );
            run(async {
                let end = Publish::new("n/end", "").qos(QoS::AtLeastOnce);
                client.publish(end).await.expect("acknowledged");
            });
            receiver.join().expect("received");
        });
        assert_eq!(received, sent);
        let idle = Instant::now();
        while broker.threads() > 1 {
            assert!(idle.elapsed() < PATIENCE / 3, "threads without load");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
