//! What holds for a link, over many seeds.

use core::time::Duration;

use super::world::{Faults, World};
use crate::cause::Lost;
use crate::limits::{BATCH_COST, LINK_BYTES_MAX};
use crate::wire::Dropped;

/// Random batches, most of them short, from both ends.
fn traffic(world: &mut World) {
    for at in [0, 1] {
        // Often nothing.
        for _ in 0..world.random.below(8).saturating_sub(4) {
            let bytes = match world.random.below(20) {
                0 => world.random.below(3_000),
                _ => world.random.below(60),
            };
            world.send(at, bytes as usize);
        }
    }
}

/// Runs worlds under faults; returns how often links were lost, and how many batches came.
fn under(faults: Faults, seeds: u64) -> (usize, u64) {
    let (mut lost, mut received) = (0, 0);
    for seed in 0..seeds {
        let mut world = World::new(seed, faults);
        world.run(Duration::from_secs(4), traffic);
        world.calm();
        world.assert_works();
        lost += world.ends.iter().map(|end| end.lost.len()).sum::<usize>();
        received += world.ends.iter().map(|end| end.received).sum::<u64>();
    }
    (lost, received)
}

#[test]
fn without_faults_nothing_is_lost() {
    let (lost, received) = under(Faults::default(), 20);
    assert_eq!(lost, 0);
    assert!(received > 20_000, "{received}");
}

#[test]
fn what_is_lost_on_the_way_is_found_out() {
    let loss = Faults {
        loss: 1_000,
        ..Faults::default()
    };
    let (lost, _) = under(loss, 200);
    assert!(lost > 200, "{lost}");
}

#[test]
fn what_comes_twice_is_taken_once() {
    let repetition = Faults {
        repetition: 10,
        ..Faults::default()
    };
    let (lost, received) = under(repetition, 100);
    assert_eq!(lost, 0, "a repetition changes nothing");
    assert!(received > 50_000);
}

#[test]
fn another_order_is_a_hole() {
    let other_order = Faults {
        other_order: 1_000,
        ..Faults::default()
    };
    let (lost, _) = under(other_order, 200);
    assert!(lost > 200, "{lost}");
}

/// Recorded greetings, batches and last words, altered ones, and those of both directions.
#[test]
fn strangers_have_no_effect() {
    let stranger = Faults {
        stranger: 1,
        ..Faults::default()
    };
    let (lost, _) = under(stranger, 100);
    assert_eq!(lost, 0);
}

#[test]
fn nodes_that_start_again_or_stand_still_are_linked_again() {
    let faults = Faults {
        restart: 1_000,
        stall: 1_000,
        ..Faults::default()
    };
    let (lost, _) = under(faults, 200);
    assert!(lost > 200, "{lost}");
}

