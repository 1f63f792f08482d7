//! The end of a session with many subscriptions: a bounded number of them leaves in one
//! call, none of them gets a message from then on, and what its client does meanwhile
//! stays.

use alloc::format;
use alloc::vec::Vec;

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Text};

use super::amqp::{NOW, OPEN, World, conn};
use crate::config::Config;
use crate::control::values::{Ending, EndingKind, Reply, Request};
use crate::io::Input;
use crate::owners::leaving::{LEAVE_MAX, LEAVE_PAUSE};

/// Subscriptions of the client that has many.
const MANY: usize = 3 * LEAVE_MAX + 7;

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, body.len() as u8], body].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

/// A client whose session begins empty, and outlives its connection or not. Whether its
/// session was there.
fn connect(world: &mut World, conn: ConnId, id: &str, lasts: bool) -> bool {
    world.open(conn, "mqtt");
    let mut body = b"\0\x04MQTT\x05".to_vec();
    body.extend_from_slice(match lasts {
        true => &[0, 0, 0, 5, 0x11, 0, 0, 0, 60],
        false => &[2, 0, 0, 0],
    });
    body.extend(string(id));
    world.bytes(conn, &packet(0x10, &body));
    match world.take_sent(conn)[..] {
        [0x20, _, present, 0, ..] => present == 1,
        ref other => panic!("{other:?}"),
    }
}

fn subscribe(world: &mut World, conn: ConnId, filter: &str) {
    let body = [&[0, 1, 0][..], &string(filter), &[1]].concat();
    world.bytes(conn, &packet(0x82, &body));
    assert_eq!(world.take_sent(conn), [0x90, 4, 0, 1, 0, 1], "{filter}");
}

/// Publishes with QoS 1, which is acknowledged.
fn publish(world: &mut World, conn: ConnId, topic: &str) {
    let body = [&string(topic)[..], &[0, 9, 0], b"payload"].concat();
    world.bytes(conn, &packet(0x32, &body));
    let acked = world.take_sent(conn);
    assert_eq!(acked.get(..4), Some(&[0x40, acked[1], 0, 9][..]), "{topic}");
}

/// Messages that a client got.
fn got(world: &mut World, conn: ConnId) -> usize {
    let sent = world.take_sent(conn);
    sent.windows(7).filter(|it| it == b"payload").count()
}

fn close(world: &mut World, conn: ConnId) {
    let cause = CloseCause::Local;
    let event = NetEvent::new(conn, NetEventKind::Closed { cause });
    world.input(usize::from(conn.shard().0), Input::Net(event));
}

fn subscribed(world: &World, at: usize) -> usize {
    world.shards[at].census().subscribed
}

/// The shard does what is due, until nothing is: how many subscriptions were out after
/// each step.
fn finish(world: &mut World, at: usize) -> Vec<usize> {
    let mut out = Vec::new();
    let mut now = NOW;
    while let Some(due) = world.shards[at].poll_timeout() {
        if due > NOW + 100 * LEAVE_PAUSE {
            break;
        }
        assert!(due > now, "not in the same call");
        now = due;
        let before = subscribed(world, at);
        world.shards[at].handle_timeout(due);
        out.push(before - subscribed(world, at));
        world.run();
    }
    out
}

fn topic(number: usize) -> Text {
    Text::from(format!("many/{number:04}"))
}

