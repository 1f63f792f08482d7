//! Acknowledgements that wait for something that takes them along.

use core::time::Duration;

use super::World;
use crate::{AcksMut, QuicTuning};

const MS: Duration = Duration::from_millis(1);

/// What the client asks for by default (`QuicTuning::ack_delay`).
const DELAY: Duration = Duration::from_millis(5);

/// Datagrams that the server has sent so far.
fn sent(world: &mut World) -> u64 {
    let conn = world.server.conn.as_mut().unwrap();
    conn.quic_stats().udp_out
}

fn acks(world: &mut World) -> AcksMut<'_> {
    AcksMut::of(world.server.conn.as_mut().unwrap())
}

/// From when on an acknowledgement of the server may leave, from now.
fn early(world: &mut World) -> Option<Duration> {
    let clock = world.server.clock;
    let at = acks(world).early_from(&clock)?;
    Some(at.saturating_duration_since(world.now))
}

/// A packet of the client has just come, and the connection was quiet before.
fn packet_came(world: &mut World) {
    world.pass(Duration::from_secs(2));
    let before = world.server.received.len();
    world.client.send(b"reading");
    world.touch_client();
    world.until(MS * 100, |world| world.server.received.len() > before);
}

#[test]
fn an_acknowledgement_leaves_early_with_datagrams_of_others() {
    let mut world = World::connected(MS * 10, 3);
    packet_came(&mut world);
    assert_eq!(early(&mut world), Some(DELAY * 3 / 4));
    let before = sent(&mut world);
    world.touch_server();
    assert_eq!(sent(&mut world), before, "not by itself");
    acks(&mut world).leave();
    world.touch_server();
    assert_eq!((sent(&mut world), early(&mut world)), (before + 1, None));
    world.pass(DELAY * 2);
    assert_eq!(sent(&mut world), before + 1, "once");
    let lost = world
        .client
        .conn
        .as_mut()
        .unwrap()
        .quic_stats()
        .lost_packets;
    assert_eq!(lost, 0);
}

#[test]
fn an_answer_takes_the_acknowledgement_along() {
    let mut world = World::connected(MS * 10, 4);
    packet_came(&mut world);
    let before = sent(&mut world);
    world.pass(DELAY / 2);
    world.server.send(b"PUBACK");
    world.touch_server();
    assert_eq!((sent(&mut world), early(&mut world)), (before + 1, None));
    world.pass(DELAY * 3);
    assert_eq!(sent(&mut world), before + 1);
    assert_eq!(world.client.received, b"PUBACK");
}

/// A packet of the client comes, and the server transmits in the turn that read it;
/// returns how many datagrams left at once, and within two delays.
fn left_at_once(world: &mut World) -> (u64, u64) {
    let before = sent(world);
    packet_came(world);
    world.touch_server();
    let at_once = sent(world) - before;
    world.pass(DELAY * 2);
    (at_once, sent(world) - before)
}

/// A packet of the client comes, and an answer within the delay.
fn answered(world: &mut World) {
    packet_came(world);
    world.pass(DELAY / 2);
    world.server.send(b"PUBACK");
    world.touch_server();
    world.pass(MS * 100);
}

#[test]
fn where_waiting_was_in_vain_an_acknowledgement_leaves_at_once() {
    let mut world = World::connected(MS * 10, 7);
    for _ in 0..2 {
        answered(&mut world);
        for _ in 0..4 {
            assert_eq!(left_at_once(&mut world), (0, 1));
        }
        for _ in 0..3 {
            assert_eq!(left_at_once(&mut world), (1, 1));
        }
    }
}

#[test]
fn packets_that_follow_each_other_share_an_acknowledgement_again() {
    let mut world = World::connected(MS * 10, 8);
    for _ in 0..4 {
        left_at_once(&mut world);
    }
    assert_eq!(left_at_once(&mut world), (1, 1));
    // The first has its own, the second shows that they come closer together.
    world.pass(Duration::from_secs(2));
    let before = sent(&mut world);
    for _ in 0..2 {
        world.client.send(b"reading");
        world.touch_client();
        world.pass(MS);
    }
    world.pass(MS * 100);
    assert_eq!(sent(&mut world) - before, 2);
    let before = sent(&mut world);
    for _ in 0..2 {
        world.client.send(b"reading");
        world.touch_client();
        world.pass(MS);
    }
    world.pass(MS * 100);
    assert_eq!(sent(&mut world) - before, 1, "one for both");
}

#[test]
fn what_waits_for_something_else_is_not_taken_for_an_acknowledgement() {
    let mut world = World::connected(MS * 10, 5);
    packet_came(&mut world);
    world.pass(DELAY * 2);
    // The server has something in flight: its timer is for loss.
    world.server.send(b"lost");
    world.loss = 1000;
    world.touch_server();
    world.loss = 0;
    assert_eq!(early(&mut world), None);
    world.client.send(b"reading");
    world.touch_client();
    world.pass(MS * 10 + MS / 2);
    let before = sent(&mut world);
    for _ in 0..3 {
        acks(&mut world).leave();
        world.touch_server();
    }
    assert_eq!(sent(&mut world), before + 1, "no probe before its time");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.client.received, b"lost");
}

