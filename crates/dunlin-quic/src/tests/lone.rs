//! Messages that come now and then over a path that loses packets.

use core::time::Duration;

use dunlin_base::Repeat;

use super::World;

const DELAY: Duration = Duration::from_millis(5);
/// Longer than any message takes, so that each is alone.
const EVERY: Duration = Duration::from_millis(500);
const MESSAGES: u32 = 300;
const SEEDS: u64 = 6;

/// What came of the messages of all seeds.
#[derive(Debug)]
struct Outcome {
    /// How long they took from the client to the server, sorted.
    took: Vec<Duration>,
    datagrams: usize,
    bytes: usize,
}

impl Outcome {
    fn mean(&self) -> f64 {
        let all: Duration = self.took.iter().sum();
        all.as_secs_f64() / self.took.len() as f64 / DELAY.as_secs_f64()
    }

    fn at(&self, percent: usize) -> f64 {
        let nth = self.took.len() * percent / 100;
        self.took[nth].as_secs_f64() / DELAY.as_secs_f64()
    }
}

/// Messages on one stream, each of which the server answers; of 1,000 datagrams so
/// many are lost, both ways.
fn outcome(loss: u64, repeat: Repeat) -> Outcome {
    let mut outcome = Outcome {
        took: Vec::new(),
        datagrams: 0,
        bytes: 0,
    };
    for seed in 0..SEEDS {
        let mut world = World::connected(DELAY, seed);
        for side in [&mut world.client, &mut world.server] {
            let conn = side.conn.as_mut().unwrap();
            conn.set_repeat(repeat, world.now);
        }
        let before = [world.client.sent, world.server.sent];
        world.loss = loss;
        for _ in 0..MESSAGES {
            let came = world.server.received.len();
            world.client.send(&[0; 80]);
            world.touch_client();
            let most = EVERY * 20;
            let took = world.until(most, |world| world.server.received.len() >= came + 80);
            assert!(took < most, "it comes");
            outcome.took.push(took);
            world.server.send(&[0; 4]);
            world.touch_server();
            world.pass(EVERY.saturating_sub(took));
        }
        for (side, before) in [&world.client, &world.server].into_iter().zip(before) {
            outcome.datagrams += side.sent.0 - before.0;
            outcome.bytes += side.sent.1 - before.1;
        }
    }
    outcome.took.sort_unstable();
    outcome
}

#[test]
fn a_lone_loss_delays_little_where_many_are_lost() {
    let clean = outcome(0, Repeat::Never);
    let same = outcome(0, Repeat::Lone);
    let sent = |outcome: &Outcome| (outcome.datagrams, outcome.bytes);
    assert_eq!(
        sent(&same),
        sent(&clean),
        "nothing twice where nothing is lost"
    );
    // Of 1,000 lost; most of the mean delay and of the bytes, in percent of what they
    // are without loss and without copies.
    for (loss, mean_max, bytes_max) in [(10, 108, 108), (50, 108, 170), (100, 110, 160)] {
        let once = outcome(loss, Repeat::Never);
        let twice = outcome(loss, Repeat::Lone);
        for outcome in [&once, &twice] {
            println!(
                "{loss}: mean {:.3}, p95 {:.2}, bytes {:.2} times",
                outcome.mean() / clean.mean(),
                outcome.at(95) / clean.at(95),
                outcome.bytes as f64 / clean.bytes as f64,
            );
        }
        assert!(twice.mean() * 100.0 <= clean.mean() * f64::from(mean_max));
        assert!(twice.bytes * 100 <= once.bytes * bytes_max);
        if loss == 100 {
            assert!(once.mean() > clean.mean() * 1.4, "what it is good for");
            assert!(twice.at(95) < clean.at(95) * 1.3);
        }
    }
}

#[test]
fn what_is_not_alone_is_sent_once() {
    const BYTES: usize = 200_000;
    let mut world = World::connected(DELAY, 1);
    world.loss = 50;
    for _ in 0..4 {
        let came = world.server.received.len();
        world.client.send(&[0; BYTES]);
        world.touch_client();
        world.until(EVERY * 100, |world| {
            world.server.received.len() >= came + BYTES
        });
    }
    let conn = world.client.conn.as_mut().unwrap();
    assert!(conn.quic_stats().lost_packets > 10);
    let copies = world.client.counters.quic_packets_repeated;
    assert!(copies * 50 < world.client.sent.0 as u64, "{copies}");
}
