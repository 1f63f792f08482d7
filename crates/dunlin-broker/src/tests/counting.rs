//! What is counted in the memory budget besides messages that are in queues.

use alloc::vec::Vec;

use super::amqp::{Client, OPEN, World, conn, is_accepted, message};
use super::queues::{address, queued};
use crate::config::Config;

#[test]
fn messages_on_their_way_to_the_store_are_counted() {
    let queue = address();
    for (to, shard, refuses) in [
        ("t/a", 0, false),
        ("t/a", 1, true),
        (&*queue, 0, true),
        (&*queue, 1, false),
    ] {
        let mut world = World::new(2, OPEN);
        world.mqtt(conn(0, 1), 60);
        let (mut from, link) = Client::sending(&mut world, conn(shard, 2), to);
        assert_eq!(queued(&world), 0);
        world.held = Some(Vec::new());
        for _ in 0..3 {
            from.send(&mut world, link, false, message(true, &[0; 1000]));
        }
        assert!(queued(&world) > 3000, "{to} {shard}: {}", queued(&world));
        assert_eq!(world.shards[0].census().miscounted_bytes, 0);
        world.refuses = refuses;
        world.release_store();
        match refuses {
            true => assert_eq!(queued(&world), 0),
            false => assert!((3000..6000).contains(&queued(&world))),
        }
        world.check();
    }
}

#[test]
fn no_more_is_on_its_way_to_the_store_than_there_is_memory() {
    let queue = address();
    for to in ["t/a", &*queue] {
        // 192 KiB for queues.
        let small = |config: &mut Config| config.memory.bytes = 1 << 20;
        let mut world = World::configured(1, OPEN, small);
        world.mqtt(conn(0, 1), 60);
        let (mut from, link) = Client::sending(&mut world, conn(0, 2), to);
        world.held = Some(Vec::new());
        let mut refused = 0;
        for _ in 0..200 {
            from.send(&mut world, link, false, message(true, &[0; 4000]));
            if let Some((_, state)) = from.outcome() {
                assert!(!is_accepted(&state), "the store has not answered");
                refused += 1;
            }
        }
        assert!(refused > 150, "{to}: {refused} of 200 refused");
        world.release_store();
        from.exchange(&mut world);
        while let Some((_, state)) = from.outcome() {
            assert!(is_accepted(&state));
            refused += 1;
        }
        assert_eq!(refused, 200);
        world.check();
    }
}