#[test]
fn everything_at_once() {
    let faults = Faults {
        loss: 2_000,
        repetition: 100,
        other_order: 4_000,
        stranger: 3,
        restart: 2_000,
        stall: 2_000,
    };
    // DUNLIN_BUS_SEEDS=100000 for a night.
    let seeds = std::env::var("DUNLIN_BUS_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(500);
    under(faults, seeds);
}

/// No batch follows the lost message: a heartbeat finds it out.
#[test]
fn the_loss_of_the_last_message_is_found_out() {
    let mut world = World::new(1, Faults::default());
    // Between two heartbeats.
    world.run(Duration::from_millis(2_200), |_| ());
    world.faults.loss = 1;
    world.send(0, 10);
    world.run(Duration::from_millis(3), |_| ());
    world.calm();
    let before = world.now;
    while world.ends[1].lost.is_empty() {
        world.run(Duration::from_millis(10), |_| ());
        assert!(world.now - before < Duration::from_secs(1));
    }
    assert_eq!(world.ends[1].lost, [Lost::Hole]);
    world.assert_works();
    assert_eq!(world.ends[0].lost, [Lost::Closed]);
}

/// What nothing comes from is lost at both ends within the time that the limits name.
#[test]
fn silence_is_found_out() {
    let mut world = World::new(2, Faults::default());
    world.run(Duration::from_secs(2), |_| ());
    world.faults.loss = 1;
    let (before, least) = (world.now, Duration::from_millis(1_900));
    while world.ends.iter().any(|end| end.lost.is_empty()) {
        world.run(Duration::from_millis(10), |_| ());
        let passed = world.now - before;
        assert!(passed < Duration::from_millis(3_100), "{passed:?}");
        let is_lost = world.ends.iter().any(|end| !end.lost.is_empty());
        assert!(!is_lost || passed > least, "{passed:?}");
    }
    assert!(world.ends.iter().all(|end| end.lost == [Lost::Silence]));
    world.run(Duration::from_secs(20), |_| ());
    assert!(
        world.ends.iter().all(|end| end.lost.len() == 1),
        "lost once"
    );
    world.calm();
    world.assert_works();
}

/// An end that stood still reads what waits before it decides that nothing came.
#[test]
fn a_pause_of_one_end_is_no_silence_of_the_other() {
    let mut world = World::new(3, Faults::default());
    world.run(Duration::from_secs(2), |_| ());
    // Its timer is looked at first, after 2.4 s without reading.
    let later = world.now + Duration::from_millis(2_400);
    world.ends[0].link.handle_timeout(later);
    assert!(world.ends[0].link.poll_event().is_none());
    world.assert_works();
    assert!(world.ends[0].lost.is_empty());
}

#[test]
fn a_consumer_that_takes_nothing_stops_the_sender() {
    let mut world = World::new(4, Faults::default());
    world.bytes_max = 64 * 1024;
    world.run(Duration::from_secs(2), |_| ());
    world.keep = Duration::from_secs(100);
    let flow = |world: &World| world.ends[0].current.as_ref().expect("a link").1.clone();
    let batch = (1 << 20) - 16 - BATCH_COST;
    for _ in 0..40 {
        world.send(0, batch);
    }
    assert!(flow(&world).is_full());
    world.run(Duration::from_secs(5), |_| ());
    // As much as may be under way, and no more.
    let most = (LINK_BYTES_MAX >> 20) as u64;
    assert_eq!(world.ends[1].received, most);
    assert!(flow(&world).is_full());
    assert_eq!(flow(&world).load(), 40 << 20);
    assert!(world.ends.iter().all(|end| end.lost.is_empty()));
    // It takes them.
    world.keep = Duration::from_millis(1);
    world.run(Duration::from_secs(120), |_| ());
    assert_eq!(world.ends[1].received, 40);
    assert!(!flow(&world).is_full());
    world.assert_works();
}

#[test]
fn a_sender_that_does_not_stop_loses_the_link() {
    let mut world = World::new(5, Faults::default());
    world.bytes_max = 64 * 1024;
    world.run(Duration::from_secs(2), |_| ());
    world.keep = Duration::from_secs(100);
    for _ in 0..70 {
        world.send(0, 1 << 20);
    }
    world.run(Duration::from_secs(1), |_| ());
    assert_eq!(world.ends[0].lost, [Lost::Overflow]);
    assert_eq!(world.ends[1].lost, [Lost::Closed]);
    world.keep = Duration::from_millis(1);
    world.assert_works();
}

#[test]
fn another_secret_makes_no_link() {
    let secrets: [&'static [u8]; 2] = [b"a secret of sixteen", b"another secret of it"];
    let mut world = World::with_secrets(6, Faults::default(), secrets);
    world.run(Duration::from_secs(30), traffic);
    for end in &world.ends {
        assert_eq!((end.linked, end.received), (0, 0));
    }
    assert!(
        world.ends[1].dropped[&Dropped::Secret] > 10,
        "each greeting is counted"
    );
}

#[test]
fn round_trips_are_measured() {
    let mut world = World::new(7, Faults::default());
    world.run(Duration::from_secs(10), traffic);
    assert!(world.ends.iter().all(|end| end.round_trips > 10));
}
