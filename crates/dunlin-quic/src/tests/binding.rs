//! What SASL on a connection is bound by.

use core::time::Duration;

use bytes::Bytes;

use super::{Side, World};

const DELAY: Duration = Duration::from_millis(20);

fn ask(side: &mut Side) -> Option<Bytes> {
    side.conn.as_mut().expect("a connection").binding().ask()
}

fn accept(side: &mut Side) {
    side.conn.as_mut().expect("a connection").binding().settle();
}

#[test]
fn both_ends_of_a_connection_are_bound_by_what_no_other_has() {
    let mut all = Vec::new();
    for seed in 0..2 {
        let mut world = World::connected(DELAY, seed);
        let data = ask(&mut world.client).expect("material");
        assert_eq!(data.len(), 32);
        assert_eq!(ask(&mut world.server), Some(data.clone()));
        assert_eq!((&world.client.bound, &world.server.bound), (&None, &None));
        all.push(data);
    }
    assert_ne!(all[0], all[1]);
}

#[test]
fn who_asks_early_hears_when_the_handshake_is_over() {
    let mut world = World::begun(DELAY, 1);
    world.touch_client();
    assert_eq!(ask(&mut world.client), None);
    world.until(DELAY * 2, |world| world.server.conn.is_some());
    assert_eq!(ask(&mut world.server), None);
    // It is let in for what came early.
    accept(&mut world.server);
    world.pass(DELAY * 8);
    let data = world.client.bound.take().expect("material");
    assert_eq!(world.server.bound.take(), Some(data.clone()));
    assert_eq!(ask(&mut world.server), Some(data));
}

#[test]
fn what_is_not_asked_for_in_time_is_not_kept() {
    let mut world = World::connected(DELAY, 1);
    accept(&mut world.server);
    assert_eq!(ask(&mut world.server), None);
    let mut world = World::connected(DELAY, 1);
    let data = ask(&mut world.server);
    accept(&mut world.server);
    assert!(data.is_some() && ask(&mut world.server) == data);
    // Let in before the handshake is over, and not asked.
    let mut world = World::begun(DELAY, 1);
    world.touch_client();
    world.until(DELAY * 2, |world| world.server.conn.is_some());
    accept(&mut world.server);
    world.pass(DELAY * 8);
    assert!(world.client.opened && ask(&mut world.server).is_none());
    assert_eq!(world.server.bound, None);
}
