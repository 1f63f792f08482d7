//! Clients that are closed for their quota, or leave before they have paid, and come back.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{ConnId, StreamId};

use super::amqp::{Client, NOW, OPEN, World, conn};
use super::quotas::send;
use crate::config::Config;
use crate::io::Input;
use crate::quotas::Quota;
use crate::random::home_shard;

/// Ten messages a second; who is ahead by more than 5 s is disconnected.
fn limited(shards: u16) -> World {
    World::configured(shards, OPEN, |config: &mut Config| {
        config.quotas.0.push(Quota {
            messages: 10,
            debt: Duration::from_secs(5),
            ..Quota::default()
        });
    })
}

/// A client identifier whose home is the shard 1 of 2.
fn client_id() -> String {
    let mut ids = (0..).map(|number| format!("slow-{number}"));
    ids.find(|id| home_shard(id, 2) == 1).expect("one")
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, body.len() as u8], body].concat()
}

/// CONNECT of version 5 after so long; the reason code of CONNACK.
fn connect(world: &mut World, conn: ConnId, after: Duration, id: &str) -> Option<u8> {
    world.open(conn, "mqtt");
    let mut body = b"\0\x04MQTT\x05\x02\0\0\0\0".to_vec();
    body.push(id.len() as u8);
    body.extend_from_slice(id.as_bytes());
    let (stream, data) = (StreamId::CONTROL, &packet(0x10, &body)[..]);
    let event = NetEvent::new(conn, NetEventKind::Bytes { stream, data });
    world.shards[usize::from(conn.shard().0)].handle(NOW + after, Input::Net(event));
    world.run();
    let sent = world.take_sent(conn);
    (sent.first() == Some(&0x20)).then(|| sent[3])
}

/// Publishes so often, at once.
fn publish(world: &mut World, conn: ConnId, count: usize) {
    world.bytes(conn, &packet(0x30, b"\0\x01t\0m").repeat(count));
}

fn closed() -> NetEventKind<&'static [u8]> {
    let cause = CloseCause::Local;
    NetEventKind::Closed { cause }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn who_was_disconnected_for_its_quota_comes_back_with_its_debt() {
    let (mut world, id) = (limited(2), client_id());
    assert_eq!(connect(&mut world, conn(0, 1), secs(0), &id), Some(0));
    publish(&mut world, conn(0, 1), 80);
    assert_eq!(world.take_sent(conn(0, 1)), [0xe0, 1, 0x96]);
    assert_eq!(world.closed, [conn(0, 1)]);
    // 8 s ahead, on another shard: quota exceeded.
    assert_eq!(connect(&mut world, conn(1, 2), secs(0), &id), Some(0x97));
    assert_eq!(connect(&mut world, conn(1, 3), secs(2), &id), Some(0x97));
    // Another client has no debt.
    let other = format!("{id}-other");
    assert!(connect(&mut world, conn(1, 4), secs(2), &other).is_none_or(|reason| reason == 0));
    // It is let in when it would not be disconnected, and read when all is paid.
    world.pauses.clear();
    assert_eq!(connect(&mut world, conn(1, 5), secs(4), &id), Some(0));
    assert_eq!(world.pauses, [(conn(1, 5), true)]);
    world.shards[1].handle_timeout(NOW + Duration::from_millis(7900));
    world.run();
    assert_eq!(world.pauses.len(), 1);
    world.shards[1].handle_timeout(NOW + secs(8));
    world.run();
    assert_eq!(world.pauses.last(), Some(&(conn(1, 5), false)));
    let over = world.shards.iter().map(|it| it.stats().clients_over_quota);
    assert_eq!(over.sum::<u64>(), 3);
    world.check();
}

#[test]
fn who_leaves_before_it_has_paid_comes_back_with_the_rest() {
    let (mut world, id) = (limited(2), client_id());
    assert_eq!(connect(&mut world, conn(0, 1), secs(0), &id), Some(0));
    publish(&mut world, conn(0, 1), 30);
    assert_eq!(world.pauses, [(conn(0, 1), true)]);
    let event = NetEvent::new(conn(0, 1), closed());
    world.input(0, Input::Net(event));
    world.pauses.clear();
    assert_eq!(connect(&mut world, conn(1, 2), secs(1), &id), Some(0));
    assert_eq!(world.pauses, [(conn(1, 2), true)]);
    // Without it, later.
    let event = NetEvent::new(conn(1, 2), closed());
    world.shards[1].handle(NOW + secs(4), Input::Net(event));
    world.run();
    world.pauses.clear();
    assert_eq!(connect(&mut world, conn(1, 3), secs(4), &id), Some(0));
    assert_eq!(world.pauses, []);
    world.check();
}

#[test]
fn a_container_of_amqp_comes_back_with_its_debt() {
    let mut world = limited(1);
    assert!(send(&mut world, 1, "slow", 80).is_some());
    let _other = Client::of(&mut world, conn(0, 2), None, "other");
    assert_eq!(world.shards[0].stats().clients_over_quota, 1);
    let again = Client::of(&mut world, conn(0, 3), None, "slow");
    assert_eq!(world.shards[0].stats().clients_over_quota, 2);
    drop(again);
    world.check_counts();
}