#[test]
fn many_subscriptions_leave_in_steps_and_the_client_may_come_back_meanwhile() {
    let mut world = World::new(2, OPEN);
    let (old, new, other) = (conn(0, 1), conn(0, 3), conn(1, 2));
    connect(&mut world, other, "other", false);
    connect(&mut world, old, "client", false);
    for number in 0..MANY {
        subscribe(&mut world, old, &topic(number));
    }
    publish(&mut world, other, &topic(0));
    assert_eq!(got(&mut world, old), 1);
    let bytes = |world: &World| {
        let mut parts = world.shards[0].memory();
        let part = parts.find(|(part, ..)| *part == crate::memory::Part::Subscriptions);
        part.map_or(0, |(_, here, _)| here)
    };
    let full = bytes(&world);
    close(&mut world, old);
    assert_eq!(subscribed(&world, 0), MANY - LEAVE_MAX);
    assert_eq!(bytes(&world), full, "until they are out");
    assert_eq!(world.shards[0].census().sessions, 0);
    // None of them gets anything.
    for number in [0, LEAVE_MAX, MANY - 1] {
        publish(&mut world, other, &topic(number));
    }
    let receivers = |world: &mut World| {
        let topic = topic(MANY - 1);
        world.ask(0, Request::Receivers { topic, limit: 9 });
        match world.replies.pop() {
            Some(Reply::Receivers { rows, count, .. }) => (rows.len(), count),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(receivers(&mut world), (0, 0));
    // The client is back: with a session of its own.
    assert!(!connect(&mut world, new, "client", false));
    for number in [LEAVE_MAX + 1, MANY - 1] {
        subscribe(&mut world, new, &topic(number));
    }
    assert_eq!(receivers(&mut world), (1, 1));
    for number in [LEAVE_MAX + 1, MANY - 1] {
        publish(&mut world, other, &topic(number));
        assert_eq!(got(&mut world, new), 1, "{number}");
    }
    publish(&mut world, other, &topic(MANY - 2));
    assert_eq!(got(&mut world, new), 0);
    let out = finish(&mut world, 0);
    assert_eq!(out, [LEAVE_MAX, LEAVE_MAX, 7]);
    assert_eq!(subscribed(&world, 0), 2);
    assert_eq!(world.shards[1].census().subscriptions, 2, "its interest");
    for number in [LEAVE_MAX + 1, MANY - 1] {
        publish(&mut world, other, &topic(number));
        assert_eq!(got(&mut world, new), 1, "{number}");
    }
    assert!(bytes(&world) < full / 100);
    world.check();
    close(&mut world, new);
    assert_eq!(world.shards[1].census().subscriptions, 0);
    assert_eq!(bytes(&world), 0);
    world.check();
}

#[test]
fn sessions_that_end_in_one_call_share_what_it_has_time_for() {
    let mut world = World::new(1, OPEN);
    for number in 0..8 {
        let conn = conn(0, number + 1);
        connect(&mut world, conn, &format!("client{number}"), false);
        for filter in 0..LEAVE_MAX / 4 {
            subscribe(&mut world, conn, &format!("{number}/{filter}"));
        }
    }
    let ending = Ending {
        kind: EndingKind::Ordered,
        why: Text::new(),
    };
    let (filter, at, limit) = (Default::default(), 0, usize::MAX);
    world.ask(
        0,
        Request::EndAll {
            filter,
            at,
            limit,
            ending,
        },
    );
    assert_eq!(world.shards[0].census().sessions, 0);
    assert_eq!(subscribed(&world, 0), LEAVE_MAX);
    // What the next session gets is not the place of one that is not out.
    connect(&mut world, conn(0, 20), "client7", false);
    subscribe(&mut world, conn(0, 20), "7/0");
    connect(&mut world, conn(0, 21), "publisher", false);
    for (topic, count) in [("7/0", 1), ("6/0", 0)] {
        publish(&mut world, conn(0, 21), topic);
        assert_eq!(got(&mut world, conn(0, 20)), count, "{topic}");
    }
    assert_eq!(finish(&mut world, 0), [LEAVE_MAX]);
    assert_eq!(subscribed(&world, 0), 1);
    world.check();
}

#[test]
fn a_group_is_not_asked_for_a_member_that_has_ended() {
    for from in [0, 1] {
        let mut world = World::new(2, OPEN);
        let (old, member, publisher) = (conn(0, 1), conn(1, 2), conn(from, 3));
        connect(&mut world, publisher, "publisher", false);
        connect(&mut world, old, "old", false);
        let share = |number: usize| format!("$share/g/{}", topic(number));
        for number in 0..MANY {
            subscribe(&mut world, old, &share(number));
        }
        let last = MANY - 1;
        connect(&mut world, member, "member", false);
        subscribe(&mut world, member, &share(last));
        close(&mut world, old);
        assert!(subscribed(&world, 0) > 0);
        for _ in 0..4 {
            publish(&mut world, publisher, &topic(last));
            assert_eq!(got(&mut world, member), 1, "{from}");
        }
        publish(&mut world, publisher, &topic(last - 1));
        let out = finish(&mut world, 0);
        assert!(out.iter().all(|step| *step <= LEAVE_MAX), "{out:?}");
        assert_eq!(subscribed(&world, 0), 0);
        assert_eq!(world.shards[0].census().subscriptions, 1, "of the member");
        world.check();
    }
}

#[test]
fn a_restart_in_the_middle_finds_all_or_nothing() {
    for refuses in [false, true] {
        let durable = |config: &mut Config| config.durable = true;
        let mut world = World::configured(1, OPEN, durable);
        let (old, new) = (conn(0, 1), conn(0, 2));
        connect(&mut world, old, "client", true);
        for number in 0..MANY {
            subscribe(&mut world, old, &topic(number));
        }
        world.refuses = refuses;
        let ending = Ending {
            kind: EndingKind::Ordered,
            why: Text::new(),
        };
        let client_id = Text::from_static("client");
        world.ask(0, Request::EndSession { client_id, ending });
        assert_eq!(subscribed(&world, 0), MANY - LEAVE_MAX);
        world.refuses = false;
        world.restart();
        let all = if refuses { MANY } else { 0 };
        assert_eq!(subscribed(&world, 0), all);
        assert_eq!(connect(&mut world, new, "client", true), refuses);
        world.check();
    }
}
