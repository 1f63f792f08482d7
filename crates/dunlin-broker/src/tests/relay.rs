//! The anonymous relay: where a message goes that says so itself, as other links would
//! have it, and whose rights count.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use dunlin_amqp::codec::{DeliveryState, Outcome};
use dunlin_amqp::{LinkId, State};

use super::amqp::{Client, NOW, OPEN, World, addressed, conn, is_accepted};
use super::queues::{internal_errors, miscounted, payloads, taken};
use super::transactions::Controller;
use crate::access::{Access, Acl};

/// A world of two shards, where these rules hold.
fn ruled(rules: &str) -> World {
    let mut world = World::new(2, OPEN);
    let acl = Arc::new(Acl::parse(rules).expect("rules"));
    for shard in &mut world.shards {
        let access = Access {
            acl: Some(Arc::clone(&acl)),
            ..Access::default()
        };
        shard.set_access(NOW, access);
    }
    world.run();
    world
}

/// The condition with which a message was rejected; `accepted` if it was not.
fn said(state: &State) -> String {
    match state.get() {
        _ if is_accepted(state) => "accepted".to_string(),
        DeliveryState::Outcome(Outcome::Rejected(why)) => {
            why.error.expect("why").condition.as_str().to_string()
        }
        other => format!("{other:?}"),
    }
}

/// Sends a durable message; what became of it.
fn send(client: &mut Client, world: &mut World, link: LinkId, to: &str, byte: u8) -> String {
    client.send(world, link, false, addressed(to, &[byte]));
    said(&client.outcome().expect("an outcome").1)
}

fn check(world: &World) {
    assert_eq!((miscounted(world), internal_errors(world)), (0, 0));
}

#[test]
fn both_addresses_of_a_topic_are_one() {
    let mut world = ruled("topic write a/b\ntopic read a/#");
    let mut to = Client::new(&mut world, conn(1, 2), None);
    to.receiver(&mut world, "a/#", 10);
    let mut from = Client::new(&mut world, conn(0, 1), None);
    let link = from.sender(&mut world, None);
    let refused = "amqp:unauthorized-access";
    for (address, byte, outcome) in [
        ("a/b", b'1', "accepted"),
        ("/topics/a/b", b'2', "accepted"),
        ("/topics/a/c", b'3', refused),
        ("a/c", b'4', refused),
        ("/topics/", b'5', "amqp:not-found"),
    ] {
        let said = send(&mut from, &mut world, link, address, byte);
        assert_eq!(said, outcome, "{address}");
    }
    to.exchange(&mut world);
    assert_eq!(payloads(&taken(&mut to)), "12");
    check(&world);
}

#[test]
fn both_addresses_of_a_topic_are_one_in_a_transaction() {
    let mut world = ruled("topic write a/b\ntopic read a/#");
    let mut to = Client::new(&mut world, conn(1, 2), None);
    to.receiver(&mut world, "a/#", 10);
    let mut from = Controller::new(&mut world, 0, 1);
    let link = from.client.sender(&mut world, None);
    let id = from.declare(&mut world);
    for (address, byte) in [("a/b", b'1'), ("/topics/a/b", b'2')] {
        from.post_as(&mut world, link, &id, false, addressed(address, &[byte]));
        assert!(from.client.outcome().is_some(), "{address}");
    }
    assert_eq!(from.commit(&mut world, &id), Ok(()));
    to.exchange(&mut world);
    assert_eq!(payloads(&taken(&mut to)), "12");
    check(&world);
}
