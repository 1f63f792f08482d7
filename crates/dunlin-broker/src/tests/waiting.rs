//! Links that wait for room in their session: each goes on, and only they are
//! looked at; what is reported of them.

use alloc::format;
use alloc::vec::Vec;

use dunlin_amqp::LinkId;
use dunlin_amqp::codec::{Attach, DeliveryState};

use super::amqp::{Client, OPEN, World, conn, message, receiver};
use crate::control::values::{self as control, ClientFilter, ClientView, Page, Reply};

/// Deliveries that a session may have without an outcome.
const INFLIGHT_MAX: u16 = 4;

/// Receivers that get nothing.
const IDLE: usize = 60;

fn world() -> World {
    World::configured(1, OPEN, |config| config.sending.inflight_max = INFLIGHT_MAX)
}

fn receive(client: &mut Client, world: &mut World, address: &str, credit: u32) -> LinkId {
    let attach = Attach {
        name: address,
        ..receiver(address)
    };
    client.take(world, &attach, credit)
}

/// A page of clients.
fn list(world: &mut World, at: usize, limit: usize) -> Page<ClientView> {
    let filter = ClientFilter::default();
    world.ask(0, control::Request::Clients { filter, at, limit });
    match world.replies.pop() {
        Some(Reply::Clients(page)) => page,
        other => panic!("{other:?}"),
    }
}

/// Accepts the next message; whether there was one.
fn accept_next(client: &mut Client, world: &mut World) -> bool {
    client.exchange(world);
    let Some((delivery, ..)) = client.message() else {
        return false;
    };
    client.settle(world, delivery, &DeliveryState::ACCEPTED);
    true
}

#[test]
fn a_settled_delivery_looks_at_links_that_wait_only() {
    let mut world = world();
    let mut to = Client::new(&mut world, conn(0, 1), None);
    for at in 0..IDLE {
        receive(&mut to, &mut world, &format!("idle/{at}"), 10);
    }
    receive(&mut to, &mut world, "t/a", 100);
    receive(&mut to, &mut world, "t/b", 100);
    for (serial, topic) in [(2, "t/a"), (3, "t/b")] {
        let (mut from, link) = Client::sending(&mut world, conn(0, serial), topic);
        for _ in 0..6 {
            from.send(&mut world, link, false, message(false, b"x"));
        }
    }
    let mut taken = 0;
    loop {
        world.shards[0].take_searches();
        if !accept_next(&mut to, &mut world) {
            break;
        }
        // One for the connection, one for the link that goes on.
        let searches = world.shards[0].take_searches();
        assert!(searches <= 4, "{searches} searches for one disposition");
        taken += 1;
    }
    assert_eq!(taken, 12, "no link is forgotten");
}

#[test]
fn a_consumer_whose_credit_is_larger_than_its_window_gets_everything() {
    let mut world = world();
    let (mut from, link) = Client::sending(&mut world, conn(0, 1), "/queues/q");
    let attach = Attach {
        name: "consumer",
        ..receiver("/queues/q")
    };
    let mut to = Client::new(&mut world, conn(0, 2), None);
    to.take(&mut world, &attach, 1000);
    for _ in 0..10 * INFLIGHT_MAX {
        from.send(&mut world, link, false, message(true, b"x"));
    }
    let mut taken = 0;
    while accept_next(&mut to, &mut world) {
        taken += 1;
    }
    assert_eq!(taken, 10 * INFLIGHT_MAX);
}

#[test]
fn a_connection_is_in_the_list_of_clients_with_its_links() {
    let mut world = world();
    let mut client = Client::new(&mut world, conn(0, 1), None);
    client.sender(&mut world, Some("t/a"));
    receive(&mut client, &mut world, "t/a", 0);
    let (mut from, link) = Client::sending(&mut world, conn(0, 2), "t/a");
    from.send(&mut world, link, false, message(false, b"x"));
    let clients = list(&mut world, 0, 10).rows;
    let ids: Vec<_> = clients.iter().map(|client| client.conn).collect();
    assert_eq!(ids, [Some(conn(0, 1)), Some(conn(0, 2))]);
    let [first, ..] = &clients[..] else {
        panic!("two clients");
    };
    assert_eq!((&*first.client_id, first.version), ("client", 0));
    assert_eq!((first.links, first.subscriptions), (Some(2), 1));
    assert_eq!((first.queued, first.in_flight), (1, 0), "no credit");
    let page = list(&mut world, 0, 1);
    assert_eq!((page.rows.len(), page.next), (1, Some(1)));
    let page = list(&mut world, 1, 10);
    assert_eq!((page.rows.len(), page.next), (1, None));
}