/// Without a keep alive of the transport nothing but what is spoken on a connection,
/// as PINGREQ of MQTT, wakes either side.
#[test]
fn a_silent_connection_sends_nothing() {
    fn by_client(world: &mut World) -> u64 {
        let conn = world.client.conn.as_mut().unwrap();
        conn.quic_stats().udp_out
    }
    let mut world = World::connected(MS * 10, 6);
    packet_came(&mut world);
    world.pass(Duration::from_secs(2));
    let before = (by_client(&mut world), sent(&mut world));
    world.pass(Duration::from_secs(590));
    assert_eq!((by_client(&mut world), sent(&mut world)), before);
    packet_came(&mut world);
    world.pass(Duration::from_secs(2));
    let after = (by_client(&mut world), sent(&mut world));
    assert_eq!(
        after,
        (before.0 + 1, before.1 + 1),
        "a packet, and its answer"
    );
}

/// Datagrams that client and server have sent so far.
const fn datagrams(world: &World) -> (usize, usize) {
    (world.client.sent.0, world.server.sent.0)
}

/// A publisher of QoS 1, whose messages are taken at once, or after a time within the
/// delay, as by a store.
#[test]
fn a_puback_and_the_acknowledgement_of_its_publish_are_one_packet() {
    const MESSAGES: usize = 40;
    /// A gap between packet numbers, which quinn-proto makes now and then, is
    /// acknowledged at once.
    const SKIPPED_MAX: usize = 1;
    for wait in [None, Some(MS), Some(DELAY - MS)] {
        let mut world = World::connected(MS * 10, 9);
        let mut before = datagrams(&world);
        for message in 0..=MESSAGES {
            // The first shows that answers come within the delay.
            if message == 1 {
                before = datagrams(&world);
            }
            world.server.answer = if wait.is_none() { b"PUBACK" } else { b"" };
            packet_came(&mut world);
            if let Some(wait) = wait {
                world.pass(wait);
                world.server.send(b"PUBACK");
                world.touch_server();
            }
            world.pass(MS * 200);
        }
        assert_eq!(
            world.client.received.len(),
            b"PUBACK".len() * (MESSAGES + 1)
        );
        let (client, server) = datagrams(&world);
        let alone = server - before.1 - MESSAGES;
        assert!(
            alone <= wait.map_or(0, |_| SKIPPED_MAX),
            "{alone} acknowledgements by themselves"
        );
        assert_eq!(
            client - before.0,
            MESSAGES * 2,
            "the message, and that of PUBACK"
        );
        for side in [&mut world.client, &mut world.server] {
            let stats = side.conn.as_mut().unwrap().quic_stats();
            assert_eq!(stats.lost_packets, 0);
        }
    }
}

/// A device that says PINGREQ each minute for half a day. The transport adds no sign of
/// life of its own, so that nothing else wakes either side.
#[test]
fn only_pingreq_wakes_a_device() {
    const EVERY: Duration = Duration::from_secs(60);
    const MINUTES: usize = 12 * 60;
    assert_eq!(QuicTuning::default().keep_alive, None);
    let mut world = World::connected(MS * 10, 10);
    world.server.answer = b"PINGRESP";
    packet_came(&mut world);
    world.pass(EVERY);
    let before = datagrams(&world);
    for _ in 0..MINUTES {
        packet_came(&mut world);
        world.pass(Duration::from_secs(1));
        let awake = datagrams(&world);
        world.pass(EVERY);
        assert_eq!(datagrams(&world), awake, "asleep");
    }
    let (client, server) = datagrams(&world);
    assert_eq!(
        client - before.0,
        MINUTES * 2,
        "PINGREQ, and that of PINGRESP"
    );
    assert_eq!(server - before.1, MINUTES, "PINGRESP, and that of PINGREQ");
}

/// Both ends ask for an acknowledgement within a second. A device says something each
/// 200 ms: a datagram of the server for five of its own. A lone loss is found a second later.
#[test]
fn acknowledgements_wait_as_long_as_is_asked_for() {
    const MESSAGES: usize = 100;
    const TOGETHER: usize = 5;
    /// The first of them, a question of the server whether its own have come, and gaps between
    /// packet numbers, which quinn-proto makes now and then.
    const OTHERS_MAX: usize = 4;
    let ask = |millis| QuicTuning {
        ack_delay: Some(MS * millis),
        ..QuicTuning::default()
    };
    let say = |world: &mut World| {
        world.client.send(b"reading");
        world.touch_client();
        world.pass(MS * 200);
    };
    for (millis, wanted) in [(5, MESSAGES), (1000, MESSAGES / TOGETHER)] {
        let mut world = World::tuned(MS * 10, 11, &ask(millis));
        world.pass(Duration::from_secs(2));
        let before = datagrams(&world);
        for _ in 0..MESSAGES {
            say(&mut world);
        }
        let after = datagrams(&world);
        let messages = after.0 - before.0;
        assert!(messages <= MESSAGES + OTHERS_MAX, "{millis} ms: {messages}");
        let answers = after.1 - before.1;
        let range = wanted..=wanted + OTHERS_MAX;
        assert!(range.contains(&answers), "{millis} ms: {answers}");
        let before = world.server.received.len();
        world.loss = 1000;
        world.client.send(b"lost");
        world.touch_client();
        world.loss = 0;
        world.pass(MS * (millis + 100));
        assert!(world.server.received.len() > before, "{millis} ms: a loss");
    }
}
