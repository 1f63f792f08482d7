//! `begin`, `end` and windows.

use dunlin_amqp_codec::{Error, condition};

use super::*;
use crate::CallError;

#[test]
fn either_side_begins_and_ends_sessions() {
    let (mut pair, first) = Pair::open();
    let second = pair.server.connection.begin(&Begin::default());
    let second = second.expect("begun");
    pair.run();
    assert_eq!(pair.client.names(), ["Begun by peer"]);
    assert_eq!(pair.server.names(), ["Begun"]);
    pair.client.connection.end(first, None).expect("there");
    let error = Error::new(condition::NOT_ALLOWED, "");
    let server = &mut pair.server.connection;
    server.end(second, Some(&error)).expect("there");
    pair.run();
    assert_eq!(pair.client.names(), ["Ended amqp:not-allowed", "Ended"]);
    assert_eq!(pair.server.names(), ["Ended", "Ended"]);
    assert_eq!(
        pair.client.connection.end(first, None),
        Err(CallError::Gone)
    );
    // Channels are used again, under other ids.
    let third = pair.client.connection.begin(&Begin::default());
    assert_ne!(third.expect("begun"), first);
    pair.run();
    assert_eq!(pair.client.names(), ["Begun"]);
}

#[test]
fn sessions_are_bounded_on_both_sides() {
    let one = Limits {
        sessions_max: 1,
        ..Limits::default()
    };
    let (mut pair, _) = Pair::open_with(Limits::default(), one);
    assert_eq!(
        pair.client.connection.begin(&Begin::default()),
        Err(CallError::Limit),
        "channel-max of the peer"
    );
    assert_eq!(
        pair.server.connection.begin(&Begin::default()),
        Err(CallError::Limit)
    );
}

#[test]
fn a_closed_window_holds_the_rest_of_a_message_and_refuses_the_next() {
    let narrow = Limits {
        incoming_window: 4,
        frame_bytes_max: 512,
        ..Limits::default()
    };
    let (mut pair, session) = Pair::open_with(Limits::default(), narrow);
    let (link, theirs) = pair.sender(session, 10);
    let body: Vec<u8> = (0..5_000_u32).map(|n| n as u8).collect();
    pair.client.send(link, 1, false, &body);
    assert_eq!(
        pair.client.try_send(link, 2, true, b"x"),
        Err(SendError::Window)
    );
    assert_eq!(pair.client.connection.credit(link), 0);
    let flight = pair.client.output(NOW);
    assert_eq!(notation::frames(&flight).len(), 4, "the window");
    pair.server.feed(NOW, &flight, true);
    pair.run();
    assert_eq!(pair.client.names(), ["WindowOpen"]);
    let message = pair.server.message();
    assert_eq!(message.payload.as_ref(), body);
    assert_eq!(message.delivery.link, theirs);
    pair.client.send(link, 2, true, b"x");
    pair.run();
    assert_eq!(pair.server.names(), ["Message 1 settled"]);
}

#[test]
fn who_asks_for_credit_behind_a_closed_window_hears_when_it_opens() {
    let narrow = Limits {
        incoming_window: 1,
        ..Limits::default()
    };
    let (mut pair, session) = Pair::open_with(Limits::default(), narrow);
    let (link, _) = pair.sender(session, 2);
    pair.client.send(link, 1, true, b"x");
    assert_eq!(pair.client.connection.credit(link), 0);
    assert_eq!(pair.client.connection.link_credit(link), 1);
    pair.run();
    assert_eq!(pair.client.names(), ["WindowOpen"]);
    pair.client.send(link, 2, true, b"x");
    // Nor is there link credit now: only the receiver can change that.
    assert_eq!(pair.client.connection.credit(link), 0);
    pair.run();
    assert!(pair.client.names().is_empty());
}

#[test]
fn the_window_is_opened_again_at_half() {
    let narrow = Limits {
        incoming_window: 8,
        ..Limits::default()
    };
    let (mut pair, session) = Pair::open_with(Limits::default(), narrow);
    let (link, _) = pair.sender(session, 1000);
    for number in 0..100 {
        pair.client.send(link, number, true, b"x");
        pair.run();
    }
    assert_eq!(pair.server.names().len(), 100);
}

#[test]
fn a_transfer_outside_of_the_window_ends_the_session() {
    let narrow = Limits {
        incoming_window: 2,
        ..Limits::default()
    };
    let mut script = Script::sending(narrow, 10);
    // The frames come in one read, before the window can be opened again.
    let mut bytes = Vec::new();
    for id in 0..3 {
        let transfer = dunlin_amqp_codec::Transfer {
            delivery_id: Some(dunlin_amqp_codec::SerialNumber(id)),
            delivery_tag: Some(b"t"),
            settled: Some(true),
            ..Default::default()
        };
        bytes.extend(notation::frame(0, &Performative::Transfer(transfer), b"x"));
    }
    assert_eq!(script.bytes(&bytes), ["end amqp:session:window-violation"]);
    let violation = "amqp:session:window-violation";
    assert_eq!(
        script.end.names(),
        [
            "Message 1 settled".into(),
            "Message 1 settled".into(),
            alloc::format!("Detached {violation}"),
            alloc::format!("Ended {violation}"),
        ]
    );
    // What comes before the peer's `end` is not looked at.
    assert!(script.bytes(&bytes).is_empty());
    let end = Performative::End(dunlin_amqp_codec::End::default());
    assert!(script.frame(0, end).is_empty());
    assert!(script.end.names().is_empty());
    let begun = script.frame(0, Performative::Begin(Begin::default()));
    assert_eq!(begun, ["begin remote=0"]);
}
