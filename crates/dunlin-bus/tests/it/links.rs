//! Batches between members.

use core::time::Duration;
use std::sync::mpsc::channel;
use std::time::Instant;

use dunlin_bus::limits::{LINK_BYTES_HARD, LINK_BYTES_MAX};
use dunlin_bus::{Bus, Event, Lost, SendError};

use crate::node::{Node, config, link_all};
use crate::server::{Server, Sync, WAIT};

fn three(server: &Server) -> Vec<Node> {
    let names = ["a", "b", "c"];
    let mut nodes: Vec<_> = names
        .map(|name| Node::join(config(&server.url("dl:d"), name)))
        .into();
    link_all(&mut nodes);
    nodes
}

#[test]
fn batches_arrive_in_order_both_ways() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes = three(&server);
    let ids: Vec<_> = nodes.iter().map(Node::id).collect();
    assert_eq!(ids.iter().map(|id| id.get()).collect::<Vec<_>>(), [1, 2, 3]);
    const ROUNDS: u64 = 2_000;
    for round in 0..ROUNDS {
        for node in &mut nodes {
            for to in ids
                .iter()
                .filter(|id| **id != node.id())
                .copied()
                .collect::<Vec<_>>()
            {
                // Some are larger than a message may be.
                let bytes = if round % 500 == 499 {
                    1_500_000
                } else {
                    round as usize % 300
                };
                assert!(node.send(to, bytes), "there is a link");
            }
        }
    }
    for node in &mut nodes {
        for from in ids
            .iter()
            .filter(|id| **id != node.id())
            .copied()
            .collect::<Vec<_>>()
        {
            node.received_from(from, ROUNDS);
        }
    }
    // A turn's batches go together: far fewer messages than batches.
    for node in &nodes {
        let totals = node.bus.metrics().totals();
        assert_eq!((totals.members, totals.links), (2, 2));
        assert_eq!(
            (totals.batches_sent, totals.batches_received),
            (2 * ROUNDS, 2 * ROUNDS)
        );
        assert!(totals.messages_sent < totals.batches_sent, "{totals:?}");
        assert_eq!(totals.lost, [0; 9], "{totals:?}");
    }
    // All was taken, and the senders know.
    let until = Instant::now() + WAIT;
    while nodes
        .iter()
        .any(|node| node.peers.values().any(|peer| peer.load() > 0))
    {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_of_short_messages_carries_long_batches() {
    let Some(server) = Server::start_with(Sync::Default, "max_payload: 5000\n") else {
        return;
    };
    let mut nodes = three(&server);
    let (a, b) = (nodes[0].id(), nodes[1].id());
    for bytes in [10, 100_000, 0, 1_000_000, 4_900, 5_000] {
        assert!(nodes[0].send(b, bytes));
    }
    nodes[1].received_from(a, 6);
}

/// As shards do: each thread has the way to the node, and hands a batch over in a turn.
#[test]
fn what_a_thread_hands_over_arrives_in_its_order() {
    const THREADS: u8 = 4;
    const BATCHES: u32 = 3_000;
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let (linked, links) = channel();
    let (to, batches) = channel();
    let sender = Bus::join(config(&server.url("dl:d"), "a"), move |event| {
        if let Event::Linked(peer) = event {
            drop(linked.send(peer));
        }
    });
    let receiver = Bus::join(config(&server.url("dl:d"), "b"), move |event| {
        if let Event::Batch(batch) = event {
            drop(to.send(batch));
        }
    });
    let peer = links.recv_timeout(WAIT).expect("a link");
    let threads = (0..THREADS).map(|thread| {
        let peer = peer.clone();
        std::thread::spawn(move || {
            for number in 0..BATCHES {
                let mut batch = vec![thread; 5];
                batch[1..].copy_from_slice(&number.to_be_bytes());
                peer.send(batch.into()).expect("a link");
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut next = [0; THREADS as usize];
    for _ in 0..u32::from(THREADS) * BATCHES {
        let batch = batches.recv_timeout(WAIT).expect("a batch");
        let (thread, number) = batch.bytes().split_first().expect("not empty");
        let next = &mut next[usize::from(*thread)];
        assert_eq!(number, u32::to_be_bytes(*next));
        *next += 1;
    }
    for thread in threads {
        thread.join().expect("sent");
    }
    let totals = receiver.expect("joined").metrics().totals();
    let all = u64::from(THREADS) * u64::from(BATCHES);
    assert_eq!(totals.batches_received, all);
    drop(sender);
}

/// A consumer that keeps what it got makes the link full, and more is not sent.
#[test]
fn a_slow_consumer_stops_the_sender() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes = three(&server);
    let (a, b) = (nodes[0].id(), nodes[1].id());
    nodes[1].keeps = true;
    let mut sent = 0;
    while !nodes[0].peers[&b].is_full() {
        assert!(nodes[0].send(b, 100_000));
        sent += 1;
    }
    // Not more than the limit arrives, although more was handed over.
    for _ in 0..100 {
        assert!(nodes[0].send(b, 100_000));
    }
    nodes[1].received_from(a, sent);
    let more = Instant::now() + Duration::from_secs(2);
    while Instant::now() < more {
        nodes[1].look(Duration::from_millis(50));
    }
    assert!(nodes[1].kept.len() * 100_000 < LINK_BYTES_MAX + 200_000);
    assert!(nodes[0].peers[&b].is_full());
    // Nothing else is held up by it.
    let c = nodes[2].id();
    assert!(nodes[0].send(c, 100));
    nodes[2].received_from(a, 1);
    // It takes them, and the rest comes.
    nodes[1].keeps = false;
    nodes[1].kept.clear();
    nodes[1].received_from(a, sent + 100);
    let until = Instant::now() + WAIT;
    while nodes[0].peers[&b].is_full() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_sender_that_does_not_stop_loses_the_link() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes = three(&server);
    let b = nodes[1].id();
    let peer = nodes[0].peers[&b].clone();
    let batch = bytes::Bytes::from(vec![0; 1 << 20]);
    // What comes is not looked at, and so not taken.
    let mut handed = 0;
    let error = loop {
        match peer.send(batch.clone()) {
            Ok(()) => handed += batch.len(),
            Err(error) => break error,
        }
        assert!(handed <= LINK_BYTES_HARD);
    };
    assert_eq!(error, SendError::Lost);
    let lost = nodes[0].wait(|_, event| match event {
        Event::Lost { cause, .. } => Some(*cause),
        _ => None,
    });
    assert_eq!(lost, Lost::Overflow);
    nodes[0].linked_to(b);
    assert_ne!(nodes[0].peers[&b].id(), peer.id());
    assert_eq!(nodes[0].bus.metrics().totals().lost_by(Lost::Overflow), 1);
}

#[test]
fn a_server_that_starts_again_loses_no_order() {
    let Some(mut server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes: Vec<_> = ["a", "b"]
        .map(|name| {
            let mut config = config(&server.url("dl:d"), name);
            config.timing.silence = Duration::from_secs(2);
            Node::join(config)
        })
        .into();
    link_all(&mut nodes);
    let (a, b) = (nodes[0].id(), nodes[1].id());
    for _ in 0..3 {
        for _ in 0..500 {
            nodes[0].send(b, 1_000);
            nodes[1].send(a, 1_000);
        }
        server.kill();
        for _ in 0..500 {
            nodes[0].send(b, 1_000);
            nodes[1].send(a, 1_000);
        }
        server.run();
        // In the end, what is handed over arrives: on the same link or on a new one.
        let until = Instant::now() + WAIT;
        let count = |node: &Node| node.received.values().sum::<u64>();
        let before = (count(&nodes[0]), count(&nodes[1]));
        let mut after = before;
        let mut fresh = (0, 0);
        while fresh.0 < 100 || fresh.1 < 100 {
            assert!(Instant::now() < until, "{before:?} {after:?}");
            nodes[0].send(b, 100);
            nodes[1].send(a, 100);
            for node in &mut nodes {
                while node.look(Duration::from_millis(1)).is_some() {}
            }
            let now = (count(&nodes[0]), count(&nodes[1]));
            fresh.0 += now.0 - after.0;
            fresh.1 += now.1 - after.1;
            after = now;
        }
    }
    assert_eq!(nodes[0].members.len(), 1, "none has left");
}
