//! What a home with other stores beside its own finds in its store.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::{Message, QoS, ShardId, Text};
use dunlin_broker::Event;
use dunlin_sim::{crash_store, is_store_ready, run, start_store};
use dunlin_store::{Seq, StoreOp, Target};

use super::{DURABLE, POSTS, at, connect, payloads, two_stores};

/// It stays where it is, and is counted and in the log with each restart.
#[test]
fn a_post_that_cannot_be_read_is_left_out() {
    let mut world = two_stores(1);
    let mut peers = [
        at("publisher", 0, DURABLE, &[]),
        at("subscriber", 1, DURABLE, &[("t", QoS::AtLeastOnce)]),
    ];
    connect(&mut world, &mut peers);
    crash_store(&mut world, 1);
    run(&mut world, &mut peers, Duration::from_millis(100));
    for payload in ["1", "2"] {
        peers[0].publish(&mut world, "t", payload.into(), QoS::AtLeastOnce);
    }
    run(&mut world, &mut peers, Duration::from_secs(1));
    assert_eq!(world.disk.stored_messages(), 2);
    crash_store(&mut world, 0);
    // As a later release would write it.
    let found = world.disk.recover();
    let mut queues = found.sessions.iter();
    let queue = queues.find(|it| it.record.version == POSTS);
    let target = Target {
        added: Some([255].into()),
        ..Target::new(queue.expect("a queue").key, QoS::AtLeastOnce)
    };
    let message = Message {
        topic: Text::from("t"),
        qos: QoS::AtLeastOnce,
        ..Message::default()
    };
    world.disk.write(vec![StoreOp::Enqueue {
        seq: Seq::new(found.last_seq.counter() + 1, ShardId(0)),
        message: Arc::new(message),
        targets: vec![target],
    }]);
    for restart in 1..=2 {
        run(&mut world, &mut peers, Duration::from_millis(100));
        drop(world.take_log());
        start_store(&mut world, 0);
        if restart == 1 {
            start_store(&mut world, 1);
        }
        run(&mut world, &mut peers, Duration::from_secs(1));
        assert!((0..2).all(|store| is_store_ready(&world, store)));
        connect(&mut world, &mut peers);
        run(&mut world, &mut peers, Duration::from_secs(1));
        let log = world.take_log();
        let unreadable = log.iter().filter_map(|event| match event {
            Event::PostsUnreadable(count) => Some(*count),
            _ => None,
        });
        assert_eq!(unreadable.collect::<Vec<u64>>(), [1]);
        assert_eq!(world.shards()[0].stats().posts_unreadable, 1);
        let received: Vec<&str> = payloads(&peers[1]).collect();
        assert_eq!(received, ["1", "2"]);
        assert_eq!(world.disk.stored_messages(), 1);
        assert_eq!(world.census().pending, 0);
        crash_store(&mut world, 0);
    }
}
