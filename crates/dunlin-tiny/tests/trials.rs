//! The small client against quinn-proto in virtual time: seeded faults, and
//! the paths of the protocol one by one.

#[path = "../sim/mod.rs"]
mod sim;

use dunlin_quic_mini::{Error, Pinned};
use sim::Faults;
use sim::run::{Outcome, World, faulty};
use sim::server::{Habits, Identity, Server, tls};

/// A link without faults.
const CALM: Faults = Faults {
    loss: 0,
    duplicate: 0,
    corrupt: 0,
    delay: 20,
    jitter: 0,
};

/// A world with one server that has just started.
fn world<'k>(
    identity: &Identity,
    keys: &'k [[u8; 65]],
    habits: Habits,
    faults: Faults,
) -> World<Pinned<'k>> {
    let server = Server::new(tls(identity, habits), habits, 1);
    World::new(Pinned::new(keys), server, faults, 1)
}

#[test]
fn connects_and_echoes() {
    let identity = Identity::own();
    let keys = [identity.point];
    let mut world = world(&identity, &keys, Habits::default(), CALM);
    world.connect(None);
    let shaken = world.handshake();
    assert_eq!(shaken, Ok(()), "{:?}", world.server.lost);
    assert_eq!(world.echo(5000), Outcome::Delivered);
    world.close();
    assert_eq!(world.client.error(), Some(Error::ClosedLocally));
}

#[test]
fn faults_never_change_a_byte() {
    let identity = Identity::own();
    let delivered = (0..150)
        .filter(|&seed| faulty(&identity, seed).is_ok())
        .count();
    assert!(delivered > 120, "{delivered} of 150");
}
